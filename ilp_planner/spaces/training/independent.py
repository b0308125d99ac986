"""Write the proof of a bound on plans of training runtimes, for the checker.

The checker (`checker/checker.py`) shares no code with the planner. It enumerates degrees,
recomputations, virtual stages and layouts itself, and computes the seconds and the bytes of layers
from the model, the device and the settings. docs/reference/certificate.md has the format.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.table import GROUP_SIZE
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.independent_costs import counted_job, form_of, uncounted
from ilp_planner.spaces.training.search.parts import settings_of
from ilp_planner.spaces.training.search.possible import with_choices
from ilp_planner.specs.layer_kinds import ATTENTION, MLP
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Recompute, Settings

VERSION = 2
MOST_LAYERS = 512  # the checker reads no more
DEGREES = ("tp", "cp", "ep", "etp", "dp", "pp", "micro_batch", "order")
ONLY = ("tp", "cp", "pp", "dp", "ep", "micro_batch_size", "virtual_stages")  # demands
UNCHECKED = ("layout", "keep", "remainder", GROUP_SIZE)  # demands that the checker does not know


def training_proof(problem: Problem[MegatronCosts], bound: float) -> dict[str, Any]:
    """Return the claim that no plan of a problem takes less than `bound` seconds, and the figures
    that prove it.

    Empty if `unproved` says why there is none.
    """
    if unproved(problem, bound):
        return {}
    model, cluster = problem.costs.model, problem.cluster
    costs = problem.costs
    asked = costs.runtime.batched(model, problem.constraints)  # with what samples demand
    job, cases = _counted(problem)
    ways = _recomputations(problem)
    return {
        "version": VERSION,
        "bound_s": bound,
        "set": {
            "space": problem.space.name,
            "devices": cluster.device_count,
            "devices_per_node": cluster.nodes[0].devices,
            "global_batch": problem.global_batch,
            "micro_batches": list(problem.micro_batches),
            "memory_limit_bytes": math.ceil(min(problem.memory_limits.values())),
            **_rules(model),
            "max_tp": problem.max_tp,
            "max_cp": costs.max_cp,
            "max_stages": problem.max_stages or cluster.device_count,
            "orders": len(costs.runtime.orders),
            "only": {name: _numbers(problem, asked, name) for name in ONLY if getattr(asked, name)},
            "asked": asked.describe(),
            "choices": [
                ", ".join(different(one, costs.choices[0])) or "plainest" for one in costs.choices
            ],
            "recompute": [Variant(1, way).again for way in ways],
            "blocks": costs.runtime.blocks and asked.allows("recompute", "block"),
            "interleaves": costs.runtime.interleaves,
        },
        "table": {"costs": "training", "job": job},
        "cases": cases,
    }


def unproved(problem: Problem[MegatronCosts], bound: float) -> str:
    """Return why the checker knows nothing of a problem's plans; empty if it does."""
    model, cluster, asked = problem.costs.model, problem.cluster, problem.constraints
    costs = problem.costs
    divided = [n for n in costs.runtime.schedules if n in DIVIDED and asked.allows("schedule", n)]
    usual = " or ".join(n for n in costs.runtime.schedules if n not in DIVIDED)
    demanded = [name for name in UNCHECKED if getattr(asked, name)]
    if not 0 < bound < math.inf:
        return "no bound is proved"
    if len(cluster.type_names) > 1:
        return f"devices of {len(cluster.type_names)} types: {', '.join(cluster.type_names)}"
    if model.layers > MOST_LAYERS:
        return f"{model.layers} layers, more than {MOST_LAYERS}"
    if why := uncounted(problem):
        return why
    if demanded:
        return f"{', '.join(demanded)}: asked for"
    if divided:  # bounded too weakly there
        fix = f"; `schedule={usual}` leaves them out" if usual else ""
        return f"schedules that divide backward passes ({', '.join(divided)}){fix}"
    return ""


def _counted(problem: Problem[MegatronCosts]) -> tuple[dict[str, Any], list[list[int]]]:
    """Return the figures from which the checker computes what layers take, and the choices of
    settings that are possible with all degrees, in ascending order. Settings follow from a choice
    and the form of the degrees (`form_of`)."""
    costs = problem.costs
    choices: dict[tuple[int, ...], list[int]] = {}
    settings: dict[Settings, int] = {}
    forms: dict[tuple[int, str], int] = {}
    for degrees, numbers in with_choices(problem, costs):
        choices[tuple(getattr(degrees, name) for name in DEGREES)] = [*numbers]
        form = form_of(degrees)
        if (0, form) not in forms:
            for number in range(len(costs.choices)):
                own = settings_of_form(problem, degrees._replace(choice=number))
                forms[number, form] = settings.setdefault(own, len(settings))
    job = counted_job(problem, list(settings))
    job["forms"] = [[*key, place] for key, place in forms.items()]
    return job, [choices[key] for key in sorted(choices)]


def settings_of_form(problem: Problem[MegatronCosts], degrees: MegatronDegrees) -> Settings:
    """Return a choice of settings with degrees, without what the degrees say themselves: the same
    for all degrees of a form."""
    own = settings_of(problem, problem.costs, degrees)
    return replace(own, cp=1, ep=1, etp=0, order=ORDERS[0])


def _rules(model: Decoder) -> dict[str, Any]:
    """Return the sizes of a model that its degrees must divide."""
    divided = [model.heads] * model.has(ATTENTION) + [model.ffn] * model.has(MLP)
    if model.experts is not None:
        divided.append(model.experts.shared_ffn)
    if model.prediction_layers:
        divided.append(model.hidden)
    for encoder in model.encoders:
        divided += [encoder.heads, encoder.ffn] * (not encoder.whole)
    divided += [count for mixer in model.scans for count in mixer.divisors.values()]
    grouped = model.latent is None and model.has(ATTENTION)
    experts = model.experts
    return {
        "layers": model.layers,
        "divided_by_tp": sorted({n for n in divided if n}),
        "kv_heads": model.kv_heads if grouped else 0,
        "sequence": model.sequence,
        "experts": [] if experts is None else [experts.count, experts.ffn],
        "experts_by_tp": not model.bias,
    }


def _numbers(problem: Problem[MegatronCosts], asked: Constraints, name: str) -> list[int]:
    """Return the values of a demand on a number."""
    most = max(problem.cluster.device_count, problem.global_batch, problem.costs.model.layers + 2)
    return [n for n in range(1, most + 1) if asked.allows(name, n)]


def _recomputations(problem: Problem[MegatronCosts]) -> tuple[Recompute, ...]:
    """Return the recomputations that the search tries with any choice of settings, but those of a
    block of layers."""
    costs = problem.costs
    every = (
        costs.runtime.recomputations(costs.model, choice.kernels, problem.constraints)
        for choice in costs.choices
    )
    return tuple(dict.fromkeys(way for ways in every for way in ways))
