"""Judge one recipe, plan the same for itself, and print JSON.

python -m tests.benchmarks.recipe_one RECIPE SECONDS
"""

import json
import math
import sys
from typing import Any

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import describe_job, plan_of_job
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.result import Result
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.plan import GroupPlan
from ilp_planner.specs.training import TrainingJob
from tests.benchmarks.recipe_cases import (
    HEADROOM,
    RECIPES,
    WHOLE,
    Recipe,
    job_of,
    same_problem,
    usual_problem,
)
from tests.benchmarks.recipe_terms import sent_of, terms_of

GIB = 2**30
Row = dict[str, Any]


def judged(among: Problem[Any], plan: GroupPlan) -> Row:
    """Return what the judge says of a plan, seconds by terms, seconds of its messages if nothing
    hid them, and GiB of the fullest device."""
    found = evaluate(among, plan)
    limit = min(device.memory for device in among.cluster.device_types.values())
    return {
        "seconds": found.iteration_time,
        "terms": terms_of(among, plan),
        "sent": sent_of(among, plan),
        "memory_gib": found.memory / GIB,
        "limit_gib": limit / GIB,
        "violations": sorted({violation.rule for violation in found.violations}),
        "outside": coverage_of(among, plan, legal=found.legal).outside,
    }


def said(job: TrainingJob) -> str:
    """Return a job's degrees, layout and precision, the modules that are computed again, and
    whether parameters are sharded (FSDP)."""
    settings = job.settings
    again = ", ".join(settings.recompute.modules)
    text = describe_job(job).replace("recompute selective", f"recompute {again}")
    return text + ", FSDP" * (settings.optimizer.sharding == "parameters")


def planned(among: Problem[Any], seconds: float) -> Row:
    """Return the planner's plan, its terms, bound and gap."""
    result: Result[Any] = solve(among, limits=Limits(seconds=seconds))
    row: Row = {
        "bound": result.bound,
        "gap": result.gap if math.isfinite(result.gap) else None,
        "stopped_by": str(result.stopped_by),
        "wall_s": round(result.wall, 1),
    }
    if result.plan is None:
        return row
    job = among.costs.job(result.plan, among.cluster)
    row |= {"plan": said(job), "virtual": job.virtual}
    return row | {"sharding": job.settings.optimizer.sharding} | judged(among, result.plan)


def row_of(recipe: Recipe, seconds: float) -> Row:
    """Return all that is known of a recipe."""
    same = same_problem(recipe)
    theirs, searched = (
        judged(same, plan_of_job(job_of(recipe, same, loss), same.cluster, model=same.model))
        for loss in ("te", "native")
    )
    best = planned(same, seconds)
    whole = best
    if best.get("sharding") != WHOLE["sharding"]:
        whole = planned(same_problem(recipe, **WHOLE), seconds)
    return {
        "recipe": recipe.name,
        "theirs": theirs,
        "with_native_loss": searched,
        "degrees": planned(same_problem(recipe, **recipe.asked_degrees, **WHOLE), seconds),
        "whole": whole,
        "same": best,
        "roomy": planned(same_problem(recipe, headroom=HEADROOM), seconds),
        "usual": planned(usual_problem(recipe), seconds),
    }


def main() -> None:
    """Print the row of a recipe."""
    name, seconds = sys.argv[1:]
    recipe = next(one for one in RECIPES if one.name == name)
    print(json.dumps(row_of(recipe, float(seconds))))


if __name__ == "__main__":
    main()
