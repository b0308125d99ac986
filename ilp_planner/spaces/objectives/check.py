"""The proof of an objective, derived again: the bound of every set of nodes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import InfeasibleError, PlanError, ProfileError, SpecError
from ilp_planner.base.numerics import ROUNDING, SAVED_ROUNDING
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.likeness import DEVICES
from ilp_planner.optimize.certificate import check_certificate, well_formed
from ilp_planner.optimize.result import CERTIFICATE_VERSION, relative_gap
from ilp_planner.spaces.objectives.node_sets import (
    describe_covered,
    describe_set,
    node_sets,
    priced_sets,
)
from ilp_planner.spaces.objectives.objective import TIME, Objective, Point, objective_named
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.prices import hourly_price, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.objectives.node_sets import NodeSet


@dataclass(frozen=True, kw_only=True)
class SetCheck:
    """A set of nodes: its bound as claimed and as found anew, in seconds (inf: no plan). counts:
    how many nodes of each kind; hourly: price per hour, nan if unknown.
    covered: whether the bound of the plan is about plans on it."""

    name: str
    counts: tuple[int, ...]
    hourly: float
    claimed: float
    rederived: float
    covered: bool = True

    @property
    def holds(self) -> bool:
        """The bound found anew is no lower than the one claimed."""
        return self.rederived >= self.claimed * (1 - ROUNDING)


@dataclass(frozen=True, kw_only=True)
class AimCheck:
    """All sets, and the resulting bound of a plan. hourly: price of its nodes per hour. figure:
    `seconds` or `price`; value: that of the plan as judged; bound: the least of all plans that the
    objective compares it with, found anew. on: the nodes that the bound is about, in words."""

    objective: str
    hourly: float
    figure: str
    value: float
    bound: float
    sets: tuple[SetCheck, ...]
    on: str = ""

    @property
    def holds(self) -> bool:
        """Every set holds, and the plan is not below the bound."""
        return all(one.holds for one in self.sets) and self.bound <= self.value * (1 + ROUNDING)

    @property
    def gap(self) -> float:
        """Share of the value that the bound leaves open."""
        gap = relative_gap(self.value, self.bound)
        return gap if gap > ROUNDING else 0.0


def check_aim(
    problem: Problem[Any], plan: AnyPlan, seconds: float, aim: Mapping[str, Any]
) -> AimCheck:
    """Derive the bound of every set of nodes again from the inputs; nothing in a file is believed.

    Parameters
    ----------
    problem: of the nodes that the plan is on. seconds: of the plan, as judged.
    aim: the objective in the plan's file.

    Raises
    ------
    PlanError: it is malformed, or leaves out a set of nodes.
    """
    with well_formed():
        objective = objective_named(str(aim["name"]))
        budget = aim.get("max_price_per_hour")
        most = math.inf if budget is None else float(budget)
        whole = whole_problem(problem, aim.get("devices", {}))
        records = {tuple(record["counts"]): record for record in aim["sets"]}
        every = (node_sets if objective is TIME and most == math.inf else priced_sets)(
            whole.cluster
        )
        sets = [one for one in every if not one.hourly > most * (1 + ROUNDING)]
        missing = [one for one in sets if one.counts not in records]
        if missing:
            name = describe_set(whole.cluster, missing[0].nodes)
            raise PlanError(f"objective: {name!r} is missing from 'sets'")
        checks = tuple(_check(whole, one, records[one.counts]) for one in sets)
    hourly = hourly_price(problem.cluster, nodes_of(problem.cluster, plan.used))
    found = _aim_check(objective, Point(seconds, math.nan if hourly is None else hourly), checks)
    return replace(found, on=describe_covered(whole.cluster, checks))


def _aim_check(objective: Objective, point: Point, sets: tuple[SetCheck, ...]) -> AimCheck:
    """Return the sets' bound of a plan: for a front, sets that cost no more per hour."""
    several = len(objective.figures) > 1
    most = point.hourly * (1 + ROUNDING) if several else math.inf
    figure = objective.figures[0]
    bounds = [
        Point(one.rederived, one.hourly) for one in sets if one.covered and not one.hourly > most
    ]
    return AimCheck(
        objective=objective.name,
        hourly=point.hourly,
        figure=figure,
        value=getattr(point, figure),
        bound=min((getattr(bound, figure) for bound in bounds), default=0.0),
        sets=sets,
    )


