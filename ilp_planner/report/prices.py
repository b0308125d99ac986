"""What a plan costs, by the hour, by the iteration and by the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.specs.prices import HOUR, hourly_price, nodes_of
from ilp_planner.throughput import throughput
from ilp_planner.units import counted

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.result import Result

GIGA = 1e9  # tokens that a price is said for
DAY = 86_400  # seconds


class Price(NamedTuple):
    """What a plan costs, in the currency of its cluster.

    hourly: of all nodes that it uses, whole. nodes: how many these are. once: of an iteration.
    tokens: of 10^9 tokens; None where samples have none, or the model is not known.
    """

    hourly: float
    nodes: int
    once: float
    tokens: float | None


def price_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None) -> Price | None:
    """Return what a plan costs; None where a price, or what the plan takes, is not known."""
    if evaluation is None or evaluation.cost is None:
        return None
    used = nodes_of(problem.cluster, plan.used)
    hourly = hourly_price(problem.cluster, used)
    if hourly is None:
        return None
    done, tokens = throughput(problem, plan, evaluation), None
    if done is not None and done.tokens:
        tokens = hourly / HOUR / done.tokens * GIGA
    return Price(hourly, len(used), hourly * evaluation.iteration_time / HOUR, tokens)


def price_lines(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> list[tuple[str, str]]:
    """Say what a plan costs; nothing where that is not known."""
    price = price_of(problem, plan, evaluation)
    if price is None:
        return []
    text = f"{price.hourly:,.2f} per hour for {counted(price.nodes, 'node')}, "
    text += f"{price.once:.4g} per iteration"
    if price.tokens is not None:
        text += f", {price.tokens:,.2f} per 10^9 tokens"
    return [("price", text)]


def price_object(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None
) -> dict[str, float | None]:
    """Return what a plan costs; null where that is not known."""
    price = price_of(problem, plan, evaluation)
    return {
        "price_per_hour": None if price is None else price.hourly,
        "price_per_iteration": None if price is None else price.once,
        "price_per_1e9_tokens": None if price is None else price.tokens,
    }


def run_object(problem: Problem[Any], result: Result, tokens: float) -> dict[str, float] | None:
    """Return how long a result's plan trains on so many tokens, and what that costs; None without a
    plan, or where samples have no tokens."""
    plan, evaluation = result.plan, result.evaluation
    done = None if plan is None or evaluation is None else throughput(problem, plan, evaluation)
    if plan is None or done is None or not done.tokens:
        return None
    price = price_of(problem, plan, evaluation)
    seconds = tokens / done.tokens
    found = {"tokens": tokens, "seconds": seconds}
    return found if price is None else {**found, "price": price.hourly * seconds / HOUR}


def run_lines(problem: Problem[Any], result: Result, tokens: float) -> list[tuple[str, str]]:
    """Say the same."""
    run = run_object(problem, result, tokens)
    if run is None:
        return []
    text = f"{tokens:g} tokens take {run['seconds'] / DAY:,.2f} days"
    return [("run", text + (f" and cost {run['price']:,.0f}" if "price" in run else ""))]
