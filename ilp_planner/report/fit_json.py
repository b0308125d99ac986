"""Whether a job fits, and what would make it fit, for programs: seconds and bytes."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fit.needs import first_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.analysis.fit.changes import Change
    from ilp_planner.analysis.fit.fit import Fit
    from ilp_planner.analysis.fit.judge import Judged
    from ilp_planner.analysis.fit.needs import Needs


def verdict_object(as_is: Needs, *, name: str, notes: Sequence[str]) -> dict[str, Any]:
    """Return whether the job fits: the GPU that decides, and its bytes."""
    job, stage = as_is.job, as_is.fullest
    rank = as_is.ranks[stage]
    return {
        "source": "fit",
        "model": name,
        "fits": as_is.fits,
        "gpus": job.world,
        "decides": {
            "rank": first_rank(job, stage),
            "stage": stage,
            "device": as_is.devices[stage].type,
            "needed": rank.needed,
            "limit": as_is.devices[stage].memory,
            "left": as_is.left,
            "terms": dict(rank.terms),
            "outside": dict(rank.outside),
        },
        "notes": list(dict.fromkeys(notes)),
    }


def changes_object(found: Fit) -> dict[str, Any]:
    """Return what the job takes, the changes that make it fit, and what was tried."""
    free, enough, as_is = found.free, found.enough, found.as_is
    job = as_is.job
    return {
        "seconds": as_is.seconds,
        "tokens_per_second": job.global_batch * job.model.sequence / as_is.seconds,
        "changes": [_change(change, as_is) for change in found.changes],
        "tried": {"singles": found.singles, "pairs": found.pairs},
        "more_gpus": None if found.more_gpus is None else _change(found.more_gpus, as_is),
        "free": None
        if free is None
        else {
            "change": None if free.change is None else _change(free.change, as_is),
            "bound": free.bound if isfinite(free.bound) else None,
            "among": free.among,
            "impossible": free.impossible,
        },
        "enough": None if enough is None else {"memory": enough.memory, "gpus": enough.gpus},
    }


def _change(change: Change, as_is: Judged) -> dict[str, Any]:
    judged, words = change.judged, change.words
    return {
        "settings": list(change.settings),
        "language": words.language,
        "add": list(words.add),
        "drop": list(words.drop),
        "fields": list(words.fields),
        "environment": dict(words.environment),
        "gpus": judged.job.world,
        "seconds": judged.seconds,
        "relative": judged.seconds / as_is.seconds,
        "left": judged.left,
    }
