"""The best cut of a pipeline into stages under AMP's cost, exactly, over all placements of the
stages.

The cost has two maxima: the slowest stage and the slowest gradient reduction. With a limit on each,
the rest is a shortest path over (stages so far, placement, layer); the limits are swept upward over
the values that they can take, until not even the shortest path could beat the incumbent.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.peers.amp.costs import AmpTables

INFINITE = 1e30


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """Placements of the stages of a pipeline one after the other, as steps between states.

    State 0 is before the first stage; a pipeline is a path of one step per stage.
    stage: int64 [steps], ascending, the stage that a step places. tail, head: int64 [steps],
    states.
    sending: float64 [steps], seconds per number over the cut before the stage; 0 for the first.
    ring: float64 [steps], seconds per number over the data-parallel ring of the stage.
    """

    stages: int
    states: int
    stage: NDArray[np.int64]
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    sending: NDArray[np.float64]
    ring: NDArray[np.float64]


class Cut(NamedTuple):
    """Layers of each stage, the steps that place them, and the seconds per iteration."""

    partition: tuple[int, ...]
    steps: tuple[int, ...]
    value: float


def fixed_routes(sending: NDArray[np.float64], ring: NDArray[np.float64]) -> Routes:
    """Return the only route of a fixed placement.

    Parameters
    ----------
    sending: float64 [pp - 1]. ring: float64 [pp].
    """
    stages = np.arange(ring.size, dtype=np.int64)
    return Routes(
        stages=ring.size,
        states=ring.size + 1,
        stage=stages,
        tail=stages,
        head=stages + 1,
        sending=np.concatenate([[0.0], sending]),
        ring=ring,
    )


def best_cut(tables: AmpTables, routes: Routes, cutoff: float = np.inf) -> Cut | None:
    """Return the fastest cut below `cutoff` seconds, of all routes; None when there is none."""
    count = tables.load.shape[0]
    if routes.stages > count or not routes.stage.size:
        return None
    ranges = np.triu_indices(count, 1, count + 1)
    loads = np.unique(tables.load[ranges])
    peaks = np.unique(np.outer(np.unique(tables.reduced[ranges]), np.unique(routes.ring)))
    sweep = _Sweep(tables, routes)
    unlimited = sweep.least(loads[-1], peaks[-1])
    if unlimited >= INFINITE:
        return None
    weight, best = tables.weight, None
    least_load = sweep.first_load(loads, peaks[-1])
    most = loads.size - 1
    for peak in peaks[sweep.first_peak(loads[-1], peaks) :]:
        if tables.total + peak + weight * loads[least_load] + unlimited >= cutoff:
            break
        # What a larger limit on the reduction cannot improve.
        floor = sweep.least(loads[-1], peak)
        most = sweep.first_load(loads, peak, least_load, most)
        settled = False
        for load in loads[most if weight else -1 :]:
            if tables.total + peak + weight * load + floor >= cutoff:
                break
            sending = sweep.least(load, peak)
            found = sweep.trace()
            if found.value < cutoff:
                best, cutoff = found, found.value
            if sending <= floor:
                # Neither limit is in the way of anything: what is left only has larger ones.
                lowest = not weight or load <= loads[least_load]
                settled = lowest and sending <= unlimited
                break
        if settled:
            break
    return best


class _Sweep:
    """Least sums of sending under limits, and the path of the last one asked for."""

    def __init__(self, tables: AmpTables, routes: Routes) -> None:
        self.tables, self.routes = tables, routes
        shape = (routes.states, tables.load.shape[1])
        self.value = np.empty(shape)
        self.step = np.empty(shape, np.int64)
        self.start = np.empty(shape, np.int64)

    def least(self, load: float, peak: float) -> float:
        """Return the least seconds of sending with no stage above `load` and no reduction above
        `peak`; INFINITE if there is none."""
        routes, tables = self.routes, self.tables
        least: float = _least_sending(
            routes.stages, routes.stage, routes.tail, routes.head, routes.sending, routes.ring,
            tables.load, tables.sent, tables.reduced, load, peak, self.value, self.step, self.start,
        )  # fmt: skip
        return least

    def first_load(
        self, loads: NDArray[np.float64], peak: float, low: int = 0, high: int = -1
    ) -> int:
        """Return the place in [low, high] of the least limit on the load that has a path."""

        def passes(place: int) -> bool:
            return self.least(float(loads[place]), peak) < INFINITE

        return bisect_left(range(high % loads.size), True, low, key=passes)

    def first_peak(self, load: float, peaks: NDArray[np.float64]) -> int:
        """Return the place of the least limit on the reduction that has a path."""

        def passes(place: int) -> bool:
            return self.least(load, float(peaks[place])) < INFINITE

        return bisect_left(range(peaks.size - 1), True, key=passes)

    def trace(self) -> Cut:
        """Return the path of the last `least`."""
        tables, routes = self.tables, self.routes
        stop = tables.load.shape[0]
        ends = routes.head[routes.stage == routes.stages - 1]
        state = int(ends[np.argmin(self.value[ends, stop])])
        sending = float(self.value[state, stop])
        steps, cuts = [], [stop]
        while cuts[-1] > 0:
            steps.append(int(self.step[state, stop]))
            stop = int(self.start[state, stop])
            state = int(routes.tail[steps[-1]])
            cuts.append(stop)
        steps.reverse()
        ends = np.array(cuts[::-1])
        peak = float((tables.reduced[ends[:-1], ends[1:]] * routes.ring[steps]).max())
        slowest = float(tables.load[ends[:-1], ends[1:]].max())
        return Cut(
            partition=tuple(np.diff(ends).tolist()),
            steps=tuple(steps),
            value=tables.total + tables.weight * slowest + sending + peak,
        )


@kernel
def _least_sending(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    stages, stage, tail, head, sending, ring, load, sent, reduced, most_load, most_peak,
    value, step, begin,
):  # fmt: skip
    count = load.shape[0]
    value[:] = INFINITE
    value[0, 0] = 0.0
    best = INFINITE
    for s in range(stage.size):
        j = stage[s]
        low = j + 1 if j < stages - 1 else count
        for stop in range(low, count - (stages - 1 - j) + 1):
            least = value[head[s], stop]
            at = -1
            # Both limits only grow towards the beginning: beyond the first start that breaks one,
            # all do.
            for start in range(stop - 1, j - 1, -1):
                if load[start, stop] > most_load or reduced[start, stop] * ring[s] > most_peak:
                    break
                total = value[tail[s], start] + sent[start] * sending[s]
                if total < least:
                    least = total
                    at = start
            if at >= 0:
                value[head[s], stop] = least
                step[head[s], stop] = s
                begin[head[s], stop] = at
                if j == stages - 1 and least < best:
                    best = least
    return best
