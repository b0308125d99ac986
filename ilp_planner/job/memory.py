"""Memory of every rank of a training job: states, activations and peak.

`peak` is `torch.cuda.max_memory_allocated`. The parts of a model are measured once
(`memory_parts`); a stage is a count of each (`stage_memory` takes arrays, for all stages at once);
a rank is a stage with its place in the pipeline (`rank_memory`).

Sharded parameters and gradients that are whole for a while: the units of FSDP in use.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from ilp_planner.job.counts import Count, larger, largest_row, smaller, where
from ilp_planner.job.decoder import has_final_norm
from ilp_planner.job.overheads import flow, outside
from ilp_planner.job.parts import KINDS as KINDS
from ilp_planner.job.parts import MemoryParts as MemoryParts
from ilp_planner.job.parts import Part
from ilp_planner.job.parts import memory_parts as memory_parts
from ilp_planner.job.quantised import gathered_width
from ilp_planner.job.states import copies_parameters, gathers, stay_gathered
from ilp_planner.schedule.formulas import Schedule
from ilp_planner.specs.layer_kinds import LAYER_KINDS, PLAIN
from ilp_planner.specs.pipeline_layout import LayoutStage
from ilp_planner.specs.training import TrainingJob

# ---- units ---------------------------------------------------------------------------------------


NOTHING = Part()
AT_ONCE = 2  # layers whose parameters are gathered: the one in use and the next
LAYERS = (*(kind.name for kind in LAYER_KINDS), "prediction layer")
WEIGHTS, TRAINED = "gathered", "trained"  # numbers of a `Part`, of parameters and of gradients
Counts = tuple[Count, ...]  # of layers, by their numbers in `LAYER_KINDS`; others have none


def gathered(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return whole parameters, if they are sharded.

    FSDP gathers a layer's parameters before it is used, and the next one's meanwhile. All but
    layers is no unit of its own, and stays gathered (`megatron_fsdp.py: _post_forward`). torchtitan
    makes units of it as well (`apply_fsdp`); with virtual stages PyTorch gathers whole ones, ahead
    of their turn, up to three on a rank (`pipelining/schedules.py: _add_unshard_reshard`): all
    count.
    """
    weights, _ = gathers(parts.job)
    if not weights:
        return 0.0
    width = parts.job.settings.width
    if stay_gathered(parts.job) and parts.job.virtual > 1:
        return width * _whole(parts, counts)
    if parts.job.settings.optimizer.from_master:
        return width * _neighbours(parts, counts)
    if parts.job.settings.quantised:
        rest = width * _rest(parts, counts, tuple(counts))
        return gathered_width(parts.job) * _units(parts, counts) + rest
    return width * (_units(parts, counts) + _rest(parts, counts, tuple(counts)))


