"""All messages of a training job: their number, groups and links.

Tensor, context and expert parallelism send within layers (`job.messages`), pipeline parallelism
between stages, data parallelism once per iteration, or, if gradients or parameters are sharded, for
every micro-batch. Left out are messages of a few bytes: the gradient's norm, the loss that is
logged, checks for overflow.

Messages between replicas: reduced gradients, gathered parameters.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.groups import ACROSS, INSTANCE, group_size, stage_link
from ilp_planner.job.messages import (
    Messages,
    embedding_messages,
    encoder_messages,
    layer_messages,
    output_messages,
    prediction_messages,
    recomputed_messages,
    tokens_shape,
    unsplit_parameters,
)
from ilp_planner.job.modules import Message, Module
from ilp_planner.job.quantised import quantised_counts, sent_width
from ilp_planner.job.recompute import recomputed_layers
from ilp_planner.job.states import gathers_frozen, rhythm
from ilp_planner.job.traffic import EMBEDDING, FAMILIES, Traffic, row_of
from ilp_planner.job.tuning import gathered_saved
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import FORWARD_ONLY, TRAINED, TunedLayer, trains_words

# ---- replicas ------------------------------------------------------------------------------------


OVER = "shards of gradients, over optimizer instances"
UNITS = {
    "embedding": "embedding",
    "decoder.layers": "layer",
    "mtp.layers": "prediction layer",
    "output": "norm and output",
}


def replicas_traffic(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the reduction of gradients and the gathering of parameters over replicas."""
    modules = rank_modules(job, pp_rank)
    if job.settings.optimizer.from_master:
        yield from _by_unit(job, pp_rank, modules)
        return
    whole = sum(module.parameters for module in modules)
    experts = sum(module.expert_parameters for module in modules)
    trained = sum(module.trained for module in modules)
    trained_experts = sum(module.trained_experts for module in modules)
    low, low_experts = quantised_counts(modules)
    for what, group, counts, quantised in (
        ("", "dp-cp", (trained - trained_experts, whole - experts), low - low_experts),
        (" of routed experts", "edp", (trained_experts, experts), low_experts),
    ):
        if counts[1] and group_size(job, group) > 1:
            yield from _reduced(job, pp_rank, what, group, _sizes(job, *counts, quantised))


def _gatherings(job: TrainingJob) -> tuple[int, int]:
    """Return how often parameters are gathered, per micro-batch and per iteration."""
    often = rhythm(job)
    each = often.forward + often.backward
    return each, each * job.micro_batches + often.once


def _reductions(job: TrainingJob) -> tuple[int, int]:
    """Return how often gradients are reduced, likewise."""
    return (1, job.micro_batches) if rhythm(job).reduces else (0, 1)


def _parameters(job: TrainingJob) -> str:
    """Return the name of gathered parameters."""
    again = job.settings.optimizer.sharding == "parameters"
    return "parameters, forward and backward" if again else "parameters"


def _sizes(job: TrainingJob, trained: int, count: int, quantised: int) -> tuple[float, float]:
    """Return the bytes of gradients and of gathered parameters. trained, count: parameters with
    gradients, and all; quantised: of products, in fewer bits."""
    width, tuning = job.settings.width, job.settings.tuning
    gathered = count if gathers_frozen(job) else trained
    if gathered < count:
        quantised = 0 if tuning.rank else min(quantised, gathered)
    saved: float = quantised * (width - sent_width(job))
    if tuning.base and gathered == count:
        saved = width * gathered_saved(job, count - trained - quantised, quantised)
    return trained * job.settings.optimizer.gradient, gathered * width - saved


def _by_unit(job: TrainingJob, pp_rank: int, modules: tuple[Module, ...]) -> Iterator[Traffic]:
    """Yield the messages of PyTorch's `fully_shard`, one set for every unit.

    Units are the embedding, every layer, and the last norm with the output; routed experts that are
    spread over ranks are units besides (torchtitan's `apply_fsdp`). Each micro-batch gathers a
    unit's parameters and reduces its gradients, over instances as well.

    How often is measured, in pipelines of up to three virtual stages on a rank; of more, some are
    given up in between (`pipelining/schedules.py: _add_unshard_reshard`).
    """
    name = _parameters(job)
    reduced, gathered = _reductions(job), _gatherings(job)
    units: dict[tuple[str, str, float, float], int] = defaultdict(int)
    for module in modules:
        one = module.times(1)
        low, low_experts = quantised_counts((one,))
        routed = one.expert_parameters if job.settings.ep > 1 else 0
        low_routed = low_experts if job.settings.ep > 1 else 0
        still = one.trained_experts if job.settings.ep > 1 else 0
        what = f", {UNITS.get(module.name, module.name)}"
        count, quantised = one.parameters - routed, low - low_routed
        sizes = _sizes(job, one.trained - still, count, quantised)
        units["dp-cp", what, *sizes] += module.repeat
        if routed:
            sizes = _sizes(job, still, routed, low_routed)
            units["edp", f"{what}'s experts", *sizes] += module.repeat
    for (group, what, gradient, parameter), count in units.items():
        shards = group_size(job, group, INSTANCE)
        messages = [
            (name, "all_gather", parameter, gathered, INSTANCE),
            ("gradients", "reduce_scatter", gradient, reduced, INSTANCE),
            (OVER, "all_reduce", gradient / shards, reduced, ACROSS),
        ]
        if job.settings.optimizer.sharding == "none":
            messages = [("gradients", "all_reduce", gradient, reduced, "")]
        for title, collective, size, often, part in messages:
            if size and group_size(job, group, part) > 1:
                times = (count * often[0], count * often[1])
                yield row_of(job, pp_rank, title + what, collective, group, size, times, part=part)


