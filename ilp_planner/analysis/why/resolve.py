"""Requests near to a solved one, solved from its plan, with the result of each by the end of its
time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import InfeasibleError, PlannerError, SolverError
from ilp_planner.inputs.files import InputFiles
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.registry import build_problem

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.optimize.solvers.base import Limits
    from ilp_planner.plan import AnyPlan

GAP = 1e-3  # relative: closer to a bound than this, no second of it is worth the search


class Near(NamedTuple):
    """The start of near requests. start: the plan, with its proof; None: from nothing. folders:
    bases of relative paths in the requests. limits: of each; their seconds do not count."""

    start: Start | None
    folders: tuple[Path, ...]
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a request. bound, best: lower bound and seconds of the plan; both inf if there
    is proved to be none. stopped_by: why the search ended. among: the plans that the bound is
    about. failure: why nothing is known; empty if something is."""

    bound: float = 0.0
    best: float = math.inf
    plan: AnyPlan | None = None
    stopped_by: Stop = Stop.ERROR
    among: str = ""
    reason: str = ""
    failure: str = ""
    wall: float = 0.0

    @property
    def impossible(self) -> bool:
        """Whether it is proved that no plan fits."""
        return math.isinf(self.bound)


def resolve(request: Request, near: Near, deadline: Deadline) -> Found:
    """Return the result of a request by a deadline.

    Raises
    ------
    SolverError: the judge refutes the result of the search.
    """
    try:
        problem = build_problem(InputFiles(request, near.folders))
        start = near.start and replace(near.start, space=problem.space.name)
        # Not confirmed by another solver: that takes longer than many of these searches.
        result = solve(problem, limits=near.limits, solver="dp", start=start, deadline=deadline)
    except SolverError:
        raise
    except InfeasibleError as error:
        return Found(bound=math.inf, stopped_by=Stop.PROOF, reason=str(error))
    except PlannerError as error:
        return Found(failure=str(error))
    return Found(
        bound=result.bound,
        best=result.objective,
        plan=result.plan,
        stopped_by=result.stopped_by,
        among=result.among,
        reason=result.reason,
        wall=result.wall,
    )
