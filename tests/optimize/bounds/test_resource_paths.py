"""Labels on stage graphs with devices to share, extras and peaks, against every path."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.context import Context, no_context, no_seats
from ilp_planner.optimize.bounds.resource_paths import _pricing, search_resource_paths
from ilp_planner.optimize.bounds.resource_prices import Interval, PricedGraph, Prices
from ilp_planner.optimize.graph import StageGraph
from tests.examples import examples, for_each
from tests.optimize.solvers.graphs import chain, general_graphs, odd_one_out, paths_of

FEW = examples(30)


def optimum(graph: StageGraph) -> float:
    """Return the least time of a path, inf without one."""
    return min(
        (graph.path_time(path) for path in paths_of(graph) if graph.is_path(path)), default=np.inf
    )


@FEW
@given(graph=general_graphs())
def test_enough_width_finds_the_optimum(graph: StageGraph) -> None:
    best = optimum(graph)
    found = search_resource_paths(graph)
    assert found.exact
    assert found.value == pytest.approx(best)
    assert found.bound == pytest.approx(min(best, INFINITE))
    if found.path:
        assert graph.is_path(found.path)
        assert graph.path_time(found.path) == pytest.approx(found.value)


@FEW
@given(graph=general_graphs(), width=st.integers(1, 4), share=st.floats(0.5, 2))
def test_any_width_bounds_the_optimum(graph: StageGraph, width: int, share: float) -> None:
    best = optimum(graph)
    cutoff = share * best if np.isfinite(best) else np.inf
    found = search_resource_paths(graph, width=width, cutoff=cutoff)
    assert found.bound <= min(best, cutoff) * (1 + 1e-9)
    assert found.value >= best * (1 - 1e-9)
    assert not found.path or found.value < cutoff
    if found.exact and best < cutoff * (1 - 1e-9):
        assert found.value == pytest.approx(best)


@FEW
@given(graph=general_graphs(), share=st.floats(0.9, 2), splits=st.integers(0, 8))
def test_intervals_and_open_arcs_lose_nothing(graph: StageGraph, share: float, splits: int) -> None:
    best = optimum(graph)
    cutoff = share * best if np.isfinite(best) else np.inf
    priced = PricedGraph(graph)
    intervals = priced.sweep(cutoff, splits)
    opened = graph.only(priced.open_arcs(intervals, cutoff))
    for intervals_too in (intervals, None):
        found = search_resource_paths(opened, cutoff=cutoff, intervals=intervals_too)
        assert found.exact
        if best < cutoff * (1 - 1e-9):
            assert found.value == pytest.approx(best)
        assert found.bound == pytest.approx(min(best, cutoff, INFINITE))


def test_no_arcs_no_path() -> None:
    graph = chain(1.0, 2.0).only(np.zeros(0, np.int64))
    found = search_resource_paths(graph, cutoff=7.0)
    assert (found.path, found.value, found.bound, found.exact) == ((), np.inf, 7.0, True)


def test_devices_run_out() -> None:
    found = search_resource_paths(odd_one_out())
    assert (found.path, found.value, found.exact) == ((), np.inf, True)


def test_too_many_labels_leave_a_bound() -> None:
    graph = chain(*[1.0] * 6)
    found = search_resource_paths(graph, most_labels=3)
    assert not found.exact
    assert not found.path
    assert found.bound <= graph.path_time(range(6))


# ---- contexts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Stages that a pipeline may have, without any graph.

    start, stop, time, extra, behind, kind, row: per stage. send: [2, rows, kinds], seconds added to
    time and to extra when a stage of a kind follows.
    """

    layers: int
    micro_batches: int
    start: np.ndarray
    stop: np.ndarray
    time: np.ndarray
    extra: np.ndarray
    peaks: np.ndarray
    use: np.ndarray
    capacity: tuple[int, ...]
    behind: np.ndarray
    kind: np.ndarray
    row: np.ndarray
    send: np.ndarray

    def pipelines(self, layer: int = 0) -> Iterator[tuple[int, ...]]:
        """Yield every row of stages from a layer to the end, whatever it needs."""
        if layer == self.layers:
            yield ()
        for first in np.flatnonzero(self.start == layer).tolist():
            for rest in self.pipelines(int(self.stop[first])):
                yield (first, *rest)

    def seconds(self, path: tuple[int, ...]) -> float:
        """Return the time of a pipeline, inf where it may not be."""
        devices = sum(self.use[s] for s in path)
        if (devices > np.array(self.capacity)).any():
            return np.inf
        slowest, total = 0.0, 0.0
        for place, s in enumerate(path):
            after = len(path) - 1 - place
            if after > self.behind[s]:
                return np.inf
            time, extra = self.time[s], self.extra[s]
            if after:
                to = self.kind[path[place + 1]]
                time, extra = (
                    time + self.send[0, self.row[s], to],
                    extra + self.send[1, self.row[s], to],
                )
            slowest, total = max(slowest, time), total + time + extra
        peaks = self.peaks[:, list(path)].max(axis=1).sum()
        return float((self.micro_batches - 1) * slowest + total + peaks)

    def optimum(self) -> float:
        return min(map(self.seconds, self.pipelines()), default=np.inf)

    def graph(self, begins: list[int]) -> tuple[StageGraph, Context, np.ndarray]:
        """Return the graph over (layer, level) and the stage of each arc; levels begin at so many
        stages after."""
        levels = len(begins)
        level_of = np.searchsorted(begins, np.arange(self.layers + 1), side="right") - 1
        arcs = set()
        for s in range(self.start.size):
            at, to, last = int(self.start[s]), int(self.stop[s]), self.stop[s] == self.layers
            if last:
                arcs.add((s, at * levels, self.layers * levels))
            else:
                for after in range(1, min(int(self.behind[s]), self.layers) + 1):
                    tail = at * levels + int(level_of[after])
                    arcs.add((s, tail, to * levels + int(level_of[after - 1])))
        which, tail, head = np.array(sorted(arcs), np.int64).reshape(-1, 3).T
        graph = StageGraph(
            nodes=self.layers * levels + 1,
            sources=tuple(range(levels)),
            sink=self.layers * levels,
            operators=self.layers,
            weight=self.micro_batches - 1.0,
            tail=tail,
            head=head,
            start=self.start[which],
            stop=self.stop[which],
            time=self.time[which],
            extra=self.extra[which],
            peaks=self.peaks[:, which],
            use=self.use[which],
            capacity=self.capacity,
        )
        context = Context(
            behind=self.behind[which],
            level=np.append(np.tile(np.arange(levels), self.layers), 0),
            level_of=level_of,
            kind=self.kind[which],
            row=self.row[which],
            send_time=self.send[0],
            send_extra=self.send[1],
            **no_seats(which.size),
        )
        return graph, context, which


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Draw two or three stages for every range of a few layers."""
    layers, options = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds, types = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    ranges = [(i, j) for i in range(layers) for j in range(i + 1, layers + 1)] * options
    start, stop = np.array(ranges).T
    size = start.size
    send = draw(st.sampled_from([0.1, 1.0, 20.0])) * random.random((2, 3, kinds))
    send[:, :, draw(st.integers(0, kinds - 1))] = 0.0  # the best case is part of the arc
    send[draw(st.integers(0, 1))] *= draw(st.sampled_from([0.0, 1.0]))
    return Chain(
        layers=layers,
        micro_batches=draw(st.sampled_from([1, 2, 8, 64])),
        start=start,
        stop=stop,
        time=(stop - start) * random.uniform(0.5, 1.5, size),
        extra=random.uniform(0, 0.3, size) * draw(st.integers(0, 1)),
        peaks=random.uniform(0, 3, (draw(st.integers(0, 2)), size)),
        use=random.integers(0, 3, (size, types)),
        capacity=tuple(random.integers(1, 5, types).tolist()),
        behind=random.integers(0, layers + 1, size),
        kind=random.integers(0, kinds, size),
        row=random.integers(0, 3, size),
        send=send,
    )


BEGINS = st.sampled_from([[0], [0, 1], [0, 1, 2, 3], [0, 2], [0, 1, 3]])


@examples(75)
@given(case=chains(), begins=BEGINS)
def test_what_follows_and_how_much_follows_counts(case: Chain, begins: list[int]) -> None:
    best = case.optimum()
    graph, context, stage = case.graph(begins)
    found = search_resource_paths(graph, context)
    assert found.exact
    assert found.value == pytest.approx(best)
    assert found.bound == pytest.approx(min(best, INFINITE))
    if found.path:
        assert case.seconds(tuple(stage[list(found.path)].tolist())) == pytest.approx(best)


@examples(75)
@given(
    case=chains(),
    begins=BEGINS,
    share=st.sampled_from([0.9, 1.001, 1.2, 3.0, np.inf]),
    splits=st.integers(0, 8),
    width=st.sampled_from([1, 2, 2**62]),
)
def test_prices_of_the_best_case_lose_nothing_in_context(
    case: Chain, begins: list[int], share: float, splits: int, width: int
) -> None:
    """The graph's own times are best cases: a slowest stage may be slower than any of them."""
    best = case.optimum()
    cutoff = share * best
    graph, context, stage = case.graph(begins)
    priced = PricedGraph(graph)
    intervals = priced.sweep(cutoff, splits)
    assert min((i.bound for i in intervals), default=np.inf) <= best * (1 + 1e-9) or best > cutoff
    arcs = priced.open_arcs(intervals, cutoff)
    found = search_resource_paths(
        graph.only(arcs), context.only(arcs), cutoff=cutoff, intervals=intervals, width=width
    )
    assert found.bound <= min(best, cutoff) * (1 + 1e-9)
    if found.path:
        path = tuple(stage[arcs[list(found.path)]].tolist())
        assert case.seconds(path) == pytest.approx(found.value)
        assert found.value < cutoff
    if width > 2:
        assert found.exact
        if best < cutoff:
            assert found.value == pytest.approx(best)


