"""Common code of descriptions of a part's pipelines: places of stages, and brackets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.graph import StageGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


# ---- numbers from 0 on for the different values of columns of whole numbers ----------------------


SPARSE = 8  # times as many values as entries: sorting the entries takes less


def numbered(
    *columns: NDArray[Any],
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return the different values of all columns, ascending, and the place of each entry among
    them: as `np.unique` does by sorting, without it if values are dense.

    Parameters
    ----------
    columns: int32 or int64 of any lengths, 0 and more.
    """
    entries = sum(column.size for column in columns)
    most = max((int(column.max()) for column in columns if column.size), default=-1)
    if most > SPARSE * entries:
        values, place = np.unique(np.concatenate(columns), return_inverse=True)
        ends = np.cumsum([column.size for column in columns])[:-1]
        return values, np.split(place, ends)
    there = np.zeros(most + 1, np.bool_)
    for column in columns:
        there[column] = True
    number = np.cumsum(there) - 1
    return np.flatnonzero(there), [number[column] for column in columns]


# ---- pipelines -----------------------------------------------------------------------------------


# Seconds (or bytes) below which nothing is told apart from nothing.
SHORTEST = 1e-12
LENGTHS = 8  # of the slowest stage, between which sums of stages are bounded


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a stage: its devices, stages after it, and whether its ends cross nodes."""

    devices: int
    behind: int
    enters_node: bool
    leaves_node: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenStages:
    """A stage graph, and of each arc its number in `places` and its entry in that place's table;
    int32 or int64."""

    graph: StageGraph
    places: tuple[Place, ...]
    place: NDArray[Any]
    entry: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Arcs:
    """Stages between states, numbered in any order; [arcs], `time` in seconds. start, stop: int64;
    others int32 or int64."""

    tail: NDArray[Any]
    head: NDArray[Any]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    place: NDArray[Any]
    entry: NDArray[Any]
    time: NDArray[np.float64]


class Pipelines(ABC):
    """Pipelines over bounds of their stages, or over other numbers for these.

    operators: length of the chain.
    """

    operators: int

    @abstractmethod
    def exists(self, slowest: float) -> bool:
        """Tell whether there is a pipeline with all stages within `slowest` seconds."""

    @abstractmethod
    def least_sum(self, slowest: float) -> float:
        """Return the least sum of stage times of a pipeline with none above `slowest`."""

    @abstractmethod
    def open_graph(self, weight: float, cutoff: float, low: float) -> OpenStages:
        """Return the graph of all stages that may be part of a pipeline faster than `cutoff`
        seconds.

        weight: how often the slowest stage counts beyond the first time. low: no pipeline's slowest
        stage takes less (seconds).
        """

    def least_slowest(
        self, low: float, high: float, tolerance: float = 1e-4
    ) -> tuple[float, float]:
        """Bracket the least `slowest` that a pipeline can have: none at the first, one at the
        second.

        Returns (high, INFINITE) when there is none at `high`.
        """
        if not self.exists(high):
            return high, INFINITE
        while high > max(low * (1 + tolerance), SHORTEST):
            middle = (low * high) ** 0.5 if low > 0 else high / 1000
            if self.exists(middle):
                high = middle
            else:
                low = middle
        return low, high

    def slowest_below(self, weight: float, cutoff: float) -> float:
        """Return an upper bound on the stages of pipelines faster than `cutoff`, in seconds."""
        slowest = cutoff / (weight + 1)
        if weight == 0:
            return slowest
        return min(slowest, max(0.0, (cutoff - self.least_sum(slowest)) / weight))

    def least_total(self, weight: float, cutoff: float, low: float, least: float) -> float:
        """Return a lower bound in seconds of pipelines faster than `cutoff` seconds.

        The less the slowest stage may take, the more the sum of stages is: for pipelines with the
        slowest stage between two lengths, the lower one and the least sum at the upper one are
        bounds.

        Parameters
        ----------
        weight: how often the slowest stage counts beyond the first time. low, least: lower bounds
            in seconds on the slowest stage and the sum of stages of all pipelines.
        """
        most = max(low, self.slowest_below(weight, cutoff))
        lengths = np.geomspace(low, most, LENGTHS + 1) if low > 0 else np.array([low, most])
        totals = [
            weight * shorter + max(least, self.least_sum(longer))
            for shorter, longer in pairwise(map(float, lengths))
        ]
        return min(totals)

    def graph(
        self, arcs: Arcs, places: Sequence[Place], *, weight: float, sources: Any, sink: int
    ) -> OpenStages:
        """Return the stage graph of some arcs. sources, sink: numbers of states."""
        ends = np.array([sink], np.int64)
        keys, (tail, head, last) = numbered(arcs.tail, arcs.head, ends)
        graph = StageGraph(
            nodes=keys.size, sources=tuple(np.flatnonzero(np.isin(keys, sources)).tolist()),
            sink=int(last[0]), operators=self.operators, weight=weight, tail=tail, head=head,
            start=arcs.start, stop=arcs.stop, time=np.maximum(arcs.time, SHORTEST),
        )  # fmt: skip
        return OpenStages(graph=graph, places=tuple(places), place=arcs.place, entry=arcs.entry)


def fewest_before(devices: int, per_node: int, groups: Sequence[int]) -> NDArray[np.int64]:
    """Return the fewest stages on the first so many devices ([devices + 1]); more than there are
    devices if no groups inside one node or of whole nodes fill them."""
    never = devices + 1
    inside = _fewest(per_node, {g: 1 for g in groups if g <= per_node}, never)
    nodes = {g // per_node: 1 for g in groups if g % per_node == 0}
    whole = _fewest(devices // per_node, {**nodes, 1: inside[per_node]}, never)
    fewest = [whole[d // per_node] + inside[d % per_node] for d in range(devices + 1)]
    return np.minimum(fewest, never)


def _fewest(length: int, pieces: Mapping[int, int], never: int) -> list[int]:
    """Return the least weight of pieces (length -> weight) that fill each length up to this one."""
    found = [0]
    for end in range(1, length + 1):
        ways = [found[end - size] + weight for size, weight in pieces.items() if size <= end]
        found.append(min([*ways, never]))
    return found
