"""Boxes of the slowest stage and the peaks: bounds against every plan, and against every chain."""

from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ilp_planner.costs.group_network import shared_rings, stage_ring
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.seat_patterns import is_packed, spread_over
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds import boxes as boxes_module
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.boxes import SMALL, WIDE, Box, BoxSearch, Choice
from ilp_planner.optimize.bounds.group_chain import Cards, GroupChain
from ilp_planner.optimize.bounds.group_labels import ChainSearch, search_chain
from ilp_planner.optimize.bounds.group_potentials import plain, prefixes, through
from ilp_planner.optimize.bounds.resource_paths import search_resource_paths
from ilp_planner.spaces.groups.parts import GroupPart
from tests.brute import cheapest, random_problem, spread_problem
from tests.costs.mixed_instances import Floor, cluster_of, stage_of
from tests.examples import examples, for_each, often
from tests.optimize.bounds.small_chains import made

SEEDS = st.integers(0, 2**32 - 1)
FEW = examples(15)
SIZES = ((1, 2, 3, 4), (2,), (3,), (4,))
USUAL = SIZES[:2]


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


def assert_none_below(problem: Problem) -> None:
    best, _ = cheapest(problem)
    bounds = []
    for batches in problem.micro_batches:
        part = GroupPart(problem, batches)
        for cutoff in (np.inf, best * 1.2):
            boxes = searched(part.chain(cutoff), cutoff)
            assert boxes.bound <= max(best, cutoff)
            bounds.append(boxes.bound + part.constant)
    assert min(bounds) <= best * (1 + 1e-9)


@pytest.mark.parametrize("sizes", often(SIZES, *USUAL))
@pytest.mark.parametrize("links", often(["flat", "one", "pairs", "matrix"], "pairs", "matrix"))
@examples(3, more=7)
@given(seed=SEEDS)
def test_no_plan_is_below_the_bound(sizes: tuple[int, ...], links: str, seed: int) -> None:
    assert_none_below(random_problem(seed, links=links, sizes=sizes, devices=6))


@examples(6, more=14)
@given(seed=SEEDS)
def test_no_plan_is_below_the_bound_where_stages_may_be_spread(seed: int) -> None:
    assert_none_below(spread_problem(seed, devices=6))


@for_each("seed", [13, 25, 32, 39])
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


@pytest.mark.slow
@pytest.mark.parametrize("sizes", often(SIZES, *USUAL))
@examples(3, more=20)
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


@for_each("seed", range(6))
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


def small_chain(**fields) -> GroupChain:
    """Return a chain of three layers on two devices: stages of 4 and 3 seconds after each other, or
    one of 5 on both. The slowest counts once more: 11 and 10 seconds."""
    stages = [(0, 1, 0, (1,), 4.0), (1, 3, 0, (1,), 3.0), (0, 3, 0, (2,), 5.0)]
    return replace(made(stages, (2,)), **fields)


def carded(chain: GroupChain) -> GroupChain:
    """Return a chain whose stages each take a unit of a hundredth of a second of a card."""
    one = np.ones((chain.arcs, 1), np.int64)
    stages = chain.stages._replace(use=np.hstack((chain.stages.use, one)))
    return replace(
        chain, stages=stages, cards=Cards(0.01, one), capacity=(*chain.capacity, chain.arcs),
        alike=np.append(chain.alike, chain.alike.max() + 1),
    )  # fmt: skip


def box_of(chain: GroupChain, low: float, high: float, peaks: tuple[float, float]) -> Box:
    everything = Choice(np.arange(chain.arcs), chain.arcs)
    ends = (np.array([end]) for end in peaks)
    return Box(low, high, *ends, everything, np.zeros(len(chain.capacity)), 0.0)


