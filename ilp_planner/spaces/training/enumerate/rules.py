"""Megatron-LM's demands on a plan, one named check each, with its late and missing checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.costs.training.job import node_order
from ilp_planner.evaluate import Violation
from ilp_planner.schedule.formulas import DIVIDED, USUAL
from ilp_planner.schedule.schedules import SCHEDULES
from ilp_planner.spaces.training.enumerate.combined import check_combined
from ilp_planner.spaces.training.enumerate.degrees import (
    same_pipelines,
    sequence_rules,
    tensor_rules,
)
from ilp_planner.specs.recipes import check_recipe
from ilp_planner.specs.training import OPERATORS, ORDERS, RECOMPUTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.specs.training import Settings, TrainingJob


def check_megatron(job: TrainingJob) -> Iterator[Violation]:
    """Check Megatron-LM's further demands on a job."""
    for check in (
        check_usual,
        check_context,
        check_recompute,
        check_states,
        check_combined,
    ):
        yield from check(job)


def check_plan(
    problem: Problem[MegatronCosts],
    plan: GroupPlan,
    own: Callable[[TrainingJob, Settings], Iterator[Violation]],
) -> Iterator[Violation]:
    """Check the rules of every runtime's plans, and a runtime's own checks of their jobs."""
    costs = problem.costs
    try:
        job = costs.job(plan, problem.cluster)
    except PlanError as error:
        yield Violation("training job", "plan", str(error).removeprefix("plan: "), "one job")
        return
    if node_order(plan, problem.cluster) is None:
        yield Violation("rank order", "plan", "other devices", "whole nodes one after the other")
        return
    yield from check_job(problem, job, own)


def check_job(
    problem: Problem[MegatronCosts],
    job: TrainingJob,
    own: Callable[[TrainingJob, Settings], Iterator[Violation]],
) -> Iterator[Violation]:
    """Check the same of a job with ranks that fill the nodes of the problem in order."""
    yield from check_precision(problem, job)
    yield from check_tensor(problem, job)
    for check in JOB_RULES:
        yield from check(job)
    yield from own(job, problem.costs.settings)


def check_precision(problem: Problem[MegatronCosts], job: TrainingJob) -> Iterator[Violation]:
    """Every device type computes in the precision, and in the recipe of quantised products."""
    settings, own = job.settings, problem.costs.settings
    recipe = settings.kernels.quantised
    if (settings.precision, recipe) == (own.precision, own.kernels.quantised):
        return
    try:
        problem.cluster.check_figures(settings.precision, problem.model)
        check_recipe(problem.cluster, recipe)
    except SpecError:
        yield Violation("precision", "plan", recipe or settings.precision, "one of all devices")


def check_tensor(problem: Problem[MegatronCosts], job: TrainingJob) -> Iterator[Violation]:
    """Tensor parallelism stays in a node and divides the model; so does context parallelism its
    samples."""
    each, cp = problem.cluster.nodes[0].devices, job.settings.cp
    if each % job.tp:
        yield Violation("degrees", "plan", f"tp {job.tp}", f"a divisor of {each}, within a node")
    for text in tensor_rules(job.model, job.tp):
        yield Violation("degrees", "plan", f"tp {job.tp}", text)
    parts = job.tp if job.settings.sequence_parallel else 1
    for text in sequence_rules(job.model, parts, cp):
        yield Violation("degrees", "plan", f"tp {job.tp}, cp {cp}", text)
    if cp > problem.costs.max_cp:
        yield Violation("degrees", "plan", f"cp {cp}", f"at most {problem.costs.max_cp}")


def check_sequence_parallel(job: TrainingJob) -> Iterator[Violation]:
    """Experts have tensor parallelism with divided sequences alone."""
    if job.tp > 1 and job.model.experts and not job.settings.sequence_parallel:
        limit = "sequence parallelism, for experts with tensor parallelism"
        yield Violation("sequence parallelism", "plan", "none", limit)


def check_usual(job: TrainingJob) -> Iterator[Violation]:
    """Backward passes are never divided."""
    if job.schedule.divides:
        yield Violation("schedule", "plan", job.schedule.name, USUAL)


def check_context(job: TrainingJob) -> Iterator[Violation]:
    """Attention is computed so over context-parallel ranks."""
    for text in context_rules(job):
        yield Violation("degrees", "plan", f"cp {job.settings.cp} by {job.settings.cp_comm}", text)


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


def check_experts(job: TrainingJob) -> Iterator[Violation]:
    """Expert parallelism divides the experts and the ranks."""
    ep, etp, experts = job.settings.ep, job.expert_tp, job.model.experts
    cp, order = job.settings.cp, job.settings.order
    if order != ORDERS[0] and job.pp > 1 and not same_pipelines(job.tp, cp, ep, etp):
        limit = f"tp x cp, {job.tp * cp}, in the order {order}: one set of pipeline groups"
        yield Violation("rank order", "plan", f"etp x ep {etp * ep}", limit)
    if experts is None:
        if ep > 1 or job.settings.etp:
            have = f"ep {ep}, etp {job.settings.etp}"
            yield Violation("degrees", "plan", have, "none, as there are no experts")
        return
    if experts.count % ep:
        yield Violation("degrees", "plan", f"ep {ep}", f"a divisor of {experts.count} experts")
    if etp > 1 and job.model.bias:
        yield Violation("degrees", "plan", f"etp {etp}", "1, for experts with biases")
    if experts.ffn % etp:
        yield Violation("degrees", "plan", f"etp {etp}", f"a divisor of {experts.ffn}")
    if job.world % (etp * ep * job.pp):
        have = f"etp x ep x pp {etp * ep * job.pp}"
        yield Violation("degrees", "plan", have, f"a divisor of {job.world} ranks")


