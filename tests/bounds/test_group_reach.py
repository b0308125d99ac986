"""How far devices reach: never less far than a way does, and as far where nothing is relaxed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ilp_planner.bounds import group_reach
from ilp_planner.bounds.group_reach import CLOSE, Reach
from ilp_planner.numerics import ROUNDING
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.specs.node_kinds import with_kinds
from tests.bounds.small_chains import made
from tests.bounds.test_boxes import every_chain
from tests.brute import random_problem, random_profile
from tests.examples import examples
from tests.problems import build_group_problem
from tests.zones import tree

if TYPE_CHECKING:
    from ilp_planner.bounds.group_chain import GroupChain

SEEDS = st.integers(0, 2**32 - 1)
HEAVY = 1e9  # a weight beside which nothing but the slowest stage counts


def fastest_slowest(chain) -> float:
    """Return the least seconds of a slowest stage, of all ways one by one."""
    value, path = every_chain(replace(chain, weight=HEAVY))
    return value / HEAVY if path else np.inf


@example(seed=33374718, links="pairs")  # a stage on the way that reaches no further
@examples(20)
@given(seed=SEEDS, links=st.sampled_from(["flat", "one", "pairs", "matrix"]))
def test_no_way_has_faster_stages(seed: int, links: str) -> None:
    problem = random_problem(seed, links=links, devices=6)
    for batches in problem.micro_batches:
        chain = GroupPart(problem, batches).chain(np.inf)
        least, (value, _) = fastest_slowest(chain), every_chain(chain)
        reach = Reach(chain)
        if not np.isfinite(least):
            continue
        assert reach.reaches(least * (1 + ROUNDING))
        assert reach.may_take(value)
        assert reach.least(value) <= least * (1 + ROUNDING)


@examples(15)
@given(seed=SEEDS, count=st.integers(1, 5))
def test_where_nothing_is_relaxed_the_least_time_is_that_of_a_way(seed: int, count: int) -> None:
    """Nodes of one device, which no two stages share; memory for all; sends alike at every cut."""
    random = np.random.default_rng(seed)
    kinds, zones = random.choice(["fast", "slow"], count), random.choice(["a", "b", "c"], count)
    cluster = with_kinds(tree([(str(d), 1, str(z)) for d, z in zip(kinds, zones, strict=True)]))
    rows = random_profile(random, ("fast", "slow"), 3, 2)
    small = dict.fromkeys(rows.state, np.zeros(3))
    flat = replace(
        rows, boundary=np.where(rows.boundary > 0, 1e6, 0.0), state=small, activation=small
    )
    problem = build_group_problem(cluster, flat, model="made-up", space="groups", global_batch=2)
    chain = GroupPart(problem, 2).chain(np.inf)
    assume(chain.arcs)
    least, found = fastest_slowest(chain), Reach(chain).least(HEAVY)
    assert least * (1 - 2 * CLOSE) <= found <= least * (1 + ROUNDING)


def test_nothing_is_said_of_too_many_devices() -> None:
    problem = random_problem(3, links="one")
    chain = GroupPart(problem, problem.micro_batches[-1]).chain(np.inf)
    huge = replace(chain, capacity=(10**9,) * len(chain.capacity))
    assert Reach(huge).reaches(0.0)
    assert Reach(huge).least(1.0) == 0.0


def test_where_stages_add_less_than_their_time_only_the_weight_counts() -> None:
    problem = random_problem(3, links="one")
    chain = GroupPart(problem, problem.micro_batches[-1]).chain(np.inf)
    assert Reach(chain).turns == chain.weight + 1
    less = replace(chain, stages=chain.stages._replace(total=chain.stages.time / 2))
    assert Reach(less).turns == pytest.approx(chain.weight)


TWO = [(0, 1, 0, (1,), 4.0), (1, 3, 0, (1,), 3.0), (0, 3, 0, (2,), 5.0)]


def test_stages_may_take_as_long_as_is_said() -> None:
    """The slowest of two stages takes 4 s, which count twice where the weight is 1."""
    reach = Reach(made(TWO, (2,)))
    assert [reach.reaches(slowest) for slowest in (3.9999, 4.0, 5.0)] == [False, True, True]
    assert [reach.may_take(seconds) for seconds in (7.9999, 8.0, 9.0)] == [False, True, True]
    assert reach.least(7.9999) == np.inf
    for seconds in (8.0, 9.0, 1e9, np.inf):
        assert 4.0 * (1 - 2e-3) <= reach.least(seconds) <= 4.0
    ending = Reach(made([(0, 1, 0, (1,), 3.0), (1, 3, 0, (1,), 4.0)], (2,)))
    assert [ending.reaches(slowest) for slowest in (3.9999, 4.0)] == [False, True]


def test_a_stage_may_be_there_only_for_what_comes_before_it() -> None:
    """The last layer or the last two on one group, the middle one on another, the first one on a
    group like the first: it sends fast to the other class alone, which holds no first layer. What
    reaches two layers at once does not take the place of what goes on from one."""
    slow = ((9.0, 0.0), (0.0, 0.0))
    first, other = (1, 0), (0, 1)
    chain = made(
        [
            (2, 3, 0, first, 1.0),
            (1, 3, 0, first, 1.0),
            (1, 2, 1, other, 1.0),
            (0, 1, 0, first, 1.0),
        ],
        (2, 1),
        send=slow,
        parted=(0, 1),
    )
    assert every_chain(replace(chain, weight=HEAVY))[1] == (0, 1, 2)
    assert Reach(chain).reaches(1.0)
    assert not Reach(chain).reaches(0.99)


def test_more_devices_of_a_type_than_there_are_reach_nothing() -> None:
    """Neither at the end nor before it, and two of the first type are not one of the second."""
    assert not Reach(made(TWO, (1,))).reaches(9.0)
    ending = [(1, 3, 0, (2, 0), 1.0), (0, 1, 0, (1, 0), 1.0), (0, 1, 0, (1, 1), 1.0)]
    assert not Reach(made(ending, (1, 1))).reaches(9.0)
    assert not Reach(made(ending, (2, 9))).reaches(9.0)
    assert Reach(made(ending, (3, 0))).reaches(9.0)
    before = [(1, 3, 0, (0, 1), 1.0), (0, 1, 0, (2, 0), 1.0)]
    assert not Reach(made(before, (1, 3))).reaches(9.0)
    assert Reach(made(before, (2, 1))).reaches(9.0)


def test_sending_costs_what_the_class_behind_says_at_best() -> None:
    """A second to the first class as near as can be, two from elsewhere; three to the second."""
    ways = [(0, 2, 0, (1,), 4.0), (2, 3, 0, (1,), 1.0), (2, 3, 1, (1,), 0.5)]
    reach = Reach(made(ways, (2,), send=((1.0, 3.0, 2.0), (1.0, 3.0, 2.0)), parted=(2, 1)))
    assert [reach.reaches(slowest) for slowest in (4.9999, 5.0)] == [False, True]
    # far is cheaper than near: nothing says that it is not
    odd = Reach(made(ways, (2,), send=((2.0, 3.0, 1.0), (2.0, 3.0, 1.0)), parted=(2, 1)))
    assert [odd.reaches(slowest) for slowest in (4.9999, 5.0)] == [False, True]
    only = Reach(made([ways[0], ways[2]], (2,), send=((1.0, 3.0), (1.0, 3.0)), parted=(0, 1)))
    assert [only.reaches(slowest) for slowest in (6.9999, 7.0)] == [False, True]
    assert 7.0 * (1 - 2e-3) <= only.least(np.inf) <= 7.0


def test_a_stage_without_stages_behind_ends_with_the_last_layer() -> None:
    assert Reach(made(TWO, (2,), behind=1)).reaches(4.0)
    assert not Reach(made(TWO, (2,), behind=0)).reaches(4.0)
    assert Reach(made(TWO, (2,), behind=0)).reaches(5.0)


@pytest.mark.parametrize("part", ["stages", "sending"])
def test_the_slowest_counts_once_less_where_anything_adds_less_than_its_time(part: str) -> None:
    chain = made(TWO, (2,), send=((1.0, 1.0),), parted=(0, 1), weight=2.5)
    assert Reach(chain).turns == 3.5
    total = getattr(chain, part).total.copy()
    total.reshape(-1)[0] /= 2
    less = replace(chain, **{part: getattr(chain, part)._replace(total=total)})
    assert Reach(less).turns == 2.5


def test_as_many_numbers_of_devices_are_counted_as_said() -> None:
    """From none to all of each type, for every column: twenty million."""
    assert Reach(made(TWO, (19_999_999,))).countable
    assert not Reach(made(TWO, (20_000_000,))).countable
    both = [(0, 3, 0, (1, 1), 1.0)]
    pair = {"send": ((0.0, 0.0),), "parted": (0, 1)}
    assert Reach(made(both, (9_999, 999), **pair)).countable
    assert not Reach(made(both, (9_999, 1_000), **pair)).countable


def test_layers_are_counted_as_far_as_a_byte_goes() -> None:
    chain = made(TWO, (2,))
    assert Reach(replace(chain, layers=254)).countable
    assert not Reach(replace(chain, layers=255)).countable


def least_steps(chain: GroupChain, slowest: float) -> int:
    """Return how many groups are put before a number of devices where none reach the first layer:
    with fewer it is not told."""
    for most in range(1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(group_reach, "MOST_STEPS", most)
            if not Reach(chain).reaches(slowest):
                return most
    raise AssertionError("devices reach the first layer")


def test_where_fewer_devices_reach_as_far_nothing_is_followed() -> None:
    """One device ends with the last layer alone, and nothing ends before it: of all numbers of
    devices from none to three of each of two types, two are the least that reach so far."""
    first = [(2, 3, 0, (1, 0), 1.0), (2, 3, 0, (0, 1), 1.0)]
    assert least_steps(made(first, (3, 3)), 9.0) == 2 * 2
    further = [*first, (1, 2, 0, (1, 0), 1.0)]  # a second device of the first type: twice more
    assert least_steps(made(further, (3, 3)), 9.0) == 4 * 2
    more = [(2, 3, 0, (1, 0), 1.0), (2, 3, 0, (1, 1), 1.0), (2, 3, 0, (2, 2), 1.0)]
    assert least_steps(made(more, (3, 3)), 9.0) == 1 * 3
    other = [(2, 3, 0, (0, 1), 1.0), (1, 3, 0, (0, 2), 1.0), (2, 3, 0, (1, 2), 1.0)]
    assert least_steps(made(other, (3, 3)), 9.0) == 2 * 3
