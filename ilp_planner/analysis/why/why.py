"""One verb, `why`: limits of a plan, loads of its ranks, terms of its time, gains of changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.why.relaxations import Relaxation, relaxations
from ilp_planner.analysis.why.side_by_side import side_by_side
from ilp_planner.base.errors import InfeasibleError, PlanError, PlannerError, SolverError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.formats.saved_start import start_of
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.likeness import DEVICES
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.objectives.objective import TIME
from ilp_planner.spaces.registry import build_problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.plan import AnyPlan, Stage


# ---- requests near to a solved one ---------------------------------------------------------------
# Solved from its plan, with the result of each by the end of its time.


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


# ---- the gain of relaxing a limit, as a proved range ---------------------------------------------


class Known(NamedTuple):
    """The proved range of the fastest plan of a problem, in seconds: at least `bound` and at most
    `best`."""

    bound: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a relaxation, in seconds for the samples of before.

    The fastest plan of before takes at least `before.bound` and at most `before.best`, that of the
    relaxed problem `after` likewise; so the gain lies between `least` and `most`.
    """

    relaxation: Relaxation
    found: Found
    before: Known

    @property
    def after(self) -> Known:
        """The range of the relaxed problem; plans of before may count, too."""
        scale = self.relaxation.scale
        bound, best = scale * self.found.bound, scale * self.found.best
        if self.relaxation.wider:
            bound, best = min(bound, self.before.bound), min(best, self.before.best)
        return Known(bound, best)

    @property
    def known(self) -> bool:
        """Whether there is anything to say."""
        return not self.found.failure

    @property
    def least(self) -> float:
        """Seconds that are gained at least; below 0 if more may be lost than gained, -inf if no
        plan was found."""
        gain = self.before.bound - self.after.best
        return max(0.0, gain) if self.relaxation.wider else gain

    @property
    def most(self) -> float:
        """Seconds that are gained at most; inf if nothing of the plans of before is known."""
        if math.isinf(self.after.bound):
            return -math.inf  # no plan is left
        return max(self.least, self.before.best - self.after.bound)

    @property
    def bounded(self) -> bool:
        """Whether anything is proved of how much is gained at most: both bounds are there."""
        return self.known and self.after.bound > 0 and math.isfinite(self.before.best)

    @property
    def none(self) -> bool:
        """Whether it is proved that nothing is gained, but for rounding."""
        return self.known and self.most <= ROUNDING * self.before.best


# ---- the bottleneck rank of a plan, and the slack of the others ----------------------------------


SLOWEST = 1e-9  # relative: ranks that take as long as the slowest one


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Busy time and memory of a pipeline rank, for a micro-batch.

    load: seconds. slack: seconds per micro-batch that it could take longer, or wait, without being
    the slowest. room: bytes that are left on its fullest device, below 0 if it holds too much;
    None: memory is not modelled.
    """

    number: int
    load: float
    slack: float
    room: float | None

    @property
    def slowest(self) -> bool:
        """Whether the others wait for it."""
        return self.slack <= SLOWEST * self.load


def rank_loads(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[RankLoad, ...]:
    """Return the loads of a priced plan's pipeline ranks, in their order."""
    costs = evaluation.stages
    loads = plan.per_rank([stage.time for stage in costs])
    longest = max(loads)
    return tuple(
        RankLoad(
            number=number,
            load=load,
            slack=longest - load,
            room=_room(problem, plan.stages[number], costs[number].memory),
        )
        for number, load in enumerate(loads)
    )


def _room(problem: Problem[Any], stage: Stage, memory: Sequence[float]) -> float | None:
    if not any(memory):
        return None
    types, limits = problem.cluster.type_of, problem.memory_limits
    return min(
        min(limits[types[device]] for device in devices) - used
        for devices, used in zip(stage.parts(len(memory)), memory, strict=True)
    )


# ---- why -----------------------------------------------------------------------------------------