def _reduced(
    job: TrainingJob, pp_rank: int, what: str, group: str, sizes: tuple[float, float]
) -> Iterator[Traffic]:
    """Yield the messages of one set of parameters. sizes: bytes of gradients and of parameters.

    How often says `rhythm`; several instances of the optimizer sum their shards once.
    """
    gradient, parameter = sizes
    if not (gradient or parameter):
        return

    def row(
        name: str, collective: str, size: float, times: tuple[int, int], part: str = ""
    ) -> Traffic:
        return row_of(job, pp_rank, name + what, collective, group, size, times, part=part)

    if job.settings.optimizer.sharding == "none":
        if gradient:
            yield row("gradients", "all_reduce", gradient, (0, 1))
        return
    inner = row("gradients", "reduce_scatter", gradient, _reductions(job), INSTANCE)
    if inner.members > 1:
        yield inner
    if group_size(job, group, ACROSS) > 1:
        size = gradient / inner.members
        yield row(OVER, "all_reduce", size, (0, 1), ACROSS)
    if inner.members > 1:
        yield row(_parameters(job), "all_gather", parameter, _gatherings(job), INSTANCE)


# ---- communication -------------------------------------------------------------------------------


FORWARD, BACKWARD, AGAIN = "forward", "backward", "recomputed forward"


def traffic(job: TrainingJob) -> tuple[Traffic, ...]:
    """Return everything that is sent in an iteration; equal stages share a row."""
    rows: dict[Traffic, list[int]] = {}
    for pp_rank in range(job.pp):
        for row in stage_traffic(job, pp_rank):
            rows.setdefault(replace(row, stages=()), []).append(pp_rank)
    found = [
        replace(row, stages=tuple(stages), gpus=row.gpus * len(stages))
        for row, stages in rows.items()
    ]
    return tuple(sorted(found, key=lambda row: FAMILIES.index(row.family)))


def stage_traffic(job: TrainingJob, pp_rank: int) -> tuple[Traffic, ...]:
    """Return the messages of a GPU of one pipeline stage."""
    return (
        *_within_layers(job, pp_rank),
        *_pipeline(job, pp_rank),
        *replicas_traffic(job, pp_rank),
        *_once_per_iteration(job, pp_rank),
    )


# ---- within layers ------------------------------------------------------------------------------


def stage_layers(job: TrainingJob, pp_rank: int) -> Iterator[tuple[int, TunedLayer, int, int]]:
    """Yield (virtual stage, kind of layers, layers, recomputed layers) of a pipeline rank."""
    starts, kinds = job.pipeline.starts, job.layer_kinds
    for k in job.stages_of(pp_rank):
        held = kinds[starts[k] : starts[k] + job.stages[k].layers]
        # Selective recomputation repeats a part of every layer, full the whole of some.
        selective = job.settings.recompute.granularity == "selective"
        again = len(held) if selective else recomputed_layers(job, len(held))
        for number in sorted(set(held)):
            kind = job.kind(number)
            repeated = held[:again].count(number) if kind.state != FORWARD_ONLY else 0
            yield k, kind, held.count(number), repeated


