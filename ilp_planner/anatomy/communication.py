"""What all ranks of a training job send, how often, over which groups and links.

Tensor, context and expert parallelism send within layers (`anatomy.messages`), pipeline
parallelism between stages, data parallelism once per iteration, or, where gradients or parameters
are sharded, for every micro-batch. Left out are messages of a few bytes: the gradient's norm, the
loss that is logged, checks for overflow.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ilp_planner.anatomy.decoder import rank_modules
from ilp_planner.anatomy.groups import boundary_link, group_size, kind_link, stage_link
from ilp_planner.anatomy.messages import (
    Messages,
    embedding_messages,
    layer_messages,
    output_messages,
    prediction_messages,
    recomputed_messages,
    tokens_shape,
    unsplit_parameters,
)
from ilp_planner.anatomy.modules import Message
from ilp_planner.anatomy.quantised import quantised_counts, sent_width
from ilp_planner.anatomy.recompute import recomputed_layers
from ilp_planner.specs.training import TrainingJob

FAMILIES = ("tensor", "context", "expert", "pipeline", "data")
EMBEDDING = "embedding"  # the kind of group of first and last stage
FAMILY = {
    **{"tp": "tensor", "cp": "context", "dp-cp": "data", "edp": "data"},
    **dict.fromkeys(("ep", "etp", "etp-ep"), "expert"),
    **dict.fromkeys(("pp", EMBEDDING), "pipeline"),
}
FORWARD, BACKWARD, AGAIN = "forward", "backward", "recomputed forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of message of the GPUs of some pipeline stages.

    family: one of `FAMILIES`. what: for people. collective: as in `Message`. group: the kind of
    group, for `anatomy.groups`. stages: pipeline ranks whose GPUs take part so. gpus: of all these
    stages. size: bytes of one message: of the whole tensor that is reduced or gathered, of what one
    GPU exchanges or hands on. members: of one group. per_micro_batch, per_iteration: messages of
    one GPU, all virtual stages together; per_micro_batch is 0 for what is not sent for every
    micro-batch. received: the GPU only receives it; another row, of its sender, counts it for the
    cluster. link: inside a node, between nodes, or both.
    """

    family: str
    what: str
    collective: str
    group: str
    stages: tuple[int, ...]
    gpus: int
    size: float
    members: int
    per_micro_batch: int
    per_iteration: int
    link: str
    received: bool = False

    @property
    def groups(self) -> int:
        """Groups of these GPUs; a pipeline stage hands on in pairs, one for each GPU."""
        return self.gpus if self.group == "pp" else self.gpus // self.members

    @property
    def sent(self) -> float:
        """Bytes that one GPU sends per message, by the ring or pairwise algorithm."""
        if self.received:
            return 0.0
        return self.size * sent_share(self.collective, self.members)

    @property
    def volume_per_micro_batch(self) -> float:
        """Bytes of one GPU's messages per micro-batch."""
        return self.size * self.per_micro_batch

    @property
    def volume_per_iteration(self) -> float:
        """Bytes of one GPU's messages per iteration."""
        return self.size * self.per_iteration

    @property
    def sent_per_iteration(self) -> float:
        """Bytes that one GPU sends per iteration."""
        return self.sent * self.per_iteration

    @property
    def cluster_messages(self) -> int:
        """Messages per iteration, summed over GPUs; those that are only received not again."""
        return 0 if self.received else self.gpus * self.per_iteration

    @property
    def cluster_volume(self) -> float:
        """Bytes per iteration, summed likewise."""
        return self.size * self.cluster_messages

    @property
    def cluster_sent(self) -> float:
        """Bytes per iteration that all GPUs of these stages send."""
        return self.sent * self.cluster_messages


def sent_share(collective: str, members: int) -> float:
    """Return what one of the members sends of a message, as a share of its size.

    Ring algorithms (Thakur et al. 2005, "Optimization of collective communication operations in
    MPICH"): a gather or a reduce-scatter moves all parts but one's own, an all-reduce is both.
    """
    if members < 2:
        return 0.0
    if collective == "send_recv":
        return 1.0
    share = (members - 1) / members
    return 2 * share if collective == "all_reduce" else share


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
    """Return what a GPU of one pipeline stage sends and receives."""
    return (
        *_within_layers(job, pp_rank),
        *_pipeline(job, pp_rank),
        *_data(job, pp_rank),
        *_once_per_iteration(job, pp_rank),
    )


