"""A saved plan as what `ilp-plan analyze` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.errors import PlanError
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import model_and_cluster, problem_of
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.decoder import as_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.analysis import Analysis
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.report.analysis_judged import Judged
    from ilp_planner.specs.cluster import ClusterSpec


def analysis_of_plan(
    file: Path,
    spec: ClusterSpec | None,
    limit: float | None,
    notes: tuple[str, ...],
    *,
    changed: bool,
) -> Analysis | Judged:
    """Analyse a saved plan, or return what its cost model says where it is no training job.

    Parameters
    ----------
    spec: the cluster; None: the plan's own. limit: bytes of a device that may be used; None: all.
    changed: take all inputs as they are now.

    Raises
    ------
    PlanError: it cannot be read, or its inputs are not what they were.
    """
    from ilp_planner.analysis.plans import analyze_plan

    saved = read_saved(file)
    model, cluster = model_and_cluster(saved, file, accept_changed=changed)
    if model is None or as_decoder(model.architecture) is None:
        named = f"the model is of the family {model.family}" if model else "the plan names no model"
        return judged(saved, file, named, changed=changed)
    try:
        return analyze_plan(
            saved.plan, model, spec or cluster, source=str(file), limit=limit, notes=notes
        )
    except PlanError as error:
        if is_of_groups(saved.plan):
            raise
        return judged(saved, file, str(error), changed=changed)


def judged(saved: SavedPlan, file: Path, reason: str, *, changed: bool) -> Judged:
    """Return what the plan's own cost model says of its stages."""
    from ilp_planner.evaluate import evaluate
    from ilp_planner.report.analysis_judged import Judged, judged_stages

    problem = problem_of(saved, file, accept_changed=changed)
    evaluation = evaluate(problem, saved.plan)
    violations = evaluation.violations
    if not evaluation.stages:
        raise PlanError(f"{file}: plan: {violations[0] if violations else 'it cannot be priced'}")
    return Judged(
        name=problem.model,
        costs=problem.costs.name,
        reason=reason,
        micro_batches=saved.plan.micro_batches,
        stages=tuple(judged_stages(saved.plan, evaluation.stages)),
        violations=tuple(map(str, violations)),
    )
