"""Solve one case of the suite `search` in a process of its own and print JSON.

python -m tests.benchmarks.search_one CASE SOLVER SEED SECONDS
"""

import json
import math
import resource
import sys
from collections.abc import Callable
from typing import Any

from ilp_planner.heuristic import find_plan
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.result import Result
from ilp_planner.solve import solve
from ilp_planner.solvers.base import Limits
from ilp_planner.solvers.registry import is_heuristic
from ilp_planner.spaces.registry import build_problem
from tests.benchmarks.search import AMP_DATA, CASES, Case


def request_of(case: Case) -> Request:
    """Return what a user would ask for."""
    if case.experiment:
        return Request(
            files={"profile": Reference(name=f"amp:{AMP_DATA}")},
            cost_model="amp",
            experiment=case.experiment,
            placement=case.placement,
        )
    names = {"model": case.model, "cluster": case.cluster, "profile": "analytic"}
    return Request(
        files={kind: Reference(name=name) for kind, name in names.items()},
        space=case.space,
        global_batch=case.batch,
    )


def runner(case: Case, solver: str) -> Callable[[Limits], Result]:
    """Return what solves a case; a heuristic looks for its plan alone."""
    problem = build_problem(InputFiles(request_of(case)))
    if is_heuristic(solver):
        return lambda limits: find_plan(problem, limits, solver)
    return lambda limits: solve(problem, limits=limits, solver=solver)


def main() -> None:
    """Solve twice, the first time briefly: compiled code is loaded then. Print the second."""
    name, solver, seed, seconds = sys.argv[1:]
    run = runner(next(case for case in CASES if case.name == name), solver)
    run(Limits(seconds=min(1.0, float(seconds)), starts=2))
    result = run(Limits(seconds=float(seconds), seed=int(seed)))
    found = math.isfinite(result.objective)
    row: dict[str, Any] = {
        "objective_s": result.objective if found else None,
        "bound_s": result.bound,
        "gap": result.gap if found else None,
        "stopped_by": str(result.stopped_by),
        "wall_s": result.wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "notes": list(result.notes),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