# ---- within layers ------------------------------------------------------------------------------


def stage_layers(job: TrainingJob, pp_rank: int) -> Iterator[tuple[int, bool, int, int]]:
    """Yield (virtual stage, with experts?, layers, recomputed layers) of a pipeline rank."""
    starts, kinds = job.pipeline.starts, job.model.expert_layers
    for k in job.stages_of(pp_rank):
        held = kinds[starts[k] : starts[k] + job.stages[k].layers]
        # Selective recomputation repeats a part of every layer, full the whole of some.
        selective = job.settings.recompute.granularity == "selective"
        again = len(held) if selective else recomputed_layers(job, len(held))
        for experts in (False, True):
            count = held.count(experts)
            if count:
                yield k, experts, count, held[:again].count(experts)


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

    for _, experts, layers, again in stage_layers(job, pp_rank):
        both("layers", layer_messages(job, experts), layers)
        for forward, _ in recomputed_messages(job, experts).values():
            count("layers", AGAIN, forward, again)
    for k in job.stages_of(pp_rank):
        stage = job.stages[k]
        if stage.embedding:
            both("embedding", {"": embedding_messages(job)}, 1)
        if stage.prediction_layers:
            last = job.model.expert_layers[-1]
            both("token prediction", prediction_messages(job, last), stage.prediction_layers)
        if stage.loss:
            both("logits and loss", output_messages(job), 1)
    for (what, phase, message), times in counts.items():
        if times:
            sent = (message.collective, message.group, message.size)
            each = (times, job.micro_batches * times)
            yield _row(job, pp_rank, f"{what}, {phase}", *sent, each)


def _row(
    job: TrainingJob,
    pp_rank: int,
    what: str,
    collective: str,
    group: str,
    size: float,
    times: tuple[int, int],
    *,
    link: str = "",
    received: bool = False,
) -> Traffic:
    """Return one kind of message of a stage. times: per micro-batch and per iteration. link: of
    the pairs of two stages."""
    return Traffic(
        family=FAMILY[group],
        what=what,
        collective=collective,
        group=group,
        stages=(pp_rank,),
        gpus=job.world // job.pp,
        size=size,
        members=2 if link else group_size(job, group),
        per_micro_batch=times[0],
        per_iteration=times[1],
        link=link or kind_link(job, group, pp_rank),
        received=received,
    )


# ---- between stages -----------------------------------------------------------------------------


def boundary_size(job: TrainingJob) -> int:
    """Return the bytes that a rank hands on per micro-batch: activations, or their gradient.

    Sequence parallelism divides the tokens among tensor-parallel ranks; without it each of them
    sends the same (`megatron.core.pipeline_parallel.schedules.get_tensor_shapes`).
    """
    size = math.prod(tokens_shape(job, job.model.hidden)) * job.settings.width
    return size // job.tp if job.settings.sequence_parallel else size


