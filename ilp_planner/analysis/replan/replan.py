"""One verb, `replan`: plans for a changed problem.

The answer is the fastest plan, and the one that moves least.

The plan that moves least among fast enough ones.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.analysis.replan.changes import Changes, changed
from ilp_planner.analysis.replan.machines import (
    assigned,
    common,
    from_other_nodes,
    lacking,
    machines,
    seated,
)
from ilp_planner.analysis.why.why import check_legal
from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.errors import interruptible
from ilp_planner.base.numerics import PROVED, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.files import InputFiles
from ilp_planner.job.holdings import NOBODY
from ilp_planner.optimize.result import Status, Stop, relative_gap
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes, solve_on_any_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.analysis.replan.machines import Machines, Seated
    from ilp_planner.analysis.why.why import Case
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.optimize.result import Result
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.optimize.solvers.base import Progress
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.base import Family


# ---- least ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Moving:
    """A legal plan of a changed problem, on the machines that let it move least."""

    plan: AnyPlan
    evaluation: Evaluation
    seated: Seated

    @property
    def bytes(self) -> float:
        """Bytes that devices get from others."""
        return self.seated.moves.total

    @property
    def seconds(self) -> float:
        """Seconds of an iteration."""
        return self.evaluation.iteration_time


@dataclass(frozen=True, kw_only=True, eq=False)
class Before:
    """A plan and the machines of a changed problem."""

    plan: AnyPlan
    holdings: Holdings
    machines: Machines

    def seated(self, problem: Problem[Any], plan: AnyPlan) -> Seated:
        """Return the machines that let a plan of the changed problem move least."""
        return seated(self.machines, self.holdings, problem.space.holdings(problem, plan))

    def way(self, problem: Problem[Any], found: Moving) -> Way:
        """Return how the bytes of a plan of the changed problem reach their nodes, all at once."""
        cluster, moved = problem.cluster, found.seated.moves.moved
        new = problem.space.holdings(problem, found.plan)
        taken = from_other_nodes(self.machines, self.holdings, new, found.seated)
        between = float(taken.max()) / cluster.slowest_between.bandwidth
        inside = max(
            max(0.0, float(moved[place].sum() - other)) / len(place) / cluster.link(n, n).bandwidth
            for n, (place, other) in enumerate(zip(self.machines.after, taken, strict=True))
        )
        return Way(between=float(taken.sum()), seconds=max(between, inside))


class Way(NamedTuple):
    """between: bytes that nodes get from other ones. seconds: a lower bound. A node's share of the
    bytes passes its link to the others, and a device's share from its own node passes the link
    inside, at the links' rates."""

    between: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Least:
    """The plan that moves least. among: the set of plans. proved: none of these that is fast enough
    moves fewer bytes; otherwise the time ended before, or there was nothing to look through.
    at_least: bytes that any of them moves. alone: why no other plans were looked through; empty if
    some were."""

    moving: Moving
    among: str
    proved: bool
    at_least: float
    alone: str = ""


AMONG = (
    "of every choice of degrees, order of ranks and sharding that the search tries the fastest "
    "plan, the fastest one whose stages end where they did, and the fastest one of equal stages"
)
LATE = "the time was up before"
ALONE = "the fastest plan, and the one of before where it is one of the changed problem"


def least_moved(
    before: Before, search: SearchState, fastest: Moving, limit: float, goon: Callable[[], bool]
) -> Least:
    """Return the plan that moves least among those of at most `limit` seconds: of the plans of
    `AMONG`, if the space sorts them so, else of those of `ALONE`.

    Plans with a cut that has a name are looked for in the order of the bytes that the cut moves:
    the first one found moves least of them. Then come the fastest plans of families that may move
    less, with the most likely ones first.
    """
    problem = search.problem
    best = _less(fastest, _judged(before, problem, _again(problem, before.plan), limit))
    tried, whole = _tried(before, search, limit, goon)
    if not tried:
        why = f"space {problem.space.name} does not sort them by what moves" if whole else LATE
        return Least(moving=best, among=ALONE, proved=False, at_least=0.0, alone=why)
    best = _with_cuts(before, problem, tried, best, limit, goon)
    left = set() if whole else {0.0}
    for one in sorted(tried, key=lambda one: one.usual):
        if goon() and one.at_least < best.bytes * (1 - ROUNDING):
            plan = one.family.fastest(limit, goon)
            best = _less(best, _judged(before, problem, plan, limit))
        if not goon():
            left.add(one.at_least)
    known = min([*left, best.bytes])
    proved = known >= best.bytes * (1 - ROUNDING)
    return Least(moving=best, among=AMONG, proved=whole and proved, at_least=known)


def _tried(
    before: Before, search: SearchState, limit: float, goon: Callable[[], bool]
) -> tuple[list[Tried], bool]:
    """Return the families of a space with the bytes that their plans move, and whether these are
    all."""
    found: list[Tried] = []
    with suppress(OutOfTimeError):
        for family in search.problem.space.families(search, limit):
            found.append(Tried(before, search.problem, family))
            if not goon():
                return found, False
        return found, True
    return found, False


