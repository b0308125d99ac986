"""DeepSpeed's configuration, as release 0.19.8 reads it, and where its pipeline is cut.

The JSON has no place for a pipeline: `PipelineModule` is given the layers and splits them itself,
by number, parameters or type. A second file therefore holds the boundaries, and a small class
beside it makes `PipelineModule` keep to them. Names: `deepspeed/runtime/config.py` and the modules
that it reads; limits: `runtime/pipe/engine.py` and `module.py`, `runtime/zero/offload_config.py`,
`module_inject/auto_ep_folding.py`.
"""

from typing import Any

from ilp_planner.files import to_json
from ilp_planner.formats.exported import (
    Expected,
    Exported,
    Unfit,
    check_batch,
    check_heads,
    check_order,
    check_plain_kernels,
    check_stages_hold_something,
    describe,
)
from ilp_planner.specs.pipeline_layout import split_layout, write_layout
from ilp_planner.specs.training import SHARDINGS, TrainingJob

VERSION = "0.19.8"
TOOL = f"DeepSpeed {VERSION}"

MODULE = '''"""A pipeline that is cut where the plan says.

    pipeline = PlannedPipeline(layers, "NAME_boundaries.json", loss_fn=loss)

`layers`: embedding, every transformer layer, final norm and output, as the file's `modules`.
"""

import json
from pathlib import Path

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology


class PlannedPipeline(PipelineModule):
    """`PipelineModule` with given instead of computed boundaries."""

    def __init__(self, layers, boundaries, **options):
        plan = json.loads(Path(boundaries).read_text(encoding="utf-8"))
        layers = list(layers)
        if len(layers) != len(plan["modules"]):
            raise ValueError(f"expected {len(plan['modules'])} layers, found {len(layers)}")
        self._planned_parts = plan["parts"]
        size = plan["topology"]
        options.setdefault("activation_checkpoint_interval", plan["activation_checkpoint_interval"])
        topology = PipeModelDataParallelTopology(
            num_pp=size["pipe"], num_mp=size["model"], num_dp=size["data"]
        )
        super().__init__(layers, topology=topology, partition_method="uniform", **options)

    def _partition_layers(self, method="uniform"):
        self.parts = self._planned_parts
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''


def export_deepspeed(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the configuration, and for a pipeline its boundaries and the class that keeps them.

    Parameters
    ----------
    name: of the run, for people.

    Raises
    ------
    PlanError: what DeepSpeed cannot run, with its limit and the nearest that it can.
    """
    check_batch(job)
    check_heads(job, whole_groups=False)
    check_plain_kernels(job, TOOL)
    if job.settings.quantised:
        raise Unfit("settings.kernels.quantised", job.settings.kernels.quantised).but(
            f"{TOOL} has no products in 8 or 4 bits", 'quantised = ""'
        )
    _check_degrees(job)
    notes = list(check_order(job, TOOL))
    config = {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "zero_optimization": _zero(job),
        **_precision(job),
        **_parallel(job, notes),
    }
    interval = _recompute(job, notes)
    if interval:
        distribute = job.settings.recompute.distribute
        config["activation_checkpointing"] = {"partition_activations": distribute}
    if job.settings.optimizer.overlap_offload:
        notes.append(
            "settings.optimizer.overlap_offload: true; not written: DeepSpeed orders copies and "
            "steps itself"
        )
    notes.append("the optimizer and its learning rate are given to deepspeed.initialize")
    notes.append(
        "the plan's seconds and bytes are for Megatron's kernels and buffers; DeepSpeed's differ"
    )
    files = {".json": to_json(config, indent=2)}
    if job.pp > 1:
        files["_boundaries.json"] = to_json(_boundaries(job, name, interval), indent=2)
        files["_pipeline.py"] = MODULE
    elif interval:
        notes.append(
            f"settings.recompute: the model must checkpoint every {_ordinal(interval)} with "
            "deepspeed.checkpointing.checkpoint"
        )
    return Exported(files, tuple(notes))


def _ordinal(count: int) -> str:
    return "layer" if count == 1 else f"{count} layers"


def _check_degrees(job: TrainingJob) -> None:
    """Refuse what no configuration of DeepSpeed can say."""
    s = job.settings
    if s.cp > 1:
        raise Unfit("settings.cp", s.cp).but(
            f"{TOOL} has no context parallelism around a ring, only Ulysses, which divides heads",
            "cp = 1",
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


def _zero(job: TrainingJob) -> dict[str, Any]:
    """Return the ZeRO stage and what belongs to it."""
    o = job.settings.optimizer
    stage = SHARDINGS.index(o.sharding)
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
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": o.overlap_gradients, "reduce_scatter": True}
    if o.offload:
        if not stage:
            raise Unfit("settings.optimizer.offload", o.offload).but(
                f"{TOOL} offloads from ZeRO stage 1 on", "sharding = optimizer"
            )
        if o.offload < 1 and stage < 3:
            raise Unfit("settings.optimizer.offload", o.offload).but(
                f"{TOOL} offloads a share only with ZeRO stage 3", "offload = 1"
            )
        zero["offload_optimizer"] = {"device": "cpu"}
        if o.offload < 1:
            zero["offload_optimizer"]["ratio"] = o.offload
    return zero


def _precision(job: TrainingJob) -> dict[str, Any]:
    precision, gradient = job.settings.precision, job.settings.optimizer.gradient
    types = {"grad_accum_dtype": "fp32" if gradient == 4 else precision}
    if precision == "fp32":
        return {"data_types": types}
    return {precision: {"enabled": True}, "data_types": types}


def _parallel(job: TrainingJob, notes: list[str]) -> dict[str, Any]:
    """Return tensor and expert parallelism, as far as the configuration says them."""
    config: dict[str, Any] = {}
    if job.tp > 1 and job.pp == 1:
        config["tensor_parallel"] = {"autotp_size": job.tp}
    elif job.tp > 1:
        notes.append(
            f"tp: {job.tp}; the pipeline's layers must be tensor-parallel themselves"
            + (", with the sequence divided" if job.settings.sequence_parallel else "")
        )
    if job.settings.ep > 1:
        config["expert_parallel"] = {
            "enabled": True,
            "autoep_size": job.settings.ep,
            "expert_tensor_parallel_size": 1,
        }
    if job.model.experts and job.settings.kernels.capacity:
        notes.append(
            f"settings.kernels.capacity: {job.settings.kernels.capacity}; the model's code says it"
        )
    return config


def _recompute(job: TrainingJob, notes: list[str]) -> int:
    """Return how many layers a checkpoint spans; 0: nothing is recomputed."""
    r = job.settings.recompute
    if r.granularity == "none":
        return 0
    if r.granularity == "selective":
        flash = job.settings.kernels.attention == "flash"
        if r.modules != ("core_attn",) or not flash:
            raise Unfit("settings.recompute.modules", " ".join(r.modules)).but(
                f"{TOOL} recomputes whole layers", "granularity = full"
            )
        notes.append(
            "settings.recompute: core_attn; flash attention never keeps the scores, so that "
            "nothing is left to recompute"
        )
        return 0
    most = max(stage.layers for stage in job.stages)
    if r.method == "block" and r.layers < most:
        raise Unfit("settings.recompute.method", f"block of {r.layers}").but(
            f"{TOOL} recomputes all layers of a stage", "method = uniform, layers = 1"
        )
    interval = 1 if r.method == "block" else max(1, r.layers)
    if interval > 1 and job.pp > 1:
        notes.append(
            f"settings.recompute.layers: {interval}; DeepSpeed counts the embedding and the final "
            "norm as layers"
        )
    return interval


def _boundaries(job: TrainingJob, name: str, interval: int) -> dict[str, Any]:
    """Return where the chain of modules is cut: stage k has parts[k] up to parts[k + 1]."""
    modules = ["embedding", *(f"layer.{i}" for i in range(job.model.layers)), "norm", "output"]
    parts, stages = [0], []
    for start, stage in zip(job.pipeline.starts, job.stages, strict=True):
        held = stage.embedding + stage.layers + 2 * stage.loss
        parts.append(parts[-1] + held)
        stages.append(
            {
                "modules": modules[parts[-2] : parts[-1]],
                "first_layer": start if stage.layers else None,
                "layers": stage.layers,
            }
        )
    return {
        "about": [f"boundaries of {name} for {TOOL}", *describe(job)],
        "topology": {"pipe": job.pp, "data": job.dp, "model": job.tp},
        "parts": parts,
        "modules": modules,
        "stages": stages,
        "tied": ["embedding", "output"] if job.model.tied else [],
        "activation_checkpoint_interval": interval,
    }
