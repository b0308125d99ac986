"""The verb `solve`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.api.check import as_problem, is_layers
from ilp_planner.api.result import with_problem
from ilp_planner.api.words import expect, python_words
from ilp_planner.errors import UsageError
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from ilp_planner.api.problem import Problem
    from ilp_planner.api.result import Result
    from ilp_planner.solvers.base import Progress


def solve(
    problem: Problem | Any,
    *,
    seconds: float | None = None,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | bool | None = None,
    top: int = 1,
) -> Result:
    """Find the fastest plan, and a lower bound on the time of every plan of the space.

    A Ctrl-C ends the search and keeps the best plan with its bound.

    Parameters
    ----------
    problem: of `ilp_planner.problem`, or what it holds.
    seconds: wall clock; instead of `limits`, which also say gap, workers and seed.
    solver: `auto`, `dp`, `cp-sat`, `milp`, `pulp`, or a heuristic (`gradient`, `anneal`).
    progress: called with (incumbent seconds, bound seconds) as they improve; True: a line on the
        terminal or in the notebook.
    top: how many of the best plans of whole layers to list.

    Raises
    ------
    UsageError: an object of another kind, an unknown solver, limits that contradict each other.
    SolverError: the judge refutes what the search believes.
    """
    from ilp_planner.solve import solve
    from ilp_planner.solve import solve as solve_operators

    whole = as_problem("solve", problem)
    if limits is not None:
        expect("solve: limits", limits, Limits)
    if seconds is not None and limits is not None:
        raise UsageError(f"seconds: found {seconds} beside limits, expected one of them")
    known = limits or Limits()
    if seconds is not None:
        known = replace(known, seconds=seconds)
    if top > 1 and not is_layers(whole):
        raise UsageError(f"top: found {top} for a plan of operators, expected 1")
    instance: Any = whole.instance
    with python_words(), _shown(progress) as told:
        if is_layers(whole):
            return with_problem(
                solve(instance, limits=known, solver=solver, progress=told, top=top), whole
            )
        return with_problem(
            solve_operators(instance, limits=known, solver=solver, progress=told), whole
        )


def _shown(progress: Progress | bool | None) -> Any:
    """Return what is called while the search works, as a context."""
    if progress is True:
        from ilp_planner.report.live import Progress as Line

        return Line()
    if progress not in (None, False) and not callable(progress):
        raise UsageError(
            f"progress: found {progress!r}, expected True or a function of (objective, bound)"
        )
    return nullcontext(progress or None)
