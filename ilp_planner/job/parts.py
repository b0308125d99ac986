"""A job's memory taken apart: the cost of one layer, one embedding, one output for a rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.job.compressed import (
    AROUND,
    compressed_backward,
    index_scores,
    more_streams,
)
from ilp_planner.job.decoder import (
    embedding_module,
    encoder_layer,
    encoder_recomputes,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.encoder import encoder_job, encoder_kind, most_images
from ilp_planner.job.mixers import mixer_backward
from ilp_planner.job.operators import outputs_needed
from ilp_planner.job.overheads import (
    attention_backward,
    between_stages,
    embedding_moment,
    experts_moment,
    flow,
    handles,
    index_forward,
    layer_forward,
    loss_moment,
    mlp_backward,
    ring_forward,
    spare_gradients,
    tables,
    workspace,
)
from ilp_planner.job.quantised import quantised_counts
from ilp_planner.job.recompute import (
    PARTS,
    checkpoint,
    recomputes,
    remembering,
    skipped_parts,
    without,
)
from ilp_planner.job.shard import of_layer, shard_of
from ilp_planner.job.states import (
    adapter_widths,
    divides_states,
    frozen_width,
    moments_of,
    quantised_width,
    sharing,
    state_widths,
    stepped_width,
    whole_states,
)
from ilp_planner.job.tuning import (
    adapter_numbers,
    base_numbers,
    base_width,
    gathered_saved,
    keeps_second_input,
    other_width,
    tuning_moment,
)
from ilp_planner.job.uneven import uneven_bytes
from ilp_planner.job.work import Product, layer_work, output_work
from ilp_planner.specs.layer_kinds import ATTENTION as BY_SCORES
from ilp_planner.specs.layer_kinds import BY_NAME, COMPRESSED, CSA, EXPERTS, LAYER_KINDS
from ilp_planner.specs.training import (
    MIXTURES,
    OPERATORS,
    ORDERS,
    OptimizerSettings,
    Recompute,
    TrainingJob,
)
from ilp_planner.specs.tuning import FORWARD_ONLY, TunedLayer, trains_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ilp_planner.job.counts import Count
    from ilp_planner.job.modules import Kept, Module
    from ilp_planner.job.work import ModuleWork


# ---- tensors that wait for gradients of weights --------------------------------------------------
# Of a schedule that divides backward passes, or of an output layer whose gradients are deferred.
# PyTorch's first part (`stage_backward_input` of `torch.distributed.pipelining._backward`) stops at
# every operation with weights, and keeps the gradient of its output: of products and norms. It
# retains the graph, so that all that the forward pass kept stays as well until the second part has
# ended (`stage_backward_weight`). The first stage has no first part: only the gradient of its
# output waits (`backward_one_chunk` of `stage.py`).


def gradients_waiting(job: TrainingJob, kind: str, module: Module) -> float:
    """Return the bytes of gradients per micro-batch that wait in a part of a model, by its name in
    `job.parts.KINDS`; 0 if nothing is divided, and for parts of first stages only."""
    if not job.schedule.divides:
        return 0.0
    if kind in BY_NAME:
        own = job.kind(BY_NAME[kind])
        work = layer_work(job, kind=own.kind, state=own.state)
    elif kind == "output":
        work = output_work(job)
    else:
        return 0.0
    return (sum(_norms(module)) + _products(work)) * job.settings.width


def deferred_output(job: TrainingJob) -> float:
    """Return the bytes that the output layer keeps until the pipeline flushes, if its weight
    gradients are deferred: its input, divided as sequence parallelism divides it, and the gradient
    of the logits, of every deferred micro-batch (Megatron's `ColumnParallelLinear`,
    `drain_embedding_wgrad_compute`)."""
    kernels = job.settings.kernels
    trained = trains_output(job.model, job.settings.tuning)
    if not kernels.deferred_output or job.pp == 1 or not trained:
        return 0.0
    sizes = shard_of(job)
    numbers = math.prod(sizes.columns(job.padded_outputs)) + math.prod(sizes.narrow)
    count = min(job.micro_batches, kernels.deferral_limit or job.micro_batches)
    return float(count * numbers * sizes.width)


def _products(work: Iterable[ModuleWork]) -> float:
    """Return how many numbers the products with weights give."""
    return sum(
        kernel.shape.m * kernel.shape.n * kernel.shape.copies
        for one in work
        for kernel in one.forward
        if one.of_weights and isinstance(kernel.shape, Product)
    )


def _norms(module: Module) -> Iterator[float]:
    """Yield how many numbers each norm of a module gives: as many as it keeps of its input, before
    the statistics of that."""
    for tensor, following in pairwise(module.kept):
        if following.name == "statistics":
            yield math.prod(tensor.shape)
    for child in module.children:
        yield from _norms(child)


# ---- activations that wait for their backward pass in the host's memory --------------------------
# Transformer Engine moves all large tensors of the first layers (`pytorch/cpu_offload.py`);
# Megatron moves the activations that named modules of every layer save
# (`fine_grained_activation_offload.py`).


ENGINE_SMALLEST = 2**20  # numbers of a tensor that Transformer Engine moves
ATTENTION, CORE, PROJECTION = "self_attention", "core_attention", "linear_proj"
IN_PLACE = "queries, keys, values"  # kept with the product that makes them, saved by attention
Path = tuple[str, ...]


def _norm(name: str) -> Callable[[Path, str], bool]:
    """Only a norm that stands alone; one merged into a product has no scope of its own."""
    return lambda path, kept: path == (name,) and kept != "output"


def _projected(path: Path, kept: str) -> bool:
    """All that is saved from the norm's output to queries, keys and values."""
    if path == ("input_layernorm",):
        return kept == "output"
    inner = path[:1] == (ATTENTION,) and path[1] not in (CORE, PROJECTION)
    return inner and kept != IN_PLACE