def _within_layers(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the messages of tensor, context and expert parallelism."""
    counts: dict[tuple[str, str, Message], int] = defaultdict(int)

    def count(what: str, phase: str, found: tuple[Message, ...], times: int) -> None:
        for message in found:
            counts[what, phase, replace(message, times=1)] += times * message.times

    def both(what: str, pairs: Messages, times: int) -> None:
        for forward, backward in pairs.values():
            count(what, FORWARD, forward, times)
            count(what, BACKWARD, backward, times)

    for _, own, layers, again in stage_layers(job, pp_rank):
        both("layers", layer_messages(job, *own), layers)
        for forward, _ in recomputed_messages(job, own.kind).values():
            count("layers", AGAIN, forward, again)
    for k in job.stages_of(pp_rank):
        stage = job.stages[k]
        if stage.embedding:
            both("embedding", {"": embedding_messages(job)}, 1)
            for encoder in job.model.encoders:
                layer, ends = encoder_messages(job, encoder)
                both("layers of the encoder", layer, encoder.layers)
                both("projectors of the encoder", ends, 1)
        if stage.prediction_layers:
            last = job.model.last_kind
            both("token prediction", prediction_messages(job, last), stage.prediction_layers)
        if stage.loss:
            both("logits and loss", output_messages(job), 1)
    for (what, phase, message), times in counts.items():
        if times:
            sent = (message.collective, message.group, message.size)
            each = (times, job.micro_batches * times)
            yield row_of(job, pp_rank, f"{what}, {phase}", *sent, each)


# ---- between stages -----------------------------------------------------------------------------


def boundary_size(job: TrainingJob) -> int:
    """Return the bytes that a rank hands on per micro-batch: activations, or their gradient.

    Sequence parallelism divides the tokens among tensor-parallel ranks; without it each of them
    sends the same (`megatron.core.pipeline_parallel.schedules.get_tensor_shapes`).
    """
    size = math.prod(tokens_shape(job, job.model.hidden)) * job.settings.width * job.model.streams
    return size // job.tp if job.settings.sequence_parallel else size


def _pipeline(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield activations sent on and gradients sent back, for every virtual stage."""
    if job.pp == 1:
        return
    own, last = job.stages_of(pp_rank), len(job.stages) - 1
    inward = Counter(job.rank_of(k - 1) for k in own if k > 0)
    outward = Counter(job.rank_of(k + 1) for k in own if k < last)
    for what, ranks, received in (
        ("activations to the next stage", outward, False),
        ("gradients to the previous stage", inward, False),
        ("activations from the previous stage", inward, True),
        ("gradients from the next stage", outward, True),
    ):
        for other, times in ranks.items():
            if other == pp_rank:
                continue  # the turn of a V sends nothing
            each, link = (times, times * job.micro_batches), stage_link(job, pp_rank, other)
            sent = ("send_recv", "pp", boundary_size(job))
            yield row_of(job, pp_rank, what, *sent, each, link=link, received=received)


# ---- once per iteration --------------------------------------------------------------------------


def shares_embedding(job: TrainingJob) -> bool:
    """Return whether the last stage has a copy of the word embedding: for logits or prediction."""
    words = trains_words(job.model, job.settings.tuning)
    return words and (job.model.tied or any(stage.prediction_layers for stage in job.stages))


def _once_per_iteration(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the sums of gradients besides those over replicas."""
    gradient = job.settings.optimizer.gradient
    stages = [job.stages[k] for k in job.stages_of(pp_rank)]
    yield from _undivided(job, pp_rank)
    if (
        job.pp > 1
        and shares_embedding(job)
        and any(stage.embedding or stage.loss for stage in stages)
    ):
        size = job.padded_vocab // job.tp * job.model.hidden * gradient
        what, link = "gradients of the shared word embedding", stage_link(job, 0, job.pp - 1)
        yield row_of(job, pp_rank, what, "all_reduce", EMBEDDING, size, (0, 1), link=link)


def _undivided(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the sums over tp of gradients of parameters that its ranks hold whole.

    Megatron sums them as one tensor per iteration. A DTensor is summed alone, in its own precision,
    when `fully_shard` reduces it (`_fsdp_param.py: _get_grad_inner_tensor`).
    """
    counts: dict[int, int] = defaultdict(int)  # of tensors with so many parameters
    for _, kind, layers, _ in stage_layers(job, pp_rank):
        for size, count in _undivided_tensors(job, *kind):
            counts[size] += layers * count
    stages = [job.stages[k] for k in job.stages_of(pp_rank)]
    if job.settings.sequence_parallel and job.tp > 1 and not job.settings.tuning:
        predicted = sum(stage.prediction_layers for stage in stages)
        vectors = any(stage.loss for stage in stages) + 3 * predicted
        counts[job.model.hidden] += job.model.norm_vectors * vectors
        for size, count in _undivided_tensors(job, job.model.last_kind, TRAINED):
            counts[size] += predicted * count
    what, optimizer = "gradients of undivided parameters", job.settings.optimizer
    if optimizer.from_master:
        for size, count in counts.items():
            often = (count, count * job.micro_batches) if rhythm(job).sums else (0, count)
            if count:
                sent = ("all_reduce", "tp", size * job.settings.width)
                yield row_of(job, pp_rank, what, *sent, often)
    elif total := sum(size * count for size, count in counts.items()):
        yield row_of(job, pp_rank, what, "all_reduce", "tp", total * optimizer.gradient, (0, 1))


def _undivided_tensors(job: TrainingJob, kind: int, state: str) -> Iterator[tuple[int, int]]:
    """Yield a layer's undivided parameters: of a tensor, and how many there are.

    All but norms of a layer's width or of heads counts as one tensor.
    """
    model, rest = job.model, unsplit_parameters(job, kind, state)
    norms = sum(model.norms_of_layer) if LAYER_KINDS[kind].blocks > 1 else 1
    for size, count in (
        (model.hidden, norms * model.norm_vectors),
        (model.head, 2 * model.norm_vectors * model.qk_norm),
    ):
        found = min(count, rest // size)
        rest -= found * size
        yield size, found
    if rest:
        yield rest, 1