@examples(30)
@given(case=chains(), begins=BEGINS, width=st.sampled_from([1, 2, 2**62]))
def test_what_one_search_reached_serves_the_next_one(
    case: Chain, begins: list[int], width: int
) -> None:
    """With as many labels, where it is taken, and with more, where capacities may count finer."""
    graph, context, _ = case.graph(begins)
    intervals = PricedGraph(graph).sweep(np.inf)
    first = search_resource_paths(graph, context, intervals=intervals, width=1)
    again, alone = (
        search_resource_paths(graph, context, intervals=intervals, width=width, reached=reached)
        for reached in (first.reached, None)
    )
    assert again == alone
    assert width > 1 or again.reached is first.reached


def test_a_stage_with_worse_sending_does_not_dominate() -> None:
    """Two ways to do the second layer: the faster one is dear to send to."""
    case = Chain(
        layers=2,
        micro_batches=2,
        start=np.array([0, 1, 1]),
        stop=np.array([1, 2, 2]),
        time=np.array([1.0, 1.0, 1.5]),
        extra=np.zeros(3),
        peaks=np.zeros((0, 3)),
        use=np.ones((3, 1), np.int64),
        capacity=(2,),
        behind=np.array([1, 0, 0]),
        kind=np.array([0, 0, 1]),
        row=np.zeros(3, np.int64),
        send=np.array([[[2.0, 0.0]], [[0.0, 0.0]]]),
    )
    graph, context, stage = case.graph([0, 1])
    found = search_resource_paths(graph, context)
    assert stage[list(found.path)].tolist() == [0, 2]
    assert found.value == pytest.approx(1.5 + 1.0 + 1.5)
    free = search_resource_paths(graph, context._replace(send_time=np.zeros((1, 2))))
    assert free.value == pytest.approx(1.0 + 1.0 + 1.0)


