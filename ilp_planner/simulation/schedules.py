"""The table of schedules, by name."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.simulation.loops import (
    gpipe,
    interleaved,
    interleaved_zero_bubble,
    one_forward_one_backward,
    zero_bubble_h1,
)
from ilp_planner.simulation.orders import Shape
from ilp_planner.simulation.vees import dual_pipe_v, zero_bubble_v

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.simulation.orders import Orders

KEPT = 32  # orders that are remembered; the largest take some 10 MB


class ScheduleRow(NamedTuple):
    """A schedule: how its orders are made, and what it asks for.

    virtual: virtual stages per rank that it takes, None: any number. per_stage: micro-batches that
    it takes at least, for every stage of the pipeline.
    """

    orders: Callable[[Shape], Orders]
    virtual: int | None = 1
    per_stage: int = 0


SCHEDULES = {
    "gpipe": ScheduleRow(gpipe),
    "1f1b": ScheduleRow(one_forward_one_backward),
    "interleaved": ScheduleRow(interleaved, virtual=None),
    "zb-h1": ScheduleRow(zero_bubble_h1),
    "interleaved-zb": ScheduleRow(interleaved_zero_bubble, virtual=None),
    "zb-v": ScheduleRow(zero_bubble_v, virtual=2),
    "dualpipe-v": ScheduleRow(dual_pipe_v, virtual=2, per_stage=1),
}


def schedule_orders(
    name: str, ranks: int, micro_batches: int, virtual: int = 1, group: int | None = None
) -> Orders:
    """Return the orders of a schedule; the same object for the same arguments.

    Parameters
    ----------
    virtual: stages per rank. group: micro-batches that pass one virtual stage before the next one's
        turn, where stages are looped; as many as ranks, or all of them where these are fewer.

    Raises
    ------
    ValueError: there is no such schedule, or it does not take this pipeline.
    """
    row = SCHEDULES.get(name)
    if row is None:
        raise ValueError(f"no schedule {name!r}, expected one of {', '.join(SCHEDULES)}")
    if min(ranks, micro_batches, virtual) < 1:
        raise ValueError("a pipeline has at least one rank, micro-batch and stage per rank")
    if row.virtual not in (None, virtual):
        raise ValueError(f"{name} takes {row.virtual} stages per rank, found {virtual}")
    least = row.per_stage * ranks * virtual
    if micro_batches < least:
        raise ValueError(f"{name} takes at least {least} micro-batches, found {micro_batches}")
    return _made(name, Shape(ranks, micro_batches, virtual, group or min(ranks, micro_batches)))


@lru_cache(KEPT)
def _made(name: str, shape: Shape) -> Orders:
    return SCHEDULES[name].orders(shape)
