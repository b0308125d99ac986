"""Bounds from prices on devices: below every path, and nothing closed that is needed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.resource_prices import Interval, PricedGraph, Prices
from ilp_planner.optimize.graph import StageGraph
from tests.examples import examples, for_each
from tests.optimize.bounds.test_resource_labels import chain_of, parallel
from tests.optimize.solvers.graphs import chain, general_graphs, odd_one_out, paths_of, two_types

FEW = examples(30)
ROUNDING = 1 + 1e-9


def all_paths(graph: StageGraph) -> list[tuple[float, float, tuple[int, ...]]]:
    """Return (seconds, seconds of the slowest arc, path) of every path."""
    return [
        (graph.path_time(path), float(graph.time[list(path)].max()), path)
        for path in paths_of(graph)
        if graph.is_path(path)
    ]


@FEW
@given(
    graph=general_graphs(),
    share=st.sampled_from([0.5, 1.0, 1.001, 1.5, np.inf]),
    splits=st.integers(0, 10),
)
def test_intervals_hold_every_path_below_the_cutoff(
    graph: StageGraph, share: float, splits: int
) -> None:
    paths = all_paths(graph)
    best = min((value for value, _, _ in paths), default=np.inf)
    cutoff = share * best
    intervals = PricedGraph(graph).sweep(cutoff, splits)
    assert intervals == sorted(intervals, key=lambda i: i.bound)
    least = intervals[0].bound if intervals else np.inf
    assert least <= best * ROUNDING or best * ROUNDING >= cutoff
    for value, slowest, _ in paths:
        if value * ROUNDING < cutoff:
            inside = [i for i in intervals if i.low <= slowest * ROUNDING <= i.high * ROUNDING**2]
            assert inside
            assert min(i.bound for i in inside) <= value * ROUNDING


@FEW
@given(graph=general_graphs(), share=st.sampled_from([1.001, 1.2, 3.0]), splits=st.integers(0, 10))
def test_open_arcs_hold_every_path_below_the_cutoff(
    graph: StageGraph, share: float, splits: int
) -> None:
    paths = all_paths(graph)
    best = min((value for value, _, _ in paths), default=np.inf)
    cutoff = share * best
    priced = PricedGraph(graph)
    arcs = priced.open_arcs(priced.sweep(cutoff, splits), cutoff)
    assert (np.diff(arcs) > 0).all()
    for value, _, path in paths:
        if value * ROUNDING < cutoff:
            assert set(path) <= set(arcs.tolist())


@FEW
@given(graph=general_graphs(), seed=st.integers(0, 2**32 - 1))
def test_any_price_bounds_the_sums(graph: StageGraph, seed: int) -> None:
    """However bad the price; and what it offers on the way is a path at its time."""
    random = np.random.default_rng(seed)
    priced = PricedGraph(graph)
    slowest = float(random.choice(graph.time))
    price = random.exponential(graph.time.mean(), len(graph.capacity))
    sums = [
        float((graph.time + graph.extra)[list(path)].sum())
        for _, most, path in all_paths(graph)
        if most <= slowest
    ]
    least = min(sums, default=np.inf)
    bound, _ = priced.shortest(price, slowest)
    slack = 1e-9 * float(price @ np.array(graph.capacity) + graph.time.sum())
    assert bound <= least + slack
    assert priced.prices(slowest, np.inf).value <= least * ROUNDING
    if priced.path:
        assert graph.is_path(priced.path)
        assert graph.path_time(priced.path) == pytest.approx(priced.value)


@FEW
@given(graph=general_graphs())
def test_peaks_are_at_least(graph: StageGraph) -> None:
    priced = PricedGraph(graph)
    least = priced.least_peaks(np.inf)
    for _, slowest, path in all_paths(graph):
        peaks = float(graph.peaks[:, list(path)].max(axis=1).sum())
        assert least <= peaks * ROUNDING
        assert priced.least_peaks(slowest) <= peaks * ROUNDING


def test_prices_tell_what_the_devices_are_worth() -> None:
    """Two types of eight devices: without prices every stage would take eight of them."""
    graph = two_types(24, shared=True)
    priced = PricedGraph(graph)
    free, _ = priced.shortest(np.zeros(2), np.inf)
    found = priced.prices(np.inf, np.inf)
    assert found.value > 1.2 * free
    assert found.price[0] > 0  # of the fast ones


def test_more_splits_never_loosen_the_bound() -> None:
    graph = two_types(16, shared=True)
    bounds = [PricedGraph(graph).sweep(np.inf, splits)[0].bound for splits in (0, 2, 4, 8, 16)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


def test_the_same_arcs_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper half of an interval has the arcs of the whole."""
    asked, prices = [], PricedGraph.prices

    def noted(self, slowest, enough, start=None):
        asked.append(slowest)
        return prices(self, slowest, enough, start)

    monkeypatch.setattr(PricedGraph, "prices", noted)
    intervals = PricedGraph(two_types(16, shared=True)).sweep(np.inf, 8)
    assert len(asked) == len(set(asked)) > 2
    assert all(interval.prices.slowest == interval.high for interval in intervals)


def test_one_path_is_its_own_bound() -> None:
    graph = chain(1.0, 3.0, 2.0, micro_batches=4)
    (interval,) = PricedGraph(graph).sweep(np.inf, 0)
    assert interval.bound == pytest.approx(3 * 3.0 + 6.0)
    assert interval.low == interval.high == 3.0


def test_nothing_is_open_when_time_is_up() -> None:
    """Not bounded further, but not lost either."""
    graph = two_types(16, shared=True)
    (interval,) = PricedGraph(graph).sweep(np.inf, 8, goon=lambda: False)
    assert interval.high == graph.time.max()


