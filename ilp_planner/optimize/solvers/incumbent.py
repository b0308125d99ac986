"""A first path of a graph: shortest paths under ceilings, with multipliers on scarce devices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.solvers.arc_reduction import path_leasts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph

INCUMBENT_TRIES = 16
PRICE_STEPS = 12
"""Times that device prices are adjusted, per choice of ceilings, to make a shortest path fit."""
FIRST_STEPS = 60
"""As often when nothing has fitted yet.

Measured on two instances of 14000 and 16000 arcs over three types of 16 devices: 12 steps find no
path in one of them, 40 find one (2.4 % above the best path known, whose own gap is open).
"""


def shortest_path(
    graph: StageGraph, weight: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[int, ...]:
    """Return the path of least total weight over the allowed arcs; () without one."""
    order = np.argsort(graph.start, kind="stable")
    order = order[allowed[order]]
    total = [math.inf] * graph.nodes
    into = [-1] * graph.nodes
    for source in graph.sources:
        total[source] = 0.0
    for arc, tail, head, part in zip(
        order.tolist(),
        graph.tail[order].tolist(),
        graph.head[order].tolist(),
        weight[order].tolist(),
        strict=True,
    ):
        if total[tail] + part < total[head]:
            total[head] = total[tail] + part
            into[head] = arc
    path = []
    node = graph.sink
    while into[node] >= 0:
        path.append(into[node])
        node = int(graph.tail[path[-1]])
    return tuple(reversed(path))


class _Fitting:
    """Shortest paths within the capacities, by a Lagrange multiplier per device type.

    Multipliers are kept from one set of allowed arcs to the next, as the sets are alike.
    """

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self.capacity = np.array(graph.capacity, dtype=np.int64)
        self.price = np.zeros(self.capacity.size)
        self.steps = FIRST_STEPS

    def path(self, allowed: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return a path over the allowed arcs within the capacities, empty when none was found."""
        graph = self.graph
        weight = graph.time + graph.extra
        if not self.capacity.size:
            return shortest_path(graph, weight, allowed)
        best: tuple[int, ...] = ()
        for step in range(self.steps):
            if best and step >= PRICE_STEPS:
                break
            path = shortest_path(graph, weight + graph.use @ self.price, allowed)
            if not path:
                return ()
            arcs = list(path)
            over = graph.use[arcs].sum(axis=0) - self.capacity
            if (over <= 0).all():
                if not best or graph.path_time(path) < graph.path_time(best):
                    best = path
                if not self.price.any():
                    break
            # One path's whole cost, spread over the devices that are too many or left over.
            size = float(weight[arcs].sum()) / (2 + step) / float((over * over).sum() or 1)
            self.price = np.maximum(0.0, self.price + size * over)
        self.steps = PRICE_STEPS
        return best


def incumbent(graph: StageGraph, tries: int = INCUMBENT_TRIES) -> tuple[int, ...]:
    """Return the best of a few shortest paths, under different ceilings on their arcs.

    Ceilings are put on the time, then on each peak under the best ceilings so far. If devices are
    limited, none of the paths may fit: empty then, as without any path.
    """
    fitting = _Fitting(graph)
    allowed = np.ones(graph.arcs, dtype=np.bool_)
    best = fitting.path(allowed)
    limited = [graph.time] if graph.weight > 0 else []
    for value in (*limited, *graph.peaks):
        if not allowed.any():
            break
        least = float(path_leasts(graph, graph.time, value).worst_to[graph.sink])
        most = float(value[list(best)].max() if best else value[allowed].max())
        kept = allowed
        for ceiling in np.linspace(least, most, tries, endpoint=False) if least < most else ():
            under = allowed & (value <= ceiling)
            path = fitting.path(under)
            if path and (not best or graph.path_time(path) < graph.path_time(best)):
                best, kept = path, under
        allowed = kept
    return best
