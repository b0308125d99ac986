"""The best path of a graph is the one that enumeration finds."""

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds import paths
from ilp_planner.optimize.bounds.paths import best_path, search_paths
from ilp_planner.optimize.graph import StageGraph
from tests.examples import examples, for_each
from tests.optimize.solvers.graphs import chain, graphs, make_graph

MANY = examples(75)
SAME = 1e-12  # relative


def every_path(graph: StageGraph) -> Iterator[tuple[int, ...]]:
    """List every path from a source to the sink."""
    leaving: dict[int, list[int]] = {}
    for arc, tail in enumerate(graph.tail.tolist()):
        leaving.setdefault(tail, []).append(arc)
    todo: list[tuple[int, tuple[int, ...]]] = [(node, ()) for node in graph.sources]
    while todo:
        node, path = todo.pop()
        if node == graph.sink:
            yield path
        todo += [(int(graph.head[a]), (*path, a)) for a in leaving.get(node, [])]


def optimum(graph: StageGraph) -> float:
    return min((graph.path_time(path) for path in every_path(graph)), default=math.inf)


@MANY
@given(st.one_of(graphs(), graphs(feasible=False)))
def test_the_best_path_is_that_of_enumeration(graph: StageGraph) -> None:
    least = optimum(graph)
    path, value = best_path(graph)
    assert value == pytest.approx(least, rel=SAME)
    assert bool(path) == math.isfinite(least)
    if path:
        assert graph.is_path(path)
        assert graph.path_time(path) == value


@MANY
@given(graphs(), st.sampled_from([1, 2]))
def test_a_first_search_that_leaves_out_labels_changes_nothing(graph: StageGraph, few: int) -> None:
    found = search_paths(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "FEW", few)
        assert search_paths(graph) == found
        patch.setattr(paths, "FEW", 2**62)
        assert search_paths(graph) == found


@MANY
@given(graphs(), st.sampled_from([0.5, 0.9, 0.999, 1.001, 1.1, 3.0]))
def test_a_cutoff_hides_only_what_is_not_below_it(graph: StageGraph, factor: float) -> None:
    least = optimum(graph)
    cutoff = least * factor
    path, value, bound = search_paths(graph, cutoff)
    if factor > 1:
        assert graph.is_path(path)
        assert value == pytest.approx(least, rel=SAME)
        assert bound == value
    else:
        assert (path, value, bound) == ((), math.inf, cutoff)


@MANY
@given(graphs(), st.integers(1, 30), st.sampled_from([0.9, 1.001, 2.0, math.inf]))
def test_with_few_labels_the_bound_still_holds(
    graph: StageGraph, labels: int, factor: float
) -> None:
    least = optimum(graph)
    path, value, bound = search_paths(graph, least * factor, most_labels=labels)
    assert 0 < bound <= least * (1 + SAME)
    if path:
        assert graph.is_path(path)
        assert value == pytest.approx(least, rel=SAME)
    else:
        assert math.isinf(value)


def test_few_labels_are_too_few() -> None:
    """Both fastest stages side by side: 3 * 2 + 1 + 2 is a bound, and the only path."""
    graph = chain(1.0, 2.0)
    assert search_paths(graph, most_labels=1) == ((), math.inf, 9.0)
    assert search_paths(graph) == ((0, 1), 9.0, 9.0)


def test_a_larger_sum_with_a_smaller_bottleneck_wins_with_many_micro_batches() -> None:
    arcs = [(0, 1, 0, 1, 1.0), (1, 2, 1, 1, 3.0), (0, 1, 0, 1, 2.5), (1, 2, 1, 1, 2.5)]
    arcs += [(0, 2, 0, 2, 4.5)]
    assert best_path(make_graph(2, arcs, 1))[0] == (0, 3)
    assert best_path(make_graph(2, arcs, 8)) == ((0, 3), 7 * 2.5 + 3.5)


def test_without_arcs_there_is_no_path() -> None:
    graph = make_graph(2, [], 4)
    assert search_paths(graph) == ((), math.inf, math.inf)
    assert search_paths(graph, 5.0) == ((), math.inf, 5.0)


def two_ways() -> StageGraph:
    """Return a graph with two paths, of (3, 1) and of (2.5, 2.5) seconds, by a node each: of 25
    and 22.5 seconds. Its fastest stages side by side are 2.5 * 7 + 4 = 21.5."""
    arcs = [(0, 1, 0, 1, 3.0), (1, 3, 1, 1, 1.0), (0, 2, 0, 1, 2.5), (2, 3, 1, 1, 2.5)]
    return make_graph(3, arcs, 8)


def test_labels_are_counted_to_the_last_one() -> None:
    """The sink's, one of each middle node, two at the source."""
    assert search_paths(chain(1.0, 2.0), most_labels=3) == ((0, 1), 9.0, 9.0)
    assert search_paths(chain(1.0, 2.0), most_labels=2) == ((), math.inf, 9.0)
    graph = two_ways()
    assert search_paths(graph, most_labels=5) == ((2, 3), 22.5, 22.5)
    assert search_paths(graph, most_labels=4) == ((), math.inf, 21.5)
    # of two arcs beside each other only the faster one leads to a label
    beside = make_graph(2, [(0, 1, 0, 1, 1.0), (1, 2, 1, 1, 3.0), (1, 2, 1, 1, 2.0)], 4)
    assert search_paths(beside, most_labels=3) == ((0, 2), 9.0, 9.0)


