"""torchtitan's TOML, as its release 0.2.2 reads it, the last one that is configured by TOML.

Later releases are configured by Python (`torchtitan.config` of 0.3.0 has no file reader). The names
are those of `torchtitan/config/job_config.py`; the limits are what `torchtitan/train.py`,
`distributed/parallel_dims.py`, `distributed/pipeline_parallel.py` and the `parallelize.py` of its
models check or do.

A model that torchtitan has no flavor of comes with a module that registers it
(`experimental.custom_import`), built from torchtitan's own classes.
"""

import json

from ilp_planner.formats.exported import (
    Expected,
    Exported,
    Unfit,
    check_batch,
    check_heads,
    check_order,
    check_plain_kernels,
    check_stages_hold_something,
    commented,
    describe,
    module_name,
)
from ilp_planner.formats.torchtitan_models import model_module, titan_model
from ilp_planner.specs.training import USUAL_FORMATS, TrainingJob

VERSION = "0.2.2"
TOOL = f"torchtitan {VERSION}"

Value = bool | int | str | list[str] | list[list[str]]
Tables = dict[str, dict[str, Value]]


# Recipe -> the converter that swaps products for quantised ones.
CONVERTERS = {"fp8-current": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}


def export_torchtitan(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the configuration of a run.

    Parameters
    ----------
    name: of the run, and of its files without their ends.

    Raises
    ------
    PlanError: what torchtitan cannot run, with its limit and the nearest that it can.
    """
    check_batch(job)
    notes = list(check_order(job, TOOL))
    check_plain_kernels(job, TOOL)
    model = titan_model(job)
    _check_ranks(job)
    checkpoint = _recompute(job, notes)
    sharding = _sharding(job, notes)
    identifier = f"{module_name(name)}_model"
    tables: Tables = {
        "job": {"description": name},
        "model": {"name": model.name, "flavor": model.flavor},
        "training": {
            "seq_len": job.model.sequence,
            "local_batch_size": job.micro_batch * (job.micro_batches if job.pp > 1 else 1),
            "global_batch_size": job.global_batch,
            "dtype": "float32",
            "mixed_precision_param": "float32" if job.settings.precision == "fp32" else "bfloat16",
            "mixed_precision_reduce": "float32",
            "enable_cpu_offload": job.settings.optimizer.offload > 0,
        },
        "optimizer": {"name": "AdamW"},
        "parallelism": {**sharding, **_degrees(job), **_pipeline(job)},
        "activation_checkpoint": checkpoint,
    }
    files = {}
    if model.arguments:
        tables["model"] = {"name": identifier, "flavor": "planned"}
        tables["experimental"] = {"custom_import": identifier}
        files["_model.py"] = model_module(model, identifier)
        notes.append(
            f"model: none of torchtitan's own flavors; {identifier}.py registers it and must be "
            "on PYTHONPATH"
        )
    notes += model.notes
    if job.settings.quantised:
        converter, table = _quantised(job, notes)
        tables["model"]["converters"] = [converter]
        tables[converter] = table
    _note_differences(job, notes)
    text = _toml(tables, [f"{TOOL}: {name}", *describe(job), *(f"note: {n}" for n in notes)])
    return Exported({".toml": text, **files}, tuple(notes))


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


def _degrees(job: TrainingJob) -> dict[str, Value]:
    s = job.settings
    degrees: dict[str, Value] = {
        "tensor_parallel_degree": job.tp,
        "context_parallel_degree": s.cp,
        "expert_parallel_degree": s.ep,
    }
    if s.ep > 1:
        degrees["expert_tensor_parallel_degree"] = job.expert_tp
    return degrees


def _quantised(job: TrainingJob, notes: list[str]) -> tuple[str, dict[str, Value]]:
    """Return the converter of the layers' products, and what its table says.

    torchao scales by the current maximum, gradients in e5m2 (`float8`), or by blocks (`mx`).
    """
    kernels = job.settings.kernels
    recipe = kernels.quantised
    usual = 'number_format = ""'
    if recipe not in CONVERTERS:
        raise Unfit("settings.kernels.quantised", recipe).but(
            f"{TOOL} has {' and '.join(CONVERTERS)}", "quantised = fp8-current"
        )
    if job.model.experts:
        raise Unfit("settings.kernels.quantised", recipe).but(
            f"{TOOL} quantises experts only by another recipe, as a prototype", 'quantised = ""'
        )
    if kernels.number_format:
        raise Unfit("settings.kernels.number_format", kernels.number_format).but(
            f"{TOOL} has one format, {USUAL_FORMATS[recipe]}", usual
        )
    ends = (*range(kernels.exact_first), *range(-kernels.exact_last, 0))
    exact = [f"layers.{layer % job.model.layers}." for layer in ends]
    table: dict[str, Value] = {"filter_fqns": ["output", *dict.fromkeys(exact)]}
    if kernels.quantised_parameters:
        if recipe == "fp8-current":
            table["enable_fsdp_float8_all_gather"] = True
        notes.append(
            "settings.kernels.quantised_parameters: torchtitan keeps parameters in FP32"
            + (", and gathers them in FP8" if recipe == "fp8-current" else "")
        )
    notes.append("settings.kernels.quantised: needs torchao")
    return CONVERTERS[recipe], table


def _sharding(job: TrainingJob, notes: list[str]) -> dict[str, Value]:
    """Return how data-parallel ranks share states; FSDP or plain replicas."""
    s, optimizer = job.settings, job.settings.optimizer
    if optimizer.name not in ("adam", "adamw"):
        raise Unfit("settings.optimizer.name", optimizer.name).but(
            f"{TOOL} has Adam and AdamW", "name = adam"
        )
    if 0 < optimizer.offload < 1:
        raise Unfit("settings.optimizer.offload", optimizer.offload).but(
            f"{TOOL} offloads all states or none", f"offload = {round(optimizer.offload)}"
        )
    if s.precision == "fp16":
        raise Unfit("settings.precision", "fp16").but(
            f"{TOOL} has bf16 and fp32", "precision = bf16"
        )
    alone = job.dp * s.cp == 1
    if alone and job.tp * job.pp > 1 and s.precision == "bf16":
        raise Unfit("dp", job.dp).but(
            f"{TOOL} computes in bf16 with tp or pp only under FSDP, which needs dp x cp > 1",
            "dp = 2",
        )
    if optimizer.offload and (alone or optimizer.sharding == "none"):
        raise Unfit("settings.optimizer.offload", optimizer.offload).but(
            f"{TOOL} offloads only under FSDP"
        )
    if alone:
        return {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 1}
    if optimizer.sharding == "none":
        if job.world > job.dp:
            raise Unfit("settings.optimizer.sharding", "none").but(
                f"{TOOL} replicates states only where nothing but data parallelism is used",
                "sharding = gradients",
            )
        return {"data_parallel_replicate_degree": job.dp, "data_parallel_shard_degree": 1}
    if job.dp % optimizer.instances:
        raise Unfit("settings.optimizer.instances", optimizer.instances).but(
            f"it must divide dp ({job.dp})"
        )
    if optimizer.sharding == "optimizer":
        notes.append(
            "settings.optimizer.sharding: optimizer; torchtitan's FSDP shards gradients and FP32 "
            "parameters as well and keeps gathered BF16 parameters between forward and backward"
        )
    return {
        "data_parallel_replicate_degree": optimizer.instances,
        "data_parallel_shard_degree": job.dp // optimizer.instances,
        "fsdp_reshard_after_forward": "always" if optimizer.sharding == "parameters" else "never",
    }


def _pipeline(job: TrainingJob) -> dict[str, Value]:
    """Return the schedule and exactly which module is where."""
    if job.pp == 1:
        return {"pipeline_parallel_degree": 1}
    check_stages_hold_something(job, TOOL)
    batches = job.micro_batches
    if job.virtual == 1 and batches < job.pp:
        raise Unfit("global_batch", job.global_batch).but(
            f"torch's 1F1B needs at least pp micro-batches ({job.pp}), not {batches}",
            f"global_batch = {job.pp * job.micro_batch * job.dp}",
        )
    rounds = max(1, batches // job.pp)
    if job.virtual > 1 and batches % rounds:
        raise Unfit("global_batch", job.global_batch).but(
            f"torch's interleaved 1F1B needs micro-batches ({batches}) in {rounds} equal rounds",
            f"global_batch = {rounds * job.pp * job.micro_batch * job.dp}",
        )
    return {
        "pipeline_parallel_degree": job.pp,
        "pipeline_parallel_schedule": "1F1B" if job.virtual == 1 else "Interleaved1F1B",
        "pipeline_parallel_microbatch_size": job.micro_batch,
        "module_fqns_per_model_part": stage_modules(job),
    }


def stage_modules(job: TrainingJob) -> list[list[str]]:
    """Return the names of every (virtual) stage's modules, in the order that a sample passes them.

    Part k is on pipeline rank k % pp in torchtitan's looped schedules, as in Megatron's.
    """
    parts = []
    for start, stage in zip(job.pipeline.starts, job.stages, strict=True):
        layers = [f"layers.{i}" for i in range(start, start + stage.layers)]
        first = ["tok_embeddings"] if stage.embedding else []
        parts.append([*first, *layers, *(["norm", "output"] if stage.loss else [])])
    return parts


def _recompute(job: TrainingJob, notes: list[str]) -> dict[str, Value]:
    """Return the activation checkpointing that recomputes just what the plan does."""
    r = job.settings.recompute
    if r.distribute:
        raise Unfit("settings.recompute.distribute", "true").but(
            f"{TOOL} does not divide kept inputs; with tensor parallelism they are divided already",
            "distribute = false",
        )
    if r.granularity == "none":
        return {"mode": "none"}
    if r.granularity == "selective":
        if more := [m for m in r.modules if m != "core_attn"]:
            raise Unfit("settings.recompute.modules", " ".join(r.modules)).but(
                f"{TOOL} cannot recompute {' '.join(more)} alone",
                "granularity = full, or modules = core_attn",
            )
        notes.append(
            "settings.recompute: core_attn; torch's fused attention never keeps the scores, so "
            "that nothing is left to recompute"
        )
        return {"mode": "none"}
    most = max(stage.layers for stage in job.stages)
    if (r.method == "uniform" and r.layers <= 1) or (r.method == "block" and r.layers >= most):
        return {"mode": "full"}
    if r.method == "uniform":
        raise Unfit("settings.recompute.layers", r.layers).but(
            f"{TOOL} keeps the input of every recomputed layer", "method = uniform, layers = 1"
        )
    raise Unfit("settings.recompute.layers", r.layers).but(
        f"{TOOL} recomputes all layers or every n-th, not the first of each stage",
        f"granularity = none, or layers = {most}",
    )


def _note_differences(job: TrainingJob, notes: list[str]) -> None:
    """Say what torchtitan does otherwise, so that nobody takes the plan's bytes for its own."""
    s = job.settings
    if job.padded_vocab != job.model.vocab:
        notes.append(
            f"settings.vocab_multiple: {s.vocab_multiple}; torchtitan does not pad the vocabulary "
            f"({job.model.vocab}, not {job.padded_vocab})"
        )
    if s.optimizer.gradient != 4:
        notes.append(
            f"settings.optimizer.gradient: {s.optimizer.gradient} bytes; torchtitan adds gradients "
            "up in 4"
        )
    if s.optimizer.offload:
        notes.append(
            "settings.optimizer.offload: torchtitan moves parameters and gradients to the host too"
        )
    if s.optimizer.overlap_offload:
        notes.append(
            "settings.optimizer.overlap_offload: true; not written: torchtitan orders copies and "
            "steps itself"
        )
    notes.append(
        "the plan's seconds and bytes are for Megatron's kernels and buffers; torchtitan's differ"
    )


def _toml(tables: Tables, head: list[str]) -> str:
    """Return TOML text; JSON's strings, numbers and booleans are TOML's as well."""
    lines = commented(head)
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        for key, value in values.items():
            if isinstance(value, list):
                rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
                lines.append(f"{key} = [\n{rows},\n]")
            else:
                lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
