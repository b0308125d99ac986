"""The stage graph: pipeline planning as a path with a bottleneck, the one problem that every
solver shares.

Nodes are pipeline states (position in the operator chain, devices used, stages after); an arc is a
stage
candidate: a range of operators on a device group, with the least time it can take there. A plan is
a path from
a source to the sink, and costs

    (micro_batches - 1) * max(time of its arcs) + sum(time of its arcs).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class StageGraph:
    """Frozen, acyclic instance.

    nodes: number of nodes, numbered 0 .. nodes - 1; every arc goes from a lower to a higher
    *position*.
    sources: nodes where a path may begin (operator 0). sink: the node where it ends (all operators
    placed).
    tail, head: int64 [arcs], node numbers. start, stop: int64 [arcs], operators [start, stop) of
    the stage.
    time: float64 [arcs], seconds of one micro-batch through the stage, > 0.
    operators: length of the chain. micro_batches: B >= 1.
    """

    nodes: int
    sources: tuple[int, ...]
    sink: int
    operators: int
    micro_batches: int
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]

    def __post_init__(self) -> None:
        arcs = self.time.size
        for name in ("tail", "head", "start", "stop"):
            if getattr(self, name).shape != (arcs,):
                raise ValueError(f"{name} must have one entry per arc ({arcs})")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be >= 1, found {self.micro_batches}")
        if arcs and (self.start >= self.stop).any():
            raise ValueError("every arc must cover at least one operator")
        if arcs and not (np.isfinite(self.time).all() and (self.time > 0).all()):
            raise ValueError("every arc must take a finite, positive time")

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return int(self.time.size)

    def only(self, arcs: NDArray[np.int64], time: NDArray[np.float64]) -> StageGraph:
        """Return the graph of some of the arcs, numbered in the given order, with other times."""
        return StageGraph(
            nodes=self.nodes,
            sources=self.sources,
            sink=self.sink,
            operators=self.operators,
            micro_batches=self.micro_batches,
            tail=self.tail[arcs],
            head=self.head[arcs],
            start=self.start[arcs],
            stop=self.stop[arcs],
            time=time,
        )

    def path_time(self, path: Sequence[int]) -> float:
        """Return the iteration time of a path given as arc numbers, in seconds."""
        times = self.time[np.asarray(path, dtype=np.int64)]
        return float((self.micro_batches - 1) * times.max() + times.sum())

    def is_path(self, path: Sequence[int]) -> bool:
        """Tell whether the arcs form a path from a source to the sink."""
        if not len(path) or int(self.tail[path[0]]) not in self.sources:
            return False
        joined = all(self.head[a] == self.tail[b] for a, b in pairwise(path))
        return bool(joined and self.head[path[-1]] == self.sink)
