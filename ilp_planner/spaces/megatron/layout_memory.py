"""Which layouts of schedules that divide backward passes may fit memory, for all of them at once.

A rank holds its states, and at some moment every mix of micro-batches of its schedule
(`Schedule.held`). What it needs besides is not counted here, so that what does not fit never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.numerics import FINE_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.anatomy.memory import MemoryParts

STATES = ("weights", "gradients", "optimizer")


def may_fit(
    parts: MemoryParts, limits: Sequence[float], layouts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each layout may fit, bool [layouts].

    Parameters
    ----------
    parts: of a job that computes nothing again. limits: bytes on the devices of each rank. layouts:
        where the virtual stages end on the chain, int64 [layouts, stages + 1].
    """
    job = parts.job
    experts = job.model.expert_layers
    kinds = ("embedding", *("expert layer" if e else "layer" for e in experts), "output")
    chain = [parts.parts[kind] for kind in kinds]
    states, kept, waiting = (
        _between(np.array(each, np.float64), layouts)
        for each in (
            [sum(getattr(part, name) for name in STATES) for part in chain],
            [part.left for part in chain],
            [part.waiting for part in chain],
        )
    )
    waiting[:, 0] = 0.0  # of the first stage only the gradient of its output
    place = [list(job.stages_of(rank)) for rank in range(job.pp)]
    fits = np.ones(len(layouts), np.bool_)
    for own, limit in zip(place, limits, strict=True):
        # the first micro-batch is in all stages of a rank before it goes back through the last
        one = states[:, own].sum(axis=1) + kept[:, own].sum(axis=1)
        fits &= one <= limit * (1 + FINE_ROUNDING)
    if not fits.any():
        return fits
    for rank, (own, limit) in enumerate(zip(place, limits, strict=True)):
        mixes = np.array(job.schedule.held(job.pp - 1 - rank), np.float64)
        held = np.concatenate((kept[:, own], waiting[:, own]), axis=1) @ mixes.T
        fits &= states[:, own].sum(axis=1) + held.max(axis=1) <= limit * (1 + FINE_ROUNDING)
    return fits


def _between(each: NDArray[np.float64], layouts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums over the elements of every stage, [layouts, stages]."""
    sums = np.concatenate(([0.0], np.cumsum(each)))
    return np.diff(sums[layouts], axis=1)