def _pipeline(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield activations sent on and gradients sent back, for every virtual stage."""
    if job.pp == 1:
        return
    inward = job.schedule.receives(pp_rank)
    outward = job.schedule.sends(job.pp - 1 - pp_rank)
    before, after = (pp_rank - 1) % job.pp, pp_rank
    for what, times, boundary, received in (
        ("activations to the next stage", outward, after, False),
        ("gradients to the previous stage", inward, before, False),
        ("activations from the previous stage", inward, before, True),
        ("gradients from the next stage", outward, after, True),
    ):
        if times:
            each, link = (times, times * job.micro_batches), boundary_link(job, boundary)
            sent = ("send_recv", "pp", boundary_size(job))
            yield _row(job, pp_rank, what, *sent, each, link=link, received=received)


# ---- gradients and parameters -------------------------------------------------------------------


def _data(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the reduction of gradients and the gathering of parameters over replicas."""
    modules = rank_modules(job, pp_rank)
    whole = sum(module.parameters for module in modules)
    experts = sum(module.expert_parameters for module in modules)
    low, low_experts = quantised_counts(modules)
    width = job.settings.width
    saved = width - sent_width(job)
    for what, group, count, quantised in (
        ("", "dp-cp", whole - experts, low - low_experts),
        (" of routed experts", "edp", experts, low_experts),
    ):
        if count and group_size(job, group) > 1:
            sizes = count * job.settings.optimizer.gradient, count * width - quantised * saved
            yield from _reduced(job, pp_rank, what, group, sizes)


def _reduced(
    job: TrainingJob, pp_rank: int, what: str, group: str, sizes: tuple[float, float]
) -> Iterator[Traffic]:
    """Yield the messages of one set of parameters. sizes: bytes of gradients and of parameters.

    Megatron reduces gradients after the last micro-batch, into shards with the distributed
    optimizer, and gathers the stepped parameters. With sharded gradients (ZeRO-2) every micro-batch
    reduces; with sharded parameters (ZeRO-3) every micro-batch gathers them twice, to compute
    forward and backward (Rajbhandari et al. 2020, arXiv 1910.02054, section 7).
    """
    optimizer, each = job.settings.optimizer, job.micro_batches
    gradient, parameter = sizes

    def row(name: str, collective: str, size: float, *times: int) -> Traffic:
        return _row(job, pp_rank, name + what, collective, group, size, (times[0], times[1]))

    if optimizer.sharding == "none":
        yield row("gradients", "all_reduce", gradient, 0, 1)
    elif optimizer.sharding == "optimizer":
        yield from _sharded_optimizer(job, row("gradients", "reduce_scatter", gradient, 0, 1))
        yield _instances(job, row("parameters", "all_gather", parameter, 0, 1))
    else:
        yield row("gradients", "reduce_scatter", gradient, 1, each)
        if optimizer.sharding == "gradients":
            yield row("parameters", "all_gather", parameter, 0, 1)
        else:
            yield row("parameters, forward and backward", "all_gather", parameter, 2, 2 * each)


def _instances(job: TrainingJob, row: Traffic) -> Traffic:
    """Return a row of one instance of the distributed optimizer."""
    instances = min(job.settings.optimizer.instances, row.members)
    return replace(row, members=row.members // instances)


def _sharded_optimizer(job: TrainingJob, row: Traffic) -> Iterator[Traffic]:
    """Yield the reduction into shards; several instances of the optimizer sum their shards."""
    inner = _instances(job, row)
    yield inner
    instances = row.members // inner.members
    if instances > 1:
        yield replace(
            row,
            what=row.what.replace("gradients", "shards of gradients, over optimizer instances"),
            collective="all_reduce",
            size=row.size / inner.members,
            members=instances,
        )


def shares_embedding(job: TrainingJob) -> bool:
    """Return whether the last stage has a copy of the word embedding: for logits or prediction."""
    return job.model.tied or any(stage.prediction_layers for stage in job.stages)


def _once_per_iteration(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the sums of gradients that are not those over replicas."""
    gradient = job.settings.optimizer.gradient
    count = sum(
        layers * unsplit_parameters(job, experts)
        for _, experts, layers, _ in stage_layers(job, pp_rank)
    )
    stages = [job.stages[k] for k in job.stages_of(pp_rank)]
    if job.settings.sequence_parallel and job.tp > 1:
        norm = job.model.hidden * (2 if job.model.norm == "layernorm" else 1)
        last = job.model.expert_layers[-1]
        predicted = sum(stage.prediction_layers for stage in stages)
        count += norm * any(stage.loss for stage in stages)
        count += predicted * (unsplit_parameters(job, last) + 3 * norm)
    if count:
        what = "gradients of undivided parameters"
        yield _row(job, pp_rank, what, "all_reduce", "tp", count * gradient, (0, 1))
    if (
        job.pp > 1
        and shares_embedding(job)
        and any(stage.embedding or stage.loss for stage in stages)
    ):
        size = job.padded_vocab // job.tp * job.model.hidden * gradient
        what, link = "gradients of the shared word embedding", stage_link(job, 0, job.pp - 1)
        yield _row(job, pp_rank, what, "all_reduce", EMBEDDING, size, (0, 1), link=link)
