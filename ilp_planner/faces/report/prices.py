"""The price of a plan, by the hour, by the iteration and by the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import DAY, GIGA, HOUR, counted
from ilp_planner.spaces.throughput import throughput
from ilp_planner.specs.prices import hourly_price, nodes_of

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem


class Price(NamedTuple):
    """The price of a plan, in the currency of its cluster.

    hourly: of all nodes that it uses, whole. nodes: how many these are. once: of an iteration.
    tokens: of 10^9 tokens; None if samples have none, or the model is not known.
    """

    hourly: float
    nodes: int
    once: float
    tokens: float | None


class Run(NamedTuple):
    """Training on so many tokens. price: of all nodes in use, None if it is not known."""

    tokens: float
    seconds: float
    price: float | None

    @property
    def days(self) -> float:
        """How many days it takes."""
        return self.seconds / DAY


def price_of_tokens(hourly: float, rate: float) -> float:
    """Return the price of 10^9 tokens. hourly: price per hour. rate: tokens per second."""
    return hourly / HOUR / rate * GIGA


def run_of(tokens: float, rate: float, hourly: float | None) -> Run:
    """Return the days and the price of training on so many tokens.

    Parameters
    ----------
    rate: tokens per second. hourly: price per hour; None: not known.
    """
    seconds = tokens / rate
    return Run(tokens, seconds, None if hourly is None else hourly * seconds / HOUR)


def price_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None) -> Price | None:
    """Return the price of a plan; None if a price or the plan's time is unknown."""
    if evaluation is None or evaluation.cost is None:
        return None
    used = nodes_of(problem.cluster, plan.used)
    hourly = hourly_price(problem.cluster, used)
    if hourly is None:
        return None
    done = throughput(problem, plan, evaluation)
    rate = 0.0 if done is None else done.tokens
    return price_in(evaluation.iteration_time, hourly, len(used), rate)


def price_in(seconds: float, hourly: float, nodes: int, rate: float) -> Price:
    """Return the price of an iteration of so many seconds, and of tokens at so many per second, 0
    if samples have none. hourly: price per hour of all the nodes."""
    tokens = price_of_tokens(hourly, rate) if rate else None
    return Price(hourly, nodes, hourly * seconds / HOUR, tokens)


def price_lines(price: Price | None) -> list[tuple[str, str]]:
    """Say the price of a plan; nothing if it is unknown."""
    if price is None:
        return []
    text = f"{price.hourly:,.2f} per hour for {counted(price.nodes, 'node')}, "
    text += f"{price.once:.4g} per iteration"
    if price.tokens is not None:
        text += f", {price.tokens:,.2f} per 10^9 tokens"
    return [("price", text)]


def price_object(price: Price | None) -> dict[str, float | None]:
    """Return the price of a plan; null if that is not known."""
    return {
        "price_per_hour": None if price is None else price.hourly,
        "price_per_iteration": None if price is None else price.once,
        "price_per_1e9_tokens": None if price is None else price.tokens,
    }


def run_in(
    problem: Problem[Any], plan: AnyPlan | None, evaluation: Evaluation | None, tokens: float
) -> Run | None:
    """Return how long a plan trains on so many tokens, and the price; None without a plan, if
    samples have no tokens, or if the model's dimensions are unknown."""
    done = None if plan is None or evaluation is None else throughput(problem, plan, evaluation)
    if plan is None or done is None or not done.tokens:
        return None
    price = price_of(problem, plan, evaluation)
    return run_of(tokens, done.tokens, None if price is None else price.hourly)


def run_object(run: Run | None) -> dict[str, float | None] | None:
    """Return days, and the price if it is known; null if there is nothing to say."""
    if run is None:
        return None
    return {"tokens": run.tokens, "seconds": run.seconds, "days": run.days, "price": run.price}


def run_lines(run: Run | None) -> list[tuple[str, str]]:
    """Say the same."""
    if run is None:
        return []
    cost = "" if run.price is None else f" and cost {run.price:,.0f}"
    return [("run", f"{run.tokens:g} tokens take {run.days:,.2f} days{cost}")]
