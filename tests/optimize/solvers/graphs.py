"""Stage graphs for tests: random small ones for hypothesis, and one that takes solvers seconds."""

import dataclasses
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from ilp_planner.optimize.graph import StageGraph

Arc = tuple[int, int, int, int, float]
"""First operator, operator after the last, devices used before, devices of the stage, seconds."""

TIMES = st.one_of(
    st.floats(1e-4, 1e3),
    st.sampled_from([0.5, 1.0, 1.25, 2.0]),  # ties
    st.floats(0.99, 1.01),
)


def make_graph(operators: int, arcs: Iterable[Arc], micro_batches: int) -> StageGraph:
    """Return the graph over states (operator, devices used); all devices may be used or not."""
    states: dict[tuple[int, int], int] = {}

    def node(operator: int, used: int) -> int:
        return states.setdefault((operator, used if operator < operators else 0), len(states))

    source, sink = node(0, 0), node(operators, 0)
    rows = [(node(i, u), node(j, u + g), i, j, t) for i, j, u, g, t in arcs]
    tail, head, start, stop, _ = np.array(rows, dtype=np.float64).reshape(-1, 5).T.astype(np.int64)
    return StageGraph(
        nodes=len(states),
        sources=(source,),
        sink=sink,
        operators=operators,
        weight=micro_batches - 1.0,
        tail=tail,
        head=head,
        start=start,
        stop=stop,
        time=np.array([row[4] for row in rows], dtype=np.float64),
    )


def chain(*times: float, micro_batches: int = 4) -> StageGraph:
    """Return a graph with one path."""
    arcs = [(at, at + 1, at, 1, time) for at, time in enumerate(times)]
    return make_graph(len(times), arcs, micro_batches)


FORK = make_graph(
    2, [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 1, 0, 2, 3.0), (1, 2, 2, 1, 3.0)], 8
)


def paths_of(graph: StageGraph) -> list[tuple[int, ...]]:
    """Return every path from a source to the sink, the slowest way."""
    found = []
    stack: list[tuple[int, ...]] = [
        (arc,) for arc in range(graph.arcs) if int(graph.tail[arc]) in graph.sources
    ]
    while stack:
        path = stack.pop()
        if graph.head[path[-1]] == graph.sink:
            found.append(path)
        stack.extend(
            (*path, int(arc)) for arc in np.flatnonzero(graph.tail == graph.head[path[-1]])
        )
    return found


@st.composite
def graphs(draw: st.DrawFn, feasible: bool = True) -> StageGraph:
    """Draw a small graph: parallel arcs, dead ends and unreachable states included."""
    operators = draw(st.integers(1, 7))
    devices = draw(st.integers(1, 4))
    position = st.integers(0, operators)
    used, group = st.integers(0, devices - 1), st.integers(1, devices)
    drawn = draw(st.lists(st.tuples(position, position, used, group, TIMES), max_size=40))
    arcs = [
        (min(i, j), max(i, j), u, min(g, devices - u), t)
        for i, j, u, g, t in drawn
        if i != j and (u > 0) == (min(i, j) > 0)  # no device is used before the first operator
    ]
    if feasible:
        cuts = sorted(draw(st.sets(st.integers(1, operators), max_size=devices - 1)) - {operators})
        for used_now, (i, j) in enumerate(zip([0, *cuts], [*cuts, operators], strict=True)):
            arcs.append((i, j, used_now, 1, draw(TIMES)))
    return make_graph(operators, arcs, draw(st.sampled_from([1, 2, 3, 8, 64, 1000])))


@st.composite
def dense_graphs(draw: st.DrawFn) -> StageGraph:
    """Draw a graph with two or three arcs over every range of a few operators, alike in time."""
    operators, options = draw(st.integers(3, 5)), draw(st.integers(2, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.1, 1.0]))
    arcs = [
        (i, j, i, j - i, (j - i) ** 0.8 * (1 + spread * random.random()))
        for i in range(operators)
        for j in range(i + 1, operators + 1)
        for _ in range(options)
    ]
    return make_graph(operators, arcs, draw(st.sampled_from([1, 2, 8])))