SECONDS = 12.0  # of all searches together, unless it is said


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan that is asked about. name: of it, for people. folders: bases of paths in its request.
    workers: processes at most. changed: it is judged by the inputs as they are now, not by those of
    its file."""

    judgement: Judgement
    name: str
    folders: tuple[Path, ...]
    workers: int
    changed: bool = False

    @property
    def problem(self) -> Problem[Any]:
        """The problem of the plan."""
        return self.judgement.problem

    @property
    def plan(self) -> AnyPlan:
        """The decision."""
        return self.judgement.saved.plan

    @property
    def evaluation(self) -> Evaluation:
        """The plan, judged again."""
        return self.judgement.evaluation

    @property
    def start(self) -> Start:
        """The start of searches."""
        return start_of(self.judgement.saved, self.name)

    @property
    def near(self) -> Near:
        """The start of near problems."""
        return Near(self.start, self.folders, Limits(gap=GAP, workers=1))

    @property
    def request(self) -> Request:
        """The request of the problem.

        Raises
        ------
        PlanError: it was built from objects, without names.
        """
        if self.problem.request is None:
            raise PlanError(
                f"{self.name}: found an input that is an object, expected names or paths: near "
                "problems are built from them again"
            )
        return self.problem.request

    @property
    def asked(self) -> Request:
        """The request before the search chose nodes.

        Raises
        ------
        PlanError: as `request`.
        """
        request, aim = self.request, self.judgement.saved.aim
        if not self.chosen:
            return request
        said = constraints_of({name: aim["devices"][name] for name in aim["devices"]})
        own = {name: getattr(said, name) for name in DEVICES}
        return replace(request, constraints=request.constraints.with_(**own))

    @property
    def chosen(self) -> tuple[str, ...]:
        """Constraints on devices that the search chose, and nobody asked for."""
        aim = self.judgement.saved.aim
        return tuple(name for name in DEVICES if self.any_nodes and name not in aim["devices"])

    @property
    def any_nodes(self) -> bool:
        """Whether the plan is the fastest on any nodes at any price."""
        aim = self.judgement.saved.aim
        return aim.get("name") == TIME.name and aim.get("max_price_per_hour") is None

    @property
    def claimed(self) -> Known | None:
        """The range of the problem by the claims of the plan's file; None if it claims no bound, or
        one of other inputs or of another version of the planner."""
        claim = self.judgement.saved.claim
        if claim is None or not 0 < claim.bound < math.inf or self.judgement.coverage.outside:
            return None
        if self.changed or self.start.why_unproved:
            return None
        fastest = math.inf if claim.fastest is None else claim.fastest.objective
        return Known(claim.bound, min(fastest, self.evaluation.iteration_time))


def read_case(plan_file: Path, workers: int, *, accept_changed: bool) -> Case:
    """Read a plan that is asked about."""
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of
    from ilp_planner.inputs.files import plan_folders

    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    return Case(
        judgement=judge_saved(problem, saved, certificate=False),
        name=str(plan_file),
        folders=plan_folders(plan_file),
        workers=workers,
        changed=accept_changed,
    )


@dataclass(frozen=True, kw_only=True)
class Why:
    """The answer.

    seconds: of an iteration, by term. ranks: the load of each. known: the range of the fastest plan
    of its problem; derived: by a search now, not by the plan's file.
    gains: of relaxations, the largest least gain first.
    """

    case: Case
    seconds: Mapping[str, float]
    ranks: tuple[RankLoad, ...]
    known: Known
    derived: bool
    gains: tuple[Gain, ...]

    @property
    def ratio(self) -> float | None:
        """The plan's seconds by the bound; None if there is none, or it is not about the plan."""
        outside = self.case.judgement.coverage.outside
        seconds = self.case.evaluation.iteration_time
        if outside or not 0 < self.known.bound < math.inf:
            return None
        return max(1.0, seconds / self.known.bound)


def why(case: Case, deadline: Deadline) -> Why:
    """Return the limits of a plan.

    Raises
    ------
    PlanError: the plan is not legal, or an input of its problem has no name.
    SolverError: the judge refutes the result of the search.
    """
    check_legal(case)
    request, claimed = case.request, case.claimed
    whole = InputFiles(request, case.folders).whole_cluster if "cluster" in request.files else None
    every = relaxations(case.problem, whole or case.problem.cluster, case.plan, case.chosen)
    found = _resolved(case, every, deadline, again=claimed is None)
    known = claimed or _known(case, found[0])
    gains = [
        Gain(relaxation=relaxation, found=one, before=known)
        for relaxation, one in zip(every, found[claimed is None :], strict=True)
    ]
    cost = case.evaluation.cost
    assert cost is not None
    return Why(
        case=case,
        seconds=case.problem.space.seconds(case.problem, case.plan, cost),
        ranks=rank_loads(case.problem, case.plan, case.evaluation),
        known=known,
        derived=claimed is None,
        gains=tuple(sorted(gains, key=_order)),
    )


def check_legal(case: Case) -> None:
    """Refuse a plan that is not legal, or has false claims in its file.

    Raises
    ------
    PlanError: with the fault.
    """
    if case.evaluation.legal and not case.judgement.fault:
        return
    advice = ""
    broken = case.evaluation.violations
    if broken and all(violation.rule == "memory" for violation in broken):
        advice = f"; `ilp-plan fit {case.name}` says what would make it fit"
    raise PlanError(f"{case.name}: {case.judgement.fault}{advice}")


def _order(gain: Gain) -> tuple[bool, float, float]:
    return not gain.known, -max(gain.least, 0.0), -gain.most


def _resolved(
    case: Case, every: Sequence[Relaxation], deadline: Deadline, *, again: bool
) -> list[Found]:
    """Return the results of relaxations by the deadline; of the problem itself before them, if it
    is to be solved again."""
    requests = [*([case.request] if again else []), *(one.request for one in every)]
    works = [partial(resolve, request, case.near) for request in requests]
    answers = side_by_side(works, case.workers, deadline)
    ended = Found(stopped_by=Stop.TIME, failure="ended before anything was known")
    return [answer or ended for answer in answers]


def _known(case: Case, found: Found) -> Known:
    """Return the range of a problem that was solved again, its own plan included."""
    inside = case.judgement.coverage.outside is None
    own = case.evaluation.iteration_time if inside else math.inf
    return Known(0.0 if found.failure else found.bound, min(own, found.best))