def test_no_path_at_all() -> None:
    graph = chain(1.0, 2.0, 3.0).only(np.array([0, 2]))
    assert PricedGraph(graph).sweep(np.inf) == []
    assert PricedGraph(chain(1.0).only(np.zeros(0, np.int64))).sweep(np.inf) == []


def test_devices_that_run_out_are_no_news_to_prices() -> None:
    """Half a path of each kind fits on average: only whole paths do not."""
    (first, *_) = PricedGraph(odd_one_out()).sweep(np.inf)
    assert np.isfinite(first.bound)


# ---- to the digit -------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[StageGraph, np.ndarray]:
    """Draw a graph in whole seconds, and a price."""
    random = np.random.default_rng(seed)
    graph = chain_of(int(random.integers(1, 5)), int(random.integers(1, 4)), random)
    return graph, random.integers(0, 4, len(graph.capacity)).astype(np.float64)


def sums(graph: StageGraph, price: np.ndarray, slowest: float) -> dict[tuple[int, ...], float]:
    """Return the sum of each path of fast arcs with the price of its devices, less that of all."""
    return {
        path: float(
            (graph.time + graph.extra)[list(path)].sum()
            + price @ (graph.use[list(path)].sum(axis=0) - np.array(graph.capacity))
        )
        for path in paths_of(graph)
        if graph.time[list(path)].max() <= slowest
    }


@for_each("slowest", [3.0, 5.0, np.inf])
def test_the_cheapest_priced_path_is_that_of_all(slowest: float) -> None:
    for seed in range(40):
        graph, price = drawn(seed)
        priced, every = PricedGraph(graph), sums(graph, price, slowest)
        least, arcs = priced.shortest(price, slowest)
        assert least == min(every.values(), default=INFINITE)
        if every:
            path = tuple(priced.order[arcs].tolist())
            assert every[path] == least
            assert (priced.path == path) == graph.is_path(path)
            assert priced.value == (graph.path_time(path) if priced.path else np.inf)


def test_arcs_are_open_through_which_a_priced_path_is_below_the_cutoff() -> None:
    """In some interval, with the least peaks; at the best prices, and at any."""
    some = 0
    for seed in range(40):
        graph, price = drawn(seed)
        priced = PricedGraph(graph)
        best = min((value for value, _, _ in all_paths(graph)), default=np.inf)
        if not np.isfinite(best):
            continue
        cutoff = 1.5 * best + 0.1
        value, _ = priced.shortest(price, 6.0)
        any_ = Prices(price=price, slowest=6.0, value=value)
        bound = graph.weight * 2.0 + value + priced.least_peaks(np.inf)
        intervals = [Interval(low=2.0, high=6.0, bound=bound, prices=any_)]
        intervals = intervals if seed % 2 and value < INFINITE else priced.sweep(cutoff, 4)
        least = np.full(graph.arcs, np.inf)
        for interval in intervals:
            for path, value in sums(graph, interval.prices.price, interval.high).items():
                for arc in path:
                    slowest = max(interval.low, float(graph.time[arc]))
                    through = graph.weight * slowest + value + priced.least_peaks(np.inf)
                    least[arc] = min(least[arc], through)
        found = np.zeros(graph.arcs, np.bool_)
        found[priced.open_arcs(intervals, cutoff)] = True
        sure = np.abs(least - cutoff) > 1e-9
        assert (found == (least < cutoff))[sure].all()
        some += int(found.sum())
    assert some > 50


def test_no_arc_is_as_fast_as_that_and_so_no_peak_is_sure() -> None:
    graph = replace(chain(1.0, 2.0), peaks=np.array([[3.0, 5.0]]))
    assert PricedGraph(graph).least_peaks(np.inf) == 5.0
    assert PricedGraph(graph).least_peaks(1.0) == 0.0


def ends(times: list[float], cutoff: float, weight: float = 3.0) -> list[tuple[float, float]]:
    """Return the intervals, in order, of one layer whose stages take so long."""
    graph = replace(parallel(np.array(times), np.zeros(len(times))), weight=weight)
    return sorted((i.low, i.high) for i in PricedGraph(graph).sweep(cutoff, 8))


def test_intervals_are_split_between_the_times_of_arcs() -> None:
    """Not where the slowest does not count, nor where they are narrow."""
    assert ends([1.0, 2.0], np.inf) == [(1.0, 2.0**0.5), (2.0, 2.0)]
    assert ends([1.0, 1.0005], np.inf) == [(1.0, 1.0005)]
    with np.errstate(divide="raise"):
        assert ends([1.0, 2.0], np.inf, weight=0.0) == [(1.0, 2.0)]
        assert ends([1.0, 2.0], 9.0, weight=0.0) == [(1.0, 2.0)]


@for_each(
    ("weight", "cutoff", "peak", "high"),
    [(3.0, 20.0, 0.0, 6.0), (3.0, 20.0, 3.0, 5.0), (1.0, 8.0, 0.0, 6.0), (3.0, np.inf, 0.0, 10.0)],
)
def test_no_stage_is_slower_than_the_cutoff_leaves_to_it(
    weight: float, cutoff: float, peak: float, high: float
) -> None:
    """Of 20 seconds 2 are the least sum, and the slowest counts three times more."""
    graph = parallel(np.array([2.0, 10.0]), np.zeros(2))
    graph = replace(graph, weight=weight, peaks=np.full((1, 2), peak))
    assert [i.high for i in PricedGraph(graph).sweep(cutoff, 0)] == [high]
