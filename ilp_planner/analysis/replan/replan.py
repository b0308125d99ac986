"""One verb, `replan`: plans for a changed problem.

The answer is the fastest plan, and the one that moves least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.replan.changes import Changes, changed
from ilp_planner.analysis.replan.least import (
    AMONG,
    Before,
    Least,
    Moving,
    least_moved,
    moving,
)
from ilp_planner.analysis.replan.machines import machines
from ilp_planner.analysis.why.why import check_legal
from ilp_planner.base.errors import interruptible
from ilp_planner.base.numerics import PROVED
from ilp_planner.inputs.files import InputFiles
from ilp_planner.optimize.result import Status, Stop, relative_gap
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes, solve_on_any_nodes

if TYPE_CHECKING:
    from ilp_planner.analysis.why.why import Case
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.result import Result
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.optimize.solvers.base import Progress
    from ilp_planner.problem import Problem

SECONDS = 60.0  # of all searches together, unless it is said
SHARE = 0.6  # of them that the fastest plan may take
SLACK = 0.05  # relative


SEATS = "machines"  # what a note on them begins with
FASTEST, LEAST = "fastest", "least moved"  # both plans, for people


@dataclass(frozen=True, kw_only=True)
class Replanned:
    """The answer.

    changes: of the case's problem into `problem`. result: of the search for the fastest plan;
    `fastest` is that plan with its moved bytes; None if there is none. least: the plan that moves
    least among plans of at most 1 + slack times its time. before: the machines.
    """

    case: Case
    changes: Changes
    problem: Problem[Any]
    result: Result
    slack: float
    before: Before
    fastest: Moving | None
    least: Least | None

    @property
    def plans(self) -> dict[str, Moving]:
        """Both plans by name; empty if there is none."""
        if self.fastest is None or self.least is None:
            return {}
        return {FASTEST: self.fastest, LEAST: self.least.moving}

    @property
    def same(self) -> bool:
        """Whether the fastest plan moves least."""
        return self.least is not None and self.least.moving is self.fastest

    def gap(self, plan: Moving) -> float:
        """Return how much faster than a plan another one could be at most, as a share of its
        time."""
        return relative_gap(plan.seconds, self.result.bound)

    def result_of(self, plan: Moving) -> Result:
        """Return a plan as the result of a search, with the bound of the fastest one, and the
        machines that its nodes are."""
        machines = ", ".join(self.before.machines.called(plan.seated.seats))
        notes = (*self.result.notes, f"{SEATS}: the nodes in order are {machines}")
        found = replace(self.result, notes=notes)
        if plan is self.fastest:
            return found
        stop = Stop.GAP if self.result.stopped_by is Stop.PROOF else self.result.stopped_by
        proved = relative_gap(plan.seconds, self.result.bound) <= PROVED
        return replace(
            found,
            plan=plan.plan,
            evaluation=plan.evaluation,
            objective=plan.seconds,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            stopped_by=self.result.stopped_by if proved else stop,
            confirmed_by="",
            ranking=(),
            history=(),
        )


def replan(
    case: Case,
    changes: Changes,
    *,
    deadline: Deadline,
    slack: float = SLACK,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Replanned:
    """Return both plans of a changed problem.

    Parameters
    ----------
    deadline: of both searches. slack: relative; how much longer than the fastest plan found the
        other one may take. limits: of the search for the fastest one; their seconds do not count.

    Raises
    ------
    PlanError: the plan is not legal, an input of its problem has no name, or its space does not say
    what devices hold. UsageError: nothing changes, or an unknown thing does. InfeasibleError:
    there is no plan of the changed problem. SolverError: the judge refutes the result of the
    search.
    """
    check_legal(case)
    request = changed(case.asked, changes)
    holdings = case.problem.space.holdings(case.problem, case.plan)
    problem = build_for_any_nodes(InputFiles(request, case.folders))
    limits = limits or Limits()
    problem, result = solve_on_any_nodes(
        problem,
        limits=limits,
        start=replace(case.start, space=problem.space.name),
        deadline=deadline.within(SHARE * deadline.left),
        progress=progress,
        all_devices=not case.any_nodes,
    )
    known = Before(
        plan=case.plan, holdings=holdings, machines=machines(case.problem, problem, changes)
    )
    fastest = least = None
    if result.plan is not None:
        fastest = moving(known, problem, result.plan)
        least = Least(moving=fastest, among=AMONG, proved=False, at_least=0.0)
        if result.stopped_by is not Stop.USER:
            search = problem.space.begin(problem, Task(limits, "dp", None, deadline))
            least = _least(known, search, least, fastest.seconds * (1 + slack))
    return Replanned(
        case=case,
        changes=changes,
        problem=problem,
        result=result,
        slack=slack,
        before=known,
        fastest=fastest,
        least=least,
    )


def _least(known: Before, search: SearchState, so_far: Least, limit: float) -> Least:
    """Return the plan that moves least; the best one so far, after an interrupt."""
    try:
        with interruptible():
            return least_moved(known, search, so_far.moving, limit, search.goon)
    except KeyboardInterrupt:
        return so_far
