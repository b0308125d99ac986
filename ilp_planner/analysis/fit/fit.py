"""One verb, `fit`: whether a job fits, and the changes of least cost that make it fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.changes import Changes, with_more_gpus
from ilp_planner.analysis.fit.draft import draft_of
from ilp_planner.analysis.fit.more import Enough, all_free, enough
from ilp_planner.job.verdict import MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.analysis.fit.changes import Change, Writer
    from ilp_planner.analysis.fit.judge import Judge, Judged
    from ilp_planner.analysis.fit.more import AllFree

SECONDS = 10.0  # of searching with all settings free, unless it is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The answer.

    as_is: the job. changes: of one and two settings, so that it certainly fits, or may if none does
    more, in the order of `plainer_first`; of a job that fits, faster ones of one setting. singles,
    pairs: how many jobs were tried. more_gpus: the fewest on which it fits, with nothing else
    changed, or, if no change fits on the same GPUs, with at most one setting besides; None if there
    are none or it fits. free: the fastest plan with all settings free, if no pair fits. enough:
    memory or GPUs that suffice, if nothing fits.
    """

    as_is: Judged
    changes: tuple[Change, ...]
    singles: int
    pairs: int
    more_gpus: Change | None = None
    free: AllFree | None = None
    enough: Enough | None = None


def fit(judge: Judge, writer: Writer, seconds: float = SECONDS) -> Fit:
    """Return whether a job fits, and the changes that make it fit.

    Parameters
    ----------
    writer: of changes, in the words of the user. seconds: of searching with all settings free, if
        no change of two fits.

    Raises
    ------
    PlannerError: the job breaks a rule of its training system.
    """
    job = judge.job
    as_is = judge.verdict(job)
    # Offers certainly fit; those that may not are made where no other is, to a job that is over.
    shares = (1 - MARGIN,) if as_is.left >= 0 else (1 - MARGIN, 1.0)

    def first(found: Callable[[], Changes]) -> Changes:
        for judge.share in shares:
            if (changes := found()).best:
                break
        return changes

    def on_the_same() -> Changes:
        changes = Changes(judge, writer, as_is.seconds if as_is.fits else math.inf)
        changes.singles(draft_of(job))
        if not as_is.fits:
            changes.pairs(draft_of(job))
        return changes

    changes = first(on_the_same)
    found = changes.ranked()
    singles, pairs = changes.tried[1], changes.tried[2]
    if as_is.fits:
        return Fit(as_is=as_is, changes=found, singles=singles, pairs=pairs)
    more = first(lambda: with_more_gpus(judge, writer, besides=not found)).ranked()
    judge.share = 1.0
    free = None if found else all_free(judge, writer, seconds)
    return Fit(
        as_is=as_is,
        changes=found,
        singles=singles,
        pairs=pairs,
        more_gpus=more[0] if more else None,
        free=free,
        enough=None if found or (free and free.change) else enough(judge, seconds),
    )
