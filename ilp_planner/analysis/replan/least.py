"""The plan that moves least among those that are fast enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.analysis.replan.machines import from_other_nodes, seated
from ilp_planner.analysis.replan.moves import common
from ilp_planner.anatomy.holdings import NOBODY
from ilp_planner.evaluate import evaluate
from ilp_planner.numerics import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.analysis.replan.machines import Machines, Seated
    from ilp_planner.anatomy.holdings import Holdings
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.search.families import Family
    from ilp_planner.search.state import SearchState


@dataclass(frozen=True, kw_only=True, eq=False)
class Moving:
    """A legal plan of a changed problem, on the machines with which it moves least."""

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
    """What is known of a plan and of the machines that a changed problem has."""

    plan: AnyPlan
    holdings: Holdings
    machines: Machines

    def seated(self, problem: Problem[Any], plan: AnyPlan) -> Seated:
        """Return the machines with which a plan of the changed problem moves least."""
        return seated(self.machines, self.holdings, problem.space.holdings(problem, plan))

    def way(self, problem: Problem[Any], found: Moving) -> Way:
        """Return how the bytes of a plan of the changed problem get to where it needs them, all
        nodes at once."""
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
    """between: bytes that nodes get from other ones. seconds: that it takes at least, where a
    node's share of them passes its link to the others, and what a device gets from others of its
    node their link, at the links' rates."""

    between: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Least:
    """The plan that moves least. among: of which plans. proved: none of these that is fast enough
    moves fewer bytes; otherwise the time ended before, or there was nothing to look through, which
    `searched` says. at_least: bytes that any of them moves."""

    moving: Moving
    among: str
    proved: bool
    at_least: float
    searched: bool = True


AMONG = (
    "of every choice of degrees, order of ranks and sharding that the search tries the fastest "
    "plan, the fastest one whose stages end where they did, and the fastest one of equal stages"
)
ALONE = "the fastest plan, and the one of before where it is one of the changed problem"


def least_moved(
    before: Before, search: SearchState, fastest: Moving, limit: float, goon: Callable[[], bool]
) -> Least:
    """Return the plan that moves least among those of at most `limit` seconds: of the plans of
    `AMONG`, where the space sorts them so, else of those of `ALONE`.

    Families of plans are looked through in the order of the bytes that their plans move at least,
    until no other one can move less than the best plan found.
    """
    problem = search.problem
    best = _less(fastest, _judged(before, problem, _again(problem, before.plan), limit))
    families = [
        (at_least(before, problem, family), place, family)
        for place, family in enumerate(problem.space.families(search, limit))
    ]
    if not families:
        return Least(moving=best, among=ALONE, proved=False, at_least=0.0, searched=False)
    for least, _, family in sorted(families, key=lambda entry: entry[:2]):
        if least >= best.bytes * (1 - ROUNDING):
            break
        best = _best_of(before, problem, family, best, limit, goon)
        if not goon():
            return Least(
                moving=best, among=AMONG, proved=False, at_least=max(0.0, min(least, best.bytes))
            )
    return Least(moving=best, among=AMONG, proved=True, at_least=best.bytes)


def moving(before: Before, problem: Problem[Any], plan: AnyPlan) -> Moving:
    """Return a legal plan of a changed problem with the machines with which it moves least."""
    return Moving(
        plan=plan, evaluation=evaluate(problem, plan), seated=before.seated(problem, plan)
    )


def _best_of(
    before: Before,
    problem: Problem[Any],
    family: Family[Any],
    best: Moving,
    limit: float,
    goon: Callable[[], bool],
) -> Moving:
    """Return the plan of a family that moves less than the best one, or that one. How much a cut
    moves is counted before a plan with it is looked for."""
    for cut, sample in family.cuts(before.plan):
        if before.seated(problem, sample).moves.total < best.bytes * (1 - ROUNDING):
            plan = family.fastest_of(cut, limit, goon)
            best = _less(best, _judged(before, problem, plan, limit))
    return _less(best, _judged(before, problem, family.fastest(limit, goon), limit))


def _judged(
    before: Before, problem: Problem[Any], plan: AnyPlan | None, limit: float
) -> Moving | None:
    """Return a plan with what it moves; None for one that is not legal, too slow, or none of those
    that proofs are about."""
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


def at_least(before: Before, problem: Problem[Any], family: Family[Any]) -> float:
    """Return bytes that every plan of a family moves, wherever its stages end.

    What its devices need, and what nobody has any more, does not depend on where stages end: every
    stage has as many devices with the same shares. A device keeps at most what the machine of most
    use would have of a unit, and a unit is on the stage that keeps most of it, as often as it is
    on one.
    """
    old, new = before.holdings, problem.space.holdings(problem, family.plan)
    found = before.seated(problem, family.plan).moves
    worth = _most_kept(before.machines, old, new)
    each = np.einsum("auk,uk,abk->ubk", old.has, old.sizes, worth, optimize=True)
    times = new.has.sum(axis=0)
    kept = float((times * each.max(axis=1)).sum())
    return max(0.0, float(found.needed.sum() - found.read.sum()) - kept)


def _most_kept(known: Machines, old: Holdings, new: Holdings) -> NDArray[np.float64]:
    """Return the bytes per parameter [old stages, new stages, kinds] that the devices of a new
    stage keep at most of what an old stage has, each on the machine that suits it best."""
    found = np.zeros((len(old.has), len(new.has), old.sizes.shape[1]))
    for row, place in enumerate(known.after):
        for local, device in enumerate(place):
            if new.stage[device] == NOBODY:
                continue
            seats = (known.before[n] for n in np.flatnonzero(known.may[row]))
            olds = np.array([seat[local] for seat in seats], dtype=np.int64)
            olds = olds[known.alive[olds] & (old.stage[olds] != NOBODY)]
            held = common(old.boxes[olds], new.boxes[device]) @ np.array(new.widths)
            most = np.zeros_like(found[:, 0])
            np.maximum.at(most, old.stage[olds], held)
            found[:, new.stage[device]] += most
    return found