class Labels:
    """What labels are asked, and what they are said to find one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: ChainSearch) -> None:
        self.found, self.asked = iter(found), []
        monkeypatch.setattr(boxes_module, "search_chain", self.search)

    def search(self, chain, known, **asked):
        self.asked.append(asked)
        return next(self.found)


def found(path=(), value: float = INFINITE, bound: float = 9.0, *, exact=False) -> ChainSearch:
    return ChainSearch(path=path, value=value, bound=bound, exact=exact, effort=1.0)


def test_the_ways_that_boxes_find_are_those_of_the_chain() -> None:
    """Settled as a whole, or split and looked into."""
    chain = small_chain()
    for small in (SMALL, 0):
        boxes, ways = BoxSearch(chain, np.inf, 4, small=small), []
        while not boxes.finished:
            way = boxes.advance()
            ways += [way] if way else []
        best = min(ways, key=lambda way: way.value)
        assert (best.value, boxes.bound) == (10.0, 10.0)
        assert [int(chain.stages.use[k, 0]) for k in best.choices] == [2]


def test_a_box_that_labels_cannot_settle_is_split_or_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = Labels(monkeypatch, found(bound=8.0))
    boxes = BoxSearch(small_chain(), np.inf, 4)
    assert boxes.advance() is None
    assert [asked["effort"] for asked in labels.asked] == [1e6]
    assert [(box.low, box.high) for _, _, box in boxes.heap] == [(3.5, 5.0)]  # none has 3.5
    assert boxes.bound == 8.5
    Labels(monkeypatch, found(bound=9.0))
    raised = BoxSearch(small_chain(), np.inf, 4)
    raised.advance()
    assert raised.bound == 9.0  # what labels left out is no less
    done = BoxSearch(small_chain(), np.inf, 4)
    done.closed = 5.0
    assert done.finished
    assert done.bound == 5.0


def test_few_labels_look_into_a_box_before_it_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they leave nothing out, it is settled, but for network cards, which wide boxes count too
    roughly."""
    chain = small_chain()
    for whole, shared, exact in product((False, True), repeat=3):
        labels = Labels(monkeypatch, found((2,), 10.0, exact=exact))
        own = carded(chain) if shared else chain
        boxes = BoxSearch(own, 99.0, 4, small=SMALL if whole else 0)
        assert boxes.shared is shared
        way = boxes.advance()
        assert way is not None
        assert way.value == 10.0
        assert [asked["effort"] for asked in labels.asked] == [1e6 if whole else 0.0]
        settled = exact and (whole or not shared)
        assert boxes.closed == (10.0 if settled else np.inf)
        assert bool(boxes.heap) is not settled


def test_multipliers_of_a_box_begin_with_the_ways_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those whose stages are all left; the tables that are made are fewer."""
    tables, exact = [], boxes_module.prefixes
    monkeypatch.setattr(boxes_module, "prefixes", lambda *asked: tables.append(1) or exact(*asked))
    made_first, made_again, left_out = 0, 0, 0
    for seed in range(12):
        problem = random_problem(seed)
        chain = GroupPart(problem, problem.micro_batches[0]).chain(np.inf)
        tables.clear()
        boxes = BoxSearch(chain, np.inf, 4)
        if not boxes.heap:
            continue
        box = boxes.heap[0][2]
        assert len(box.met) <= len(tables)
        made_first += len(tables)
        tables.clear()
        again = boxes._bounded(box)
        assert again.bound >= box.bound
        made_again += len(tables)
        left = box.arcs.numbers()
        left = left[left != box.met[0].arcs[0]]
        fewer = boxes._bounded(replace(box, arcs=Choice(left, chain.arcs)))
        if fewer is not None:
            left_out += 1
            assert all(np.isin(one.arcs, left).all() for one in fewer.met)
    assert 0 < made_again < made_first
    assert left_out


@pytest.mark.parametrize(("width", "split"), [(1.9e-3, False), (2.1e-3, True)])
def test_boxes_are_split_until_their_ends_are_close(
    width: float, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To two thousandths of the bound, of peaks and the slowest stage together."""
    chain = small_chain(weight=2.0)
    Labels(monkeypatch, found(), found())
    boxes = BoxSearch(chain, np.inf, 4, small=0)
    axes, looks = [], []
    monkeypatch.setattr(boxes, "_split", lambda box, axis: axes.append(axis))
    monkeypatch.setattr(boxes, "_look", lambda box, most: looks.append(box))
    for high, peak in ((0.4, 0.2), (0.1, 0.8)):  # of the width
        box = box_of(chain, 4.0, 4.0 + 10.0 * width * high, (1.0, 1.0 + 10.0 * width * peak))
        box.bound = 10.0
        boxes.heap[:] = []
        boxes._push(box)
        boxes.advance()
    assert axes == ([1, 0] if split else [])
    assert len(looks) == (0 if split else 2)


def test_boxes_are_split_in_the_middle() -> None:
    """Far from nothing where they are wide: half of their ends' ratio, or seven tenths."""
    assert BoxSearch._middle(0.25, 1.0) == 0.5
    assert BoxSearch._middle(0.2499, 1.0) == 0.7
    assert BoxSearch._middle(0.0, 3.0) == pytest.approx(2.1)


