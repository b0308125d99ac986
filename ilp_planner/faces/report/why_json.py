"""Limits of a plan, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fullest import plan_verdict
from ilp_planner.analysis.why.robust import guarantee, survived
from ilp_planner.faces.report.expected import expected_object
from ilp_planner.faces.report.json_report import problem_object
from ilp_planner.faces.report.rates import worth_object
from ilp_planner.faces.report.tables import finite
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from ilp_planner.analysis.why.gains import Gain
    from ilp_planner.analysis.why.why import Why
    from ilp_planner.faces.report.why import Told


def why_object(found: Why, told: Told) -> dict[str, Any]:
    """Return the answer as one object; null for unknown values."""
    case, ratio = found.case, found.ratio
    room = plan_verdict(case.problem, case.plan, case.evaluation)
    expected = expected_object(case.problem, case.plan)
    error = expected["expected_error"]
    return {
        **headed("why"),
        "name": case.name,
        **problem_object(case.problem),
        "iteration_time_s": case.evaluation.iteration_time,
        "bound_s": found.known.bound,
        "best_s": finite(found.known.best),
        "derived": found.derived,
        "outside": case.judgement.coverage.outside,
        "seconds_s": dict(found.seconds),
        "ranks": [
            {
                "number": rank.number,
                "load_s": rank.load,
                "slack_s": rank.slack,
                "bottleneck": rank.slowest,
                "memory_left_bytes": rank.room,
            }
            for rank in found.ranks
        ],
        "verdict": None if room is None else str(room[0]),
        "gains": [gain_object(gain) for gain in found.gains],
        "within": told.within,
        "survived_error": None if ratio is None else survived(ratio, told.within),
        **worth_object(case.problem, case.plan, case.evaluation, told.tokens),
        **expected,
        "within_expected_error": (
            None if ratio is None or error is None else guarantee(ratio, error) - 1
        ),
    }


def gain_object(gain: Gain) -> dict[str, Any]:
    """Return the gain of a relaxation."""
    relaxation, found = gain.relaxation, gain.found
    value: dict[str, Any] = {
        "kind": relaxation.kind,
        "limit": relaxation.limit,
        "change": relaxation.change,
        "device": relaxation.device or None,
    }
    if not gain.known:
        return value | {"failure": found.failure}
    return value | {
        "gain_at_least_s": finite(gain.least),
        "gain_at_most_s": finite(gain.most),
        "best_s": finite(gain.after.best),
        "bound_s": finite(gain.after.bound),
        "proved_none": gain.none,
        "stopped_by": found.stopped_by,
        "wall_s": found.wall,
    }
