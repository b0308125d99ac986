"""Heuristics: first their plan, then what the portfolio proves beside it.

A heuristic works on the same parts and stage graphs as every other solver, but proves nothing: with
the rest of the time `auto` runs, for its bound only. Its plan is not taken for the heuristic's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ilp_planner.deadline import Deadline
from ilp_planner.errors import SolverError
from ilp_planner.numerics import CLAIM_ROUNDING, NEVER, PROVED
from ilp_planner.result import Outcome, Status, Stop, relative_gap
from ilp_planner.spaces.operators.search import LAST_SLACK, Search
from ilp_planner.units import format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.bounds.part import Part
    from ilp_planner.graph import StageGraph
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result
    from ilp_planner.solvers.base import GraphSolution, Limits, Progress

PORTFOLIO = "auto"
SHARE = 0.5  # of the time, at most, for the plan
SLACK = 0.1  # relative: how far above the bound to look for a first plan; doubled while none is
PATIENCE = 4  # rounds without a better plan
FEWER = 8  # of so many starts one, to go on from a path that is known

AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)
Seeker = Callable[["Limits", "Progress | None", Deadline], AnyOutcome]


def solve_by_heuristic(
    problem: Problem, limits: Limits, solver: str, progress: Progress | None = None
) -> Result:
    """Return a heuristic's plan of operators, with the portfolio's bound."""

    def find(limits: Limits, progress: Progress | None, deadline: Deadline) -> Result:
        return find_plan(problem, limits, solver, progress, deadline)

    def prove(limits: Limits, progress: Progress | None, deadline: Deadline) -> Result:
        return Search(problem, limits, PORTFOLIO, progress, deadline).outcome()

    return plan_and_bound(find, prove, limits, progress)


def find_plan(
    problem: Problem,
    limits: Limits,
    solver: str,
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Result:
    """Return a heuristic's plan of operators alone; its bound is what was met on the way."""
    return PlanHunt(problem, limits, solver, progress, deadline).outcome()


# ---- a plan and a bound -------------------------------------------------------------------------


def plan_and_bound(
    find: Seeker[AnyOutcome],
    prove: Seeker[AnyOutcome],
    limits: Limits,
    progress: Progress | None = None,
) -> AnyOutcome:
    """Find a plan, prove a bound with the time that is left, and put them together.

    Raises
    ------
    SolverError: the plan is faster than the bound.
    """
    whole = Deadline(limits.seconds)
    found = find(limits, progress, whole.within(SHARE * limits.seconds))
    if found.stopped_by is Stop.USER or found.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return dataclasses.replace(found, notes=(*found.notes, _whose(found, limits)))
    watch = _Watch(found.objective, found.bound, limits.gap, progress)
    rest = Deadline(whole.left, wanted=lambda: not watch.enough)
    proved = prove(dataclasses.replace(limits, gap=0.0), watch, rest)
    wall = whole.elapsed
    together = _together(found, proved, watch)
    whose = f"{_whose(found, limits)}; bound by {proved.solver} after {format_seconds(wall)}"
    notes = (*found.notes, whose, *_remarks(found, proved, together.status))
    return dataclasses.replace(together, wall=wall, notes=notes)


class _Watch:
    """Shows the heuristic's plan beside the portfolio's bound, and has enough where that is near
    enough."""

    def __init__(
        self, objective: float, bound: float, gap: float, progress: Progress | None
    ) -> None:
        self.objective, self.known, self.progress = objective, bound, progress
        self.gap = max(gap, PROVED)
        self.enough = False

    def __call__(self, objective: float, bound: float) -> None:
        """Take what the portfolio knows: seconds."""
        bound = max(bound, self.known)
        if self.progress is not None:
            self.progress(self.objective, min(bound, self.objective))
        self.enough |= relative_gap(self.objective, bound) <= self.gap


def _together(found: AnyOutcome, proved: AnyOutcome, watch: _Watch) -> AnyOutcome:
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


def _whose(found: Outcome, limits: Limits) -> str:
    """Say what is the heuristic's."""
    plan = "plan" if math.isfinite(found.objective) else "no plan"
    wall = format_seconds(found.wall)
    starts = "1 start" if limits.starts == 1 else f"{limits.starts} starts"
    return f"{found.solver}: a heuristic from {starts}, {plan} after {wall}"


def _remarks(found: Outcome, proved: Outcome, status: Status) -> list[str]:
    """Say whose plan is faster, and what the portfolio remarks."""
    remarks = []
    if math.isinf(found.objective) and math.isfinite(proved.objective):
        remarks.append(f"{proved.solver} found a plan of {format_seconds(proved.objective)}")
    elif status is not Status.OPTIMAL and proved.objective < found.objective * (1 - PROVED):
        less = format_percent(1 - proved.objective / found.objective)
        remarks.append(
            f"{proved.solver} found a plan that takes {less} less:"
            f" {format_seconds(proved.objective)}; solver {proved.solver} saves it"
        )
    remarks += [note for note in proved.notes if note not in found.notes]
    return remarks


# ---- plans of operators -------------------------------------------------------------------------


class PlanHunt(Search):
    """A search that looks for good plans and proves nothing of what it leaves out.

    The stage graphs hold bounds of stages: the heuristic's path is decoded by solving its stages
    exactly, which raises them in the graph, until the heuristic finds nothing better there.
    """

    def work(self) -> Stop:
        """Look through the parts, a little above their bounds at first."""
        looked: dict[int, float] = {}
        slack = SLACK
        while self.plan is None and self.bound < NEVER:
            guess = self.bound * (1 + slack) if slack < LAST_SLACK else NEVER
            self.look_below(guess, looked)
            if guess >= NEVER:
                break
            slack *= 2
        self.look_below(self.objective, looked)
        proved = relative_gap(self.objective, self.bound) <= PROVED
        return Stop.PROOF if proved or self.bound >= NEVER else Stop.HEURISTIC

    def look_below(self, guess: float, looked: dict[int, float]) -> None:
        """Look through all parts that may have a plan below `guess` seconds.

        looked: seconds up to which parts, by their micro-batch, were looked through.
        """
        for part in sorted(self.parts, key=lambda p: p.bound):
            cutoff = min(guess, self.objective, NEVER)
            if part.bound >= cutoff * (1 - PROVED) or self.gap_reached():
                continue
            if looked.get(part.micro_batch, 0.0) >= cutoff:
                continue
            self.check_time()
            looked[part.micro_batch] = cutoff
            part.bound_by_stages(cutoff)
            self.improve(part, cutoff)

    def improve(self, part: Part, cutoff: float) -> None:
        """Look for plans of one part, until a few rounds have found nothing better."""
        graph = part.expand(cutoff).graph
        path: tuple[int, ...] = ()
        failed = 0
        while failed < PATIENCE:
            self.check_time()
            solution = self.cheapest(graph, path)
            path = solution.path
            if solution.stopped_by is Stop.USER:
                self.last_words(part, path)
            if not path or graph.path_time(path) >= min(cutoff, self.objective):
                return
            self.check_time()
            learned = part.refine(path, self.deadline.left)
            better = self.take(part, path)
            better |= self.take(part, part.best_known_path(self.objective))
            failed = 0 if better else failed + 1
            if not learned:
                return

    def cheapest(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return a good path of a graph; with a known one, after fewer starts."""
        starts = max(1, self.limits.starts // FEWER) if hint else self.limits.starts
        limits = dataclasses.replace(self.exactly, starts=starts)
        return self.backend.solve(graph, limits, hint=tuple(hint), deadline=self.deadline)
