"""Judge one recipe, plan the same for itself, and print JSON.

python -m tests.benchmarks.recipe_one RECIPE SECONDS
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from ilp_planner.coverage import coverage_of
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import describe_job, plan_of_job
from ilp_planner.solve import solve
from ilp_planner.solvers.base import TIE, Limits
from ilp_planner.spaces.megatron.iteration import SLOWEST
from tests.benchmarks.recipe_cases import (
    HEADROOM,
    RECIPES,
    Recipe,
    job_of,
    same_problem,
    usual_problem,
)

if TYPE_CHECKING:
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result

GIB = 2**30
Row = dict[str, Any]


def judged(among: Problem[Any], plan: GroupPlan) -> Row:
    """Return what the judge says of a plan, seconds by terms and GiB of the fullest device.

    The slowest rank's share is divided into what its layers compute, send and compute again.
    """
    found = evaluate(among, plan)
    assert found.cost is not None
    terms = dict(found.cost.terms)
    loads = plan.per_rank([stage.time for stage in found.stages])
    slowest = loads.index(max(loads))
    del terms[SLOWEST]
    parts = dict.fromkeys(name for stage in found.stages for name in stage.time_terms)
    inside = {
        name: plan.micro_batches
        * plan.per_rank([stage.time_terms.get(name, 0.0) for stage in found.stages])[slowest]
        for name in parts
    }
    limit = min(device.memory for device in among.cluster.device_types.values())
    return {
        "seconds": found.iteration_time,
        "terms": inside | terms,
        "memory_gib": found.memory / GIB,
        "limit_gib": limit / GIB,
        "violations": sorted({violation.rule for violation in found.violations}),
        "outside": coverage_of(among, plan, legal=found.legal).outside,
    }


def planned(among: Problem[Any], seconds: float) -> Row:
    """Return the planner's plan, its terms, bound and gap."""
    result: Result[Any] = solve(among, limits=Limits(seconds=seconds, tie=TIE))
    row: Row = {
        "bound": result.bound,
        "gap": result.gap if math.isfinite(result.gap) else None,
        "stopped_by": str(result.stopped_by),
        "wall_s": round(result.wall, 1),
    }
    if result.plan is None:
        return row
    job = among.costs.job(result.plan, among.cluster)
    return row | {"plan": describe_job(job), "virtual": job.virtual} | judged(among, result.plan)


def row_of(recipe: Recipe, seconds: float) -> Row:
    """Return all that is known of a recipe."""
    same = same_problem(recipe)
    theirs, searched = (
        judged(same, plan_of_job(job_of(recipe, same, loss), same.cluster, model=same.model))
        for loss in ("te", "native")
    )
    return {
        "recipe": recipe.name,
        "theirs": theirs,
        "with_native_loss": searched,
        "same": planned(same, seconds),
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