def of_layers(time: list[float], *, layer: list[int]) -> StageGraph:
    """Return a graph of stages of one layer each, on a layer of a row; the slowest counts twice."""
    tail = np.array(layer)
    return StageGraph(
        nodes=tail.max() + 2, sources=(0,), sink=int(tail.max()) + 1, operators=tail.max() + 1,
        weight=1.0, tail=tail, head=tail + 1, start=tail, stop=tail + 1, time=np.array(time),
    )  # fmt: skip


@for_each("which", [["send_time"], ["send_extra"], ["send_time", "send_extra"]])
def test_a_stage_that_is_dear_to_send_to_for_some_dominates_for_none(which: list[str]) -> None:
    """Of two senders one pays for the first kind, the other one does not."""
    graph = of_layers([1.0, 1.0, 1.5], layer=[0, 1, 1])
    for row, best in ((0, (0, 2)), (1, (0, 1))):
        context = no_context(graph)._replace(
            kind=np.array([0, 0, 1]), row=np.full(3, row), send_time=np.zeros((2, 2)),
            send_extra=np.zeros((2, 2)),
        )  # fmt: skip
        context = context._replace(**dict.fromkeys(which, np.array([[9.0, 0.0], [0.0, 0.0]])))
        assert search_resource_paths(graph, context).path == best