def check_recompute(job: TrainingJob) -> Iterator[Violation]:
    """No more layers are recomputed than a virtual stage has: Megatron takes more silently; and its
    uniform chunks would reach beyond the last layer."""
    recompute = job.settings.recompute
    yield from _recomputed_parts(job)
    if recompute.granularity != "full":
        return
    counts = [stage.layers for stage in job.stages]
    have = f"{recompute.method} {recompute.layers}"
    if not 1 <= recompute.layers <= max(counts):
        yield Violation("recompute layers", "plan", have, f"1 to {max(counts)}")
    elif recompute.method == "uniform" and any(count % recompute.layers for count in counts):
        yield Violation("recompute layers", "plan", have, "a divisor of every stage's layers")


def _recomputed_parts(job: TrainingJob) -> Iterator[Violation]:
    """Parts of layers that models do not have, and kept inputs that are divided already
    (`TransformerConfig.__post_init__` of Megatron core; `validate_args`)."""
    recompute, kernels = job.settings.recompute, job.settings.kernels
    for part, there, limit in (
        ("mla_up_proj", job.model.latent is not None, "latent attention with it"),
        ("moe_act", kernels.grouped_experts, "grouped products of experts with it"),
        (OPERATORS, False, f"some of {', '.join(RECOMPUTED)}"),
    ):
        if recompute.granularity == "selective" and part in recompute.modules and not there:
            yield Violation("recompute modules", "plan", part, limit)
    if recompute.distribute and (job.tp == 1 or job.settings.sequence_parallel):
        limit = "tensor parallelism without sequence parallelism, where inputs are divided"
        yield Violation("recompute inputs", "plan", f"divided with tp {job.tp}", limit)


def check_states(job: TrainingJob) -> Iterator[Violation]:
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
            yield Violation("optimizer", "plan", have, f"a divisor of {count} {what}")
    narrow = optimizer.name == "adam" and (optimizer.moments < 8 or optimizer.master == 2)
    if not optimizer.master and job.settings.width < 4:
        have = f"no copy of {job.settings.precision} parameters that is stepped"
        yield Violation("optimizer", "plan", have, "one of 4 bytes, or of 2 for what they lack")
    if optimizer.sharding == "none" and (optimizer.offload or narrow):
        have = (
            "states on the host" if optimizer.offload else f"moments of {optimizer.moments} bytes"
        )
        yield Violation("optimizer", "plan", f"{have}, not sharded", "optimizer sharding")


def check_offload(job: TrainingJob) -> Iterator[Violation]:
    """Activations of whole layers go to the host without pipelines and recomputation only, and
    activations of modules with Transformer Engine."""
    offload = job.settings.offload
    have = f"activations of {offload.layers} layers"
    if offload.layers and job.pp > 1:
        yield Violation("offloading", "plan", f"{have} with pp {job.pp}", "pp 1")
    if offload.layers and job.settings.recompute.granularity != "none":
        yield Violation("offloading", "plan", f"{have} with recomputation", "one of them")
    if offload.layers >= job.model.layers:
        yield Violation("offloading", "plan", have, f"at most {job.model.layers - 1}")
    if offload.modules and job.settings.kernels.implementation == "local":
        yield Violation("offloading", "plan", "local modules", "transformer_engine")
    if "attn_proj" in offload.modules and "core_attn" not in offload.modules:
        yield Violation("offloading", "plan", "attn_proj", "core_attn with it")


def check_schedule(job: TrainingJob) -> Iterator[Violation]:
    """A schedule that divides backward passes has the pipeline that it is made for. The interleaved
    one has several ranks, and takes micro-batches in groups of at least pp, the last one too."""
    name, turn = job.settings.schedule, job.settings.turn
    if name in DIVIDED:
        for have, limit in divided_rules(name, job.pp, job.virtual, job.micro_batches):
            yield Violation(f"schedule {name}", "plan", have, limit)
        if turn:
            yield Violation(f"schedule {name}", "plan", f"turns of {turn} micro-batches", "none")
        return
    if job.virtual == 1:
        return
    if job.pp == 1:
        yield Violation("virtual stages", "plan", f"{job.virtual} on one rank", "pp at least 2")
        return
    turn, batches = job.settings.turn or job.pp, job.micro_batches
    if turn == job.pp and batches % turn:
        have = f"{batches} micro-batches"
        yield Violation("virtual stages", "plan", have, f"a multiple of pp {job.pp}")
    elif not job.pp <= turn <= batches:
        limit = f"from pp {job.pp} to the number of micro-batches, {batches}"
        yield Violation("virtual stages", "plan", f"turns of {turn} micro-batches", limit)
    elif 0 < batches % turn < job.pp:
        have = f"{batches % turn} micro-batches left over from turns of {turn}"
        yield Violation("virtual stages", "plan", have, f"none, or at least pp {job.pp}")


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


# What is asked of a job alone, whatever runs it.
JOB_RULES = (check_sequence_parallel, check_experts, check_offload, check_schedule)
