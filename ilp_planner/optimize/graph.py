"""The stage graph: planning a pipeline as a path with a bottleneck, the problem of every solver.

Nodes are pipeline states (position in the operator chain, devices used, stages after); an arc is a
stage candidate: a range of operators on a device group, with the least time it can take there. A
plan is a path from a source to the sink, and costs

    weight * max(time of its arcs) + sum(time of its arcs)
      + sum(extra of its arcs) + sum over k of max(peak k of its arcs),

with `extra` the addition of an arc once per iteration (as a transfer) and a peak a cost of the
slowest stage alone (as a gradient reduction that all stages do at once). If arcs use up devices
(`use`), a path may not use more of any type than there are (`capacity`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def _left_out() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class StageGraph:
    """Frozen, acyclic instance.

    nodes: number of nodes, numbered 0 .. nodes - 1; every arc goes from a lower to a higher
    *position*.
    sources: first nodes of paths (operator 0). sink: the last node (all operators placed).
    tail, head: int64 [arcs], node numbers. start, stop: int64 [arcs], operators [start, stop) of
    the stage.
    time: float64 [arcs], seconds of one micro-batch through the stage, > 0.
    operators: length of the chain. weight: how often the slowest arc counts beyond the first, >= 0.
    extra: float64 [arcs], seconds per iteration, >= 0; zeros when left out.
    peaks: float64 [K, arcs], seconds per iteration, >= 0; K = 0 when left out.
    use: int64 [arcs, D], devices of each type that an arc uses; D = 0 when left out.
    capacity: devices of each type, D of them.
    """

    nodes: int
    sources: tuple[int, ...]
    sink: int
    operators: int
    weight: float
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.float64]
    extra: NDArray[np.float64] = field(default_factory=_left_out)
    peaks: NDArray[np.float64] = field(default_factory=_left_out)
    use: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    capacity: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        arcs = self.time.size
        if self.extra.size == 0:
            object.__setattr__(self, "extra", np.zeros(arcs))
        if self.peaks.ndim == 1 and self.peaks.size == 0:
            object.__setattr__(self, "peaks", np.zeros((0, arcs)))
        if self.use.ndim == 1 and self.use.size == 0:
            object.__setattr__(self, "use", np.zeros((arcs, 0), np.int64))
        if self.extra.shape != (arcs,) or self.peaks.shape[1:] != (arcs,):
            raise ValueError(f"extra and peaks must have one entry per arc ({arcs})")
        if self.use.shape != (arcs, len(self.capacity)):
            raise ValueError(
                f"use must be {arcs} arcs x {len(self.capacity)} capacities, found {self.use.shape}"
            )
        for name in ("extra", "peaks", "use"):
            values = getattr(self, name)
            if values.size and not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} must be finite and at least 0")
        for name in ("tail", "head", "start", "stop"):
            if getattr(self, name).shape != (arcs,):
                raise ValueError(f"{name} must have one entry per arc ({arcs})")
        if not 0 <= self.weight < math.inf:
            raise ValueError(f"weight must be finite and at least 0, found {self.weight}")
        if arcs and (self.start >= self.stop).any():
            raise ValueError("every arc must cover at least one operator")
        if arcs and not (np.isfinite(self.time).all() and (self.time > 0).all()):
            raise ValueError("every arc must take a finite, positive time")

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return int(self.time.size)

    @property
    def plain(self) -> bool:
        """Arcs have nothing but a time: no extra, no peaks, no devices to share."""
        return not (self.peaks.size or self.capacity or self.extra.any())

    @property
    def begins(self) -> NDArray[np.bool_]:
        """Whether a path may begin at each node."""
        begins = np.zeros(self.nodes, np.bool_)
        begins[list(self.sources)] = True
        return begins

    @property
    def positions(self) -> NDArray[np.int64]:
        """The operator of each node, -1 for one without arcs."""
        position = np.full(self.nodes, -1, np.int64)
        position[self.tail] = self.start
        position[self.head] = self.stop
        return position

    def topological(self) -> NDArray[np.int64]:
        """Return the nodes so that every arc goes from earlier to later: positions grow along
        it."""
        return np.argsort(self.positions, kind="stable").astype(np.int64)

    def by_tail(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return arcs sorted by tail, and the start of each node's ([nodes + 1])."""
        order = np.argsort(self.tail, kind="stable")
        return order, np.searchsorted(self.tail[order], np.arange(self.nodes + 1)).astype(np.int64)

    def only(self, arcs: NDArray[np.int64], time: NDArray[np.float64] | None = None) -> StageGraph:
        """Return the graph of some of the arcs, in the given order; with other times if given."""
        return replace(
            self,
            tail=self.tail[arcs],
            head=self.head[arcs],
            start=self.start[arcs],
            stop=self.stop[arcs],
            time=self.time[arcs] if time is None else time,
            extra=self.extra[arcs],
            peaks=self.peaks[:, arcs],
            use=self.use[arcs],
        )

    def path_time(self, path: Sequence[int]) -> float:
        """Return the iteration time of a path given as arc numbers, in seconds."""
        arcs = np.asarray(path, dtype=np.int64)
        times = self.time[arcs]
        value = float(self.weight * times.max() + times.sum())
        if self.plain:
            return value
        return float(value + self.extra[arcs].sum() + self.peaks[:, arcs].max(axis=1).sum())

    def is_path(self, path: Sequence[int]) -> bool:
        """Tell whether the arcs form a path from a source to the sink, within the capacities."""
        if not len(path) or int(self.tail[path[0]]) not in self.sources:
            return False
        if (self.use[np.asarray(path, dtype=np.int64)].sum(axis=0) > self.capacity).any():
            return False
        joined = all(self.head[a] == self.tail[b] for a, b in pairwise(path))
        return bool(joined and self.head[path[-1]] == self.sink)
