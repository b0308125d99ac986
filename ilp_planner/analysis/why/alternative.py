"""Why not another plan: the best one that has something, or one that somebody else has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.compare.judge import (
    OtherProblemError,
    candidate_entry,
    entry,
    read_candidate,
)
from ilp_planner.analysis.why.relaxations import with_constraints
from ilp_planner.analysis.why.why import Known, check_legal, resolve
from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.files import InputFiles
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.registry import build_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.analysis.compare.entry import Entry
    from ilp_planner.analysis.compare.judge import Asked
    from ilp_planner.analysis.why.why import Case
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem

GAP = 1e-4  # relative: closer to a bound than this, no second of it is worth the search


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A plan beside another one.

    own: the plan that is asked about. other: the alternative; without a time if there is none.
    known: bounds on the alternatives' seconds; a given plan has its own seconds. has: the plan
    itself keeps the demands. among: the plans of the bound; empty of a given plan. reason: why
    there is no alternative.
    """

    case: Case
    own: Entry
    other: Entry
    known: Known
    has: bool = False
    among: str = ""
    reason: str = ""

    @property
    def least(self) -> float:
        """Seconds that the alternative takes more, at least; below 0 if it may be faster."""
        return self.known.bound - self.own.time

    @property
    def most(self) -> float:
        """Seconds that it takes more, at most; inf if no alternative was found."""
        return self.known.best - self.own.time

    @property
    def more(self) -> Mapping[str, float]:
        """Seconds that the alternative spends more on each thing, the most first."""
        names = dict.fromkeys((*self.own.seconds, *self.other.seconds))
        more = {n: self.other.seconds.get(n, 0.0) - self.own.seconds.get(n, 0.0) for n in names}
        return dict(sorted(more.items(), key=lambda pair: -abs(pair[1])))


def own_entry(case: Case) -> Entry:
    """Return the plan that is asked about, beside others."""
    return entry(case.problem, case.name, case.plan, case.evaluation, bound=0.0, remark="")


def with_demands(case: Case, demands: Constraints, text: str, deadline: Deadline) -> Alternative:
    """Return the best plan found that keeps the demands, with a bound on all of them.

    Parameters
    ----------
    text: of the demands, for people.

    Raises
    ------
    PlanError: the plan is not legal, or the problem does not exist.
    SolverError: the judge refutes the result of the search.
    """
    check_legal(case)
    request = with_constraints(case.request, demands)
    limits = Limits(gap=GAP, workers=case.workers)
    found = resolve(request, case.near._replace(limits=limits), deadline)
    if found.failure:
        raise PlanError(f"{text}: {found.failure}")
    known = Known(found.bound, found.best)
    nothing = entry(case.problem, text, None, None, bound=known.bound, remark=found.reason)
    alternative = Alternative(
        case=case,
        own=own_entry(case),
        other=nothing,
        known=known,
        among=found.among,
        reason=found.reason,
    )
    if found.plan is None:
        return alternative
    problem = build_problem(InputFiles(request, case.folders))
    judged = evaluate(problem, found.plan)
    other = entry(problem, text, found.plan, judged, bound=found.bound, remark="")
    return replace(alternative, other=other, has=_has(case, problem))


def _has(case: Case, problem: Problem[Any]) -> bool:
    """Tell whether a plan is among those of a problem with demands."""
    legal = problem.cluster == case.problem.cluster and evaluate(problem, case.plan).legal
    return coverage_of(problem, case.plan, legal=legal).outside is None


def given_plan(case: Case, asked: Asked) -> Alternative:
    """Return a plan that somebody has, judged on the same problem.

    Raises
    ------
    PlanError: one of the two is not legal, memory aside, or the other cannot be read, or is of
        another problem.
    """
    check_legal(case)
    try:
        candidate = read_candidate(asked, case.problem)
    except OtherProblemError as error:
        raise PlanError(
            f"{asked.text}: a plan of another problem than {case.name}: {error}"
        ) from None
    except PlannerError as error:
        if asked.text in str(error):
            raise
        raise type(error)(f"{asked.text}: {error}") from None
    other = candidate_entry(case.problem, candidate)
    if math.isinf(other.time):
        raise PlanError(f"{asked.text}: {other.remark}")
    return Alternative(
        case=case,
        own=own_entry(case),
        other=other,
        known=Known(other.time, other.time),
    )