def left_gathered(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return the parameters that the end of a backward pass leaves gathered, beyond the permanent
    ones."""
    if not stay_gathered(parts.job) or parts.job.virtual > 1:
        return 0.0
    return larger(0.0, beyond_units(parts, counts))


def beyond_units(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return the bytes of all whole parameters but of two units; negative if these are more."""
    return parts.job.settings.width * (_whole(parts, counts) - _neighbours(parts, counts))


def whole_gradients(parts: MemoryParts, counts: Mapping[str, Count]) -> tuple[Count, Count]:
    """Return whole gradients, if they are sharded: while layers go back, and at the end.

    Gradients of a layer are reduced after it; all others at the end
    (`megatron_fsdp.py: _root_post_backward`), unless it is a unit of its own.
    """
    _, gradients = gathers(parts.job)
    if not gradients:
        return 0.0, 0.0
    width = parts.job.settings.optimizer.gradient
    if parts.job.settings.optimizer.from_master:
        units = width * _neighbours(parts, counts, TRAINED)
        return units, units
    units = _units(parts, counts, TRAINED)
    last = _rest(parts, counts, ("output", "final norm"), TRAINED)
    return width * (units + last), width * _rest(parts, counts, tuple(counts), TRAINED)


def _whole(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return all parameters of a rank."""
    return sum(counts[kind] * parts.parts[kind].gathered for kind in counts)


def _units(parts: MemoryParts, counts: Mapping[str, Count], what: str = WEIGHTS) -> Count:
    """Return the parameters of the layers in use."""
    return AT_ONCE * _largest(parts, counts, LAYERS, what)


def _neighbours(parts: MemoryParts, counts: Mapping[str, Count], what: str = WEIGHTS) -> Count:
    """Return the parameters of the two units in use if all but the layers is one, too."""
    layer = _largest(parts, counts, LAYERS, what)
    rest = [kind for kind in KINDS if kind not in LAYERS]
    return layer + larger(layer, _largest(parts, counts, rest, what))


def _largest(
    parts: MemoryParts, counts: Mapping[str, Count], kinds: Sequence[str], what: str
) -> Count:
    """Return the parameters of the largest part that is there, of these kinds."""
    most: Count = 0.0
    for kind in filter(counts.__contains__, kinds):
        size = float(getattr(parts.parts[kind], what))
        most = larger(most, where(counts[kind] > 0, size))
    return most


def _rest(
    parts: MemoryParts, counts: Mapping[str, Count], kinds: Sequence[str], what: str = WEIGHTS
) -> Count:
    """Return the parameters of all that is no layer, of these kinds."""
    return sum(
        counts[kind] * getattr(parts.parts[kind], what) for kind in kinds if kind not in LAYERS
    )


# ---- memory --------------------------------------------------------------------------------------


MOMENTS = (
    "a layer",
    "recomputation",
    "the loss",
    "the embedding",
    "the step",
    "the capture of graphs",
    "the start",
)


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """The memory of a stage, bytes; arrays if the counts were arrays.

    always: by name. moments: (activations, logits, temporary) beside that at each of `MOMENTS`.
    reserved: bytes by name that the allocator holds for tensors of other moments.
    """

    always: Mapping[str, Count]
    moments: Sequence[tuple[Count, Count, Count]]
    parameters: Count
    reserved: Mapping[str, Count] = field(default_factory=dict)

    @cached_property
    def peak(self) -> Count:
        """Bytes."""
        most = reduce(larger, map(sum, self.moments))
        return sum(self.always.values()) + most

    @cached_property
    def _decisive(self) -> tuple[Count, tuple[Count, ...]]:
        return largest_row(self.moments)

    @property
    def moment(self) -> Count:
        """Number of the peak's moment in `MOMENTS`."""
        return self._decisive[0]

    @property
    def terms(self) -> dict[str, Count]:
        """Bytes by name; their sum is the peak."""
        moment, chosen = self._decisive
        started = moment == len(MOMENTS) - 1
        terms = {
            name: where(started & (name not in ("parameters", "gradients")), 0.0, size)
            for name, size in self.always.items()
        }
        at_start = where(started, sum(self.always.values()) - sum(terms.values()))
        terms |= dict(zip(("activations", "logits", "temporary"), chosen, strict=True))
        terms["temporary"] = terms["temporary"] + at_start
        return terms


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """The memory of one rank at its peak.

    terms: bytes by name, their sum is the peak. moment: when that is, one of `MOMENTS`. in_flight:
    micro-batches held at most, each counted once per virtual stage. outside: device memory beyond
    PyTorch's tensors, by name; assumptions.
    """

    parameters: int
    expert_parameters: int
    in_flight: int
    moment: str
    terms: Mapping[str, float]
    outside: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """Bytes: `torch.cuda.max_memory_allocated`."""
        return sum(self.terms.values())

    @property
    def needed(self) -> float:
        """Bytes that a device needs to run it."""
        return self.peak + sum(self.outside.values())


def kept_bytes(
    parts: MemoryParts,
    *,
    layers: Count,
    expert_layers: Count,
    prediction_layers: Count = 0,
    others: Counts = (),
) -> Count:
    """Return the activations of one micro-batch that the layers of one (virtual) stage keep on the
    device.

    layers: without experts. They are taken to come first, as in every published model that mixes
    them in one run. others: of a hybrid, from the third kind on.
    """
    counts = (layers, expert_layers, *others)
    more = prediction_layers * parts.parts["prediction layer"].left
    if parts.method == "uniform":
        kept = [
            (1 - part.forward_only) * count
            for part, count in zip(_named(parts, counts), counts, strict=True)
        ]
        return -(-sum(kept) // parts.size) * parts.checkpoint + more
    kinds = zip(_named(parts, counts), counts, _again(parts, counts), strict=True)
    found = [
        (
            (count - again) * part.left,
            (1 - part.forward_only) * again * parts.checkpoint,
        )
        for part, count, again in kinds
    ]
    left, inputs = zip(*found, strict=True)
    return sum(left) + sum(inputs) + more


def captured_bytes(
    parts: MemoryParts, *, layers: Count, expert_layers: Count, others: Counts = ()
) -> Count:
    """Return the activations of one micro-batch that graphs of the layers of one (virtual) stage
    keep in their pools."""
    counts = (layers, expert_layers, *others)
    return sum(n * p.captured for p, n in zip(_named(parts, counts), counts, strict=True))


def _named(parts: MemoryParts, counts: Counts) -> list[Part]:
    """Return the parts of layers of the kinds that are counted."""
    kinds = zip(LAYER_KINDS, counts, strict=False)
    return [parts.parts.get(kind.name, NOTHING) for kind, _ in kinds]


def _again(parts: MemoryParts, counts: Counts) -> Counts:
    """Return how many layers of a stage are recomputed, by kind."""
    if parts.method == "uniform":
        return counts
    size, found = parts.size if parts.method == "block" else 0, []
    for count in counts:
        found.append(smaller(count, size))
        size = size - found[-1]
    return tuple(found)


def stage_memory(
    parts: MemoryParts,
    *,
    layers: Count,
    expert_layers: Count = 0,
    embedding: Count = False,
    output: Count = False,
    final_norm: Count | None = None,
    prediction_layers: Count = 0,
    in_flight: Count = 1,
    kept: Count | None = None,
    captured: Count = 0.0,
    own: Count | None = None,
    chunks: Sequence[Counts] = (),
    others: Counts = (),
) -> StageMemory:
    """Return the memory of one stage, or of many: arrays of counts are broadcast.

    Parameters
    ----------
    layers: without experts. final_norm: whether the norm after the last layer is there; with the
        output if nothing is said. in_flight: micro-batches held. kept: bytes of all micro-batches
        held, if virtual stages hold different numbers of them. captured: those of them in pools of
        CUDA graphs. own: bytes that are given up when a backward pass comes to the rank's first
        element; all of a micro-batch, if None. chunks: layers without and with experts, and of
        other kinds, of every virtual stage, if there are several. others: layers of a hybrid, from
        the third kind on.
    """
    chunks = chunks or ((layers, expert_layers, *others),)
    counts: dict[str, Count] = {
        "layer": layers,
        "expert layer": expert_layers,
        "embedding": embedding * 1,
        "output": output * 1,
        "final norm": (output if final_norm is None else final_norm) * 1,
        "prediction layer": prediction_layers,
    }
    # Multi-token prediction looks words up where it is; only the first stage has them already.
    elsewhere = prediction_layers * (1 - counts["embedding"]) > 0
    counts["copied words"] = elsewhere * (parts.job.pp > 1)
    kinds = zip(LAYER_KINDS[PLAIN:], others, strict=False)
    counts |= {kind.name: n for kind, n in kinds if kind.name in parts.parts}
    each = (
        sum(kept_bytes(parts, layers=a, expert_layers=b, others=tuple(c)) for a, b, *c in chunks)
        + prediction_layers * parts.parts["prediction layer"].left
        + counts["embedding"] * parts.parts["embedding"].kept
        + counts["copied words"] * parts.parts["copied words"].kept
        + counts["final norm"] * (1 - counts["output"]) * parts.parts["final norm"].kept
    )
    pooled = captured_bytes(parts, layers=layers, expert_layers=expert_layers, others=others)
    captured = in_flight * pooled if kept is None else captured
    before = (in_flight * each if kept is None else kept) - captured
    own = each - pooled if own is None else own
    sums = {
        name: sum(counts[kind] * getattr(parts.parts[kind], name) for kind in counts)
        for name in ("parameters", "weights", "gradients", "optimizer")
    }
    always = {
        "parameters": sums["weights"],
        "gradients": sums["gradients"],
        "optimizer": sums["optimizer"],
        "gathered": gathered(parts, counts),
        "spare gradients": sum(_shared(counts, *spare) for spare in parts.spare),
        **parts.fixed,
    }
    always["workspace"] += _shared(counts, *parts.handles)
    if parts.job.virtual == 1:
        # The first stage has none before it to send gradients to.
        always["between stages"] = parts.fixed["between stages"] * (1 - counts["embedding"])
    moments = _moments(parts, counts, chunks, own, before, captured)
    moments.append(_start(parts, counts, always))
    return StageMemory(
        always=always,
        moments=tuple(moments),
        parameters=sums["parameters"],
        reserved=_reserved(parts, counts, captured),
    )


def _reserved(parts: MemoryParts, counts: Mapping[str, Count], captured: Count) -> dict[str, Count]:
    """Return the bytes that PyTorch's allocator holds for tensors of other moments, by name.

    The pools of CUDA graphs; and of `fully_shard` the buffers of its collectives, which come from
    streams of their own (`fsdp/_fully_shard/_fsdp_collectives.py`), whose memory no other stream
    takes: gathered parameters before they are copied out, and gradients in the width of their
    reduction, of two units each.
    """
    job = parts.job
    found: dict[str, Count] = {}
    if job.settings.kernels.graphed:
        found["graphs"] = captured
    optimizer = job.settings.optimizer
    if optimizer.from_master and optimizer.divides:
        sent = job.settings.width * _neighbours(parts, counts)
        reduced = optimizer.gradient * _neighbours(parts, counts, TRAINED)
        found["buffers of FSDP"] = sent + reduced
    return found


def _shared(counts: Mapping[str, Count], size: float, users: frozenset[str]) -> Count:
    """Return the size if there is any module of these kinds."""
    there = filter(counts.__contains__, users)
    return size * (sum((counts[kind] > 0) * 1 for kind in there) > 0)


def _moments(
    parts: MemoryParts,
    counts: Mapping[str, Count],
    chunks: Sequence[Counts],
    own: Count,
    before: Count,
    captured: Count,
) -> list[tuple[Count, Count, Count]]:
    """Return (activations, logits, temporary) at each of `MOMENTS` but the start. own: kept of one
    micro-batch. before: of all that are held. captured: in pools of CUDA graphs."""
    kinds = parts.parts

    def most(present: Mapping[str, Count]) -> Count:
        found: Count = 0.0
        for kind, size in present.items():
            found = larger(found, where(counts[kind] > 0, size))
        return found

    repeated = [_again(parts, chunk) for chunk in chunks]
    names = [kind.name for kind, _ in zip(LAYER_KINDS, repeated[0], strict=False)]
    sums = map(sum, zip(*repeated, strict=True))
    again = {k: n for k, n in zip(names, sums, strict=True) if k in counts}
    plain = {kind: counts[kind] - count for kind, count in again.items()}
    layer: Count = 0.0
    for kind, count in (*plain.items(), ("prediction layer", counts["prediction layer"])):
        layer = larger(layer, where(count > 0, kinds[kind].moment))
    # The layers of a virtual stage that are computed again come first, so its others have been
    # forgotten; at the peak, those of the stage that forgets least.
    forgotten: Count = math.inf
    for chunk, some in zip(chunks, repeated, strict=True):
        each = zip(chunk, some, _named(parts, chunk), strict=True)
        size = sum((count - first) * part.left for count, first, part in each)
        forgotten = smaller(forgotten, where(sum(some) > 0, size, math.inf))
    once: Count = 0.0
    for kind, count in again.items():
        extra = smaller(parts.size if parts.method == "uniform" else 1, larger(count, 1)) - 1
        size = kinds[kind].again + extra * kinds[kind].chunk
        once = larger(once, where(count > 0, size))
    has_output = counts["output"]
    # Of the output's weight, until the pipeline flushes.
    deferred = has_output * kinds["output"].deferred
    at_loss = kinds["output"].kept + counts["final norm"] * kinds["final norm"].kept
    backward, last = whole_gradients(parts, counts)
    staying, coming = _present(parts, plain, counts["prediction layer"])
    stepped = sum(counts[kind] * kinds[kind].stepped for kind in counts)
    end = counts["embedding"] * kinds["embedding"].moment + last
    if stay_gathered(parts.job):
        # What the first element of a rank needs when the others' parameters are there again.
        end = larger(end, larger(layer, once) + backward) + left_gathered(parts, counts)
    return [
        (before + staying + coming, 0.0, layer + backward),
        (before - where(once > 0, forgotten), 0.0, once + backward),
        (before + staying, has_output * (at_loss + kinds["output"].moment), 0.0),
        (before - own, 0.0, end),
        (0.0, 0.0, stepped - deferred),
        (captured, 0.0, -deferred),
    ]


def _present(
    parts: MemoryParts, plain: Mapping[str, Count], prediction_layers: Count
) -> tuple[Count, Count]:
    """Return the offloaded activations that are on the device, and the returning ones.

    Modules: the activations of one layer, which the last one before the backward pass never sends,
    and the first returning ones of the layer before it. Whole layers: the first n of L are sent in
    time for the peak to be that of L - n, and fetched so (Transformer Engine's
    `_default_offload_sync_init`). plain: layers that are not computed again; whole ones leave of
    plain transformers only.
    """
    offload, total = parts.job.settings.offload, sum(plain.values())
    if offload.layers:
        dense, expert = parts.parts["layer"], parts.parts["expert layer"]
        layers, expert_layers = plain["layer"], plain["expert layer"]
        window = smaller(total, larger(total - offload.layers, 1))
        first, last = smaller(window, layers), smaller(window, expert_layers)
        at_start = first * dense.moved + (window - first) * expert.moved
        at_end = (window - last) * dense.moved + last * expert.moved
        return larger(at_start, at_end), 0.0
    kinds = [(parts.parts[kind], count) for kind, count in plain.items()]
    kinds.append((parts.parts["prediction layer"], prediction_layers))
    staying: Count = 0.0
    coming: Count = 0.0
    for part, count in kinds:
        staying = larger(staying, where(count > 0, part.moved))
        coming = larger(coming, where(count > 0, part.ahead))
    return staying, where(total + prediction_layers > 1, coming)


def _start(
    parts: MemoryParts, counts: Mapping[str, Count], always: Mapping[str, Count]
) -> tuple[Count, Count, Count]:
    """Return the memory at the start of a job, less the memory of all later times.

    The distributed optimizer moves parameters into buffers, experts' last: old and new ones are
    there, and gradients, but no states yet.
    """
    later = sum(always.values())
    if not copies_parameters(parts.job):
        return (0.0, 0.0, -later)
    return (0.0, 0.0, larger(*start_bytes(parts, counts)) - later)


def start_bytes(parts: MemoryParts, counts: Mapping[str, Count]) -> tuple[Count, Count]:
    """Return the bytes while parameters without experts, and while experts' move into buffers."""
    width = parts.job.settings.width
    gradient = parts.job.settings.optimizer.gradient
    total = sum(counts[kind] * parts.parts[kind].trained for kind in counts)
    experts = sum(
        counts[kind] * (parts.parts[kind].expert_parameters - parts.parts[kind].still_experts)
        for kind in counts
    )
    first = width * total + (width + gradient) * (total - experts)
    second = width * experts + (width + gradient) * total
    still = width * sum(counts[kind] * parts.parts[kind].still for kind in counts)
    return first + still, second + still


def rank_memory(job: TrainingJob, pp_rank: int) -> RankMemory:
    """Return the memory of a rank of this pipeline stage at its peak."""
    return stage_of_rank(memory_parts(job), pp_rank)


def stage_of_rank(parts: MemoryParts, pp_rank: int) -> RankMemory:
    """Return the memory of a rank, from parts that were measured before."""
    job = parts.job
    numbers = job.stages_of(pp_rank)
    stages = [job.stages[number] for number in numbers]
    starts = [job.pipeline.starts[number] for number in numbers]
    kinds = job.layer_kinds
    spans = [kinds[a : a + s.layers] for a, s in zip(starts, stages, strict=True)]
    every = range(max(PLAIN, max(kinds) + 1))
    chunks = [tuple(own.count(kind) for kind in every) for own in spans]
    norms = [has_final_norm(job, number) for number in numbers]
    kept = [
        kept_bytes(
            parts,
            layers=a,
            expert_layers=b,
            prediction_layers=s.prediction_layers,
            others=tuple(more),
        )
        + s.embedding * parts.parts["embedding"].kept
        + (norm and not s.loss) * parts.parts["final norm"].kept
        for (a, b, *more), s, norm in zip(chunks, stages, norms, strict=True)
    ]
    pooled = [
        captured_bytes(parts, layers=a, expert_layers=b, others=tuple(more))
        for a, b, *more in chunks
    ]
    behind = job.pp - 1 - pp_rank
    in_flight = job.schedule.in_flight(behind)
    own = None
    if job.schedule.divides:
        # Logits of several micro-batches may be there, and are held like all else of their stage.
        output = parts.parts["output"]
        kept = [size + s.loss * output.kept for size, s in zip(kept, stages, strict=True)]
        parts = replace(parts, parts={**parts.parts, "output": replace(output, kept=0.0)})
        own = kept[0] - pooled[0]
        kept += [_waiting(parts, own, s) for own, s in zip(chunks, stages, strict=True)]
        pooled += [0.0] * len(stages)
    dense, experts, *others = map(sum, zip(*chunks, strict=True))
    stage = stage_memory(
        parts,
        layers=dense,
        expert_layers=experts,
        others=tuple(others),
        embedding=any(s.embedding for s in stages),
        output=any(s.loss for s in stages),
        final_norm=any(norms),
        prediction_layers=sum(s.prediction_layers for s in stages),
        in_flight=in_flight,
        kept=None if job.virtual == 1 else _interleaved(job.schedule, behind, kept),
        captured=0.0 if job.virtual == 1 else _interleaved(job.schedule, behind, pooled),
        own=own,
        chunks=chunks,
    )
    terms = {name: float(size) for name, size in stage.terms.items()}
    counts = (dense, experts, *others)
    each = zip(_named(parts, counts), counts, strict=True)
    routed = sum(part.expert_parameters * count for part, count in each)
    routed += parts.parts["prediction layer"].expert_parameters * sum(
        s.prediction_layers for s in stages
    )
    return RankMemory(
        parameters=int(stage.parameters),
        expert_parameters=routed,
        in_flight=in_flight,
        moment=MOMENTS[int(stage.moment)],
        terms=terms,
        outside=outside(
            job,
            sum(terms.values()),
            {name: float(size) for name, size in stage.reserved.items()},
        ),
    )


def _waiting(parts: MemoryParts, counts: Counts, stage: LayoutStage) -> float:
    """Return the bytes of a micro-batch's gradients that wait in a virtual stage."""
    if stage.embedding:
        return flow(parts.job).narrow
    each = zip(_named(parts, counts), counts, strict=True)
    found = float(sum(n * part.waiting for part, n in each))
    return found + stage.loss * parts.parts["output"].waiting


def _interleaved(schedule: Schedule, behind: int, kept: list[Count]) -> float:
    """Return the most bytes that virtual stages hold together, of all the mixes that come up."""
    return max(
        float(sum(count * size for count, size in zip(counts, kept, strict=True)))
        for counts in schedule.held(behind)
    )
