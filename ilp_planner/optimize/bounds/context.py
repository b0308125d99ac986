"""Costs of an arc of a stage graph beyond its best case, and its possible places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph


class Context(NamedTuple):
    """Costs of an arc of a graph beyond its best case, and its possible places.

    behind: int64 [arcs], most arcs after it. level: int64 [nodes], level_of: int64 [depths]: an arc
    with d arcs after it leaves a node of level level_of[d]. kind: int64 [arcs], class of an arc, as
    the arc before it sees it. row: int64 [arcs], its row in send_time and send_extra: float64
    [rows, classes], seconds added to time and extra when an arc of that class follows.

    Where devices are taken node by node (`after` is not empty): demand: int64 [arcs, types], row of
    `after` and `near`; after: int64 [rows, types, devices + 1], how many devices of a type are
    taken once the arc has its own, -1 if they do not fit; near: bool, likewise, whether these are
    in one node with the last one taken before. rest: int64 [types, devices + 1], devices left in
    that node. single: int64 [arcs], the type of an arc in one node, -1 for others. apart: int64
    [classes], the class that stands for a follower of this class in another node.
    """

    behind: NDArray[np.int64]
    level: NDArray[np.int64]
    level_of: NDArray[np.int64]
    kind: NDArray[np.int64]
    row: NDArray[np.int64]
    send_time: NDArray[np.float64]
    send_extra: NDArray[np.float64]
    demand: NDArray[np.int64]
    single: NDArray[np.int64]
    after: NDArray[np.int64]
    near: NDArray[np.bool_]
    rest: NDArray[np.int64]
    apart: NDArray[np.int64]

    def only(self, arcs: NDArray[np.int64]) -> Context:
        """Return the context of some of the arcs."""
        return self._replace(
            behind=self.behind[arcs],
            kind=self.kind[arcs],
            row=self.row[arcs],
            demand=self.demand[arcs],
            single=self.single[arcs],
        )


def no_context(graph: StageGraph) -> Context:
    """Return the context of a graph with arcs of fixed cost at every place."""
    none = np.zeros(graph.arcs, np.int64)
    depths = np.zeros(graph.operators + 1, np.int64)
    return Context(
        behind=none + graph.operators,
        level=np.zeros(graph.nodes, np.int64),
        level_of=depths,
        kind=none,
        row=none,
        send_time=np.zeros((1, 1)),
        send_extra=np.zeros((1, 1)),
        **no_seats(graph.arcs),
    )


def no_seats(arcs: int) -> dict[str, NDArray[Any]]:
    """Return the fields of a `Context` with counted devices, not seated ones."""
    return {
        "demand": np.zeros((arcs, 0), np.int64),
        "single": np.full(arcs, -1),
        "after": np.zeros((0, 0, 0), np.int64),
        "near": np.zeros((0, 0, 0), np.bool_),
        "rest": np.zeros((0, 0), np.int64),
        "apart": np.zeros(1, np.int64),
    }
