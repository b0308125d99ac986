"""How far devices reach: never less far than a way does, and as far where nothing is relaxed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.bounds.group_reach import CLOSE, Reach
from ilp_planner.numerics import ROUNDING
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.specs.node_kinds import with_kinds
from tests.bounds.test_boxes import every_chain
from tests.brute import random_problem, random_profile
from tests.examples import examples
from tests.problems import build_group_problem
from tests.zones import tree

SEEDS = st.integers(0, 2**32 - 1)
HEAVY = 1e9  # a weight beside which nothing but the slowest stage counts


def fastest_slowest(chain) -> float:
    """Return the least seconds of a slowest stage, of all ways one by one."""
    value, path = every_chain(replace(chain, weight=HEAVY))
    return value / HEAVY if path else np.inf


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
