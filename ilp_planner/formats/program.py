"""The residual problem of a proof, as an integer program in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan


def write_program(
    problem: Problem[Any], plan: AnyPlan, certificate: Mapping[str, Any], to: str, output: Path
) -> int:
    """Write the integer program of all stages that a proof leaves open up to its plan; return how
    many stage candidates it has.

    Raises
    ------
    PlanError: there is no proof, the plan is illegal, or no integer program of it can be written.
    """
    if not certificate:
        raise PlanError("certificate: found none, expected that of a solved plan")
    evaluation = evaluate(problem, plan)
    if not evaluation.legal:
        raise PlanError(str(evaluation.violations[0]))
    last = problem.space.proved_problem(problem, plan, certificate)
    if last is None:
        raise PlanError(
            "plan: found one whose ranks were placed freely, whose virtual stages were chosen one "
            "by one, or with too much left open; expected one whose last problem is a small "
            "integer program"
        )
    last.write(output, to)
    return last.arcs
