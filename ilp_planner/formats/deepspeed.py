"""DeepSpeed's configuration, as release 0.19.8 reads it, and the cuts of its pipeline.

The JSON has no place for a pipeline: `PipelineModule` is given the layers and splits them itself,
by number, parameters or type. A second file therefore holds the boundaries, and a small class
beside it makes `PipelineModule` keep to them. Names: `deepspeed/runtime/config.py` and the modules
that it reads. `spaces/runtimes/deepspeed.py` has the jobs that it runs.
"""

from typing import Any

from ilp_planner.base.files import to_json
from ilp_planner.formats.exported import (
    Expected,
    Exported,
    describe,
    environment_lines,
    unlike_torch,
)
from ilp_planner.settings.keys import said
from ilp_planner.spaces.runtimes.deepspeed import RUNTIME, TOOL, check_deepspeed, zero_stage
from ilp_planner.spaces.runtimes.limits import check_order, unlike_moments
from ilp_planner.specs.training import TrainingJob

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
    PlanError: a setting that DeepSpeed cannot run, with its limit and the nearest possible value.
    """
    check_deepspeed(job)
    notes = [*check_order(job, TOOL), *unlike_torch(job, TOOL), *unlike_moments(job, TOOL)]
    notes += environment_lines(job, engine=False)  # JSON has no room for them
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
        section = "activation_checkpointing"
        config[section] = said(job.settings, RUNTIME, section)
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


def _zero(job: TrainingJob) -> dict[str, Any]:
    """Return the ZeRO stage and its settings."""
    o, stage = job.settings.optimizer, zero_stage(job)
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": o.overlap_gradients, "reduce_scatter": True}
    if o.offload:
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
            **said(job.settings, RUNTIME, "expert_parallel"),
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
        notes.append(
            "settings.recompute: core_attn; flash attention never keeps the scores, so that "
            "nothing is left to recompute"
        )
        return 0
    interval = 1 if r.method == "block" else max(1, r.layers)
    if interval > 1 and job.pp > 1:
        notes.append(
            f"settings.recompute.layers: {interval}; DeepSpeed counts the embedding and the final "
            "norm as layers"
        )
    return interval


def _boundaries(job: TrainingJob, name: str, interval: int) -> dict[str, Any]:
    """Return the cuts of the chain of modules: stage k has parts[k] up to parts[k + 1]."""
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
