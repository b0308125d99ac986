"""Heuristics: first their plan, then the portfolio's bound beside it.

A heuristic works on the same parts and stage graphs as every other solver, but proves nothing: with
the rest of the time `auto` runs, for its bound only. Its plan is not taken for the heuristic's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import SolverError, UsageError, interruptible
from ilp_planner.base.numerics import CLAIM_ROUNDING, PROVED
from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.optimize.result import Result, Status, Stop, relative_gap
from ilp_planner.optimize.solvers.base import Limits, Progress, Task

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.state import SearchState

PORTFOLIO = "auto"
SHARE = 0.5  # of the time, at most, for the plan

Seeker = Callable[["Limits", "Progress | None", Deadline], Result]


def solve_by_heuristic(
    problem: Problem[Any],
    limits: Limits,
    solver: str,
    progress: Progress | None,
    top: int,
    prove: Callable[..., Result],
    deadline: Deadline | None = None,
) -> Result:
    """Return a heuristic's plan, with the portfolio's bound.

    Parameters
    ----------
    prove: `solve`. deadline: of both, None: by the limits, from now on.

    Raises
    ------
    UsageError: more than one plan is asked for: a heuristic cannot rank them.
    """
    if top > 1:
        raise UsageError(
            f"top: found {top} with `solver={solver}`, a heuristic, expected `solver=auto`, as "
            "the order of the best plans takes a proof"
        )

    def find(limits: Limits, progress: Progress | None, deadline: Deadline) -> Result:
        return find_plan(problem, limits, solver, progress, deadline)

    def bound(limits: Limits, progress: Progress | None, deadline: Deadline) -> Result:
        limits = dataclasses.replace(limits, prefer_plain=0.0)  # the bound is all that is wanted
        return prove(problem, limits=limits, solver=PORTFOLIO, progress=progress, deadline=deadline)

    return plan_and_bound(find, bound, limits, progress, deadline)


def find_plan(
    problem: Problem[Any],
    limits: Limits,
    solver: str,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Result:
    """Return a heuristic's plan alone; its bound comes from its own search."""
    search: SearchState = problem.space.begin(problem, Task(limits, solver, progress, deadline))
    try:
        with interruptible():
            stop = problem.space.hunt(search)
    except OutOfTimeError:
        stop = Stop.TIME
    except KeyboardInterrupt:
        stop = Stop.USER
    return search.result(stop)


# ---- a plan and a bound -------------------------------------------------------------------------


def plan_and_bound(
    find: Seeker,
    prove: Seeker,
    limits: Limits,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Result:
    """Find a plan, prove a bound with the time that is left, and put them together.

    Raises
    ------
    SolverError: the plan is faster than the bound.
    """
    whole = deadline or limits.deadline()
    found = find(limits, progress, whole.within(SHARE * limits.seconds))
    if found.stopped_by is Stop.USER or found.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return dataclasses.replace(found, notes=(*found.notes, _whose(found, limits)))
    watch = _Watch(found.objective, found.bound, limits.gap, progress)
    rest = Deadline(whole.left, wanted=lambda: not watch.enough, memory=whole.memory)
    proved = prove(dataclasses.replace(limits, gap=0.0), watch, rest)
    wall = whole.elapsed
    if math.isinf(found.objective) and math.isfinite(proved.objective):
        instead = f"{_whose(found, limits)}; the plan is that of {proved.solver}"
        return dataclasses.replace(proved, wall=wall, notes=(*found.notes, instead, *proved.notes))
    together = _together(found, proved, watch)
    whose = f"{_whose(found, limits)}; bound by {proved.solver} after {format_seconds(wall)}"
    notes = (*found.notes, whose, *_remarks(found, proved, together.status))
    return dataclasses.replace(together, wall=wall, notes=notes)


class _Watch:
    """Shows the heuristic's plan beside the portfolio's bound, and has enough if that is near
    enough."""

    def __init__(
        self, objective: float, bound: float, gap: float, progress: Progress | None
    ) -> None:
        self.objective, self.known, self.progress = objective, bound, progress
        self.gap = max(gap, PROVED)
        self.enough = False

    def __call__(self, objective: float, bound: float) -> None:
        """Take the portfolio's bound and plan: seconds."""
        bound = max(bound, self.known)
        if self.progress is not None:
            self.progress(self.objective, min(bound, self.objective))
        self.enough |= relative_gap(self.objective, bound) <= self.gap


def _together(found: Result, proved: Result, watch: _Watch) -> Result:
    """Return the heuristic's plan with the better bound of the two, and its certificate."""
    better = proved if proved.bound >= found.bound else found
    if better.bound > found.objective * (1 + CLAIM_ROUNDING):
        raise SolverError(
            f"{found.solver}: a plan of {found.objective!r} s is below the bound of"
            f" {better.bound!r} s that {better.solver} proved"
        )
    bound = min(better.bound, found.objective)
    optimal = relative_gap(found.objective, bound) <= PROVED
    status, stop = found.status, proved.stopped_by
    if math.isinf(found.objective):
        status = better.status if better.status is Status.INFEASIBLE else Status.UNKNOWN
    elif optimal:
        status, stop, bound = Status.OPTIMAL, Stop.PROOF, found.objective
    elif watch.enough:
        stop = Stop.GAP
    if stop is Stop.PROOF and status not in (Status.OPTIMAL, Status.INFEASIBLE):
        # The bound is the optimum, the plan is not: all that the heuristic had, or had time for.
        stop = Stop.TIME if found.stopped_by is Stop.TIME else Stop.HEURISTIC
    certificate = dict(better.certificate)
    if certificate:
        certificate["bound_s"] = bound if math.isfinite(bound) else None
    return dataclasses.replace(
        found,
        status=status,
        stopped_by=stop,
        bound=bound,
        bound_source=better.bound_source,
        certificate=certificate,
        confirmed_by=better.confirmed_by if optimal else "",
        reason=better.reason if status is Status.INFEASIBLE else "",
    )


def _whose(found: Result, limits: Limits) -> str:
    """Say the heuristic's own results."""
    plan = "plan" if math.isfinite(found.objective) else "no plan"
    wall = format_seconds(found.wall)
    starts = "1 start" if limits.starts == 1 else f"{limits.starts} starts"
    return f"{found.solver}: a heuristic from {starts}, {plan} after {wall}"


def _remarks(found: Result, proved: Result, status: Status) -> list[str]:
    """Say the faster plan's solver, and the portfolio's remarks."""
    remarks = []
    if status is not Status.OPTIMAL and proved.objective < found.objective * (1 - PROVED):
        less = format_percent(1 - proved.objective / found.objective)
        remarks.append(
            f"{proved.solver} found a plan that takes {less} less:"
            f" {format_seconds(proved.objective)}; solver {proved.solver} saves it"
        )
    remarks += [note for note in proved.notes if note not in found.notes]
    return remarks
