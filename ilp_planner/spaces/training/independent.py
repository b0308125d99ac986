"""Write the proof of a bound on plans of training runtimes, for the checker.

The checker (`ilp_planner/checker.py`) shares no code with the planner. It enumerates degrees,
recomputations, virtual stages and layouts itself, and believes the figures of the file: seconds of
a layer, and the layers that fit into the memory of a rank. docs/reference/certificate.md has the
format.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.training.ranks import shared_of
from ilp_planner.job.memory import beyond_units, stage_memory, start_bytes, whole_gradients
from ilp_planner.job.recompute import checkpoint
from ilp_planner.job.states import copies_parameters, stay_gathered
from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.table import GROUP_SIZE
from ilp_planner.spaces.training.bounds.variant import bounded_variants
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant, block_of, most_virtual
from ilp_planner.spaces.training.independent_costs import counted_job, form_of, uncounted
from ilp_planner.spaces.training.search.parts import MegatronPart, settings_of
from ilp_planner.spaces.training.search.possible import possible_choices, possible_degrees
from ilp_planner.specs.layer_kinds import ATTENTION, LAYER_KINDS, MLP, PLAIN
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.job.parts import MemoryParts, Part
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Recompute, Settings

VERSION = 2
MOST_PARTS = 4000  # more would make too large a file
KEPT = 7  # numbers of a row of what a micro-batch keeps
MOST_LAYERS = 512  # the checker reads no more
DEGREES = ("tp", "cp", "ep", "etp", "dp", "pp", "micro_batch", "order")
ONLY = ("tp", "cp", "pp", "dp", "ep", "micro_batch_size", "virtual_stages")  # demands
UNCHECKED = ("layout", "keep", "remainder", GROUP_SIZE)  # demands that the checker does not know
ENOUGH = 1 + 1e-9  # times the bound: of what takes as long, no memory is recorded


def training_proof(
    problem: Problem[MegatronCosts], bound: float, plan: GroupPlan | None = None
) -> dict[str, Any]:
    """Return the claim that no plan of a problem takes less than `bound` seconds, and the figures
    that prove it, with those of a plan.

    Empty if `unproved` says why there is none.
    """
    if unproved(problem, bound):
        return {}
    model, cluster = problem.costs.model, problem.cluster
    costs = problem.costs
    asked = costs.runtime.batched(model, problem.constraints)  # with what samples demand
    rows: dict[str, Any]
    parts: list[Any]
    if uncounted(problem):
        rows, parts = _believed(problem, bound, plan)
        if not rows:
            return {}
    else:
        rows, parts = _counted(problem)
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
        "table": {"costs": "training", **rows},
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
    if len({*model.layer_kinds}) > 1 and (why := uncounted(problem)):
        return f"layers of several kinds, and {why}"
    if demanded:
        return f"{', '.join(demanded)}: asked for"
    if divided:  # bounded too weakly there
        fix = f"; `schedule={usual}` leaves them out" if usual else ""
        return f"schedules that divide backward passes ({', '.join(divided)}){fix}"
    if any(s.offload.layers or s.offload.modules for s in costs.choices):
        return "activations on the host"
    return ""


def _counted(problem: Problem[MegatronCosts]) -> tuple[dict[str, Any], list[list[int]]]:
    """Return the figures from which the checker computes what layers take, and the choices of
    settings that are possible with all degrees, in ascending order. Settings follow from a choice
    and the form of the degrees (`form_of`)."""
    costs = problem.costs
    choices: dict[tuple[int, ...], list[int]] = {}
    settings: dict[Settings, int] = {}
    forms: dict[tuple[int, str], int] = {}
    for degrees in possible_degrees(problem, costs):
        form = form_of(degrees)
        for number in range(len(costs.choices)):
            own = settings_of(problem, costs, degrees._replace(choice=number))
            own = replace(own, cp=1, ep=1, etp=0, order=ORDERS[0])
            place = settings.setdefault(own, len(settings))
            if forms.setdefault((number, form), place) != place:
                raise AssertionError(f"settings of choice {number} and degrees {form} differ")
        named = tuple(getattr(degrees, name) for name in DEGREES)
        choices[named] = [*possible_choices(problem, costs, degrees)]
    job = counted_job(problem, list(settings))
    job["forms"] = [[*key, place] for key, place in forms.items()]
    return {"job": job}, [choices[key] for key in sorted(choices)]


def _believed(
    problem: Problem[MegatronCosts], bound: float, plan: GroupPlan | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return rows of figures that the checker believes, and a record for each choice of degrees and
    settings; nothing if these are too many, or layers differ."""
    table = _Table(problem.costs.model)
    parts: list[dict[str, Any]] = []
    for degrees in possible_degrees(problem, problem.costs):
        parts += _parts(problem, degrees, bound, plan, table)
        if len(parts) > MOST_PARTS or table.differ:
            return {}, []
    return dict(table.rows), parts


