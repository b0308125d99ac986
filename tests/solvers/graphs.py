"""Stage graphs for tests: random small ones for hypothesis, and one that takes solvers seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ilp_planner.graph import StageGraph

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        micro_batches=micro_batches,
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


def two_types(layers: int = 48, seed: int = 0) -> StageGraph:
    """Return a graph of 3000 arcs on two device types, with near-equal times: seconds of work."""
    random = np.random.default_rng(seed)
    work = np.concatenate([[0.0], np.cumsum(1 + 0.05 * random.random(layers))])
    capacity, speed, most_stages = (8, 8), (1.0, 0.62), 8
    balanced = 1.15 * work[-1] / (capacity[0] * speed[0] + capacity[1] * speed[1])
    noise = 1 + 0.03 * random.random((layers, layers + 1, 2, 5))
    states = {(0, 0, 0, 0): 0}
    rows = []
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
                    after = (j, used[0], used[1], state[3] + 1) if j < layers else last
                    head = states.setdefault(after, len(states))
                    rows.append((states[state], head, i, j, time))
    tail, head, start, stop, time = np.array(rows).T
    return StageGraph(
        nodes=len(states),
        sources=(0,),
        sink=states[layers, 0, 0, 0],
        operators=layers,
        micro_batches=64,
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        time=time * 1e-2,
    )