def test_there_is_room_for_thousands_of_labels() -> None:
    """As many nodes, with one each."""
    nodes = 4200
    times = [2.0 + ((k * 389) % nodes) / nodes for k in range(nodes)]
    arcs = [(0, 1, 0, k + 1, time) for k, time in enumerate(times)]
    arcs += [(1, 2, k + 1, 1, 0.5) for k in range(nodes)]
    graph = make_graph(2, arcs, 4)
    assert search_paths(graph) == ((0, nodes), 8.5, 8.5)


def test_labels_that_lead_to_nothing_below_the_cutoff_are_none() -> None:
    graph = two_ways()
    assert search_paths(graph, 24.0, most_labels=3) == ((2, 3), 22.5, 22.5)
    assert search_paths(graph, 24.0, most_labels=2) == ((), math.inf, 21.5)
    assert search_paths(graph, 22.5, most_labels=1) == ((), math.inf, 22.5)
    # what comes before a node counts: the second of three equal stages is too slow already
    assert search_paths(chain(1.0, 1.0, 1.0), 6.0, most_labels=1) == ((), math.inf, 6.0)


def test_the_best_of_many_arcs_beside_each_other_is_found() -> None:
    """Whichever it is, also where there are more than there is room for at first."""
    times = [2.0 + ((k * 389) % 1031) / 1031 for k in range(1031)]
    for best in (0, 255, 256, 257, 511, 512, 1030):
        own = [1.0 if k == best else time for k, time in enumerate(times)]
        graph = make_graph(2, [(0, 1, 0, 1, 0.5), *((1, 2, 1, 1, time) for time in own)], 4)
        assert search_paths(graph) == ((0, best + 1), 4.5, 4.5)


def diamonds(*stages: tuple[tuple[float, float], ...]) -> StageGraph:
    """Return a graph of some pairs of stages, one of which a path takes, after some others; of two
    micro-batches."""
    arcs = []
    for k, pairs in enumerate(stages):
        for n, (first, second) in enumerate(pairs, start=1):
            arcs.append((2 * k, 2 * k + 1, 0, n, first))
            arcs.append((2 * k + 1, 2 * k + 2, n, -n, second))
    return make_graph(2 * len(stages), arcs, 2)


@for_each("few", [1, 2, 3])
@for_each("before", [(), (((0.5, 0.5),),)])
@for_each("turn", [0, 1, 2])
@for_each("last", [1.4, 0.9])
def test_a_first_search_keeps_the_labels_that_promise_most(
    few: int, before, turn: int, last: float
) -> None:
    """Of (5, 5), (6, 2.5) and (7, 1.4) seconds, 15, 14.5 and 15.4, the second, and then the first
    one; where that takes less, the third one."""
    pairs = [(5.0, 5.0), (6.0, 2.5), (7.0, last)]
    graph = diamonds(*before, tuple(pairs[turn:] + pairs[:turn]))
    order, _ = graph.by_tail()
    found, original = [], paths._Search.best

    def best(*given):
        found.append(original(*given))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "FEW", few)
        patch.setattr(paths._Search, "best", best)
        _, value, _ = search_paths(graph)
    assert value == 14.5 + len(before)
    for path, seconds in found:
        assert seconds == value
        assert graph.path_time([int(order[a]) for a in path]) == value


def least_labels(graph: StageGraph, few: int) -> int:
    """Return how many labels a search needs at least."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "FEW", few)
        return next(n for n in range(1000) if search_paths(graph, most_labels=n)[0])


def test_with_a_first_search_fewer_labels_are_enough() -> None:
    graph = every_range(0, 9, 2)
    assert least_labels(graph, 1) < least_labels(graph, 2**62)


@MANY
@given(graphs())
def test_arcs_are_grouped_by_their_tail(graph: StageGraph) -> None:
    order, first = graph.by_tail()
    for node in range(graph.nodes):
        mine = order[first[node] : first[node + 1]].tolist()
        assert mine == [a for a in range(graph.arcs) if graph.tail[a] == node]


def every_range(seed: int, operators: int, weight: int) -> StageGraph:
    """Return the graph of all stages of a chain, whose times grow with their length and a little at
    random: many paths are better than others in their slowest stage or in their sum."""
    draw = random.Random(seed)
    arcs = [
        (start, stop, start, stop - start, (stop - start) ** 0.8 + draw.random() / 4)
        for start in range(operators)
        for stop in range(start + 1, operators + 1)
    ]
    return make_graph(operators, arcs, weight)


@for_each("weight", [2, 5])
@for_each("seed", [0, 1, 2])
@for_each("few", [1, 2, 8])
def test_labels_that_a_first_search_drops_come_back(few: int, seed: int, weight: int) -> None:
    """Nodes of these graphs have more labels than it keeps."""
    graph = every_range(seed, 11, weight)
    least = optimum(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "FEW", few)
        path, value, bound = search_paths(graph)
        assert graph.is_path(path)
        assert value == bound == pytest.approx(least, rel=SAME)
        assert search_paths(graph, least) == ((), math.inf, least)
        _, none, weak = search_paths(graph, most_labels=12)
        assert math.isinf(none)
        assert 0 < weak <= least


@MANY
@given(graphs(), st.integers(0, 40))
def test_a_search_that_is_ended_has_a_bound_and_no_path(graph: StageGraph, looks: int) -> None:
    """The clock is looked at between any two nodes; however often it is, nothing else changes."""
    left = [looks]

    def goon() -> bool:
        left[0] -= 1
        return left[0] >= 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "STEP", 1)
        path, value, bound = search_paths(graph, goon=goon)
    if left[0] >= 0:
        assert (path, value, bound) == search_paths(graph)
    else:
        assert (path, value) == ((), math.inf)
        assert 0 < bound <= optimum(graph) * (1 + SAME)