class _Table:
    """Rows of figures by name; equal rows are one. differ: a part was found whose layers differ, so
    that its figures cannot be written."""

    def __init__(self, model: Decoder) -> None:
        self.least = shared_of(model).known_least()
        names = ("chains", "syncs", "sends", "works", "kept", "states")
        self.rows: dict[str, list[list[Any]]] = {name: [] for name in names}
        self._known: dict[tuple[str, tuple[Any, ...]], int] = {}
        self.differ = False

    def add(self, name: str, row: Sequence[Any]) -> int:
        """Return the place of a row, and append it if it is new."""
        key = name, tuple(tuple(x) if isinstance(x, list) else x for x in row)
        if key not in self._known:
            self._known[key] = len(self.rows[name])
            self.rows[name].append(list(row))
        return self._known[key]

    def least_work(self, part: MegatronPart, enough: float) -> float:
        """Return the seconds that a micro-batch takes on all ranks, at least: without messages, if
        that is enough."""
        key = part.alone
        if key not in self.least:
            self.least[key] = part.least_alone()
        found = self.least[key]
        return found if found >= enough else max(found, part.ranks.least_work)


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


def _parts(
    problem: Problem[MegatronCosts],
    degrees: MegatronDegrees,
    bound: float,
    plan: GroupPlan | None,
    table: _Table,
) -> Iterator[dict[str, Any]]:
    """Yield one record for each choice of settings that is possible with these degrees, or a single
    record without a choice."""
    costs = problem.costs
    named = [getattr(degrees, name) for name in DEGREES]
    some = False
    for number in possible_choices(problem, costs, degrees):
        part = MegatronPart(problem, costs, degrees._replace(choice=number))
        some = True
        enough = ENOUGH * bound * part.degrees.pp / part.micro_batches
        least = table.least_work(part, enough)
        own = plan if plan is not None and part.holds(plan) else None
        if least >= enough and own is None:
            yield {"degrees": named, "choice": number, "work": table.add("works", [least])}
            continue
        if not part.alike:
            table.differ = True
            return
        yield {"degrees": named, "choice": number, **_figures(part, bound, own, table)}
    if not some:
        yield {"degrees": named, "choice": None}


def _figures(
    part: MegatronPart, bound: float, plan: GroupPlan | None, table: _Table
) -> dict[str, Any]:
    """Return the seconds of a part's elements, and the memory of its ranks with each recomputation
    that may take less than the bound, or that a plan has."""
    every = _recomputations(part.problem)
    chains, syncs = [], []
    for row, (total, _, forward) in enumerate(part.elements):
        chain = [float(x) for k in (0, 1, -1) for x in (forward[k], total[k] - forward[k])]
        more = [float(part.repeated(way)[row, 1]) for way in every]
        chains.append(table.add("chains", [*chain, *more]))
        fixed, each = part.syncs[row][0], part.syncs[row][1:]
        syncs.append(table.add("syncs", [float(x) for x in (fixed, each[0], each[1], each[-1])]))
    found: dict[str, Any] = {
        "rows": part.rank_rows.tolist() if len(chains) > 1 else [],
        "chains": chains,
        "syncs": syncs,
        "sends": table.add("sends", part.ranks.transfers),
        "constant": float(part.ranks.constant),
        "memory": {},
    }
    near: dict[Variant, float] = {}
    if part.fits_at_all and part.least_bound() < ENOUGH * bound:
        near, _ = bounded_variants(part, ENOUGH * bound)
    ways = {_any_size(variant.recompute): None for variant in near}
    if plan is not None and plan.settings is not None:
        ways[_any_size(plan.settings.recompute)] = None
    parts = part.bare if ways or not part.fits_at_all else None
    if parts is None or not counted(parts):
        return found
    jobs = [Variant(v, NOTHING) for v in (1, 2)[: 1 + (most_virtual(part) > 1)]]
    states = [table.add("states", rank_states(part.memory(one))) for one in jobs]
    if not ways:  # states alone do not fit, whatever is computed again
        found["memory"]["any"] = [table.add("kept", [0.0] * KEPT), *states]
    for way in ways:
        if part.costs.model.encoders:  # whose layers may be computed again as well
            parts = part.memory(Variant(1, way))
        name = "block" if way.method == "block" else Variant(1, way).again
        found["memory"][name] = [table.add("kept", _kept(part, way, parts)), *states]
    return found


