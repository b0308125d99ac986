"""Pipelines on the bounds of their stages: stages that can be part of a plan below a cutoff.

A pipeline is built from its end: state (stages k and devices u of the suffix, first operator i).
The node of a stage, and so the ends that cross nodes, follow from the devices before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.pipelines import Arcs, OpenStages, Pipelines, Place
from ilp_planner.optimize.bounds.relax import open_arcs, reach, relax_ahead, relax_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.rows import Rows
    from ilp_planner.optimize.bounds.sweep import Extent


@dataclass(frozen=True, slots=True)
class Step:
    """A stage from one suffix state, (behind + 1, used + devices), to the next, (behind, used)."""

    place: Place
    used: int


def steps(
    *,
    devices: int,
    per_node: int,
    groups: tuple[int, ...],
    max_stages: int,
    check: Callable[[], None] = lambda: None,
) -> tuple[Step, ...]:
    """List every place of a stage in a pipeline on `devices` devices, suffixes first.

    Only steps are listed that reach both ends of the pipeline with groups inside one node, or of
    whole nodes. check: called now and then, may raise.
    """

    def legal(start: int, group: int) -> bool:
        whole = start % per_node == 0 and group % per_node == 0
        return start >= 0 and (whole or start // per_node == (start + group - 1) // per_node)

    # before[p]: numbers of stages that can fill devices 0 .. p - 1; after likewise from the end
    before: list[set[int]] = [{0}] + [set() for _ in range(devices)]
    for p in range(1, devices + 1):
        check()
        for g in groups:
            if legal(p - g, g):
                before[p] |= {k + 1 for k in before[p - g]}
    after: list[set[int]] = [{0}] + [set() for _ in range(devices)]
    for u in range(1, devices + 1):
        check()
        for g in groups:
            if u >= g and legal(devices - u, g):
                after[u] |= {k + 1 for k in after[u - g]}
    found = []
    for u in range(devices):
        check()
        for k in sorted(after[u]):
            for g in groups:
                start = devices - u - g
                if (
                    not legal(start, g)
                    or min(before[start], default=max_stages) + k + 1 > max_stages
                ):
                    continue
                place = Place(
                    g, k, start > 0 and start % per_node == 0, (start + g) % per_node == 0
                )
                found.append(Step(place, u))
    return tuple(sorted(found, key=lambda s: (s.place.behind, s.used, s.place.devices)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Landscape(Pipelines):
    """All that chain programs need: the steps, and the position of each place's stage times.

    times(place): [entries of that group size]. extents: per group size. check: called now and then,
    may raise.
    """

    operators: int
    devices: int
    max_stages: int
    steps: tuple[Step, ...]
    rows: Rows
    extents: dict[int, Extent]
    times: Callable[[Place], NDArray[np.float64]]
    check: Callable[[], None] = lambda: None

    def windows(self, reaches: dict[Place, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return [devices + 1, 2]: the first and last operator of a suffix on so many devices.

        Relaxed: from every operator on, each group takes its longest stage, wherever it stands.
        """
        n, total = self.operators, self.devices
        longest: dict[int, NDArray[np.int64]] = {}
        for place, longest_stage in reaches.items():
            known = longest.get(place.devices)
            longest[place.devices] = (
                longest_stage if known is None else np.maximum(known, longest_stage)
            )
        ends = {g: np.maximum.accumulate(np.arange(n) + most) for g, most in longest.items()}
        ahead = np.zeros(
            total + 1, np.int64
        )  # operators that so many devices can hold from the start
        for u in range(1, total + 1):
            for g, end in ends.items():
                if g <= u:
                    ahead[u] = max(ahead[u], end[min(ahead[u - g], n - 1)])
        back = np.full(total + 1, n, np.int64)  # first operator from which they can hold the rest
        for u in range(1, total + 1):
            for g, end in ends.items():
                if g <= u:
                    back[u] = min(back[u], np.searchsorted(end, back[u - g]))
        return np.stack([back, ahead[::-1]], axis=1)

    def _reaches(self, slowest: float) -> dict[Place, NDArray[np.int64]]:
        """Return for every place the longest stage within `slowest` seconds, by start ([n])."""
        reaches = {}
        for place in dict.fromkeys(step.place for step in self.steps):
            self.check()
            size = self.extents[place.devices]
            reaches[place] = reach(self.times(place), self.rows, size, slowest)
        return reaches

    def exists(self, slowest: float) -> bool:
        """Tell whether there is a pipeline with all stages within `slowest` seconds."""
        table = self.suffixes(slowest, sums=False)
        return any(t[0] < INFINITE for (_, u), t in table.items() if u == self.devices)

    def suffixes(
        self, slowest: float, *, sums: bool = True
    ) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Return for each state (k, u) the least sum to the end, by first operator ([n + 1]);
        without `sums`, any."""
        n = self.operators
        reaches = self._reaches(slowest)
        window = self.windows(reaches)
        table = {(0, 0): np.full(n + 1, INFINITE)}
        table[0, 0][n] = 0.0
        for step in self.steps:
            self.check()
            source = table[step.place.behind, step.used]
            key = (step.place.behind + 1, step.used + step.place.devices)
            target = table.setdefault(key, np.full(n + 1, INFINITE))
            size = self.extents[step.place.devices]
            relax_back(
                target, source, self.times(step.place), self.rows, size.base, reaches[step.place],
                slowest, window[key[1], 0], window[key[1], 1], sums,
            )  # fmt: skip
        return table

    def least_sum(self, slowest: float) -> float:
        """Return the least sum of stage times of a pipeline with none above `slowest`."""
        table = self.suffixes(slowest)
        return min((t[0] for (_, u), t in table.items() if u == self.devices), default=INFINITE)

    def open_graph(self, weight: float, cutoff: float, low: float) -> OpenStages:
        """Return the graph of all stages that may be part of a pipeline faster than `cutoff`
        seconds."""
        slowest = self.slowest_below(weight, cutoff)
        back = self.suffixes(slowest)
        reaches = self._reaches(slowest)
        ahead = self._prefixes(back, slowest, reaches)
        columns: list[tuple[NDArray[Any], ...]] = [(*(np.zeros(0, np.int64),) * 6, np.zeros(0))]
        places: list[Place] = []
        for step in self.steps:
            self.check()
            before = (step.place.behind + 1, step.used + step.place.devices)
            after = (step.place.behind, step.used)
            if before not in ahead or after not in back:
                continue
            times, size = self.times(step.place), self.extents[step.place.devices]
            start, stop, entry = open_arcs(
                ahead[before], back[after], times, self.rows, size.base, reaches[step.place],
                weight, slowest, low, cutoff,
            ).T  # fmt: skip
            if start.size:
                columns.append((
                    self._node(before, start), self._node(after, stop), start, stop,
                    np.full(start.size, len(places)), entry, times[entry],
                ))  # fmt: skip
                places.append(step.place)
        arcs = Arcs(*map(np.concatenate, zip(*columns, strict=True)))
        return self.graph(
            arcs, places, weight=weight, sink=self._node((0, 0), self.operators),
            sources=[self._node((k, self.devices), 0) for k in range(1, self.max_stages + 1)],
        )  # fmt: skip

    def _node(self, state: tuple[int, int], position: Any) -> Any:
        """Return the number of a state with first operators, before nodes are numbered densely."""
        k, u = state
        return (k * (self.devices + 1) + u) * (self.operators + 1) + position

    def _prefixes(
        self,
        back: dict[tuple[int, int], NDArray[np.float64]],
        slowest: float,
        reaches: dict[Place, NDArray[np.int64]],
    ) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Return for each suffix state the least sum before it, if both exist."""
        n = self.operators
        table: dict[tuple[int, int], NDArray[np.float64]] = {}
        for (k, u), suffix in back.items():
            if u == self.devices and suffix[0] < INFINITE:
                table[k, u] = np.full(n + 1, INFINITE)
                table[k, u][0] = 0.0
        for step in reversed(self.steps):
            self.check()
            source = table.get((step.place.behind + 1, step.used + step.place.devices))
            after = back.get((step.place.behind, step.used))
            if source is None or after is None:
                continue
            key = (step.place.behind, step.used)
            target = table.setdefault(key, np.full(n + 1, INFINITE))
            size = self.extents[step.place.devices]
            relax_ahead(
                target, source, after, self.times(step.place), self.rows, size.base,
                reaches[step.place], slowest,
            )  # fmt: skip
        return table
