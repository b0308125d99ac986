"""Write the proof of a bound on plans of training runtimes, for the checker.

The checker (`ilp_planner/checker.py`) shares no code with the planner. It enumerates degrees,
recomputations, virtual stages and layouts itself, and believes the figures of the file: seconds of
a layer, and the layers that fit into the memory of a rank. docs/reference/certificate.md has the
format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.training.memory import most_layers
from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.table import GROUP_SIZE
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant, block_of
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import possible_choices, possible_degrees
from ilp_planner.specs.layer_kinds import ATTENTION, MLP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Recompute

VERSION = 1
MOST_PARTS = 4000  # more would make too large a file
MOST_LAYERS = 512  # the checker reads no more
DEGREES = ("tp", "cp", "ep", "etp", "dp", "pp", "micro_batch", "order")
ONLY = ("tp", "cp", "pp", "dp", "ep", "micro_batch_size", "virtual_stages")  # demands
UNCHECKED = ("layout", "keep", "remainder", GROUP_SIZE)  # demands that the checker does not know
NEAR = 1.05  # times the bound: recomputations with more seconds of work have no record of memory


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
    table = _Table()
    parts: list[dict[str, Any]] = []
    for degrees in possible_degrees(problem, problem.costs):
        parts += _parts(problem, degrees, bound, table)
        if len(parts) > MOST_PARTS or table.differ:
            return {}
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
        "table": {"costs": "training", **table.rows},
        "cases": parts,
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
    if len({*model.layer_kinds}) > 1:
        return "layers of several kinds"
    if demanded:
        return f"{', '.join(demanded)}: asked for"
    if divided:  # bounded too weakly there
        fix = f"; `schedule={usual}` leaves them out" if usual else ""
        return f"schedules that divide backward passes ({', '.join(divided)}){fix}"
    if any(s.offload.layers or s.offload.modules for s in costs.choices):
        return "activations on the host"
    return ""


class _Table:
    """Rows of figures by name; equal rows are one. differ: a part was found whose layers differ, so
    that its figures cannot be written."""

    def __init__(self) -> None:
        names = ("chains", "syncs", "sends", "most")
        self.rows: dict[str, list[list[float]]] = {name: [] for name in names}
        self._known: dict[tuple[str, tuple[float, ...]], int] = {}
        self.differ = False

    def add(self, name: str, row: Sequence[float]) -> int:
        """Return the place of a row, and append it if it is new."""
        key = name, tuple(row)
        if key not in self._known:
            self._known[key] = len(self.rows[name])
            self.rows[name].append(list(row))
        return self._known[key]


def _rules(model: Decoder) -> dict[str, Any]:
    """Return the sizes of a model that its degrees must divide."""
    divided = [model.heads] * model.has(ATTENTION) + [model.ffn] * model.has(MLP)
    if model.experts is not None:
        divided.append(model.experts.shared_ffn)
    if model.prediction_layers:
        divided.append(model.hidden)
    if model.encoder and not model.encoder.whole:
        divided += [model.encoder.heads, model.encoder.ffn]
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


def _parts(
    problem: Problem[MegatronCosts], degrees: MegatronDegrees, bound: float, table: _Table
) -> Iterator[dict[str, Any]]:
    """Yield one record for each choice of settings that is possible with these degrees, or a single
    record without a choice."""
    costs = problem.costs
    named = [getattr(degrees, name) for name in DEGREES]
    some = False
    for number in possible_choices(problem, costs, degrees):
        part = MegatronPart(problem, costs, degrees._replace(choice=number))
        if not part.alike:
            table.differ = True
            return
        some = True
        yield {"degrees": named, "choice": number, **_figures(part, bound, table)}
    if not some:
        yield {"degrees": named, "choice": None}


def _figures(part: MegatronPart, bound: float, table: _Table) -> dict[str, Any]:
    """Return the seconds of a part's elements, and the layers that fit with each recomputation
    whose work alone does not exceed the bound."""
    ways = _recomputations(part.problem)
    chains, syncs = [], []
    for row, (total, _, forward) in enumerate(part.elements):
        chain = [float(x) for k in (0, 1, -1) for x in (forward[k], total[k] - forward[k])]
        again = [float(part.repeated(way)[row, 1]) for way in ways]
        chains.append(table.add("chains", [*chain, *again]))
        fixed, each = part.syncs[row][0], part.syncs[row][1:]
        syncs.append(table.add("syncs", [float(x) for x in (fixed, each[0], each[1], each[-1])]))
    found: dict[str, Any] = {
        "rows": part.rank_rows.tolist() if len(chains) > 1 else [],
        "chains": chains,
        "syncs": syncs,
        "sends": table.add("sends", part.ranks.transfers),
        "constant": float(part.ranks.constant),
        "most": {},
        "blocks": [],
    }
    layers, pp = part.costs.model.layers, part.degrees.pp
    kind = part.job.layer_kinds[0]
    for way in ways:
        least = float((part.elements[:, 0] + part.repeated(way)).min(axis=0).sum())
        work = least * part.micro_batches / pp
        if work >= NEAR * bound or not part.allows(way):
            continue
        parts = part.memory(Variant(1, way))
        if way == NOTHING and part.costs.runtime.blocks and part.allowed_blocks.size:
            blocks = part.memory(Variant(1, block_of(1)))
            sizes = range(1, layers + 1)
            every = most_layers(blocks, part.limits, layers, kind=kind, sizes=sizes)
            found["blocks"] = [table.add("most", _row(one)) for one in every]
        (only,) = most_layers(parts, part.limits, layers, kind=kind)
        found["most"][Variant(1, way).again] = table.add("most", _row(only))
    return found


def _row(held: Any) -> list[int]:
    """Return the layers that fit each rank at most; -1: it has no room for its other parameters."""
    return [max(-1, int(one)) for one in held]
