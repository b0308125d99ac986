"""Lower bounds of the operators of a chain, known before any stage is examined.

A stage on g devices computes its operators one after the other, so it keeps g devices busy for at
least the sum of their least seconds. No pipeline is faster than all device-seconds spread over all
devices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from ilp_planner.problem import Problem

KEPT = 4  # problems whose work is remembered


class Work(NamedTuple):
    """Of a micro-batch size. weight: of the slowest stage in an iteration (`Schedule.weight`).
    device_seconds: of a micro-batch, over all operators. alone: seconds of a micro-batch through
    all of them, each on the devices that take least."""

    weight: float
    device_seconds: float
    alone: float

    def seconds(self, devices: int) -> float:
        """Return a lower bound in seconds of plans on so many devices."""
        each = self.device_seconds / devices
        return self.weight * each + max(self.alone, each)


@lru_cache(maxsize=KEPT)
def works_of(problem: Problem[Any]) -> tuple[Work, ...]:
    """Return the work of every micro-batch size that some devices can run.

    Stages on fewer devices than there are have no options that are not counted here, so the work is
    also a bound for plans on some of the nodes.
    """
    groups = np.array(problem.space.stage_sizes(problem))
    found = []
    for size in problem.micro_batch_sizes:
        schedule = OneForwardOneBackward(problem.global_batch // size)
        least = np.array(
            [problem.costs.least_compute(size, int(g), schedule.micro_batches) for g in groups]
        )
        work = Work(
            schedule.weight,
            float((groups[:, None] * least).min(axis=0).sum()),
            float(least.min(axis=0).sum()),
        )
        if work.device_seconds < np.inf:
            found.append(work)
    return tuple(found)
