"""The result of a solve: plan, status, reason for stopping, numbers and provenance, kept apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.numerics import PROVED
from ilp_planner.base.units import format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import Plan


CERTIFICATE_VERSION = 1
ON_NODES = "; on "  # between the plans of a space and the nodes that they may be on
EVERY_PART = "every part"  # what a certificate calls a space whose parts were not listed in time


class Status(StrEnum):
    """The state of knowledge about the plan."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Stop(StrEnum):
    """Why the search ended."""

    PROOF = "proof"
    GAP = "gap"
    TIME = "time"
    MEMORY = "memory"
    EFFORT = "effort"
    HEURISTIC = "heuristic"
    USER = "user"
    ERROR = "error"


def relative_gap(objective: float, bound: float) -> float:
    """Return 1 - bound / objective, 0 when the bound meets the objective, inf without a plan."""
    if not math.isfinite(objective) or math.isnan(bound):
        return math.inf
    return max(0.0, 1.0 - bound / objective)


class Moment(NamedTuple):
    """Bound and best plan of a search at one moment. after: seconds since it began. objective,
    bound: seconds per iteration, inf without a plan, 0.0 without a bound."""

    after: float
    objective: float
    bound: float


# What proves a bound where all plans that are left to choose from were judged.
ALL_JUDGED = "judging every plan"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One of the best plans. bound: seconds; no plan that is not listed before it takes less."""

    plan: Plan[Any]
    evaluation: Evaluation
    bound: float


@dataclass(frozen=True, kw_only=True)
class Fastest:
    """The fastest plan found, beside a plainer one that was chosen. objective: seconds per
    iteration. status: of this plan; its bound is that of the result."""

    plan: Plan[Any]
    evaluation: Evaluation
    objective: float
    status: Status

    def beside(self, bound: float) -> Fastest:
        """Return it with the status beside a bound on all plans."""
        proved = relative_gap(self.objective, bound) <= PROVED
        return replace(self, status=Status.OPTIMAL if proved else Status.FEASIBLE)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """An end of a condition: a constant of the machine lies beyond a value. name: of the constant.
    assumed, value: seconds, or a share; beyond is away from the assumed one."""

    name: str
    assumed: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A plan of a short list.

    seconds: per iteration, with the assumed constants. less_plain: than the fastest plain plan, so
    that it wins only by more than is given up for plainness. wins: conditions under which it is the
    best of the list, the nearest to the assumed constants first; what one condition lists must hold
    together. The first plan is the best with the assumed constants and has none. worst: its own
    largest regret over the scenarios, a share.
    """

    plan: Plan[Any]
    evaluation: Evaluation
    less_plain: bool
    wins: tuple[tuple[Reached, ...], ...]
    worst: float

    @property
    def seconds(self) -> float:
        """Seconds of an iteration."""
        return self.evaluation.iteration_time


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """Plans to try, chosen together: the best of them loses least over scenarios of constants.

    plans: the chosen ones, the solve's own first. worst, mean: shares, of the first plan alone, of
    the best two, and so on: by how much longer the best of them takes than the best candidate, in
    the worst scenario and on average. asked: plans that were asked for; fewer are listed if more do
    not help. scenarios: the assumed constants, and others that change a candidate's time. searched:
    of these, the ones with a search of their own for better plans, or without room for any.
    candidates: plans that were compared. proved: no other choice of them is better.
    """

    plans: tuple[Listed, ...]
    worst: tuple[float, ...]
    mean: tuple[float, ...]
    asked: int
    scenarios: int
    searched: int
    candidates: int
    proved: bool


@dataclass(frozen=True, kw_only=True)
class OnNodes:
    """Bound and best plan on a set of nodes that is used whole.

    name: of the nodes. counts: how many of each kind. nodes: their numbers among the usable ones.
    hourly: price per hour. bound: on the seconds of plans on them, inf if none fits. seconds: of
    the best plan found, inf without one. parts: enumerated ones, as in a certificate; empty for a
    set that was not looked at, or without a plan of the space. covered: the bound that a result
    claims is about its plans as well.
    """

    name: str
    counts: tuple[int, ...]
    nodes: tuple[int, ...]
    hourly: float
    bound: float
    seconds: float
    plan: Plan[Any] | None = None
    parts: tuple[dict[str, Any], ...] = ()
    covered: bool = True