def _with_cuts(
    before: Before,
    problem: Problem[Any],
    tried: Sequence[Tried],
    best: Moving,
    limit: float,
    goon: Callable[[], bool],
) -> Moving:
    """Return the plan with a named cut that moves less than the best one, or that one."""
    cuts = [(moved, n, cut) for n, one in enumerate(tried) for moved, cut in one.cuts]
    for moved, number, cut in sorted(cuts, key=lambda entry: entry[:2]):
        if not goon() or moved >= best.bytes * (1 - ROUNDING):
            break
        plan = tried[number].family.fastest_of(cut, limit, goon)
        best = _less(best, _judged(before, problem, plan, limit))
    return best


class Tried:
    """A family of plans and the bytes that its plans move.

    at_least: bytes that every one of them moves, wherever its stages end. usual: bytes of a plan
    with stages of any lengths. cuts: the cuts that have a name, with the bytes that each moves.

    Needed and lost bytes do not depend on the cuts: every stage has as many devices with the same
    shares.
    """

    def __init__(self, before: Before, problem: Problem[Any], family: Family[Any]) -> None:
        self.family = family
        known, old = before.machines, before.holdings
        new = problem.space.holdings(problem, family.plan)
        wanted = float(new.bytes.sum() - lacking(old, new, known.alive).sum())
        self.at_least = max(0.0, wanted - most_kept(known, old, new))
        self.usual = wanted - assigned(known, old, new)[1]
        self.cuts: list[tuple[float, Any]] = []
        for cut, plan in family.cuts(before.plan):
            kept = assigned(known, old, problem.space.holdings(problem, plan))[1]
            self.cuts.append((max(0.0, wanted - kept), cut))


def moving(before: Before, problem: Problem[Any], plan: AnyPlan) -> Moving:
    """Return a legal plan of a changed problem with the machines that let it move least."""
    return Moving(
        plan=plan, evaluation=evaluate(problem, plan), seated=before.seated(problem, plan)
    )


def _judged(
    before: Before, problem: Problem[Any], plan: AnyPlan | None, limit: float
) -> Moving | None:
    """Return a plan with its moved bytes; None for one that is not legal, too slow, or outside of
    proofs."""
    if plan is None:
        return None
    evaluation = evaluate(problem, plan)
    if not evaluation.legal or evaluation.iteration_time > limit:
        return None
    if not problem.space.contains(problem, plan):
        return None
    return Moving(plan=plan, evaluation=evaluation, seated=before.seated(problem, plan))


def _less(one: Moving, other: Moving | None) -> Moving:
    """Return the plan that moves less; of two that move the same, the faster one."""
    if other is None or other.bytes > one.bytes * (1 + ROUNDING):
        return one
    if other.bytes < one.bytes * (1 - ROUNDING) or other.seconds < one.seconds:
        return other
    return one


def _again(problem: Problem[Any], plan: AnyPlan) -> AnyPlan:
    """Return a plan with as many of its micro-batches as hold the samples of another problem."""
    batch = problem.global_batch
    return replace(plan, global_batch=batch, micro_batches=-(-batch // plan.micro_batch_size))


def most_kept(known: Machines, old: Holdings, new: Holdings) -> float:
    """Return the bytes that the devices of a plan keep at most, wherever its stages end.

    By machines: each is one node at most, and keeps no more than if that had all units. By units:
    a unit is on the stage that keeps most of it, whose devices are on the machines that suit each
    best, as often as it is on one.
    """
    _, by_machines = assigned(known, old, replace(new, has=np.ones_like(new.has)))
    worth = _worth(known, old, new)
    each = np.einsum("auk,ukp,abkp->ubk", old.has, new.sizes, worth, optimize=True)
    by_units = float((new.has.sum(axis=0) * each.max(axis=1)).sum())
    return min(by_machines, by_units)


def _worth(known: Machines, old: Holdings, new: Holdings) -> NDArray[np.float64]:
    """Return the shares [old stages, new stages, kinds, 2] of weights and of states that the
    devices of a new stage keep at most of an old stage, each on its best machine; above 1 where
    several keep the same."""
    found = np.zeros((len(old.has), len(new.has), *new.sizes.shape[1:]))
    for row, place in enumerate(known.after):
        for local, device in enumerate(place):
            if new.stage[device] == NOBODY:
                continue
            seats = (known.before[n] for n in np.flatnonzero(known.may[row]))
            olds = np.array([seat[local] for seat in seats if local < len(seat)], dtype=np.int64)
            olds = olds[known.alive[olds] & (old.stage[olds] != NOBODY)]
            held = common(old.boxes[olds], new.boxes[device])
            most = np.zeros_like(found[:, 0])
            np.maximum.at(most, old.stage[olds], held)
            found[:, new.stage[device]] += most
    return found


# ---- replan --------------------------------------------------------------------------------------


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
