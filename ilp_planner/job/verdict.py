"""Verdicts on whether a job fits the memory of its GPUs: three kinds, defined here for all reports.

The need of a GPU is predicted, with a reserve for fragmentation of 5 % of the allocator's peak
(`overheads.outside`). Nearer to a limit than that share of it, a prediction decides nothing: many
published runs that need up to 5 % more than there is did run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ilp_planner.base.units import format_bytes, format_percent
from ilp_planner.job.overheads import FRAGMENTATION

if TYPE_CHECKING:
    from ilp_planner.job.memory import RankMemory

MARGIN = FRAGMENTATION  # share of a limit, below and above it, within which nothing is certain
EXIT_CODE = 6  # of a command whose verdict is that a job may not fit
PERCENT = format_percent(MARGIN).replace(".00", "")

NEAR = f"within {PERCENT} of the limit, where no prediction of memory is certain"


class Verdict(StrEnum):
    """Whether a job fits: it does, with `MARGIN` of the limit left; it may not, within `MARGIN`
    of the limit on either side; or it does not."""

    FITS = "FITS"
    MAY_NOT_FIT = "MAY NOT FIT"
    DOES_NOT_FIT = "DOES NOT FIT"

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None if that is not certain."""
        return {"FITS": True, "DOES NOT FIT": False}.get(self.value)

    @property
    def colour(self) -> str:
        """The colour that it has on a terminal."""
        return {"FITS": "green", "MAY NOT FIT": "yellow", "DOES NOT FIT": "red"}[self.value]


def verdict_of(needed: float, limit: float) -> Verdict:
    """Return the verdict on a GPU, from needed and usable bytes."""
    if needed <= (1 - MARGIN) * limit:
        return Verdict.FITS
    return Verdict.MAY_NOT_FIT if needed <= (1 + MARGIN) * limit else Verdict.DOES_NOT_FIT


def reason(rank: RankMemory, limit: float) -> str:
    """Return why it is uncertain that a GPU has room for a rank."""
    reserve = rank.outside.get("fragmentation", 0.0)
    if rank.needed > limit and rank.needed - reserve <= limit:
        return (
            f"inside the reserve of {format_bytes(reserve)} ({PERCENT}) for fragmentation, "
            "which runs may do without"
        )
    return NEAR
