"""Plans for a changed problem, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.faces.report.decisions import differences
from ilp_planner.faces.report.json_report import plan_object, problem_object
from ilp_planner.faces.report.tables import finite
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from ilp_planner.analysis.replan.replan import Moving, Replanned


def replan_object(found: Replanned) -> dict[str, Any]:
    """Return both plans as one object; null for a plan that there is not."""
    case, least = found.case, found.least
    cases = [(case.problem, case.plan)]
    cases += [(found.problem, plan.plan) for plan in found.plans.values()]
    return {
        **headed("replan"),
        "name": case.name,
        **problem_object(found.problem),
        "changed": found.changes.texts,
        "before_s": case.evaluation.iteration_time,
        "bound_s": finite(found.result.bound),
        "stopped_by": found.result.stopped_by,
        "slack": found.slack,
        "fastest": None if found.fastest is None else _plan(found, found.fastest),
        "least_moved": None if least is None else _plan(found, least.moving),
        "least_proved": None if least is None else least.proved,
        "least_at_least_bytes": None if least is None else least.at_least,
        "least_among": None if least is None else least.among,
        "differs": {row.name: list(row.values) for row in differences(cases)},
        "notes": list(found.result.notes),
    }


def _plan(found: Replanned, plan: Moving) -> dict[str, Any]:
    """Return a plan with its moved bytes."""
    moves, way = plan.seated.moves, found.before.way(found.problem, plan)
    return {
        "iteration_time_s": plan.seconds,
        "gap": found.gap(plan),
        "moved_bytes": moves.total,
        "between_nodes_bytes": way.between,
        "most_moved_bytes": moves.most,
        "kept_bytes": float(moves.kept.sum()),
        "checkpoint_bytes": moves.from_checkpoint,
        "moved_in_s": way.seconds,
        "machines": list(found.before.machines.called(plan.seated.seats)),
        "devices": [
            {"moved_bytes": moved, "kept_bytes": kept, "checkpoint_bytes": read}
            for moved, kept, read in zip(
                moves.moved.tolist(), moves.kept.tolist(), moves.read.tolist(), strict=True
            )
        ],
        **plan_object(found.problem, plan.plan, plan.evaluation),
    }
