"""The plans to try under uncertain constants, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import counted, format_seconds
from ilp_planner.faces.report.expected import NOTHING
from ilp_planner.faces.report.parallelism import BETWEEN, degree_words
from ilp_planner.faces.report.stages import training_words
from ilp_planner.specs.machine import DURATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Listed, Reached, Result, Shortlist

HARDLY = 0.02  # relative: a constant as near to the assumed one is called by that
# A constant of machines in a condition; {} is a value, as `less than 72 %`.
SAID = {
    "sustained": "matrix products keep {} of their clocks under load",
    "streaming": "fused kernels reach {} of the memory's bandwidth",
    "low_precision": "products in 8 and 4 bits have {} of their measured rate",
    "grouped": "grouped products of experts have {} of their measured rate",
    "attention": "attention's forward pass has {} of its measured rate",
    "attention_backward": "attention's backward pass has {} of its measured rate",
    "links": "messages inside nodes reach {} of the links' rate",
    "network": "messages between nodes reach {} of the links' rate",
    "tensor_exposed": "overlap leaves {} of the messages of tensor parallelism exposed",
    "expert_exposed": "kernels beside an exchange of tokens lose {} of its time",
    "data_exposed": "overlap leaves {} of the messages of data parallelism exposed",
    "sharded_exposed": "passes leave {} of the messages of sharded states exposed",
    "host_forward": "the host takes {} to start a layer's forward pass",
    "host_backward": "the host takes {} to start a layer's backward pass",
    "host_experts": "the host takes {} to start each kernel of a layer",
    "expert_waits": "the device waits {} for each kernel that needs counts of tokens",
    "host_link": "copies between host and device reach {} of the link's rate",
    "host_memory": "the optimizer on the host reaches {} of its memory's bandwidth",
    "stepping": "the optimizer's step reaches {} of the rate of fused kernels",
    "scan": "scans of Mamba-2 and delta nets reach {} of the rate of other kernels",
    "ring_growth": "a reduce-scatter takes {} longer with every doubling of nodes",
}


def value_text(name: str, value: float) -> str:
    """Return a constant: `72 %`, or `0.14 ms`."""
    return f"{1e3 * value:.3g} ms" if name in DURATIONS else f"{100 * value:.3g} %"


def reached_text(one: Reached) -> str:
    """Return `messages between nodes reach less than 72 % of the links' rate (assumed 90 %)`."""
    side = "less than" if one.value < one.assumed else "more than"
    assumed = value_text(one.name, one.assumed)
    if abs(one.value - one.assumed) < HARDLY * one.assumed:
        return SAID[one.name].format(f"{side} the assumed {assumed}")
    said = SAID[one.name].format(f"{side} {value_text(one.name, one.value)}")
    return f"{said} (assumed {assumed})"


def condition_text(listed: Listed) -> str:
    """Say the conditions under which a plan of a list is its best."""
    if not listed.wins:
        return "never the best of these, but never far from it"
    words = (" and ".join(map(reached_text, together)) for together in listed.wins)
    return f"wins if {'; or if '.join(words)}"


def worst_text(found: Shortlist) -> str:
    """Return `trying 2 plans loses at most 2.1 %, 3 plans 1.2 %, this plan alone 6.4 %`."""
    alone, *more = map(short_loss, found.worst)
    if not more:
        return f"this plan alone loses at most {alone}"
    said = [f"{number} plans {loss}" for number, loss in enumerate(more, 2)]
    said[0] = said[0].replace("plans", "plans loses at most")
    return f"trying {', '.join(said)}, this plan alone {alone}"


def short_loss(share: float) -> str:
    """Return `1.2 %`; `0 %` of next to nothing."""
    return "0 %" if share < NOTHING else f"{100 * share:.2g} %"


def scope_text(found: Shortlist) -> str:
    """Say the scenarios and the candidates of a short list."""
    every = counted(found.scenarios - 1, "scenario")
    return (
        f"in {every} of other constants ({found.searched - 1} searched for their own best plan, "
        f"{counted(found.candidates, 'candidate')})"
    )


def alone_text(found: Shortlist) -> str:
    """Say of a plan without another candidate how far others were searched for."""
    every, searched = found.scenarios - 1, found.searched - 1
    of = f"{searched} of {every}" if searched < every else f"{every}"
    return f"a search under {of} scenarios of other constants found no other"


def shortlist_lines(problem: Problem[Any], result: Result) -> Iterator[tuple[str, str]]:
    """Say the plans to try, a head and a text a line; nothing if none were asked for."""
    found = result.shortlist
    if found is None:
        return
    if found.candidates == 1:
        yield "to try", f"this plan alone: {alone_text(found)}"
        return
    yield "to try", f"{worst_text(found)}, {scope_text(found)}"
    yield "1", f"{format_seconds(found.plans[0].seconds)}{BETWEEN}this plan: wins as assumed"
    own = training_words(found.plans[0].plan, brief=True)
    for number, one in enumerate(found.plans[1:], 2):
        degrees, layout = degree_words(problem, one.plan, one.evaluation)
        flags = [word for word in training_words(one.plan, brief=True) if word not in own]
        words = [format_seconds(one.seconds), *degrees, *flags, layout]
        yield str(number), BETWEEN.join(filter(None, words))
        yield "", f"{plain_text(problem, found, one, result.prefer_plain)}{condition_text(one)}"
    if len(found.plans) < found.asked:
        yield "", f"more than {counted(len(found.plans), 'plan')} would not lose less"


def plain_text(problem: Problem[Any], found: Shortlist, one: Listed, share: float) -> str:
    """Return `less plain by degrees, so that 2 % faster does not count; `; empty for a plan that is
    as plain as the first one."""
    if not one.less_plain:
        return ""
    own, other = (problem.space.plainness(problem, each.plan) for each in (found.plans[0], one))
    more = ", ".join(name for name, grade in other.items() if grade > own[name])
    return f"less plain by {more}, for which {short_loss(share)} is given up; "
