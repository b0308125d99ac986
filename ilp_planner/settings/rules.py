"""Megatron-LM's demands on a job alone, one named check each, with its late and missing checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.schedule.formulas import DIVIDED, USUAL
from ilp_planner.schedule.schedules import SCHEDULES
from ilp_planner.settings.combined import Broken, check_combined
from ilp_planner.specs.training import OPERATORS, ORDERS, RECOMPUTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.training import TrainingJob


def check_sequence_parallel(job: TrainingJob) -> Iterator[Broken]:
    """Experts have tensor parallelism with divided sequences alone."""
    if job.tp > 1 and job.model.experts and not job.settings.sequence_parallel:
        limit = "sequence parallelism, for experts with tensor parallelism"
        yield Broken("sequence parallelism", "none", limit)


def check_usual(job: TrainingJob) -> Iterator[Broken]:
    """Backward passes are never divided."""
    if job.schedule.divides:
        yield Broken("schedule", job.schedule.name, USUAL)


def check_context(job: TrainingJob) -> Iterator[Broken]:
    """Attention is computed so over context-parallel ranks."""
    for text in context_rules(job):
        yield Broken("degrees", f"cp {job.settings.cp} by {job.settings.cp_comm}", text)


def context_rules(job: TrainingJob) -> Iterator[str]:
    """Yield why attention is not computed so over context-parallel ranks (Transformer Engine,
    `dot_product_attention/context_parallel.py`)."""
    model, cp, how = job.model, job.settings.cp, job.settings.cp_comm
    if cp == 1:
        return
    inner = {"a2a": cp, "a2a+p2p": job.settings.cp_inner}.get(how, 1)  # that exchange heads
    if inner < 1 or cp % inner:
        yield f"the ranks that exchange heads must divide cp, found {inner}"
        return
    if (model.window or model.sinks) and how != "a2a":
        yield "windows and sinks are computed where ranks exchange heads, a2a"
    if inner > 1:
        # Without latent attention a rank has as many query groups as it has whole ones, at least 1.
        groups = model.heads if model.latent else max(model.kv_heads, job.tp)
        for what, count in (("heads", model.heads), ("query groups", groups)):
            if count // job.tp % inner:
                parts = "tp x cp" if inner == cp else f"tp x {inner} of cp"
                yield f"{count} {what} are not divisible by {parts}"


def same_pipelines(tp: int, cp: int, ep: int, etp: int) -> bool:
    """Tell whether experts have the pipeline groups of the other parameters, as Megatron demands if
    pipeline ranks come before data-parallel ones.

    From one pipeline rank to the next it is tp x cp ranks, and etp x ep in the grid of experts,
    also in models without experts.
    """
    return (etp or tp) * ep == tp * cp


def check_experts(job: TrainingJob) -> Iterator[Broken]:
    """Expert parallelism divides the experts and the ranks."""
    ep, etp, experts = job.settings.ep, job.expert_tp, job.model.experts
    cp, order = job.settings.cp, job.settings.order
    if order != ORDERS[0] and job.pp > 1 and not same_pipelines(job.tp, cp, ep, etp):
        limit = f"tp x cp, {job.tp * cp}, in the order {order}: one set of pipeline groups"
        yield Broken("rank order", f"etp x ep {etp * ep}", limit)
    if experts is None:
        if ep > 1 or job.settings.etp:
            have = f"ep {ep}, etp {job.settings.etp}"
            yield Broken("degrees", have, "none, as there are no experts")
        return
    if experts.count % ep:
        yield Broken("degrees", f"ep {ep}", f"a divisor of {experts.count} experts")
    if etp > 1 and job.model.bias:
        yield Broken("degrees", f"etp {etp}", "1, for experts with biases")
    if experts.ffn % etp:
        yield Broken("degrees", f"etp {etp}", f"a divisor of {experts.ffn}")
    if job.world % (etp * ep * job.pp):
        have = f"etp x ep x pp {etp * ep * job.pp}"
        yield Broken("degrees", have, f"a divisor of {job.world} ranks")


def check_recompute(job: TrainingJob) -> Iterator[Broken]:
    """No more layers are recomputed than a virtual stage has: Megatron takes more silently; and its
    uniform chunks would reach beyond the last layer."""
    recompute = job.settings.recompute
    yield from _recomputed_parts(job)
    if recompute.granularity != "full":
        return
    counts = [stage.layers for stage in job.stages]
    have = f"{recompute.method} {recompute.layers}"
    if not 1 <= recompute.layers <= max(counts):
        yield Broken("recompute layers", have, f"1 to {max(counts)}")
    elif recompute.method == "uniform" and any(count % recompute.layers for count in counts):
        yield Broken("recompute layers", have, "a divisor of every stage's layers")


def _recomputed_parts(job: TrainingJob) -> Iterator[Broken]:
    """Parts of layers that models do not have, and kept inputs that are divided already
    (`TransformerConfig.__post_init__` of Megatron core; `validate_args`)."""
    recompute, kernels = job.settings.recompute, job.settings.kernels
    for part, there, limit in (
        ("mla_up_proj", job.model.latent is not None, "latent attention with it"),
        ("moe_act", kernels.grouped_experts, "grouped products of experts with it"),
        (OPERATORS, False, f"some of {', '.join(RECOMPUTED)}"),
    ):
        if recompute.granularity == "selective" and part in recompute.modules and not there:
            yield Broken("recompute modules", part, limit)
    if recompute.distribute and (job.tp == 1 or job.settings.sequence_parallel):
        limit = "tensor parallelism without sequence parallelism, where inputs are divided"
        yield Broken("recompute inputs", f"divided with tp {job.tp}", limit)


def check_states(job: TrainingJob) -> Iterator[Broken]:
    """States on the host or of other widths need the precision-aware optimiser, which shards them
    over replicas (Megatron core, `OptimizerConfig`); copies of these divide the replicas, also of
    experts (`parallel_state.initialize_model_parallel`)."""
    optimizer = job.settings.optimizer
    for what, count in (
        ("dp x cp", job.dp * job.settings.cp),
        ("replicas of experts", job.expert_dp),
    ):
        if count % optimizer.instances:
            have = f"states in {optimizer.instances} copies"
            yield Broken("optimizer", have, f"a divisor of {count} {what}")
    narrow = optimizer.name == "adam" and (optimizer.moments < 8 or optimizer.master == 2)
    if not optimizer.master and job.settings.width < 4:
        have = f"no copy of {job.settings.precision} parameters that is stepped"
        yield Broken("optimizer", have, "one of 4 bytes, or of 2 for what they lack")
    if optimizer.sharding == "none" and (optimizer.offload or narrow):
        have = (
            "states on the host" if optimizer.offload else f"moments of {optimizer.moments} bytes"
        )
        yield Broken("optimizer", f"{have}, not sharded", "optimizer sharding")


def check_offload(job: TrainingJob) -> Iterator[Broken]:
    """Activations of whole layers go to the host without pipelines and recomputation only, and
    activations of modules with Transformer Engine."""
    offload = job.settings.offload
    have = f"activations of {offload.layers} layers"
    if offload.layers and job.pp > 1:
        yield Broken("offloading", f"{have} with pp {job.pp}", "pp 1")
    if offload.layers and job.settings.recompute.granularity != "none":
        yield Broken("offloading", f"{have} with recomputation", "one of them")
    if offload.layers >= job.model.layers:
        yield Broken("offloading", have, f"at most {job.model.layers - 1}")
    if offload.modules and job.settings.kernels.implementation == "local":
        yield Broken("offloading", "local modules", "transformer_engine")
    if "attn_proj" in offload.modules and "core_attn" not in offload.modules:
        yield Broken("offloading", "attn_proj", "core_attn with it")


def check_schedule(job: TrainingJob) -> Iterator[Broken]:
    """A schedule that divides backward passes has the pipeline that it is made for. The interleaved
    one has several ranks, and takes micro-batches in groups of at least pp, the last one too."""
    name, turn = job.settings.schedule, job.settings.turn
    if name in DIVIDED:
        for have, limit in divided_rules(name, job.pp, job.virtual, job.micro_batches):
            yield Broken(f"schedule {name}", have, limit)
        if turn:
            yield Broken(f"schedule {name}", f"turns of {turn} micro-batches", "none")
        return
    if job.virtual == 1:
        return
    if job.pp == 1:
        yield Broken("virtual stages", f"{job.virtual} on one rank", "pp at least 2")
        return
    turn, batches = job.settings.turn or job.pp, job.micro_batches
    if turn == job.pp and batches % turn:
        have = f"{batches} micro-batches"
        yield Broken("virtual stages", have, f"a multiple of pp {job.pp}")
    elif not job.pp <= turn <= batches:
        limit = f"from pp {job.pp} to the number of micro-batches, {batches}"
        yield Broken("virtual stages", f"turns of {turn} micro-batches", limit)
    elif 0 < batches % turn < job.pp:
        have = f"{batches % turn} micro-batches left over from turns of {turn}"
        yield Broken("virtual stages", have, f"none, or at least pp {job.pp}")


def divided_rules(name: str, pp: int, virtual: int, batches: int) -> Iterator[tuple[str, str]]:
    """Yield limits of a pipeline that a schedule with divided backward passes breaks, and possible
    values (`torch.distributed.pipelining.schedules`).

    batches: micro-batches per iteration.
    """
    row = SCHEDULES[name]
    if pp == 1:
        yield "one rank", "pp at least 2"
    if row.virtual not in (None, virtual) or virtual == 1:
        yield f"{virtual} virtual stages", f"{row.virtual or 'at least 2'} on each rank"
    if row.virtual is None and batches % pp:
        yield f"{batches} micro-batches", f"a multiple of pp {pp}"
    if batches < (least := row.per_stage * pp * virtual):
        yield f"{batches} micro-batches", f"at least {least}, as many as virtual stages"


# What is asked of a job whatever runs it, and what Megatron-LM asks besides.
JOB_RULES = (check_sequence_parallel, check_experts, check_offload, check_schedule)
MEGATRON_RULES = (check_usual, check_context, check_recompute, check_states, check_combined)