def _attended(path: Path, kept: str) -> bool:
    return path[:2] == (ATTENTION, CORE) or (path[:1] == (ATTENTION,) and kept == IN_PLACE)


def _of(*path: str) -> Callable[[Path, str], bool]:
    return lambda found, kept: found == path


# Module of `specs.training.OFFLOADED`, in the order of the forward pass -> what lies in its scope.
SCOPES: dict[str, Callable[[Path, str], bool]] = {
    "attn_norm": _norm("input_layernorm"),
    "qkv_linear": _projected,
    "core_attn": _attended,
    "attn_proj": _of(ATTENTION, PROJECTION),
    "mlp_norm": _norm("pre_mlp_layernorm"),
    "expert_fc1": _of("mlp", "experts", "linear_fc1"),
    "moe_act": _of("mlp", "experts", "activation_func"),
}


def moved_groups(job: TrainingJob, layer: Module) -> tuple[float, ...]:
    """Return the bytes of a micro-batch that leave for the host, by groups that leave together.

    layer: as the job recomputes.
    """
    offload = job.settings.offload
    if offload.layers:
        return (sum(_large(layer, ENGINE_SMALLEST, lambda path, kept: True)),)
    scopes = (SCOPES[name] for name in SCOPES if name in offload.modules)
    return tuple(sum(_large(layer, offload.smallest, scope)) for scope in scopes)


def _large(layer: Module, smallest: int, scope: Callable[[Path, str], bool]) -> Iterator[float]:
    """Yield the bytes of a layer's tensors in a scope that have so many numbers."""
    for path, kept, count in _tensors(layer):
        if prod(kept.shape) >= smallest and scope(path, kept.name):
            yield count * kept.size


def _tensors(module: Module, path: Path = (), count: int = 1) -> Iterator[tuple[Path, Kept, int]]:
    """Yield all tensors that are kept, with the modules' names below the layer, and how many."""
    for kept in module.kept:
        yield path, kept, count
    for child in module.children:
        yield from _tensors(child, (*path, child.name), count * child.repeat)


# ---- activations in CUDA graphs ------------------------------------------------------------------
# A graph keeps in a memory pool of its own what its kernels make (`torch/cuda/graphs.py`). PyTorch
# counts that while the graph is captured, where Megatron runs the passes of all graphs through the
# pipeline's schedule and nothing else (`cuda_graphs.py`: `TECudaGraphHelper`), and not when it is
# replayed: then the pool is reserved, and no tensor. A graph's input is a tensor outside.


