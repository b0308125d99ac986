"""Boxes of the slowest stage and the peaks: bounds against every plan, and against every chain."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ilp_planner.bounds.boxes import SMALL, WIDE, BoxSearch
from ilp_planner.bounds.group_labels import search_chain
from ilp_planner.bounds.group_potentials import plain, prefixes, through
from ilp_planner.bounds.resource_paths import search_resource_paths
from ilp_planner.costs.group_network import shared_rings, stage_ring
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.seat_patterns import is_packed, spread_over
from ilp_planner.spaces.groups.parts import GroupPart
from tests.brute import cheapest, random_problem, spread_problem
from tests.costs.mixed_instances import Floor, cluster_of, stage_of
from tests.examples import examples

if TYPE_CHECKING:
    from ilp_planner.bounds.group_chain import GroupChain
    from ilp_planner.problem import Problem

SEEDS = st.integers(0, 2**32 - 1)
FEW = examples(15)
SIZES = ((1, 2, 3, 4), (2,), (3,), (4,))


SPLITS = 500


def searched(chain: GroupChain, cutoff: float) -> BoxSearch:
    """Search a chain to the end; below a finite cutoff, boxes are split however small they are, and
    settled only after so many splits: splits alone take millions where prices leave much."""
    small = {} if np.isinf(cutoff) else {"small": 0}
    boxes = BoxSearch(chain, cutoff, chain.layers + 1, **small)
    for done in count():
        if boxes.finished:
            break
        if done == SPLITS:
            boxes.small = SMALL
        boxes.advance()
    return boxes


def every_chain(chain: GroupChain, *, sharing: bool = False) -> tuple[float, tuple[int, ...]]:
    """Return the cheapest way through a chain, one by one, by the rules of its states alone.
    sharing: its first peak is no less than what network cards take."""
    told, weight = chain.states, chain.weight
    best: tuple[float, tuple[int, ...]] = (np.inf, ())

    def grow(v, state, top, total, peaks, use, after, path):
        nonlocal best
        if v == 0:
            value = weight * top + total + peaks.sum()
            if sharing:
                cards = chain.cards.use[list(path)].sum(axis=0).max(initial=0)
                value += max(0.0, float(cards) * chain.cards.unit - peaks[0])
            best = min(best, (value, path))
            return
        for a in np.flatnonzero(chain.stop == v).tolist():
            if chain.stages.behind[a] < after or (use + chain.stages.use[a] > chain.capacity).any():
                continue
            ways = [(int(chain.stages.state[a]), None)]
            if state is not None:
                group, taken = told.group[state], told.taken[state]
                kind, direct = told.counted[group], told.direct[group]
                ways = [(int(chain.stages.state[a]), direct)]
                seats = chain.stages.seats[a, kind] if kind >= 0 else 0
                if seats and taken:
                    ways = [(int(chain.stages.state[a]), told.parted[group])]
                    if taken + seats <= told.size[kind]:
                        joined = int(chain.stages.state[a])
                        if told.counted[chain.stages.group[a]] == kind:
                            joined = int(told.offset[chain.stages.group[a]] + taken + seats)
                        ways.append((joined, direct))
            for then, column in ways:
                time, cost = chain.stages.time[a], chain.stages.total[a]
                if column is not None:
                    time = time + chain.sending.time[chain.stages.row[a], column]
                    cost = cost + chain.sending.total[chain.stages.row[a], column]
                grow(
                    int(chain.stages.start[a]), then, max(top, time), total + cost,
                    np.maximum(peaks, chain.stages.peaks[a]), use + chain.stages.use[a],
                    after + 1, (a, *path),
                )  # fmt: skip

    none = np.zeros(len(chain.capacity), np.int64)
    grow(chain.layers, None, 0.0, 0.0, np.zeros(chain.stages.peaks.shape[1]), none, 0, ())
    return best


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("links", ["flat", "one", "pairs", "matrix"])
@examples(3, more=7)
@given(seed=SEEDS)
def test_no_plan_is_below_the_bound(sizes: tuple[int, ...], links: str, seed: int) -> None:
    problem = random_problem(seed, links=links, sizes=sizes, devices=6)
    best, _ = cheapest(problem)
    bounds = []
    for batches in problem.micro_batches:
        part = GroupPart(problem, batches)
        for cutoff in (np.inf, best * 1.2):
            boxes = searched(part.chain(cutoff), cutoff)
            assert boxes.bound <= max(best, cutoff)
            bounds.append(boxes.bound + part.constant)
    assert min(bounds) <= best * (1 + 1e-9)


@examples(12, more=7)
@given(seed=SEEDS)
def test_no_plan_is_below_the_bound_where_stages_may_be_spread(seed: int) -> None:
    problem = spread_problem(seed, devices=6)
    best, _ = cheapest(problem)
    bounds = []
    for batches in problem.micro_batches:
        part = GroupPart(problem, batches)
        for cutoff in (np.inf, best * 1.2):
            boxes = searched(part.chain(cutoff), cutoff)
            assert boxes.bound <= max(best, cutoff)
            bounds.append(boxes.bound + part.constant)
    assert min(bounds) <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", [13, 25, 32, 39])
def test_boxes_count_what_network_cards_take(seed: int) -> None:
    """Instances with larger gradients: the cheapest way that shares cards takes longer than the
    cheapest one, and boxes find it, as near as they are split."""
    problem = spread_problem(seed, devices=6)
    profile = problem.costs.profile
    profile = replace(profile, gradients=1e8 * profile.gradients / profile.gradients.max())
    costs = layer_costs(profile, problem.cluster, problem.memory_limits, spread=True)
    higher = 0
    for batches in problem.micro_batches:
        chain = GroupPart(replace(problem, costs=costs), batches).chain(np.inf)
        alone, _ = every_chain(chain)
        shared, _ = every_chain(chain, sharing=True)
        if np.isfinite(shared):
            bound = searched(chain, 1.5 * shared).bound
            assert shared * (1 - 2 * WIDE) <= bound <= shared * (1 + 1e-9)
            higher += shared > alone * (1 + 1e-6)
    assert higher


@examples(60)
@given(data=st.data())
def test_cards_of_all_nodes_carry_no_more_than_the_gradient_reduction_takes(data) -> None:
    """By the judge alone, on placements at random."""
    count = data.draw(st.integers(2, 4))
    cluster = cluster_of([("fast", 4)] * count)
    floor, stages = Floor(cluster), []
    for number in range(3):
        nodes = data.draw(st.permutations(range(count)))[: data.draw(st.integers(1, count))]
        assume(all(floor.free[node] for node in nodes))
        seats = [seat for node in nodes for seat in floor.take(node, 1, 1)]
        stages.append(stage_of(number, number + 1, seats, [1] * len(seats)))
    each = [stage_ring(stage, cluster).seconds(1e6) for stage in stages]
    least = sum(
        len(spread_over(stage, cluster)) / count * seconds
        for stage, seconds in zip(stages, each, strict=True)
        if not is_packed(stage, cluster)
    )
    assert least <= max(shared_rings(stages, each, cluster)) * (1 + 1e-12)


@pytest.mark.parametrize("sizes", SIZES)
@examples(6, more=10)
@given(seed=SEEDS)
@example(seed=134)  # prices leave 16 %
@example(seed=24067)  # one node of a type, slower inside than between nodes
def test_the_cheapest_chain(sizes: tuple[int, ...], seed: int) -> None:
    """Searched to the end, boxes give the cheapest chain, which the best links do not exceed."""
    problem = random_problem(seed, links="pairs", sizes=sizes, devices=6)
    for batches in problem.micro_batches[:3]:
        part = GroupPart(problem, batches)
        chain = part.chain(np.inf)
        best, _ = every_chain(chain)
        boxes = searched(chain, np.inf)
        if np.isinf(best):
            assert boxes.bound >= 1e29
            continue
        assert boxes.bound == pytest.approx(best, rel=1e-9)
        split = searched(part.chain(best * 1.1), best * 1.1)
        assert split.bound == pytest.approx(best, rel=1e-9)
        opened = part.graph(np.inf, None)
        links = search_resource_paths(opened.graph, opened.context)
        assert links.value <= best * (1 + 1e-9)


@FEW
@given(seed=SEEDS, levels=st.integers(2, 6))
def test_potentials_are_what_they_say(seed: int, levels: int) -> None:
    """Priced sums: never above a way that fits, and the cheapest way goes through an arc."""
    problem = random_problem(seed, sizes=(2,), devices=6)
    part = GroupPart(problem, problem.micro_batches[-1])
    chain = part.chain(np.inf)
    if not chain.arcs:
        return
    random = np.random.default_rng(seed)
    price = random.uniform(0, 1e-3, len(chain.capacity))
    best, path = every_chain(chain)
    known = prefixes(chain, price, np.inf, levels)
    ways = through(chain, known)
    if not np.isinf(best):
        total = best - chain.stages.peaks[list(path)].max(axis=0).sum()
        assert known.least <= total
        assert (ways[list(path)] <= total).all()
    if known.path.size:
        assert ways.min() == pytest.approx(known.least, rel=1e-9)
        assert ways[known.path] == pytest.approx(np.full(known.path.size, known.least), rel=1e-9)
        use = chain.stages.use[known.path].sum(axis=0) - chain.capacity
        assert known.total + use @ price == pytest.approx(known.least, rel=1e-9)
    # slower stages do not count
    if not np.isinf(best) and chain.weight > 0:
        rough, path = plain(chain, price, np.inf)
        assert rough <= known.least + 1e-9 * abs(known.least)
        start = chain.stages.start[path[::-1]]
        assert start[0] == 0
        assert (chain.stop[path[::-1]][:-1] == start[1:]).all()
        paid = known.priced[path].sum() - price @ np.array(chain.capacity)
        assert rough == pytest.approx(paid, abs=1e-12)
        slow = prefixes(chain, price, float(chain.stages.time.min()) * 0.999, levels)
        assert slow.least >= 1e29


@FEW
@given(seed=SEEDS, width=st.integers(1, 4))
def test_narrow_searches_keep_a_bound(seed: int, width: int) -> None:
    problem = random_problem(seed, links="pairs", sizes=(2,), devices=6)
    part = GroupPart(problem, problem.micro_batches[-1])
    chain = part.chain(np.inf)
    best, _ = every_chain(chain)
    if np.isinf(best):
        return
    known = prefixes(chain, np.zeros(len(chain.capacity)), np.inf, 3)
    none = np.zeros(chain.stages.peaks.shape[1])
    for effort in (np.inf, 5.0):
        found = search_chain(
            chain, known, low=0.0, peak_low=none, cutoff=np.inf, width=width, effort=effort
        )
        assert found.bound <= best * (1 + 1e-9)
        assert found.value >= best * (1 - 1e-9)
        if found.exact:
            assert found.value == pytest.approx(best, rel=1e-9)


def problem_of(seed: int) -> Problem:
    return random_problem(seed, links="pairs", sizes=(2, 4), devices=8)


@pytest.mark.parametrize("seed", range(6))
def test_a_lower_cutoff_says_no(seed: int) -> None:
    problem = problem_of(seed)
    for batches in problem.micro_batches[:2]:
        part = GroupPart(problem, batches)
        boxes = searched(part.chain(np.inf), np.inf)
        if boxes.bound >= 1e29:
            continue
        below = boxes.bound * 0.99
        nothing = searched(part.chain(below), below)
        assert nothing.bound == pytest.approx(below)
