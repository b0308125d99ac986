"""One iteration as the script of the page draws it: the operations of every pipeline rank in
time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.faces.page.packed import packed
from ilp_planner.schedule.engine import delays
from ilp_planner.schedule.orders import KINDS, NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.analysis.simulated import Simulated
    from ilp_planner.schedule.engine import StageTimes, Timeline

TICKS = 2**26  # of an iteration: an operation of a millionth of it can still be zoomed into
SHOWN = 4  # micro-batches beside the fill, and beside the drain
MOST_SHOWN = 0.6  # of an iteration in windows; it is drawn whole where they would show more
MOST_OPERATIONS = 1_000_000  # that a page draws


def timeline_data(found: Simulated, sends: Sends) -> dict[str, Any]:
    """Return the script's data of an iteration, ready for JSON.

    Times are ticks, `ticks` of them a second; the page draws until `opens` at first. Operations are
    in the order in which each rank runs them, operations of rank r from `starts[r]` on; `packed`
    has three columns for them: stage and kind (4 x stage + kind), micro-batch, and ticks since the
    operation before of the rank ended. The first two are differences to the operation before.
    `durations` says how long each stage and kind takes.
    """
    timeline = found.timeline
    orders, ops = timeline.orders, timeline.orders.operations
    whole = max(found.seconds, timeline.seconds)
    scale = TICKS / whole if whole else 1.0
    codes = 4 * ops.stages.astype(np.int64) + ops.kinds
    start = np.rint(timeline.start * scale).astype(np.int64)
    known, first = np.unique(codes, return_index=True)
    lasting = np.rint((timeline.end - timeline.start)[first] * scale).astype(np.int64)
    duration = lasting[np.searchsorted(known, codes)]
    gaps = np.diff(start, prepend=0) - np.concatenate([[0], duration[:-1]])
    gaps[ops.starts[:-1]] = start[ops.starts[:-1]]
    shape = orders.shape
    return {
        "ticks": scale,
        "whole": round(whole * scale),
        "opens": round(windows(timeline, whole)[0][1] * scale),
        "ends": np.rint(timeline.finish * scale).astype(np.int64).tolist(),
        "pipeline": round(timeline.seconds * scale),
        "ranks": shape.ranks,
        "stages": shape.stages,
        "microBatches": shape.micro_batches,
        "starts": ops.starts.tolist(),
        "kinds": list(NAMES),
        "letters": KINDS,
        "durations": dict(zip(known.tolist(), lasting.tolist(), strict=True)),
        "packed": packed(np.diff(codes, prepend=0), np.diff(ops.micro_batches, prepend=0), gaps),
        "sends": sends._asdict(),
    }


def windows(timeline: Timeline, seconds: float) -> list[tuple[float, float]]:
    """Return the first and last second of the parts of an iteration that are drawn at first.

    All of it, or, if that is much more, the fill with `SHOWN` micro-batches, and as many with the
    drain and the end. seconds: of the whole iteration.
    """
    begin, end = opening(timeline), closing(timeline)
    if begin + (seconds - end) > MOST_SHOWN * seconds:
        return [(0.0, seconds)]
    return [(0.0, begin), (end, seconds)]


def opening(timeline: Timeline) -> float:
    """Return when the rank that begins last has ended its first `SHOWN` micro-batches."""
    ops = timeline.orders.operations
    rank = int(np.argmax(timeline.start[ops.starts[:-1]]))
    here = slice(ops.starts[rank], ops.starts[rank + 1])
    return float(timeline.end[here][ops.micro_batches[here] < SHOWN].max())


def closing(timeline: Timeline) -> float:
    """Return when the rank that ends first begins its last `SHOWN` micro-batches."""
    ops, count = timeline.orders.operations, timeline.orders.shape.micro_batches
    rank = int(np.argmin(timeline.end[ops.starts[1:] - 1]))
    here = slice(ops.starts[rank], ops.starts[rank + 1])
    return float(timeline.start[here][ops.micro_batches[here] >= count - SHOWN].min())


class Sends(NamedTuple):
    """Messages between pipeline ranks, seconds summed over all. travelling: that they are on their
    way. hidden: in which the rank that waits for one computes."""

    travelling: float
    hidden: float


def sends_of(timeline: Timeline, times: StageTimes) -> Sends:
    """Return how long messages between ranks travel, and how much of it ranks compute meanwhile.

    A message travels from the end of the operation that made it, or from when the rank that needs
    it asks for it if both ends wait. Of that, the rank waits from the end of its operation before
    until it begins the next one, and computes in the rest.
    """
    orders = timeline.orders
    here = np.flatnonzero(orders.remote)
    delay = delays(orders, times)[here]
    free = _free(timeline)[here]
    waited = timeline.start[here] - np.maximum(free, timeline.end[orders.needs[here]])
    exposed = np.minimum(delay, np.maximum(0.0, waited))
    return Sends(float(delay.sum()), float((delay - exposed).sum()))


def _free(timeline: Timeline) -> NDArray[np.float64]:
    """Return when each operation's rank has ended the one before, float64 [n]."""
    free = np.concatenate([[0.0], timeline.end[:-1]])
    free[timeline.orders.operations.starts[:-1]] = 0.0
    return free
