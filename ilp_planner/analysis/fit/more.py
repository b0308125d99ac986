"""Jobs with all settings free, and sufficient GPUs if none of them fits.

The search is that of plans for the training system, over the job's own types of numbers and
kernels. It says how far from the best possible its plan is at most.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.changes import Change
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import PlannerError
from ilp_planner.inputs.constraints import ANY
from ilp_planner.job.verdict import MARGIN
from ilp_planner.spaces.training.search.least_memory import SPARE, fits, least_share
from ilp_planner.specs.training import ORDERS, Recompute

if TYPE_CHECKING:
    from ilp_planner.analysis.fit.changes import Writer
    from ilp_planner.analysis.fit.judge import Judge
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts

ALL = "all settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllFree:
    """The result with all settings free. change: None if nothing fits, or nothing was found in
    time.
    bound: lower bound of the search's plans in seconds; 0: none was proved. among: the set of
    plans. impossible: it is proved that none fits."""

    change: Change | None
    bound: float
    among: str
    impossible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """Memory and GPUs that certainly suffice for some plan. memory: bytes of a GPU, on as many;
    gpus: of these; None: not found."""

    memory: float | None
    gpus: int | None


def free_problem(judge: Judge, world: int, share: float = 1.0) -> Problem[MegatronCosts]:
    """Return the problem of planning with the job's numbers and kernels, all else free.

    share: of the memory of GPUs, that plans may need.

    Raises
    ------
    PlannerError: no plan is possible on so many GPUs.
    """
    problem, own = judge.problem(world), judge.job.settings
    runtime = judge.space.runtime
    base = replace(
        own,
        cp=1,
        cp_inner=0,
        cp_comm="p2p",
        ep=1,
        etp=0,
        sequence_parallel=False,
        order=ORDERS[0],
        turn=0,
        recompute=Recompute(),
    )
    choices = runtime.choices(base, ANY, world)
    costs = replace(problem.costs, settings=base, choices=choices)
    limits = {name: share * limit for name, limit in problem.memory_limits.items()}
    return replace(problem, costs=costs, memory_limits=limits)


def all_free(judge: Judge, writer: Writer, seconds: float) -> AllFree:
    """Return the fastest plan with all settings free that is found in so many seconds."""
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.optimize.result import Status
    from ilp_planner.optimize.solve import solve
    from ilp_planner.optimize.solvers.base import Limits

    job = judge.job
    try:
        problem = free_problem(judge, job.world)
        result = solve(problem, limits=Limits(seconds=seconds))
    except PlannerError:
        return AllFree(change=None, bound=0.0, among="", impossible=False)
    change = None
    if result.plan is not None:
        found = replace(
            job_of_plan(result.plan, judge.model, problem.cluster), generation=job.generation
        )
        judged, words = judge.faster(found, math.inf), writer(found)
        if judged is not None and words is not None:
            change = Change(settings=(ALL,), judged=judged, words=words)
    return AllFree(
        change=change,
        bound=result.bound,
        among=result.among,
        impossible=result.status is Status.INFEASIBLE,
    )


def enough(judge: Judge, seconds: float) -> Enough:
    """Return how much memory would do for some plan, and how many GPUs.

    Parameters
    ----------
    seconds: of looking for more GPUs.
    """
    world = judge.job.world
    deadline = Deadline(seconds)
    more = itertools.takewhile(lambda _: deadline.goon(), judge.site.more(world))
    return Enough(
        memory=_memory(judge, world),
        gpus=next((each for each in more if _fits_on(judge, each, deadline)), None),
    )


def _memory(judge: Judge, world: int) -> float | None:
    try:
        problem = free_problem(judge, world)
        share = least_share(problem) * SPARE / (1 - MARGIN)
    except PlannerError:
        return None
    return None if math.isinf(share) else share * max(problem.memory_limits.values())


def _fits_on(judge: Judge, world: int, deadline: Deadline) -> bool:
    """Tell whether some plan is found that fits so many GPUs."""
    try:
        return fits(free_problem(judge, world, 1 - MARGIN), deadline)
    except PlannerError:
        return False
