"""The plans to try under uncertain constants, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import counted, format_percent, format_seconds
from ilp_planner.faces.report.parallelism import BETWEEN, degree_words
from ilp_planner.faces.report.stages import training_words
from ilp_planner.specs.machine import DURATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.optimize.result import Listed, Reached, Result, Shortlist
    from ilp_planner.problem import Problem

NOTHING = 5e-5  # a share below it is nothing that anybody would read
# A constant of machines in a condition; {} is a value, as `less than 72 %`.
SAID = {
    "sustained": "matrix products keep {} of their clocks under load",
    "streaming": "fused kernels reach {} of the memory's bandwidth",
    "low_precision": "products in 8 and 4 bits have {} of their measured rate",
    "grouped": "grouped products of experts have {} of their measured rate",
    "attention": "attention has forward {} of its measured rate",
    "attention_backward": "attention has backward {} of its measured rate",
    "links": "messages inside nodes reach {} of the links' rate",
    "network": "messages between nodes reach {} of the links' rate",
    "tensor_exposed": "overlap leaves {} of the messages of tensor parallelism exposed",
    "expert_exposed": "overlap leaves {} of the messages of expert parallelism exposed",
    "data_exposed": "overlap leaves {} of the messages of data parallelism exposed",
    "sharded_exposed": "passes leave {} of the messages of sharded states exposed",
    "host_forward": "the host takes {} to start a layer's forward pass",
    "host_backward": "the host takes {} to start a layer's backward pass",
    "host_experts": "the host takes {} to start each kernel of a layer with experts",
    "expert_waits": "the device waits {} for each kernel that needs counts of tokens",
    "host_link": "copies between host and device reach {} of the link's rate",
    "host_memory": "the optimizer on the host reaches {} of its memory's bandwidth",
    "stepping": "the optimizer's step reaches {} of the rate of fused kernels",
    "ring_growth": "a reduce-scatter takes {} longer with every doubling of nodes",
}


def value_text(name: str, value: float) -> str:
    """Return a constant: `72 %`, or `0.14 ms`."""
    return f"{1e3 * value:.3g} ms" if name in DURATIONS else f"{100 * value:.3g} %"


def reached_text(one: Reached) -> str:
    """Return `messages between nodes reach less than 72 % of the links' rate (assumed 90 %)`."""
    side = "less than" if one.value < one.assumed else "more than"
    said = SAID[one.name].format(f"{side} {value_text(one.name, one.value)}")
    return f"{said} (assumed {value_text(one.name, one.assumed)})"


def condition_text(listed: Listed) -> str:
    """Say the conditions under which a plan of a list is its best."""
    if not listed.wins:
        return "never the best of these, but never far from it"
    words = (" and ".join(map(reached_text, together)) for together in listed.wins)
    return f"wins if {'; or if '.join(words)}"


def worst_text(found: Shortlist) -> str:
    """Return `trying 3 plans loses at most 1.2 % instead of 6.4 % with this plan alone`."""
    alone, *more = (short_loss(worst) for worst in found.worst)
    if not more:
        return f"this plan alone loses at most {alone}"
    said = [f"{number} plans at most {loss}" for number, loss in enumerate(more, 2)]
    return f"trying {', '.join(said)} instead of {alone} with this plan alone"


def short_loss(share: float) -> str:
    """Return `1.2 %`; `0 %` of next to nothing."""
    return "0 %" if share < NOTHING else f"{100 * share:.2g} %"


def scope_text(found: Shortlist) -> str:
    """Say the scenarios and the candidates of a short list."""
    every = counted(found.scenarios - 1, "scenario")
    best = f"the best plan searched for in {found.searched} of them"
    return f"over {every} of other constants, {best}, among {counted(found.candidates, 'plan')}"


def shortlist_lines(problem: Problem[Any], result: Result) -> Iterator[tuple[str, str]]:
    """Say the plans to try, a head and a text a line; nothing if none were asked for."""
    found = result.shortlist
    if found is None:
        return
    yield "to try", f"{worst_text(found)}, {scope_text(found)}"
    own = training_words(found.plans[0].plan, brief=True)
    for number, one in enumerate(found.plans, 1):
        if number == 1:
            yield "1", f"{format_seconds(one.seconds)}{BETWEEN}this plan: wins as assumed"
            continue
        degrees, layout = degree_words(problem, one.plan, one.evaluation)
        flags = [word for word in training_words(one.plan, brief=True) if word not in own]
        words = [format_seconds(one.seconds), *degrees, *flags, layout]
        plain = f" by more than {format_percent(result.prefer_plain)}" * one.less_plain
        yield str(number), BETWEEN.join(filter(None, words))
        yield "", condition_text(one).replace("wins", f"wins{plain}", 1)
    if len(found.plans) < found.asked:
        yield "", f"more than {counted(len(found.plans), 'plan')} would not lose less"


def shortlist_object(
    problem: Problem[Any], result: Result, tokens: float | None = None
) -> dict[str, Any] | None:
    """Return the same as JSON; None if none were asked for. tokens: as in `result_object`."""
    from ilp_planner.faces.report.json_report import plan_object

    found = result.shortlist
    if found is None:
        return None
    return {
        "plans": [
            {
                "objective_s": one.seconds,
                "less_plain": one.less_plain,
                "worst_regret": one.worst,
                "condition": condition_text(one) if number else "wins as assumed",
                "wins": [
                    [
                        {"constant": each.name, "assumed": each.assumed, "value": each.value}
                        for each in together
                    ]
                    for together in one.wins
                ],
                **plan_object(problem, one.plan, one.evaluation, tokens),
            }
            for number, one in enumerate(found.plans)
        ],
        "worst_regret": list(found.worst),
        "mean_regret": list(found.mean),
        "asked": found.asked,
        "scenarios": found.scenarios,
        "searched": found.searched,
        "candidates": found.candidates,
        "proved": found.proved,
    }
