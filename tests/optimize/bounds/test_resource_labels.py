"""Labels on stage graphs: families, seats in nodes, and what is dropped, against all paths."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.context import Context, no_context
from ilp_planner.optimize.bounds.resource_labels import FEW, _mixed
from ilp_planner.optimize.bounds.resource_paths import PathSearch, search_resource_paths
from ilp_planner.optimize.bounds.resource_prices import PricedGraph
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.spaces.groups.seating import Seating
from tests.examples import for_each
from tests.optimize.bounds.test_arrays import plain
from tests.optimize.solvers.graphs import paths_of
from tests.spaces.groups.test_seating import cluster

SEEDS = range(40)


def chain_of(layers: int, options: int, random: np.random.Generator) -> StageGraph:
    """Return a graph over layers with so many stages of whole seconds for every range of them; its
    nodes are numbered in any order."""
    ranges = [(i, j) for i in range(layers) for j in range(i + 1, layers + 1)] * options
    start, stop = np.array(ranges).T
    node = random.permutation(layers + 1)
    size, types = start.size, int(random.integers(0, 3))
    return StageGraph(
        nodes=layers + 1,
        sources=(int(node[0]),),
        sink=int(node[layers]),
        operators=layers,
        weight=float(random.integers(0, 4)),
        tail=node[start],
        head=node[stop],
        start=start,
        stop=stop,
        time=random.integers(1, 9, size).astype(np.float64),
        extra=random.integers(0, 4, size).astype(np.float64),
        peaks=random.integers(0, 6, (int(random.integers(0, 3)), size)).astype(np.float64),
        use=random.integers(0, 3, (size, types)),
        capacity=tuple(random.integers(1, 6, types).tolist()),
    )


@dataclass(frozen=True)
class Case:
    """A graph whose stages send to one another, with all of its paths."""

    graph: StageGraph
    context: Context

    def seconds(self, path: tuple[int, ...]) -> float:
        """Return the seconds of a path, INFINITE where it may not be; from its end on, as devices
        are taken."""
        g, c = self.graph, self.context
        times, extras = g.time[list(path)].copy(), g.extra[list(path)].copy()
        taken = np.zeros(len(g.capacity), np.int64)
        for place in range(len(path) - 1, -1, -1):
            a = path[place]
            if len(path) - 1 - place > c.behind[a]:
                return INFINITE
            if place + 1 < len(path):
                follower, kind = path[place + 1], int(c.single[a])
                to = int(c.kind[follower])
                if kind >= 0 and kind == c.single[follower]:
                    near = c.near[c.demand[a, kind], kind, taken[kind]]
                    to = to if near else int(c.apart[to])
                times[place] += c.send_time[c.row[a], to]
                extras[place] += c.send_extra[c.row[a], to]
            for d in range(taken.size):
                seated = d < c.after.shape[1]
                taken[d] = (
                    c.after[c.demand[a, d], d, taken[d]] if seated else taken[d] + g.use[a, d]
                )
                if taken[d] < 0 or taken[d] > g.capacity[d]:
                    return INFINITE
        peaks = g.peaks[:, list(path)].max(axis=1).sum()
        return float(g.weight * times.max() + (times + extras).sum() + peaks)

    def optimum(self) -> float:
        return min((self.seconds(path) for path in paths_of(self.graph)), default=INFINITE)


def sending(seed: int) -> Case:
    """Draw stages that send to two classes, with a limit of stages after them."""
    random = np.random.default_rng(seed)
    graph = chain_of(int(random.integers(1, 5)), int(random.integers(1, 4)), random)
    send = random.integers(0, 5, (2, 2, 2)).astype(np.float64)
    send[:, :, int(random.integers(2))] = 0.0
    context = no_context(graph)._replace(
        behind=random.integers(0, 4, graph.arcs),
        kind=random.integers(0, 2, graph.arcs),
        row=random.integers(0, 2, graph.arcs),
        send_time=send[0],
        send_extra=send[1],
    )
    return Case(graph, context)


def check(found: PathSearch, case: Case, best: float, cutoff: float = INFINITE) -> None:
    """The way found is the best one, and a path at its time."""
    assert found.exact
    if best >= cutoff:
        assert (found.path, found.bound) == ((), cutoff)
    else:
        assert found.value == found.bound == best
        assert case.seconds(found.path) == best


@for_each("splits", [None, 0, 6])
@for_each("share", [1.0, 1.25, None])
def test_the_best_of_all_paths_is_found(splits: int | None, share: float | None) -> None:
    """splits: of the range of the slowest stage. share: paths have to be below that times it."""
    for seed in SEEDS:
        case = sending(seed)
        best = case.optimum()
        cutoff = INFINITE if share is None else min(share * best, INFINITE)
        priced = None if splits is None else PricedGraph(case.graph).sweep(cutoff, splits)
        found = search_resource_paths(case.graph, case.context, cutoff=cutoff, intervals=priced)
        assert found.exact
        if best >= cutoff:
            assert (found.path, found.bound) == ((), cutoff)
        else:
            assert found.value == pytest.approx(best, rel=1e-12)
            assert found.bound == pytest.approx(best, rel=1e-12)
            assert case.seconds(found.path) == best


@for_each("share", [1.0, 1.3, 3.0])
def test_the_best_path_of_every_family_is_listed(share: float) -> None:
    """Of those below the cutoff. With sending, and without."""
    listed = 0
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        case = sending(seed)
        contexts = [case.context, no_context(case.graph)]
        families = random.integers(0, 3, case.graph.arcs)
        for number, context in enumerate(contexts):
            own = Case(case.graph, context)
            cutoff = share * own.optimum()
            if cutoff >= INFINITE:
                continue
            best: dict[tuple[int, ...], float] = {}
            for path in paths_of(case.graph):
                if (value := own.seconds(path)) < cutoff:
                    name = tuple(families[list(path)].tolist())
                    best[name] = min(value, best.get(name, INFINITE))
            found = search_resource_paths(
                case.graph, None if number else context, cutoff=cutoff, families=families
            )
            first: dict[tuple[int, ...], float] = {}
            for value, path in found.others:
                first.setdefault(tuple(families[list(path)].tolist()), value)
                assert own.seconds(path) == value < cutoff
            assert first == best
            assert found.exact
            assert found.bound == min([cutoff, *best.values()])
            assert list(found.others) == sorted(found.others)
            listed += len(best)
    assert listed > 50 or share == 1.0


def test_a_way_as_slow_and_dearer_than_another_one_of_its_family_is_not_listed() -> None:
    """Nor is one that ends as late as another one; one of another family is, and so is a faster
    one, even if it is dearer."""
    graph = parallel(np.array([4.0, 4.0, 4.0, 3.0]), np.array([0.0, 1.0, 1.0, 9.0]))
    found = search_resource_paths(graph, families=np.array([0, 0, 1, 0]))
    assert [path for _, path in found.others] == [(0,), (2,), (3,)]


def test_the_larger_peak_counts_of_two() -> None:
    """The second way takes as long and has the same peak, that of the last layer; it adds more."""
    graph = StageGraph(
        nodes=3, sources=(0,), sink=2, operators=2, weight=1.0, tail=np.array([0, 0, 1]),
        head=np.array([1, 1, 2]), start=np.array([0, 0, 1]), stop=np.array([1, 1, 2]),
        time=np.ones(3), extra=np.array([0.0, 1.0, 0.0]), peaks=np.array([[3.0, 3.0, 5.0]]),
    )  # fmt: skip
    found = search_resource_paths(graph, families=np.zeros(3, np.int64))
    assert found.others == ((8.0, (0, 2)),)


def parallel(time: NDArray[np.float64], extra: NDArray[np.float64]) -> StageGraph:
    """Return a graph of one layer and these stages; the slowest counts twice."""
    zero = np.zeros(time.size, np.int64)
    return StageGraph(
        nodes=2, sources=(0,), sink=1, operators=1, weight=1.0, tail=zero, head=zero + 1,
        start=zero, stop=zero + 1, time=time, extra=extra,
    )  # fmt: skip


def test_families_are_told_apart_by_the_steps_of_splitmix64() -> None:
    """As published: the first outputs from seed 0 (https://prng.di.unimi.it/splitmix64.c)."""
    with np.errstate(over="ignore"):
        found = [int(plain(_mixed)(mark, -1)) % 2**64 for mark in (1, 2, 3)]
        assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
        assert plain(_mixed)(1, 5) != plain(_mixed)(1, 6)


# ---- seats --------------------------------------------------------------------------------------


def seated(seed: int) -> Case:
    """Draw stages on groups that take the devices of nodes one after the other.

    Sending costs least to a group on all nodes (class 2), more to one in the same node (class 0),
    and most to one in another node (class 1).
    """
    random = np.random.default_rng(seed)
    sizes = [[2, 2], [4], [3, 3], [2, 4]][seed % 4]
    seats = Seating(cluster(sizes))
    demands = [(1, 1), (1, 2), (2, 1), (1, 3)]
    after, near = seats.follow(demands)
    graph = chain_of(int(random.integers(2, 5)), 2, random)
    demand = random.integers(0, len(demands), (graph.arcs, 1))
    single = np.where(random.random(graph.arcs) < 0.8, 0, -1)
    send = np.array([[[1.0, 5.0, 0.0], [0.0, 3.0, 0.0]], [[0.0, 2.0, 0.0], [2.0, 2.0, 0.0]]])
    context = no_context(graph)._replace(
        kind=np.where(single < 0, 2, 0),
        row=random.integers(0, 2, graph.arcs),
        send_time=send[0],
        send_extra=send[1],
        demand=demand,
        single=single,
        after=after,
        near=near,
        rest=seats.rest,
        apart=np.array([1, 1, 2]),
    )
    use = np.array([tp * replicas for tp, replicas in demands])[demand]
    return Case(replace(graph, use=use, capacity=(sum(sizes),)), context)


def test_devices_are_taken_node_by_node() -> None:
    """Neighbours in one node send faster; devices that are passed over are not there any more."""
    reached = 0
    for seed in range(60):
        case = seated(seed)
        best = case.optimum()
        check(search_resource_paths(case.graph, case.context), case, best)
        reached += best < INFINITE
    assert reached > 30


def seats_of(sizes: list[int], kind: list[int], demand: list[int]) -> Context:
    """Return the context of one stage before some others: of groups of so many devices and a class
    each; those of class 2 are spread. Sending takes nothing in a node and 100 seconds otherwise."""
    seats = Seating(cluster(sizes))
    after, near = seats.follow([(1, n) for n in range(5)])
    none = np.zeros(len(kind), np.int64)
    return Context(
        behind=none + 9, level=np.zeros(3, np.int64), level_of=np.zeros(3, np.int64),
        kind=np.array(kind), row=none, send_time=np.zeros((1, 3)),
        send_extra=np.array([[0.0, 100.0, 100.0]]), demand=np.array(demand)[:, None],
        single=np.where(np.array(kind) == 2, -1, 0), after=after, near=near, rest=seats.rest,
        apart=np.array([1, 1, 2]),
    )  # fmt: skip


def one_before(time: list[float], use: list[int], devices: int) -> StageGraph:
    """Return a stage of 1 second and one device before others, any of which may follow."""
    tail = np.append(0, np.ones(len(time), np.int64))
    return StageGraph(
        nodes=3, sources=(0,), sink=2, operators=2, weight=1.0, tail=tail, head=tail + 1,
        start=tail, stop=tail + 1, time=np.array([1.0, *time]),
        use=np.array([1, *use])[:, None], capacity=(devices,),
    )  # fmt: skip


def test_a_group_with_room_beside_it_is_not_beaten_by_one_without() -> None:
    """Of nodes with two and four devices: three leave one beside them, two leave none."""
    graph, context = one_before([1.0, 1.5], [2, 3], 6), seats_of([2, 4], [0, 0, 0], [1, 2, 3])
    found = search_resource_paths(graph, context)
    assert (found.path, found.value) == ((0, 2), 1.5 + 1.0 + 1.5)


def test_a_second_type_may_be_counted_where_the_first_is_seated() -> None:
    for seed in range(30):
        case, random = seated(seed), np.random.default_rng(seed)
        graph = replace(
            case.graph,
            use=np.column_stack([case.graph.use, random.integers(0, 3, case.graph.arcs)]),
            capacity=(*case.graph.capacity, 3),
        )
        both = Case(graph, case.context)
        check(search_resource_paths(graph, both.context), both, both.optimum())


# ---- what is dropped ----------------------------------------------------------------------------


def last_stages(count: int = 15) -> tuple[StageGraph, Context, list[float]]:
    """Return two layers with one stage for the first, and for the second so many, none of which is
    better than another one: each is slower than the one before, and leaves less to add; and their
    bounds. Sending to them takes 1000 seconds that no bound knows of, but for that of the largest.
    The first stage has the peak, of 7 seconds."""
    time = np.arange(count) + 2.0
    extra = 60.0 - 4 * np.arange(count) % 29 + np.arange(count)[::-1] * 30
    graph = StageGraph(
        nodes=3, sources=(0,), sink=2, operators=2, weight=1.0,
        tail=np.append(0, np.ones(count, np.int64)), head=np.append(1, np.full(count, 2)),
        start=np.append(0, np.ones(count, np.int64)), stop=np.append(1, np.full(count, 2)),
        time=np.append(1.0, time), extra=np.append(0.0, extra),
        peaks=np.append(7.0, np.full(count, 3.0))[None],
    )  # fmt: skip
    bounds = time + time + extra + 1.0 + 7.0
    far = np.ones(count, np.int64)
    far[int(np.argmax(bounds))] = 0
    context = no_context(graph)._replace(
        kind=np.append(0, far), send_time=np.array([[0.0, 0.0]]),
        send_extra=np.array([[0.0, 1000.0]]),
    )  # fmt: skip
    return graph, context, sorted(bounds.tolist())


@for_each(
    ("kept", "options"),
    [
        (1, {"width": 1}),
        (6, {"width": 6}),
        (FEW, {"effort": 0.0}),
        (FEW, {"effort": 59.0}),  # 15 candidates, and 0 + 1 + ... + 9 comparisons
        (FEW + 1, {"effort": 60.0}),
        (12, {"width": 12, "effort": 1e9}),
        (14, {"width": 14}),
    ],
)
def test_what_is_dropped_is_bounded_by_the_first_of_it(
    kept: int, options: dict[str, float]
) -> None:
    """Labels of least bounds are kept; the way whose bound is largest is the best one in truth."""
    graph, context, bounds = last_stages()
    assert all(a < b for a, b in pairwise(bounds))
    best = search_resource_paths(graph, context)
    assert (best.value, best.bound, best.exact) == (bounds[-1], bounds[-1], True)
    found = search_resource_paths(graph, context, **options)
    assert found.value == bounds[0] + 1000.0
    assert (found.bound, found.exact) == (bounds[kept], False)


def test_labels_are_compared_with_those_of_fewer_stages_after() -> None:
    """The last two layers as one stage beat them as two, in two ways, neither of which is better
    than the other; so one label is enough. The first stage sends for 100 seconds, which no bound
    knows of."""
    tail, head = np.array([0, 1, 2, 3, 3, 4]), np.array([2, 3, 5, 4, 4, 5])
    start, stop = np.array([0, 0, 1, 1, 1, 2]), np.array([1, 1, 3, 2, 2, 3])
    graph = StageGraph(
        nodes=6, sources=(0, 1), sink=5, operators=3, weight=1.0, tail=tail, head=head,
        start=start, stop=stop, time=np.array([1.0, 1.0, 2.0, 3.0, 4.0, 2.0]),
        extra=np.array([0.0, 0.0, 0.0, 5.0, 0.0, 0.0]),
    )  # fmt: skip
    context = no_context(graph)._replace(
        level=np.array([1, 2, 0, 1, 0, 0]), level_of=np.array([0, 1, 2, 2]),
        kind=np.array([0, 0, 1, 1, 1, 0]), send_time=np.zeros((1, 2)),
        send_extra=np.array([[0.0, 100.0]]),
    )  # fmt: skip
    found = search_resource_paths(graph, context, width=1)
    assert (found.path, found.value, found.exact) == ((0, 2), 2.0 + 3.0 + 100.0, True)
    assert found.bound == found.value


def test_labels_of_all_nodes_are_no_more_than_is_allowed() -> None:
    """One is at the end, and none is left for the first layer: five or all of the second."""
    graph, context, bounds = last_stages()
    for most, least in ((6, bounds[5]), (16, bounds[-1])):
        found = search_resource_paths(graph, context, most_labels=most)
        assert (found.path, found.bound, found.exact) == ((), least, False)
    found = search_resource_paths(graph, most_labels=17)
    assert found.exact


def test_width_that_suffices_drops_nothing() -> None:
    graph, context, bounds = last_stages()
    for options in ({"width": 15}, {"most_labels": 17}, {"effort": 1e9}):
        found = search_resource_paths(graph, context, **options)
        assert (found.value, found.bound, found.exact) == (bounds[-1], bounds[-1], True)


def test_there_may_be_more_labels_than_room_for_them_at_first() -> None:
    """4200 nodes with one each, 4200 candidates of one node, 150 families at the beginning."""
    count = 4200
    each = np.arange(count)
    row = StageGraph(
        nodes=count + 1, sources=(0,), sink=count, operators=count, weight=1.0, tail=each,
        head=each + 1, start=each, stop=each + 1, time=np.ones(count),
        peaks=(each % 7)[None].astype(np.float64),
    )  # fmt: skip
    found = search_resource_paths(row)
    assert found.path == tuple(range(count))
    assert found.value == 1.0 + count + 6.0
    wide = parallel(5000.0 - each, np.zeros(count))
    found = search_resource_paths(wide, width=1)
    assert (found.path, found.value, found.exact) == ((count - 1,), 2 * 801.0, True)
    some = parallel(1.0 + each[:150], np.zeros(150))
    listed = search_resource_paths(some, families=each[:150]).others
    assert [path for _, path in listed] == [(n,) for n in range(150)]
