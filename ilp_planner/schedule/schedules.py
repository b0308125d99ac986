"""The table of schedules, by name; makers of orders are imported when they are needed."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.schedule.orders import Orders, Shape

KEPT = 32  # orders that are remembered; the largest take some 10 MB


class ScheduleRow(NamedTuple):
    """A schedule: the module of this folder and the function that make its orders of a `Shape`.

    virtual: virtual stages per rank that it takes, None: any number. per_stage: micro-batches that
    it takes at least, for every stage of the pipeline.
    """

    module: str
    function: str
    virtual: int | None = 1
    per_stage: int = 0


SCHEDULES = {
    "gpipe": ScheduleRow("loops", "gpipe"),
    "1f1b": ScheduleRow("loops", "one_forward_one_backward"),
    "interleaved": ScheduleRow("loops", "interleaved", virtual=None),
    "zb-h1": ScheduleRow("loops", "zero_bubble_h1"),
    "interleaved-zb": ScheduleRow("loops", "interleaved_zero_bubble", virtual=None),
    "zb-v": ScheduleRow("loops", "zero_bubble_v", virtual=2),
    "dualpipe-v": ScheduleRow("loops", "dual_pipe_v", virtual=2, per_stage=1),
}


def schedule_orders(
    name: str, ranks: int, micro_batches: int, virtual: int = 1, group: int | None = None
) -> Orders:
    """Return the orders of a schedule; the same object for the same arguments.

    Parameters
    ----------
    virtual: stages per rank. group: size of microbatch groups, which pass one virtual stage before
        the next one, if stages are looped; as many as ranks, or all of them if these are fewer.

    Raises
    ------
    ValueError: an unknown schedule, or one that does not take this pipeline.
    """
    row = SCHEDULES.get(name)
    if row is None:
        raise ValueError(f"no schedule {name!r}, expected one of {', '.join(SCHEDULES)}")
    if min(ranks, micro_batches, virtual) < 1:
        raise ValueError("a pipeline has at least one rank, micro-batch and stage per rank")
    if row.virtual not in (None, virtual):
        stages = f"{row.virtual} stage{'s' if row.virtual != 1 else ''}"
        raise ValueError(f"{name} takes {stages} per rank, found {virtual}")
    least = row.per_stage * ranks * virtual
    if micro_batches < least:
        raise ValueError(f"{name} takes at least {least} micro-batches, found {micro_batches}")
    return _made(name, ranks, micro_batches, virtual, group or min(ranks, micro_batches))


@lru_cache(KEPT)
def _made(name: str, *shape: int) -> Orders:
    from ilp_planner.schedule.orders import Shape

    row = SCHEDULES[name]
    module = import_module(f"ilp_planner.schedule.{row.module}")
    make: Callable[[Shape], Orders] = getattr(module, row.function)
    return make(Shape(*shape))