def captured(job: TrainingJob, kind: str, layer: Module) -> float:
    """Return the kept bytes of a micro-batch that lie in the pools of a layer's CUDA graphs.

    kind: of the layer, by its name in `KINDS`. layer: as the job recomputes.
    """
    names = set(job.settings.kernels.graphed)
    if not names or kind not in BY_NAME or not layer.activations:
        return 0.0
    has = LAYER_KINDS[job.kind(BY_NAME[kind]).kind]
    attention, inner = _sides(layer)
    graphed = ("attn" if has.attends else has.mixer) in names
    found = attention - flow(job).narrow if has.mixer and graphed else 0.0
    if has.inner and ("moe" if has.inner == EXPERTS else "mlp") in names:
        return found + inner - flow(job).narrow
    if has.inner == EXPERTS and "moe_router" in names:
        parts = {child.name: child for child in _experts_of(layer).children}
        found += sum(parts[name].activations for name in ROUTED_IN_GRAPHS if name in parts)
    return found


ROUTED_IN_GRAPHS = ("router", "shared_experts")  # beside the norm that they read


def _experts_of(layer: Module) -> Module:
    return next(child for child in layer.children if child.name == "mlp")


# ---- parts ---------------------------------------------------------------------------------------


KINDS = (
    "layer",
    "expert layer",
    "embedding",
    "output",
    "final norm",  # where it is no part of the output
    "prediction layer",
    "copied words",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One module of a kind on one rank.

    parameters, expert_parameters: numbers; the latter are among the former. still, still_experts:
    those that are not trained. saved: numbers of the training precision that take the bytes by
    which gathered parameters are smaller. forward_only: it has no backward pass. weights,
    gradients, optimizer: bytes of their states; with gradients the inputs of deferred ones. kept:
    bytes per micro-batch, as the job recomputes. waiting: bytes per micro-batch of gradients,
    between both parts of a divided backward pass. moved: kept bytes that go to the host; ahead: of
    them, that come back while the next layer is at work; captured: of them, that lie in pools of
    CUDA graphs. deferred: of the gradients, bytes that are given up before the step. moment: bytes
    above kept ones, for a moment. again: bytes above its checkpoint when it is recomputed as a
    whole; chunk: and of every further layer of the same chunk. stepped: bytes that the optimizer's
    step needs for a moment.
    """

    parameters: int = 0
    expert_parameters: int = 0
    still: int = 0
    still_experts: int = 0
    saved: float = 0.0
    forward_only: bool = False
    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    kept: float = 0.0
    waiting: float = 0.0
    moved: float = 0.0
    ahead: float = 0.0
    captured: float = 0.0
    moment: float = 0.0
    again: float = 0.0
    chunk: float = 0.0
    stepped: float = 0.0
    deferred: float = 0.0

    @property
    def trained(self) -> int:
        """Parameters with gradients."""
        return self.parameters - self.still

    @property
    def gathered(self) -> float:
        """Numbers of the training precision that take as many bytes as gathered parameters."""
        return self.parameters - self.saved

    @property
    def left(self) -> float:
        """Bytes per micro-batch that stay on the device."""
        return self.kept - self.moved


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """A job's memory: bytes that add up by part, and moments; the largest counts.

    parts: by kind. spare: stand-ins for gradients: bytes, and the kinds that share them. handles:
    bytes of workspace if there is any of these kinds. checkpoint: a layer's kept input if it is
    recomputed. fixed: bytes that every rank has, by name. method, size: of full recomputation; ""
    and 0 for none.
    """

    job: TrainingJob
    parts: Mapping[str, Part]
    spare: tuple[tuple[float, frozenset[str]], ...]
    handles: tuple[float, frozenset[str]]
    checkpoint: float
    fixed: Mapping[str, float]
    method: str = ""
    size: int = 0


Known = dict[object, Any]
JOB = "job"


def memory_parts(job: TrainingJob, known: Known | None = None) -> MemoryParts:
    """Return the memory of each part of a job's model on one rank.

    known: results of other jobs of the same model and batch, on the same devices.
    """
    job, known = _on_device(job), {} if known is None else known
    found = _states(job, known)
    seen = _seen_activations(job, known)
    parts = dict.fromkeys(KINDS, Part())
    again = job.settings.recompute
    for kind, own in found.parts.items():
        parts[kind] = replace(own, **_activations(job, kind, again, seen)._asdict())
    return with_layout(replace(found, parts=parts, checkpoint=checkpoint(job).size), job)


def memory_of_each(
    parts: MemoryParts, every: Sequence[Recompute], known: Callable[[Recompute, str], Activations]
) -> MemoryParts:
    """Return the memory of a job's parts with other recomputations: with one, or with several of no
    whole layers at once, whose activations are arrays [recomputations, 1, 1] where they differ.

    known: as `activations_of` returns it for the job.
    """
    import numpy as np

    job, (again, *_) = parts.job, every
    found = dict(parts.parts)
    for kind in _kinds(job):
        columns: dict[str, Any] = {
            name: column[0] if len({*column}) == 1 else np.array(column)[:, None, None]
            for name, column in zip(
                Activations._fields, zip(*(known(one, kind) for one in every), strict=True),
                strict=True,
            )
        }  # fmt: skip
        found[kind] = replace(found[kind], **columns)
    parts = replace(parts, parts=found)
    if again.granularity != "full":
        return replace(parts, method="", size=0)
    job = replace(job, settings=replace(job.settings, recompute=again))
    size = checkpoint(job).size
    return replace(parts, method=again.method, size=max(1, again.layers), checkpoint=size)


def _seen_activations(job: TrainingJob, known: Known) -> Known:
    """Return what is known of a job's activations, by kind and recomputation: the same of jobs that
    divide states otherwise, and the first one of these by `JOB`."""
    settings = replace(job.settings, optimizer=OptimizerSettings())
    job = replace(job, settings=settings)
    found: Known = known.setdefault(("activations", *_divided(job)), {})
    found.setdefault(JOB, job)
    return found


def _divided(job: TrainingJob) -> tuple[object, ...]:
    """Return all that modules depend on, recomputation aside: not replicas, nor the number of
    pipeline ranks, unless there is only one."""
    settings = replace(job.settings, order=ORDERS[0], recompute=Recompute())
    return settings, job.tp, job.micro_batch, job.pp == 1


def with_layout(parts: MemoryParts, job: TrainingJob) -> MemoryParts:
    """Return the parts for a job that differs in its layout, or in how many layers it
    recomputes."""
    recompute = job.settings.recompute
    full = recompute.granularity == "full"
    return replace(
        parts,
        job=_on_device(job),
        fixed={
            **parts.fixed,
            "between stages": between_stages(job),
            **uneven_bytes(job),
        },
        method=recompute.method if full else "",
        size=max(1, recompute.layers) if full else 0,
    )


def _on_device(job: TrainingJob) -> TrainingJob:
    """Return the job with the attention that Transformer Engine chooses on these devices.

    The flash-attention package, or cuDNN's, which writes its output to the projection's input.
    """
    kernels = job.settings.kernels
    gpu = job.gpu_architecture
    package = not gpu.own_attention or (kernels.deterministic and not gpu.own_attention_repeats)
    if not package or kernels.implementation != "transformer_engine" or kernels.flash_package:
        return job
    kernels = replace(kernels, flash_package=True)
    return replace(job, settings=replace(job.settings, kernels=kernels))


def _handles(job: TrainingJob) -> tuple[float, frozenset[str]]:
    """Return PyTorch's workspaces and the kinds that need them; `workspace` has them otherwise."""
    if job.settings.kernels.implementation == "local":
        return 0.0, frozenset()
    routed = (LAYER_KINDS[n].name for n in set(job.layer_kinds) if job.kind(n).routed)
    return handles(job), frozenset((*routed, "output", "prediction layer"))


def _copied_words(job: TrainingJob) -> Module:
    return embedding_module(job).children[0]


def _layer(job: TrainingJob, *, number: int) -> Module:
    return layer_module(job, *job.kind(number))


# Kind of part -> its module, and the names of selective recomputation that it does not know.
NO_LAYER = frozenset(PARTS)
MODULES: dict[str, tuple[Callable[[TrainingJob], Module], frozenset[str]]] = {
    "embedding": (embedding_module, NO_LAYER),
    "output": (output_module, NO_LAYER),
    **{
        kind.name: (partial(_layer, number=number), frozenset(skipped_parts(kind)))
        for number, kind in enumerate(LAYER_KINDS)
    },
    "final norm": (final_norm_module, NO_LAYER),
    "prediction layer": (prediction_module, frozenset()),
    "copied words": (_copied_words, NO_LAYER),
}
OF_PREDICTION = ("final norm", "prediction layer", "copied words")


def _kinds(job: TrainingJob) -> Iterator[str]:
    """Yield the kinds of parts that the model has."""
    present = set(job.layer_kinds)
    for kind in MODULES:
        has = BY_NAME[kind] in present if kind in BY_NAME else True
        if has and (job.model.prediction_layers or kind not in OF_PREDICTION):
            yield kind


def _states(job: TrainingJob, known: Known) -> MemoryParts:
    """Return the memory of every kind of part that the model has, without activations."""
    key = "states", _divided(job), job.pp, job.dp
    if key not in known:
        job = remembering(job)
        seen = known.setdefault(("modules", *_divided(job)), {})
        users: dict[tuple[int, ...], set[str]] = {}
        sizes: dict[tuple[int, ...], float] = {}
        parts = {}
        for kind in _kinds(job):
            if kind not in seen:
                seen[kind] = MODULES[kind][0](job)
            parts[kind] = _part(job, kind, seen[kind])
            for shape, size in spare_gradients(job, seen[kind]).items():
                users.setdefault(shape, set()).add(kind)
                sizes[shape] = size
        known[key] = MemoryParts(
            job=job,
            parts=parts,
            spare=tuple((sizes[shape], frozenset(kinds)) for shape, kinds in users.items()),
            handles=_handles(job),
            checkpoint=0.0,
            fixed={"workspace": workspace(job), "rotary table": tables(job)},
        )
    found: MemoryParts = known[key]
    return found


def _part(job: TrainingJob, kind: str, module: Module) -> Part:
    """Return a part without its activations."""
    routed, trained = module.trained_experts, module.trained
    deferred = deferred_output(job) if kind == "output" else 0.0
    states = state_bytes(job, module)
    low, _ = base_numbers(job, module)
    return Part(
        parameters=module.parameters,
        expert_parameters=module.expert_parameters,
        still=module.parameters - trained,
        still_experts=module.expert_parameters - routed,
        saved=gathered_saved(job, module.parameters - trained - low, low),
        forward_only=kind in BY_NAME and job.kind(BY_NAME[kind]).state == FORWARD_ONLY,
        weights=states.weights,
        gradients=states.gradients + deferred,
        optimizer=states.optimizer,
        stepped=(trained - routed) * stepped_width(job, expert=False)
        + routed * stepped_width(job, expert=True),
        deferred=deferred,
    )


class StateBytes(NamedTuple):
    """Bytes on a rank of a module's parameters, of their gradients, and of the optimizer's
    states."""

    weights: float
    gradients: float
    optimizer: float


def state_bytes(job: TrainingJob, module: Module) -> StateBytes:
    """Return the bytes of a module's parameters: trained and frozen ones, adapters, and a base in
    fewer bits."""
    routed, beside = module.trained_experts, adapter_numbers(module)
    others = module.trained - routed - beside
    dense_width = state_widths(job, expert=False)
    expert_width, own = state_widths(job, expert=True), adapter_widths(job)
    weights = others * dense_width.parameter + routed * expert_width.parameter
    weights += beside * own.parameter
    weights += _frozen(job, module)
    if job.settings.quantised:
        low, low_routed = quantised_counts((module,))
        for count, width, expert in (
            (low - low_routed, dense_width, False),
            (low_routed, expert_width, True),
        ):
            weights += count * (quantised_width(job, expert=expert) - width.parameter)
    return StateBytes(
        weights=weights,
        gradients=others * dense_width.gradient
        + routed * expert_width.gradient
        + beside * own.gradient,
        optimizer=others * dense_width.optimizer
        + routed * expert_width.optimizer
        + beside * own.optimizer
        + _more_moments(job, module),
    )


def _more_moments(job: TrainingJob, module: Module) -> float:
    """Return the bytes of a module's moments on a rank beyond those of plain numbers, and of the
    states of whole tables beyond a share of them."""
    if not job.settings.optimizer.mixes_moments:
        return 0.0
    found = 0.0
    for expert in (False, True):
        own = moments_of(job, module, expert=expert)
        ways = sharing(job, expert=expert) if divides_states(job) else 1
        found += (own.stays - own.plain) / ways
    return found + whole_states(job, module)


def _frozen(job: TrainingJob, module: Module) -> float:
    """Return the bytes of the weights of a module that are not trained."""
    routed = module.expert_parameters - module.trained_experts
    others = module.parameters - module.trained - routed
    low, low_routed = base_numbers(job, module)
    return sum(
        (count - few) * frozen_width(job, other_width(job), expert=expert)
        + few * frozen_width(job, base_width(job), expert=expert)
        for count, few, expert in ((others, low - low_routed, False), (routed, low_routed, True))
        if count
    )


class Activations(NamedTuple):
    """What a micro-batch keeps of a part, as `Part` has it: numbers, or a column of each with a
    row for every recomputation."""

    kept: Count
    waiting: Count
    moved: Count
    ahead: Count
    captured: Count
    moment: Count
    again: Count
    chunk: Count


def activations_of(job: TrainingJob, known: Known) -> Callable[[Recompute, str], Activations]:
    """Return what a part keeps, by the recomputation and its kind.

    job: with any recomputation. known: as in `memory_parts`.
    """
    job = _on_device(job)
    seen = _seen_activations(job, known)
    return lambda again, kind: _activations(job, kind, again, seen)


def _activations(job: TrainingJob, kind: str, again: Recompute, seen: Known) -> Activations:
    """Return the activations of a part with a recomputation. seen: of other recomputations."""
    make, others = MODULES[kind]
    if job.layer_kinds != job.model.layer_kinds:
        others = frozenset()  # either kind of layers may be with experts or without
    names = tuple(name for name in again.modules if name not in others)
    key = kind, again.granularity == "full", again.distribute, names
    if key not in seen:
        job = seen[JOB]
        job = replace(job, settings=replace(job.settings, recompute=again))
        module = make(job)
        moved = _moved(job, kind, module)
        moment, whole, chunk = _moments(job, kind, module, seen)
        seen[key] = Activations(
            kept=module.activations,
            waiting=gradients_waiting(job, kind, module),
            moved=sum(moved),
            ahead=moved[-1] if moved else 0.0,
            captured=captured(job, kind, module),
            moment=moment,
            again=whole,
            chunk=chunk,
        )
    found: Activations = seen[key]
    return found


def _moved(job: TrainingJob, kind: str, module: Module) -> tuple[float, ...]:
    """Return the offloaded bytes of a part, by groups that go together."""
    if kind == "prediction layer" and not job.settings.offload.layers:
        return moved_groups(job, _inside(module))
    return moved_groups(job, module) if kind in BY_NAME else ()


def _inside(prediction: Module) -> Module:
    """Return the transformer layer of multi-token prediction."""
    return next(child for child in prediction.children if child.name == "transformer_layer")


def _moments(
    job: TrainingJob, kind: str, module: Module, seen: Known
) -> tuple[float, float, float]:
    """Return `moment`, `again` and `chunk` of a part."""
    if kind == "embedding":
        return max(embedding_moment(job), _encoder_moment(job, module)), 0.0, 0.0
    if kind == "output":
        return loss_moment(job), 0.0, 0.0
    if kind in ("copied words", "final norm"):
        return 0.0, 0.0, 0.0
    if kind == "prediction layer":
        own, job = job.last_kind, without(job, MIXTURES)
        module = _inside(module)
    else:
        own = job.kind(BY_NAME[kind])
    if own.state == FORWARD_ONLY:
        return layer_forward(job, own.routed), 0.0, 0.0
    remembered = module
    if job.settings.recompute.granularity == "selective":
        key = "remembered", own
        if key not in seen:
            seen[key] = layer_module(remembering(job), *own)
        remembered = seen[key]
        if not recomputes(job, OPERATORS):  # no layer is recomputed as a whole
            return _layer_moment(job, module, remembered, own), 0.0, 0.0
    whole = remembered.activations
    restored = _layer_moment(job, remembered, remembered, own)
    own_input = 0.0 if job.settings.recompute.distribute else checkpoint(job).size
    # Its output is held by the function that computes it again, beside what it keeps.
    again = whole - own_input + flow(job).narrow + more_streams(job) + restored
    if recomputes(job, OPERATORS):
        return again - outputs_needed(job, own.kind), again, whole
    return restored, again, whole


def _encoder_moment(job: TrainingJob, embedding: Module) -> float:
    """Return the peak of the passes through encoders, above all that other elements keep: the last
    layer of one goes back first, while all that they keep is there."""
    encoders, kind = job.model.encoders, encoder_kind(job)
    names = {encoder.name for encoder in encoders}
    kept = sum(child.activations for child in embedding.children if child.name in names)
    found = [0.0]
    for encoder in encoders:
        own, layer = (
            encoder_job(job, encoder, most_images(job, encoder)),
            encoder_layer(job, encoder),
        )
        if kind.state == FORWARD_ONLY:
            found.append(layer_forward(own, experts=False))
            continue
        again = layer.activations if encoder_recomputes(job, encoder) else 0.0
        core = own.settings.recompute.granularity != "none"
        held = layer_module(own, *kind) if core else layer
        found.append(kept + again + _layer_moment(own, held, layer, kind))
    return max(found)


def _layer_moment(job: TrainingJob, kept: Module, remembered: Module, own: TunedLayer) -> float:
    """Return a layer's peak above its kept activations.

    First its MLP or experts go back, then attention, when the others are forgotten; activations
    that a side does not keep are there again in its turn. Attention around a ring may hold more
    before the MLP has begun. Layers of one block have one of both.
    """
    job, kind = of_layer(job, own.kind), LAYER_KINDS[own.kind]
    attention, inner = _sides(kept)
    attention_whole, inner_whole = _sides(remembered)
    found = []
    if kind.inner:
        moment = experts_moment if kind.inner == EXPERTS else mlp_backward
        first = moment(job, keeps_input=keeps_second_input(remembered))
        # All mixtures of a layer, and their norms, are there again before its last block goes back.
        first += 2 * flow(job).narrow * recomputes(job, MIXTURES)
        found.append(first + inner_whole - inner)
    if kind.mixer:
        plain = kind.mixer == BY_SCORES
        second = _mixer_backward(job, kind.mixer)
        found.append(second - inner + attention_whole - attention)
        if plain:
            found.append(ring_forward(job) + index_forward(job) - inner)
        if kind.mixer == CSA:
            found.append(index_scores(job) - inner)
    if more := more_streams(job):
        # Gradients of all streams stay while a block goes back; then those of the product that
        # mixes them, of the mixture and of the addition are summed (`BroadcastTensorFused`).
        found = [one + more for one in found]
        found.append(4 * (more + flow(job).narrow) - inner)
    return max(found) + tuning_moment(job, own)


def _mixer_backward(job: TrainingJob, mixer: str) -> float:
    """Return the peak of the backward pass of a mixer."""
    if mixer == BY_SCORES:
        return attention_backward(job)
    return compressed_backward(job, mixer) if mixer in COMPRESSED else mixer_backward(job, mixer)


def _sides(layer: Module) -> tuple[float, float]:
    """Return the kept activations of attention and of the rest of a layer."""
    names = [child.name for child in layer.children]
    if "mlp" not in names:
        return sum(child.activations for child in layer.children), 0.0
    first = next(name for name in (AROUND["inner"], "pre_mlp_layernorm", "mlp") if name in names)
    cut = names.index(first)
    before = sum(child.activations for child in layer.children[:cut])
    return before, sum(child.activations for child in layer.children[cut:])
