"""What ways to a node cost at least: all of them one by one, and capacities counted by hand."""

from itertools import product

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.resource_paths import Arcs, Nodes, Pricing, coarse, reach
from tests.examples import for_each


@for_each(
    ("capacity", "most", "sizes", "units", "strides"),
    [
        ((), 100.0, [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]),
        ((3,), 4.0, [4, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]),  # as many as are allowed
        ((4,), 4.0, [3, 1, 1, 1], [2, 1, 1, 1], [1, 1, 1, 1]),  # 0-1, 2-3, 4
        ((7, 3), 16.0, [4, 4, 1, 1], [2, 1, 1, 1], [4, 1, 1, 1]),
        ((9, 9, 9), 1000.0, [10, 10, 10, 1], [1, 1, 1, 1], [100, 10, 1, 1]),  # 10 of each, exactly
        ((9, 9, 9), 999.0, [5, 5, 5, 1], [2, 2, 2, 1], [25, 5, 1, 1]),
        ((1, 2, 3, 4, 99), 625.0, [2, 3, 4, 5], [1, 1, 1, 1], [60, 20, 5, 1]),  # of four types
        ((8, 8), 0.3, [1, 1, 1, 1], [16, 16, 1, 1], [1, 1, 1, 1]),  # none: one combination
    ],
)
def test_capacities_are_counted_in_powers_of_two_as_finely_as_is_allowed(
    capacity: tuple[int, ...], most: float, sizes: list[int], units: list[int], strides: list[int]
) -> None:
    found = coarse(capacity, most)
    assert [each.tolist() for each in found] == [sizes, units, strides]


def drawn(seed: int) -> tuple[Arcs, Nodes, Pricing, np.ndarray]:
    """Return a graph of whole seconds whose nodes are numbered in any order, and the tails."""
    random = np.random.default_rng(seed)
    count, types, kinds = (int(random.integers(a, b)) for a, b in ((2, 7), (0, 6), (0, 3)))
    order = random.permutation(count)
    pairs = [(order[i], order[j]) for i in range(count) for j in range(i + 1, count)] * 2
    pairs = [pair for pair in pairs if random.random() < 0.6] or pairs[:1]
    tail, head = np.array(sorted(pairs)).T
    size, rows = tail.size, int(random.integers(1, 4))
    arcs = Arcs(
        first=np.searchsorted(tail, np.arange(count + 1)),
        head=np.ascontiguousarray(head),
        time=random.integers(1, 9, size).astype(np.float64),
        total=random.integers(1, 9, size).astype(np.float64),
        peaks=random.integers(0, 9, (size, kinds)).astype(np.float64),
        use=random.integers(0, 4, (size, types)),
        family=np.zeros(size, np.int64),
    )
    sources = np.zeros(count, np.bool_)
    sources[order[: int(random.integers(1, 3))]] = True
    high = np.sort(random.integers(2, 9, rows)).astype(np.float64)
    price = random.integers(0, 4, (rows, types)).astype(np.float64)
    capacity = tuple(random.integers(0, 9, types).tolist())
    levels = coarse(capacity, float(random.choice([1.0, 20.0, 100.0])))
    pricing = Pricing(np.zeros(rows), high, price, *levels)
    return arcs, Nodes(order, sources, np.arange(count)), pricing, tail


def ways(arcs: Arcs, nodes: Nodes, tail: np.ndarray) -> dict[int, list[list[int]]]:
    """Return all ways from a source to each node, of their arcs."""
    found: dict[int, list[list[int]]] = {v: [] for v in range(tail.size + nodes.order.size)}
    for v in nodes.order.tolist():
        found[v] += [[]] if nodes.sources[v] else []
        for a in np.flatnonzero(tail == v).tolist():
            found[int(arcs.head[a])] += [[*way, a] for way in found[v]]
    return found


@for_each("seed", range(60))
def test_what_is_reached_is_the_least_of_all_ways(seed: int) -> None:
    """With prices, of those whose groups take no more levels together than there are."""
    arcs, nodes, pricing, tail = drawn(seed)
    found, every = reach(arcs, nodes, pricing), ways(arcs, nodes, tail)
    counted = np.flatnonzero(pricing.sizes > 1)
    for v in range(nodes.order.size):
        slowest = [arcs.time[way].max(initial=0.0) for way in every[v]]
        assert found.slowest[v] == min(slowest, default=INFINITE)
        peaks = [arcs.peaks[way].max(axis=0, initial=0.0) for way in every[v]]
        assert (
            found.peaks[v] == np.min([*peaks, np.full(peaks[0].shape, INFINITE)], axis=0)
            if peaks
            else found.peaks[v] == INFINITE
        ).all()
        sums = []
        for way in every[v]:
            levels = (arcs.use[way][:, counted] // pricing.units[counted]).sum(axis=0)
            costs = arcs.total[way].sum() + pricing.price @ arcs.use[way].sum(axis=0)
            costs[arcs.time[way].max(initial=0.0) > pricing.high] = INFINITE
            sums.append((levels, costs))
        for room in product(*(range(size) for size in pricing.sizes)):
            at = int(np.dot(room, pricing.strides))
            fit = [cost for used, cost in sums if (used <= np.array(room)[counted]).all()]
            least = np.min([*fit, np.full(pricing.high.size, INFINITE)], axis=0)
            assert found.priced[v, :, at].tolist() == least.tolist()
