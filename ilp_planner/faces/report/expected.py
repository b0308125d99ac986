"""The expected error of iteration times and the sources of a time, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.costs.profiles.shares import predicted_error
from ilp_planner.specs.time_errors import Known, kind_of_job, known_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan

NOTHING = 5e-5  # a share below it is nothing that anybody would read
NONE = Known()  # of times that are not by the constants of machines


def expected_lines(problem: Problem[Any], plan: AnyPlan) -> list[tuple[str, str]]:
    """Say how far a plan's time is off as a rule; nothing if it is not by constants of machines."""
    return known_lines(known_of(problem, plan))


def known_lines(known: Known) -> list[tuple[str, str]]:
    """Say how far a time is off as a rule."""
    return [("expected error", known.text)] if known.text else []


def expected_percent(problem: Problem[Any], plan: AnyPlan) -> str:
    """Return the interval as a cell of a table; empty if it is not known."""
    error = known_of(problem, plan).error
    return "" if error is None else error.short


def expected_object(
    problem: Problem[Any], plan: AnyPlan | None, seconds: float | None
) -> dict[str, Any]:
    """Return the same as JSON. seconds: predicted, of an iteration."""
    return known_object(NONE if plan is None else known_of(problem, plan), seconds)


def known_object(known: Known, seconds: float | None) -> dict[str, Any]:
    """Return how far a time is off as JSON: the mean as a share, the seconds between which 4 of 5
    runs are, and what both rest on. seconds: predicted, of an iteration."""
    error, interval, basis = known.error, None, known.why or None
    if error is not None and seconds is not None:
        interval = {"low_s": error.low * seconds, "high_s": error.high * seconds}
        basis = error.basis
    return {
        "expected_error": None if error is None else error.mean,
        "expected_interval": interval,
        "expected_basis": basis,
        "calibration_runs": known.runs,
    }


def known_of(problem: Problem[Any], plan: AnyPlan) -> Known:
    """Return what is known of the error of a plan's time; nothing of times in measured profiles,
    or by another model than that of training jobs."""
    if plan.settings is None or problem.spec is None:
        return NONE
    if not problem.profile_source.startswith("analytic"):
        return NONE
    types = {problem.cluster.type_of[device] for device in plan.used}
    devices = [problem.cluster.device_types[name] for name in sorted(types)]
    kind = kind_of_job(problem.spec.architecture, plan.settings, len(plan.used), problem.space.name)
    return known_on(devices, kind)


def share_lines(shares: Mapping[Provenance, Share]) -> list[tuple[str, str]]:
    """Return `93.10 % measured, 6.90 % interpolated (off by 2.10 %)`; nothing if it is not
    known."""
    if not shares:
        return []
    parts = []
    for source, share in shares.items():
        if share.share < NOTHING:
            continue
        text = f"{format_percent(share.share)} {source}"
        if share.error is not None and source != "measured":
            text += f" (off by {format_percent(share.error)} as a rule)"
        parts.append(text)
    return [("time rests on", ", ".join(parts))]


def share_object(shares: Mapping[Provenance, Share]) -> dict[str, Any]:
    """Return shares by source, their expected error if it is known, and of all that was predicted
    from measurements."""
    return {
        "provenance": {str(source): share.share for source, share in shares.items()},
        "provenance_error": {
            str(source): share.error
            for source, share in shares.items()
            if share.error is not None and source != "measured"
        },
        "predicted_error": predicted_error(shares),
    }
