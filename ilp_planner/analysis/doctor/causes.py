"""The causes that are looked for: a table of rows, each with its test.

A test returns the cause, with its seconds and its evidence, or None if it is not there; it raises
`NotTold` if the files do not tell. No test looks at words of people: numbers of steps, timers,
kernels and settings decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.analysis.doctor import causes_kernels as kernels
from ilp_planner.analysis.doctor import causes_settings as settings
from ilp_planner.analysis.doctor import causes_steps as steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.analysis.doctor.case import Case, Cause


class Row(NamedTuple):
    """A cause that is looked for."""

    name: str
    title: str
    find: Callable[[Case], Cause | None]


ROWS = (
    Row("batch", "another batch than asked for", settings.another_batch),
    Row("warm-up", "warm-up counted", steps.warm_up),
    Row("data", "stalls of data loading or checkpoints", steps.stalls),
    Row("data", "waiting for data", steps.loading),
    Row("checkpoint", "seconds of checkpoints", steps.saving),
    Row("straggler", "a straggler", kernels.straggler),
    Row("straggler", "jitter", steps.jitter),
    Row("link", "a slow link, no overlap", kernels.messages),
    Row("recomputation", "recomputation that was not meant", kernels.recomputation),
    Row("host", "steps bound by the host", kernels.host_bound),
    Row("experts", "imbalance of experts", kernels.experts),
    Row("clocks", "clocks below the usual", kernels.clocks),
    Row("clocks", "GPUs that became slower", steps.slower_later),
    Row("memory", "fragmented memory", steps.fragmentation),
    Row("padding", "padding", settings.padding),
)
