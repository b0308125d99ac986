"""The objective over sets of nodes: lines, the front as a table, and both as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import GIGA, HOUR, counted, format_seconds
from ilp_planner.faces.report.tables import STOPS, Table, describe_gap, exact_seconds

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Aim, Best, OnNodes, Result

NONE = "none: not every set of nodes has been bounded"
OPEN = "open: plans of other sets of nodes may be missing in the table"


def tokens_of(problem: Problem[Any]) -> float:
    """Return the tokens of an iteration; 0 if samples have none or the model is not known."""
    spec = problem.spec
    return 0 if spec is None else problem.global_batch * spec.architecture.tokens


def aim_lines(problem: Problem[Any], result: Result) -> list[tuple[str, str]]:
    """Say the objective, its plans, and the proof."""
    aim = result.aim
    assert aim is not None
    best, within = aim.best[0], _budget(aim)
    what = {"time": "the least time", "price": "the least price", "both": "time and price"}
    sets = counted(len(aim.sets), "set")
    several = len(aim.best) > 1 or not aim.complete
    who = "plans on nodes that cost as little per hour" if several else "any plan"
    gap = describe_gap(aim.gap) if aim.complete else OPEN
    return [
        ("objective", f"{what[aim.objective]}{within}, on {best.on.name}"),
        ("bound", f"{describe_value(problem, aim, best.bound)} for {who}" if best.bound else NONE),
        ("among", f"{result.among}; on the first nodes of each kind, {sets} of them{within}"),
        ("gap", gap),
        ("stopped by", f"{STOPS[result.stopped_by]}, after {format_seconds(result.wall)}"),
        ("solver", f"{result.solver}, seed {result.seed}"),
    ]


def _budget(aim: Aim) -> str:
    """Return ` for at most 40 per hour`; empty without a limit."""
    return f" for at most {aim.max_hourly:g} per hour" if math.isfinite(aim.max_hourly) else ""


def describe_value(problem: Problem[Any], aim: Aim, value: float) -> str:
    """Return seconds, or a price by the iteration and by the token."""
    if aim.figure == "seconds":
        return exact_seconds(value)
    tokens = tokens_of(problem)
    each = f", {value / tokens * GIGA:,.2f} per 10^9 tokens," if tokens else ""
    return f"{value:.4g} per iteration{each}"


def front_table(problem: Problem[Any], aim: Aim) -> Table:
    """Return a row per plan of the front, the fastest first."""
    tokens = tokens_of(problem)
    unit = "price per\n10^9 tokens" if tokens else "price per\niteration"
    table = Table(
        "nodes", "price\nper hour", "iteration\ntime", unit, "bound", "gap", left=("nodes",)
    )
    for one in aim.best:
        once = one.on.seconds * one.on.hourly / HOUR
        cells = (
            one.on.name,
            f"{one.on.hourly:,.2f}",
            exact_seconds(one.on.seconds),
            f"{once / tokens * GIGA:,.2f}" if tokens else f"{once:.4g}",
            exact_seconds(one.bound) if one.bound else "none",
            describe_gap(one.gap).removesuffix(" (proved optimal)"),
        )
        table.add(*cells)
    return table


def aim_object(problem: Problem[Any], aim: Aim | None) -> dict[str, Any] | None:
    """Return the objective, the best plans and the bounds of each set of nodes; null without
    sets."""
    if aim is None:
        return None
    tokens = tokens_of(problem)
    return {
        "name": aim.objective,
        "max_price_per_hour": aim.max_hourly,
        "gap": aim.gap,
        "complete": aim.complete,
        "best": [_best_object(one, aim, tokens) for one in aim.best],
        "sets": [_set_object(one) for one in aim.sets],
    }


def _best_object(one: Best, aim: Aim, tokens: float) -> dict[str, Any]:
    known = not math.isnan(one.on.hourly)
    once = one.on.seconds * one.on.hourly / HOUR if known else None
    return {
        **_set_object(one.on),
        "price_per_iteration": once,
        "price_per_1e9_tokens": once / tokens * GIGA if once is not None and tokens else None,
        "judged_by": aim.figure,
        "value": one.value,
        "bound": one.bound,
        "gap": one.gap,
    }


def _set_object(one: OnNodes) -> dict[str, Any]:
    return {
        "nodes": one.name,
        "numbers": list(one.nodes),
        "price_per_hour": None if math.isnan(one.hourly) else one.hourly,
        "objective_s": one.seconds,
        "bound_s": one.bound,
        "covered": one.covered,
    }