def aim_remarks(check: AimCheck, aim: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each thing that a file says wrongly of an objective that was derived
    again."""
    for one in check.sets:
        if not one.holds:
            yield f"objective.sets: the bound of {one.name} does not hold"
    if check.objective != TIME.name or aim["max_price_per_hour"] is not None:
        yield from (
            f"objective.sets: found {one.name} not covered, expected every set to be"
            for one in check.sets
            if not one.covered
        )
    names = {one.counts: one for one in check.sets}
    for counts, listed in Counter(tuple(record["counts"]) for record in aim["sets"]).items():
        if counts not in names:
            yield f"objective.sets: found counts {list(counts)}, which are no set of nodes"
        elif listed > 1:
            yield f"objective.sets: found {names[counts].name} {listed} times, expected once"
    for record in aim["sets"]:
        known, hourly = names.get(tuple(record["counts"])), record["price_per_hour"]
        if known is None:
            continue
        expected = None if math.isnan(known.hourly) else known.hourly
        if hourly is None or expected is None:
            same = hourly is expected
        else:
            same = abs(hourly - expected) <= SAVED_ROUNDING * expected
        if not same:
            yield (
                f"objective.sets: found a price_per_hour of {hourly!r} of {known.name}, expected "
                f"{expected!r}"
            )
    budget = aim["max_price_per_hour"]
    if budget is not None and check.hourly > budget * (1 + SAVED_ROUNDING):
        yield (
            f"objective.max_price_per_hour: found {budget!r}, expected at least {check.hourly!r}, "
            "which the nodes of the plan cost"
        )
    for name in aim["devices"].keys() - set(DEVICES):
        yield f"objective.devices: found key {name!r}, expected {' or '.join(DEVICES)}"
    bound, gap = aim["bound"], aim["gap"]
    if not bound <= check.bound * (1 + SAVED_ROUNDING):
        yield f"objective.bound: found {bound!r}, expected at most {check.bound!r}, derived again"
    if check.bound > check.value * (1 + SAVED_ROUNDING):
        yield f"objective: the bound of {check.bound!r} is above the plan's own {check.value!r}"
    expected = relative_gap(check.value, bound)
    if not abs(gap - expected) <= SAVED_ROUNDING:
        yield (
            f"objective.gap: found {gap!r}, expected {expected!r} from the bound and the plan's "
            f"{check.value!r}"
        )


def whole_problem(problem: Problem[Any], devices: Mapping[str, str]) -> Problem[Any]:
    """Return the problem on all allowed nodes, from the problem on the plan's nodes.

    devices: the constraints on devices that were asked for, by name.
    """
    files = problem.files
    assert files is not None
    request = problem.request or files.request
    asked = constraints_of({name: devices[name] for name in DEVICES if name in devices})
    constraints = request.constraints.with_(without=asked.without, max_devices=asked.max_devices)
    whole = InputFiles(
        replace(request, constraints=constraints),
        files.folders,
        objects=files.objects,
        anew=files.anew,
        possible=False,
    )
    return build_problem(whole)


def _check(whole: Problem[Any], nodes: NodeSet, record: Mapping[str, Any]) -> SetCheck:
    """Derive the bound of a set again."""
    bound = record["bound_s"]
    claimed = math.inf if bound is None else float(bound)
    return SetCheck(
        name=describe_set(whole.cluster, nodes.nodes),
        counts=nodes.counts,
        hourly=nodes.hourly,
        claimed=claimed,
        rederived=_rederived(whole, nodes, claimed, record["parts"]),
        covered=bool(record.get("covered", True)),
    )


def _rederived(
    whole: Problem[Any], nodes: NodeSet, claimed: float, parts: list[dict[str, Any]]
) -> float:
    try:
        problem = problem_on(whole, nodes.nodes)
    except (InfeasibleError, ProfileError, SpecError):
        return math.inf
    least = problem.space.work_bound(problem, range(problem.cluster.node_count))
    if claimed <= least or not parts:  # nothing more is claimed of it
        return least
    return check_certificate(problem, {"version": CERTIFICATE_VERSION, "parts": parts}).bound