@st.composite
def general_graphs(draw: st.DrawFn) -> StageGraph:
    """Draw a small graph with extras, any weight, up to two peaks and up to three device types.

    The capacities are what one of its paths uses, or less: some leave no path, some many.
    """
    graph = draw(st.one_of(graphs(), dense_graphs()))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arcs, types = graph.arcs, draw(st.integers(0, 3))
    size = float(np.median(graph.time))
    extra = size * draw(st.sampled_from([0.0, 0.1, 10.0])) * random.random(arcs)
    peaks = (
        size * draw(st.sampled_from([1.0, 30.0])) * random.random((draw(st.integers(0, 2)), arcs))
    )
    peaks[random.random(peaks.shape) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    unit = draw(st.sampled_from([1, 2, 8]))
    use = unit * random.integers(0, 4, (arcs, types))
    path = draw(st.sampled_from(paths_of(graph)))
    spare = random.integers(-2, 4, types) if draw(st.booleans()) else np.zeros(types, np.int64)
    capacity = np.maximum(0, use[list(path)].sum(axis=0) + spare)
    weight = draw(st.sampled_from([graph.weight, graph.weight + 0.3]))
    return dataclasses.replace(
        graph, weight=weight, extra=extra, peaks=peaks, use=use, capacity=tuple(capacity.tolist())
    )


def odd_one_out(steps: int = 6) -> StageGraph:
    """Return a graph without a path: its devices run out, which neither reduction nor LP sees.

    Each step takes 20 to 30 devices, of either type. All together are as many as there are, so that
    what the steps on the first type take must be exactly its capacity; but half of the steps take
    more, fewer steps less.
    """
    sizes = np.arange(steps) + 20
    first = int(sizes[: steps // 2].sum()) - 1
    tail = np.repeat(np.arange(steps), 2)
    kind = np.tile([0, 1], steps)
    use = np.zeros((2 * steps, 2), dtype=np.int64)
    use[np.arange(2 * steps), kind] = sizes[tail]
    return StageGraph(
        nodes=steps + 1,
        sources=(0,),
        sink=steps,
        operators=steps,
        weight=3.0,
        tail=tail,
        head=tail + 1,
        start=tail,
        stop=tail + 1,
        time=1.0 + 0.01 * tail + 0.1 * kind,
        use=use,
        capacity=(first, int(sizes.sum()) - first),
    )


def two_types(layers: int = 48, seed: int = 0, *, shared: bool = False) -> StageGraph:
    """Return a graph of 3000 arcs on two device types, with near-equal times: seconds of work.

    The nodes count the devices used; `shared`: the capacities do, the paths are the same.
    """
    random = np.random.default_rng(seed)
    work = np.concatenate([[0.0], np.cumsum(1 + 0.05 * random.random(layers))])
    capacity, speed, most_stages = (8, 8), (1.0, 0.62), 8
    balanced = 1.15 * work[-1] / (capacity[0] * speed[0] + capacity[1] * speed[1])
    noise = 1 + 0.03 * random.random((layers, layers + 1, 2, 5))
    states = {(0, 0, 0, 0): 0}
    rows, uses = [], []
    for i in range(layers):
        for state in [s for s in states if s[0] == i]:
            for kind, group in ((k, g) for k in (0, 1) for g in (1, 2, 4)):
                used = [state[1], state[2]]
                used[kind] += group
                if used[kind] > capacity[kind] or state[3] == most_stages:
                    continue
                rate = group * speed[kind] * (1 - 0.06 * np.log2(group))
                for j in range(i + 1, layers + 1):
                    time = (work[j] - work[i]) / rate * noise[i, j, kind, group]
                    if time > 1.1 * balanced or (time < 0.8 * balanced and j < layers):
                        continue
                    last = (layers, 0, 0, 0)
                    counted = (0, 0) if shared else (used[0], used[1])
                    after = (j, *counted, state[3] + 1) if j < layers else last
                    head = states.setdefault(after, len(states))
                    uses.append([group * (kind == 0), group * (kind == 1)])
                    rows.append((states[state], head, i, j, time))
    tail, head, start, stop, time = np.array(rows).T
    return StageGraph(
        nodes=len(states),
        sources=(0,),
        sink=states[layers, 0, 0, 0],
        operators=layers,
        weight=63.0,
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        time=time * 1e-2,
        use=np.array(uses) if shared else np.zeros(0, np.int64),
        capacity=capacity if shared else (),
    )
