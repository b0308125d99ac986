"""The training jobs that DeepSpeed runs, as its release 0.19.8 checks them or does them.

The limits come from `deepspeed/runtime/config.py`, `runtime/pipe/engine.py` and `module.py`,
`runtime/zero/offload_config.py` and `module_inject/auto_ep_folding.py`.
"""

from ilp_planner.schedule.formulas import USUAL
from ilp_planner.settings.keys import said
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_heads,
    check_order,
    check_plain_kernels,
    check_stages_hold_something,
)
from ilp_planner.specs.pipeline_layout import split_layout, write_layout
from ilp_planner.specs.training import TrainingJob

VERSION = "0.19.8"
TOOL = f"DeepSpeed {VERSION}"
RUNTIME = "deepspeed"


def check_deepspeed(job: TrainingJob) -> None:
    """Refuse a job that DeepSpeed cannot run.

    Raises
    ------
    PlanError: the job's field, DeepSpeed's limit and the nearest that it can run.
    """
    check_batch(job)
    check_heads(job, whole_groups=False)
    check_plain_kernels(job, TOOL)
    if job.settings.quantised:
        raise Unfit("settings.kernels.quantised", job.settings.kernels.quantised).but(
            f"{TOOL} has no products in 8 or 4 bits", 'quantised = ""'
        )
    if sparse := job.model.sparse:
        found = f"{sparse.top_k} keys that an indexer chooses"
        limit = (
            "trains models of transformers, whose scores of every pair of tokens are not modelled"
        )
        raise Unfit("model.sparse", found).but(f"{TOOL} {limit}")
    if pooled := job.model.compressed:
        found = f"a window of {pooled.window} tokens, and pooled keys"
        limit = (
            "trains models of transformers, whose scores of every pair of tokens are not modelled"
        )
        raise Unfit("model.compressed", found).but(f"{TOOL} {limit}")
    _check_degrees(job)
    check_order(job, TOOL)
    _check_zero(job)
    _check_recompute(job)


def zero_stage(job: TrainingJob) -> int:
    """Return the stage of ZeRO for the job's sharding."""
    return int(said(job.settings, RUNTIME, "zero_optimization")["stage"])


def _check_degrees(job: TrainingJob) -> None:
    """Refuse jobs beyond every configuration of DeepSpeed."""
    s = job.settings
    if s.cp > 1:
        raise Unfit("settings.cp", s.cp).but(
            f"{TOOL} has no context parallelism around a ring, only Ulysses, which divides heads",
            "cp = 1",
        )
    if job.schedule.divides:
        raise Unfit("settings.schedule", s.schedule).but(
            f"{TOOL} never divides backward passes", f"schedule = {USUAL}"
        )
    if job.virtual > 1:
        each = [sum(job.stages[k].layers for k in job.stages_of(r)) for r in range(job.pp)]
        raise Unfit("layout", f"{job.virtual} virtual stages per rank").but(
            f"{TOOL}'s pipeline has one stage per rank",
            f"layout = {write_layout(split_layout(each))}",
        )
    if job.pp > 1:
        check_stages_hold_something(job, TOOL)
        if job.model.prediction_layers:
            raise Unfit("model.prediction_layers", job.model.prediction_layers).but(
                f"{TOOL}'s pipeline is one chain of modules", "prediction_layers = 0"
            )
    if job.pp == 1 and job.tp > 1 and s.sequence_parallel:
        raise Unfit("settings.sequence_parallel", "true").but(
            f"{TOOL}'s automatic tensor parallelism keeps whole sequences",
            "sequence_parallel = false",
        )
    if s.ep > 1 and job.model.experts is None:
        raise Unfit("settings.ep", s.ep).but("the model has no experts", "ep = 1")
    if s.ep > 1 and job.pp > 1:
        raise Unfit("settings.ep", s.ep).but(
            f"{TOOL} spreads experts only without a pipeline", "ep = 1"
        )
    if job.model.experts and job.model.experts.count % s.ep:
        raise Unfit("settings.ep", s.ep).but(
            f"it must divide experts.count ({job.model.experts.count})"
        )
    if s.ep > 1 and job.expert_tp != 1:
        raise Unfit("settings.etp", job.expert_tp).but(
            f"{TOOL} keeps every expert whole", "etp = 1"
        )


def _check_zero(job: TrainingJob) -> None:
    """Refuse sharding and offloading that no stage of ZeRO is."""
    o, stage = job.settings.optimizer, zero_stage(job)
    if job.pp > 1 and stage > 1:
        raise Unfit("settings.optimizer.sharding", o.sharding).but(
            f"{TOOL}'s pipeline takes ZeRO stage 0 or 1, not {stage}", "sharding = optimizer"
        )
    if o.instances > 1:
        raise Unfit("settings.optimizer.instances", o.instances).but(
            f"{TOOL} shards states over all replicas", "instances = 1"
        )
    if o.offload and job.tp > 1 and job.settings.ep > 1:
        raise Unfit("settings.optimizer.offload", o.offload).but(
            f"{TOOL} does not offload where both tp and ep are above 1", "offload = 0"
        )
    if o.offload and not stage:
        raise Unfit("settings.optimizer.offload", o.offload).but(
            f"{TOOL} offloads from ZeRO stage 1 on", "sharding = optimizer"
        )
    if 0 < o.offload < 1 and stage < 3:
        raise Unfit("settings.optimizer.offload", o.offload).but(
            f"{TOOL} offloads a share only with ZeRO stage 3", "offload = 1"
        )


def _check_recompute(job: TrainingJob) -> None:
    """Refuse recomputation but by checkpoints of whole layers; of flash attention nothing is kept
    that could be recomputed."""
    r = job.settings.recompute
    if r.granularity == "selective":
        flash = job.settings.kernels.attention == "flash"
        if r.modules != ("core_attn",) or not flash:
            raise Unfit("settings.recompute.modules", " ".join(r.modules)).but(
                f"{TOOL} recomputes whole layers", "granularity = full"
            )
    most = max(stage.layers for stage in job.stages)
    if r.granularity == "full" and r.method == "block" and r.layers < most:
        raise Unfit("settings.recompute.method", f"block of {r.layers}").but(
            f"{TOOL} recomputes all layers of a stage", "method = uniform, layers = 1"
        )
