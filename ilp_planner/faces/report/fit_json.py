"""The verdict of `fit` and the changes that make a job fit, as JSON: seconds and bytes."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fit.needs import first_rank
from ilp_planner.faces.report.expected import machine_object
from ilp_planner.faces.report.fit import price_of_job, run_of_job
from ilp_planner.faces.report.parallelism import parallelism_object, parallelism_of_job
from ilp_planner.faces.report.prices import price_object, run_object
from ilp_planner.faces.report.rates import rates_object
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.analysis.fit.fit import Change, Fit
    from ilp_planner.analysis.fit.judge import Judged
    from ilp_planner.analysis.fit.needs import Needs


def verdict_object(as_is: Needs, *, name: str, notes: Sequence[str]) -> dict[str, Any]:
    """Return whether the job fits: the GPU that decides, and its bytes."""
    job, stage = as_is.job, as_is.fullest
    rank = as_is.ranks[stage]
    return {
        **headed("fit"),
        "model": name,
        "fits": as_is.verdict.fits,
        "verdict": str(as_is.verdict),
        "gpus": job.world,
        "parallelism": parallelism_object(parallelism_of_job(job)),
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


def changes_object(found: Fit, tokens: float | None = None) -> dict[str, Any]:
    """Return the time of the job, the changes that make it fit, and the number of tried jobs.
    tokens: of a training run; None: nothing is said of one."""
    free, enough, as_is = found.free, found.enough, found.as_is
    return {
        "seconds": as_is.seconds,
        **machine_object(as_is.machine),
        "throughput": rates_object(as_is.done),
        **price_object(price_of_job(as_is)),
        "run": run_object(run_of_job(as_is, tokens)),
        "changes": [_change(change, as_is, tokens) for change in found.changes],
        "tried": {"singles": found.singles, "pairs": found.pairs},
        "more_gpus": None if found.more_gpus is None else _change(found.more_gpus, as_is, tokens),
        "free": None
        if free is None
        else {
            "change": None if free.change is None else _change(free.change, as_is, tokens),
            "bound": free.bound if isfinite(free.bound) else None,
            "among": free.among,
            "impossible": free.impossible,
        },
        "enough": None if enough is None else {"memory": enough.memory, "gpus": enough.gpus},
    }


def _change(change: Change, as_is: Judged, tokens: float | None) -> dict[str, Any]:
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
        "verdict": str(judged.verdict),
        "parallelism": parallelism_object(parallelism_of_job(judged.job)),
        "throughput": rates_object(judged.done),
        **price_object(price_of_job(judged)),
        "run": run_object(run_of_job(judged, tokens)),
    }
