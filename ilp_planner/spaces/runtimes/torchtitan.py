"""The training jobs that torchtitan runs, as its release 0.2.2 checks them or does them.

The limits come from `torchtitan/train.py`, `distributed/parallel_dims.py`,
`distributed/pipeline_parallel.py` and the `parallelize.py` of its models, and of the schedules in
`torch.distributed.pipelining`.
"""

from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_heads,
    check_order,
    check_parts,
    check_plain_kernels,
    check_torch_schedule,
    check_words,
)
from ilp_planner.spaces.runtimes.torchtitan_models import titan_model
from ilp_planner.spaces.runtimes.torchtitan_releases import check_shared_states, is_compiled
from ilp_planner.specs.training import USUAL_FORMATS, TrainingJob

VERSION = "0.2.2"
TOOL = f"torchtitan {VERSION}"
RUNTIME = f"torchtitan@{VERSION}"


def check_torchtitan(job: TrainingJob) -> None:
    """Refuse a job that torchtitan cannot run.

    Raises
    ------
    PlanError: the job's field, torchtitan's limit and the nearest that it can run.
    """
    check_batch(job)
    check_order(job, TOOL)
    check_plain_kernels(job, TOOL, compiles=True)
    titan_model(job)
    _check_ranks(job)
    _check_recompute(job)
    _check_optimizer(job)
    _check_sharding(job)
    _check_pipeline(job)
    _check_quantised(job)


def alone(job: TrainingJob) -> bool:
    """Tell whether no two ranks have the same parameters, so that there is nothing to shard."""
    return job.dp * job.settings.cp == 1


def _check_ranks(job: TrainingJob) -> None:
    """Refuse degrees that torchtitan's meshes and modules do not take."""
    s, m = job.settings, job.model
    check_heads(job, whole_groups=True)
    if job.tp > 1 and not s.sequence_parallel:
        raise Unfit("settings.sequence_parallel", "false").but(
            f"{TOOL}'s tensor parallelism always divides the sequence", "sequence_parallel = true"
        )
    parts = 2 * job.tp * s.cp
    if m.sequence % parts:
        raise Unfit("model.sequence", m.sequence).but(
            f"{TOOL} needs a multiple of 2 x tp x cp ({parts})",
            f"sequence = {m.sequence // parts * parts or parts}",
        )
    check_words(job, RUNTIME, "parallelism", TOOL)
    if m.experts is None or s.ep == 1:
        if s.ep > 1:
            raise Unfit("settings.ep", s.ep).but("the model has no experts", "ep = 1")
        if m.experts and job.expert_tp != job.tp:
            raise Unfit("settings.etp", job.expert_tp).but(
                f"{TOOL} splits experts like the rest where ep is 1", f"etp = {job.tp}"
            )
        return
    if m.experts.count % s.ep:
        raise Unfit("settings.ep", s.ep).but(f"it must divide experts.count ({m.experts.count})")
    if job.expert_tp not in (1, job.tp):
        raise Unfit("settings.etp", job.expert_tp).but(
            f"{TOOL} takes 1 or tp ({job.tp})", f"etp = {job.tp}"
        )
    replicas = job.dp if s.optimizer.sharding == "none" else s.optimizer.instances
    ranks = job.tp * s.cp * job.dp // replicas
    if ranks % (s.ep * job.expert_tp):
        raise Unfit("settings.ep", s.ep).but(
            f"{TOOL} takes the experts' ranks from tp x cp x sharded dp ({ranks})"
        )


def _check_recompute(job: TrainingJob) -> None:
    """Refuse recomputation but activation checkpointing of no layer or of each layer."""
    r = job.settings.recompute
    if r.distribute:
        raise Unfit("settings.recompute.distribute", "true").but(
            f"{TOOL} does not divide kept inputs; with tensor parallelism they are divided already",
            "distribute = false",
        )
    if r.granularity == "none":
        return
    if r.granularity == "selective":
        check_parts(r, TOOL)
        return
    most = max(stage.layers for stage in job.stages)
    if (r.method == "uniform" and r.layers <= 1) or (r.method == "block" and r.layers >= most):
        return
    if r.method == "uniform":
        raise Unfit("settings.recompute.layers", r.layers).but(
            f"{TOOL} keeps the input of every recomputed layer", "method = uniform, layers = 1"
        )
    raise Unfit("settings.recompute.layers", r.layers).but(
        f"{TOOL} recomputes all layers or every n-th, not the first of each stage",
        f"granularity = none, or layers = {most}",
    )


def _check_optimizer(job: TrainingJob) -> None:
    """Refuse optimisers, precisions and offloading that torchtitan does not have."""
    s, optimizer = job.settings, job.settings.optimizer
    check_shared_states(job, TOOL, f"{TOOL} has Adam and AdamW")
    if alone(job) and job.tp * job.pp > 1 and s.precision == "bf16":
        raise Unfit("dp", job.dp).but(
            f"{TOOL} computes in bf16 with tp or pp only under FSDP, which needs dp x cp > 1",
            "dp = 2",
        )
    if optimizer.offload and (alone(job) or optimizer.sharding == "none"):
        raise Unfit("settings.optimizer.offload", optimizer.offload).but(
            f"{TOOL} offloads only under FSDP"
        )


def _check_sharding(job: TrainingJob) -> None:
    """Refuse sharding but FSDP or plain replicas."""
    optimizer = job.settings.optimizer
    if optimizer.sharding == "none":
        if not alone(job) and job.world > job.dp:
            raise Unfit("settings.optimizer.sharding", "none").but(
                f"{TOOL} replicates states only where nothing but data parallelism is used",
                "sharding = gradients",
            )
        return
    if job.dp % optimizer.instances:
        raise Unfit("settings.optimizer.instances", optimizer.instances).but(
            f"it must divide dp ({job.dp})"
        )
    if not alone(job) and job.dp * job.settings.cp == optimizer.instances:
        raise Unfit("settings.optimizer.instances", optimizer.instances).but(
            f"{TOOL} shards over dp x cp / instances ranks, of which there must be two or more",
            "instances = 1",
        )


def _check_pipeline(job: TrainingJob) -> None:
    """Refuse pipelines that torch's schedules do not take."""
    if job.pp == 1:
        return
    check_torch_schedule(job, TOOL)


def _check_quantised(job: TrainingJob) -> None:
    """Refuse products in 8 or 4 bits that torchao has no converter for."""
    kernels = job.settings.kernels
    recipe = kernels.quantised
    if not job.settings.quantised:
        return
    check_words(job, RUNTIME, "model", TOOL)
    if recipe == "mxfp8" and job.tp > 1 and is_compiled(job):
        raise Unfit("settings.kernels.compiled", "true").but(
            f"{TOOL} compiles mxfp8 only without tensor parallelism (tp is {job.tp})",
            "compiled = false, overlap_tensor = false",
        )
    if job.model.experts:
        raise Unfit("settings.kernels.quantised", recipe).but(
            f"{TOOL} quantises experts only by another recipe, as a prototype", 'quantised = ""'
        )
    if kernels.number_format:
        raise Unfit("settings.kernels.number_format", kernels.number_format).but(
            f"{TOOL} has one format, {USUAL_FORMATS[recipe]}", 'number_format = ""'
        )