def test_sending_may_make_a_stage_slower_than_all_intervals() -> None:
    graph = chain(1.0, 2.0)
    context = no_context(graph)._replace(send_time=np.array([[9.0]]))
    found = search_resource_paths(graph, context, intervals=PricedGraph(graph).sweep(np.inf, 4))
    assert (found.path, found.value, found.others) == ((0, 1), 3 * 10.0 + 1.0 + 9.0 + 2.0, ())


def test_what_was_reached_with_other_prices_is_not_taken() -> None:
    """Nor with as many of them, in the same intervals."""
    graph = replace(chain(1.0, 2.0), use=np.ones((2, 1), np.int64), capacity=(2,))
    dear, free = ([interval(1.0, 2.0, price)] for price in (1e3, 0.0))
    first = search_resource_paths(graph, intervals=dear)
    again = search_resource_paths(graph, intervals=free, reached=first.reached)
    assert again.reached is not first.reached
    assert again == search_resource_paths(graph, intervals=free)
    assert search_resource_paths(graph, intervals=dear, reached=first.reached).reached is (
        first.reached
    )


def test_stages_of_one_kind_dominate_each_other_however_dear_they_are_to_send_to() -> None:
    graph = of_layers([1.0, 1.0, 1.5], layer=[0, 1, 1])
    context = no_context(graph)._replace(send_extra=np.array([[9.0]]))
    found = search_resource_paths(graph, context, families=np.zeros(3, np.int64))
    assert [path for _, path in found.others] == [(0, 1)]


def test_nodes_of_one_layer_are_left_apart_where_no_context_says_what_they_are() -> None:
    """The second one is left faster, and reached slower."""
    graph = StageGraph(
        nodes=4, sources=(0,), sink=3, operators=2, weight=1.0, tail=np.array([0, 0, 1, 2]),
        head=np.array([1, 2, 3, 3]), start=np.array([0, 0, 1, 1]), stop=np.array([1, 1, 2, 2]),
        time=np.array([1.0, 9.0, 2.0, 1.0]),
    )  # fmt: skip
    found = search_resource_paths(graph)
    assert (found.path, found.value) == ((0, 2), 2.0 + 3.0)


def test_a_path_has_the_seconds_that_the_graph_says_to_the_digit() -> None:
    """Labels add them from the end."""
    graph = chain(0.1, 0.2, 0.3, micro_batches=1)
    assert search_resource_paths(graph).value == graph.path_time(range(3)) == (0.1 + 0.2) + 0.3
    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1


def interval(low: float, high: float, price: float) -> Interval:
    """Return an interval with a price of the only type of devices."""
    prices = Prices(price=np.array([price]), slowest=high, value=0.0)
    return Interval(low=low, high=high, bound=0.0, prices=prices)


def priced(width: int, effort: float, *, sends: bool, count: int = 3) -> Any:
    """Price a million arcs on 999 devices, in the first of three intervals; not in their order."""
    graph: Any = SimpleNamespace(arcs=10**6, capacity=(999,))
    known = [interval(4.0, 6.0, 7.0), interval(1.0, 2.0, 5.0), interval(8.0, 9.0, 6.0)]
    return _pricing(graph, known[:count], width, effort, sends=sends)


def test_sending_closes_the_gaps_between_intervals_and_opens_the_last_one() -> None:
    alone, sent = (priced(1, np.inf, sends=sends) for sends in (False, True))
    assert alone.price.tolist() == sent.price.tolist() == [[5.0], [7.0], [6.0]]
    assert (alone.low.tolist(), alone.high.tolist()) == ([1.0, 4.0, 8.0], [2.0, 6.0, 9.0])
    assert (sent.low.tolist(), sent.high.tolist()) == ([1.0, 2.0, 6.0], [2.0, 6.0, INFINITE])


@for_each(
    ("width", "effort", "count", "levels"),
    [
        (1000, np.inf, 1, 16),  # 30 levels at most: 64 devices each
        (1000, np.inf, 2, 8),  # 15
        (1001, np.inf, 1, 1000),  # as many as there are devices, and no more than 1100
        (2**62, np.inf, 1, 1000),
        (2**62, 5e6, 1, 4),  # 5
        (2**62, 5e6, 2, 2),  # 2.5
        (1, 5e6, 1, 1),  # 0.03
    ],
)
def test_capacities_are_counted_the_finer_the_more_labels_there_may_be(
    width: int, effort: float, count: int, levels: int
) -> None:
    assert priced(width, effort, sends=True, count=count).sizes.tolist() == [levels, 1, 1, 1]