@dataclass(frozen=True, kw_only=True)
class Best:
    """A plan that no other one found is better than. value: its seconds or price per iteration, by
    the search's objective. bound: of the same figure, of all plans on nodes that may be used; if
    both time and price count, of all sets that cost no more per hour."""

    on: OnNodes
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Share of the value that the bound leaves open; 0 if only rounding is left."""
        gap = relative_gap(self.value, self.bound)
        return gap if gap > PROVED else 0.0


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The objective of a search over sets of nodes, and its bounds of each set.

    objective: its name. figure: `seconds` or `price` of an iteration, the judged one.
    max_hourly: limit on the price of nodes per hour, inf without one. devices: the constraints on
    devices that were asked for, by name. best: the best plans: one, or the front of time and price,
    the fastest first. sets: all sets of nodes that may be used. complete: no plan is missing in the
    front, but for the gaps of its plans. on: the nodes that the bound is about, in words.
    """

    objective: str
    figure: str
    max_hourly: float
    devices: Mapping[str, str]
    best: tuple[Best, ...]
    sets: tuple[OnNodes, ...]
    complete: bool
    on: str = "any of these nodes"

    @property
    def usual(self) -> bool:
        """Whether the least time is all that was asked for."""
        return self.objective == "time" and math.isinf(self.max_hourly)

    @property
    def gap(self) -> float:
        """The largest gap of the best plans; inf without any, or if some may be missing."""
        gap = max((one.gap for one in self.best), default=math.inf)
        return gap if self.complete else math.inf


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A plan, its judgement, and the bound at the end of a search.

    objective, bound: seconds per iteration (inf without a plan; 0.0 without a bound).
    fastest: the fastest plan found if `plan` is a plainer one that takes hardly longer
    (`Limits.prefer_plain`); None if `plan` is the fastest. Only the fastest is called optimal:
    `status`, `objective` and `gap` are of `plan`, and `bound` is of all plans. prefer_plain: the
    share that was asked for; nan if no plan is plainer than another one.
    bound_source: the argument that proved the bound. among: the plans that it is about. wall:
    seconds.
    certificate: JSON-ready record of the enumerated parts and the proof of each.
    notes: one-line remarks for the user (omissions, solvers that fell back).
    reason: for an infeasible problem, the part that fits nowhere and the missing bytes.
    confirmed_by: another solver that found the same optimum of the residual problem; empty if none
    was asked (`notes` say why).
    ranking: the best plans in order, the plan itself first, when more than one was asked for.
    history: bound and best plan from moment to moment, each improvement once.
    aim: the objective over sets of nodes; the other figures are of the plan's own nodes. None if
    all nodes were planned for the least time.
    shortlist: the plans to try, when more than one was asked for.
    """

    plan: Plan[Any] | None
    evaluation: Evaluation | None = None
    status: Status
    stopped_by: Stop
    objective: float
    bound: float
    bound_source: str
    wall: float
    solver: str
    seed: int
    certificate: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reason: str = ""
    among: str = ""
    confirmed_by: str = ""
    ranking: tuple[Ranked, ...] = ()
    history: tuple[Moment, ...] = ()
    aim: Aim | None = None
    fastest: Fastest | None = None
    prefer_plain: float = math.nan
    shortlist: Shortlist | None = None

    @property
    def slower(self) -> float:
        """How much longer the plan takes than the fastest one found, relative to that one."""
        return 0.0 if self.fastest is None else self.objective / self.fastest.objective - 1

    @property
    def gap(self) -> float:
        """Share of the objective that the bound leaves open; inf without a plan."""
        return relative_gap(self.objective, self.bound)

    @property
    def judged_all(self) -> bool:
        """Every plan of the space was judged, and nothing was searched."""
        return self.bound_source == ALL_JUDGED

    @property
    def overall(self) -> Status:
        """The status of the plan among plans on all compared sets of nodes."""
        if self.aim is None or self.plan is None:
            return self.status
        return Status.FEASIBLE if self.aim.gap else Status.OPTIMAL

    def __repr__(self) -> str:
        if self.plan is None:
            return f"<Result {self.status}, no plan>"
        stages = self.plan.ranks
        gap = format_percent(self.gap) if self.gap else "0 %"
        return (
            f"<Result {self.status} {format_seconds(self.objective)}, gap {gap}, "
            f"{stages} stage{'s' if stages > 1 else ''}>"
        )
