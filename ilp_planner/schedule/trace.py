"""An iteration as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format is Chrome's Trace Event Format: a process per rank, a slice per operation, and a counter
of the rank's activations. Times are microseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.files import write_text
from ilp_planner.schedule.engine import held_memory
from ilp_planner.schedule.orders import KINDS, NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ilp_planner.schedule.engine import Timeline

COLOURS = ("thread_state_running", "thread_state_iowait", "good", "bad")  # of the kinds
MICRO = 1e6


def write_trace(path: Path, timeline: Timeline) -> None:
    """Write a trace atomically.

    Raises
    ------
    OutputError: the system refuses.
    """
    write_text(path, json.dumps({"traceEvents": trace_events(timeline)}) + "\n")


def trace_events(
    timeline: Timeline, activations: NDArray[np.int64] | None = None
) -> list[dict[str, Any]]:
    """Return the events of a trace, in the order of the ranks."""
    orders = timeline.orders
    ops, unit = orders.operations, "micro-batches" if activations is None else "bytes"
    counted = np.ones(orders.shape.stages, np.int64) if activations is None else activations
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(orders.shape.ranks)
    ]
    columns = (
        orders.ranks, ops.kinds, ops.stages, ops.micro_batches, MICRO * timeline.start,
        MICRO * (timeline.end - timeline.start), held_memory(orders, counted),
    )  # fmt: skip
    for row in zip(*(column.tolist() for column in columns), strict=True):
        rank, kind, stage, micro_batch, start, duration, held = row
        where = {"pid": rank, "tid": 0, "ts": start}
        events.append(
            {
                "ph": "X",
                "name": f"{KINDS[kind]}{micro_batch}",
                "cat": NAMES[kind],
                "cname": COLOURS[kind],
                **where,
                "dur": duration,
                "args": {"stage": stage, "micro-batch": micro_batch},
            }
        )
        events.append({"ph": "C", "name": "held activations", **where, "args": {unit: held}})
    for rank, end in enumerate(timeline.finish.tolist()):
        end_of = {"pid": rank, "tid": 0, "ts": MICRO * end}
        events.append({"ph": "C", "name": "held activations", **end_of, "args": {unit: 0}})
    return events