def _any_size(way: Recompute) -> Recompute:
    """Return a recomputation without the number of first layers."""
    return block_of(1) if way.method == "block" else way


def _kept(part: MegatronPart, way: Recompute, parts: MemoryParts) -> list[float]:
    """Return the bytes that a micro-batch keeps of a layer, of the input of one that is computed
    again, of the embedding, and around the loss; and what a layer needs for a moment, or when it is
    computed again, alone or after others of a chunk.

    parts: with a recomputation that embedding and output keep as much with.
    """
    job, output = parts.job, parts.parts["output"]
    layer = part.activations(way, LAYER_KINDS[job.layer_kinds[0]].name)
    settings = replace(job.settings, recompute=way)
    loss = output.kept + parts.parts["final norm"].kept + output.moment
    return [
        layer.kept - layer.moved,
        checkpoint(replace(job, settings=settings)).size,
        parts.parts["embedding"].kept,
        loss,
        layer.moment,
        layer.again,
        layer.chunk,
    ]


# ---- memory --------------------------------------------------------------------------------------


def counted(parts: MemoryParts) -> bool:
    """Tell whether the checker's formula has all memory of a job."""
    job, kernels = parts.job, parts.job.settings.kernels
    offload = job.settings.offload.layers or job.settings.offload.modules
    other = offload or job.model.prediction_layers or kernels.graphed or job.schedule.divides
    return not (other or parts.parts["output"].deferred or _layer(parts).forward_only)


def rank_states(parts: MemoryParts) -> list[list[float]]:
    """Return the bytes of states that a layer adds to a rank, and those of a rank besides: of the
    first, an inner and the last one, or of fewer if there are no more.

    docs/reference/certificate.md says each. parts: of a job with several virtual stages or one.
    """
    job, named = parts.job, parts.parts
    number = job.layer_kinds[0]

    def figures(layers: int, rank: int) -> tuple[list[float], list[float]]:
        first, last = rank == 0, rank == job.pp - 1
        kinds = [layers if own == number else 0 for own in range(max(PLAIN, number + 1))]
        stage = stage_memory(
            parts,
            layers=kinds[0],
            expert_layers=kinds[1],
            others=tuple(kinds[PLAIN:]),
            embedding=first,
            output=last,
            in_flight=0,
        )
        pairs = zip(LAYER_KINDS, kinds, strict=False)
        counts = {kind.name: n for kind, n in pairs if kind.name in named}
        counts |= {"embedding": int(first), "output": int(last), "final norm": int(last)}
        counts |= dict.fromkeys(("prediction layer", "copied words"), 0)
        backward, ending = whole_gradients(parts, counts)
        end = counts["embedding"] * named["embedding"].moment + ending
        step = sum(counts[kind] * named[kind].stepped for kind in counts)
        copied = start_bytes(parts, counts) if copies_parameters(job) else (0.0, 0.0)
        stays = stay_gathered(job)
        left = beyond_units(parts, counts) if stays and job.virtual == 1 else 0.0
        growing = (sum(stage.always.values()), step, *copied, left)
        rest = (backward, end, stays, sum(stage.reserved.values()))
        return [*map(float, growing)], [*map(float, rest)]

    ranks = [0, 1, job.pp - 1] if job.pp > 2 else list(range(job.pp))
    ones, (two, _) = [figures(1, rank) for rank in ranks], figures(2, 0)
    each = [b - a for a, b in zip(ones[0][0], two, strict=True)]
    found = [each]
    for growing, rest in ones:
        found.append([*(x - y for x, y in zip(growing, each, strict=True)), *rest])
    return found


def _layer(parts: MemoryParts) -> Part:
    return parts.parts[LAYER_KINDS[parts.job.layer_kinds[0]].name]