def test_what_is_in_no_way_below_the_cutoff_is_left_out_of_a_box() -> None:
    """Stages that count so often alone, and a first peak, with what all others take at least."""
    chain = small_chain()
    boxes = BoxSearch(chain, 12.5, 4)
    box = boxes._bounded(box_of(chain, 4.0, 99.0, (1.0, 50.0)))
    assert box.high == 11.5
    assert box.peak_high.tolist() == [50.0]
    assert box.bound == pytest.approx(4.0 + 1.0 + 5.0)
    shared = BoxSearch(carded(chain), 12.5, 4)
    assert shared.shared
    assert not BoxSearch(carded(chain), np.inf, 4).shared
    box = shared._bounded(box_of(carded(chain), 4.0, 99.0, (1.0, 50.0)))
    assert box.peak_high.tolist() == [12.5 - 4.0]
    whole = box_of(carded(chain), 4.0, 99.0, (1.5, 1.5))
    assert shared._bounded(whole) is not None
    assert shared._bounded(box_of(carded(chain), 4.0, 99.0, (9.0, 50.0))) is None


def test_prices_are_looked_for_up_to_what_is_enough_and_near_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a fifth of what the ends of a box leave; not on, where sums without sending are enough."""
    asked, sums = [], []

    def best_prices(priced, capacity, enough, start, close, goon, planes=()):
        asked.append((enough, close))
        return original(priced, capacity, enough, start, close, goon, planes)

    def prefixes(*given):
        sums.append(given)
        return exact(*given)

    original, exact = boxes_module.best_prices, boxes_module.prefixes
    chain = small_chain(weight=2.0)
    boxes = BoxSearch(chain, 20.0, 4)
    monkeypatch.setattr(boxes_module, "best_prices", best_prices)
    monkeypatch.setattr(boxes_module, "prefixes", prefixes)
    boxes._bounded(box_of(chain, 4.0, 6.0, (1.0, 1.5)))
    assert asked == [(20.0 - 9.0, pytest.approx(0.2 * (2.0 * 2.0 + 0.5)))] * 2
    assert sums
    for cutoff, looked in ((9.0 + 5.0, False), (9.0 + 5.1, True)):
        sums.clear()
        boxes.cutoff = cutoff  # the least sum is 5, of one stage
        boxes._bounded(box_of(chain, 4.0, 6.0, (1.0, 1.5)))
        assert bool(sums) is looked


def test_labels_look_a_little_above_the_bound_and_then_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to the bound of other boxes at least, and to the cutoff at most."""
    chain = small_chain()
    labels = Labels(
        monkeypatch,
        found(exact=True), found(bound=10.01), found(), found(bound=99.0, exact=True),
        found((2,), 10.0, 10.0), found((2,), 10.0, 10.0, exact=True),
    )  # fmt: skip
    boxes = BoxSearch(chain, 11.0, 4)
    box = box_of(chain, 4.0, 6.0, (0.0, 0.0))
    box.bound = 10.0

    def look(most: float = 1e12):
        way = boxes._look(box, most)
        return way, labels.asked[-1]["cutoff"], labels.asked[-1]["effort"]

    other = box_of(chain, 4.0, 6.0, (0.0, 0.0))
    boxes.heap[:] = [(10.0, -1, other)]
    assert look() == (None, pytest.approx(10.02), 2e7)
    assert (box.bound, box.step, box.effort) == (10.0, 4e-3, 2e7)
    assert [entry[2] for entry in boxes.heap] == [other, box]
    boxes.heap[:] = [(10.5, 0, other)]
    assert look(1e7) == (None, 10.5, 1e7)
    assert (box.bound, box.step, box.effort) == (10.01, 4e-3, 8e7)
    for others in ([(99.0, 0, other)], []):
        boxes.heap[:] = others
        assert look()[1] == 11.0
    assert (box.bound, boxes.heap) == (11.0, [])  # nothing below the cutoff
    box.bound = 10.0
    way, _, _ = look()
    assert (way.value, way.choices) == (10.0, (2,))
    assert (boxes.closed, len(boxes.heap)) == (np.inf, 1)
    boxes.heap[:] = []
    way, _, _ = look()
    assert (way.value, boxes.closed, boxes.heap) == (10.0, 10.0, [])
