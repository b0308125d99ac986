"""torchtitan's TOML, as its release 0.2.2 reads it, the last one that is configured by TOML.

Later releases are configured by Python (`torchtitan.config` of 0.3.0 has no file reader). The names
are those of `torchtitan/config/job_config.py`; `spaces/runtimes/torchtitan.py` has the jobs that it
runs.

A model that torchtitan has no flavor of comes with a module that registers it
(`experimental.custom_import`), built from torchtitan's own classes.
"""

import json

from ilp_planner.formats.exported import Expected, Exported, commented, describe, module_name
from ilp_planner.settings.keys import said
from ilp_planner.spaces.runtimes.limits import TORCH_SCHEDULES, check_order
from ilp_planner.spaces.runtimes.torchtitan import RUNTIME, TOOL, alone, check_torchtitan
from ilp_planner.spaces.runtimes.torchtitan_models import Arguments, TitanModel, titan_model
from ilp_planner.spaces.runtimes.torchtitan_releases import is_compiled, shared_differences
from ilp_planner.specs.training import OPERATORS, TrainingJob


def stage_modules(job: TrainingJob, *, output: str) -> list[list[str]]:
    """Return the names of every (virtual) stage's modules, in the order that a sample passes them.

    Part k is on pipeline rank k % pp in torchtitan's looped schedules, as in Megatron's.

    Parameters
    ----------
    output: a release's name of the product with the vocabulary.
    """
    parts = []
    for start, stage in zip(job.pipeline.starts, job.stages, strict=True):
        layers = [f"layers.{i}" for i in range(start, start + stage.layers)]
        first = ["tok_embeddings"] if stage.embedding else []
        parts.append([*first, *layers, *(["norm", output] if stage.loss else [])])
    return parts


TOML_RUNTIME = RUNTIME  # whose jobs these tables say
Value = bool | int | str | list[str] | list[list[str]]
Tables = dict[str, dict[str, Value]]
CLASSES = {
    "llama3": "TransformerModelArgs",
    "qwen3": "Qwen3ModelArgs",
    "deepseek_v3": "DeepSeekV3ModelArgs",
}


def export_torchtitan(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the configuration of a run.

    Parameters
    ----------
    name: of the run, and of its files without their ends.

    Raises
    ------
    PlanError: a setting that torchtitan cannot run, with its limit and the nearest possible value.
    """
    tables, model, notes = tables_of(job, name)
    files = registered(tables, model, name, notes)
    notes += [*model.notes, *shared_differences(job)]
    return Exported({".toml": toml_text(tables, job, name, notes), **files}, tuple(notes))


def registered(
    tables: Tables, model: TitanModel, name: str, notes: list[str], trained_by: str = ""
) -> dict[str, str]:
    """Name a model in the tables and notes that is no flavor of torchtitan, and return the file
    that registers it; no file for a flavor. trained_by: as `model_module` takes it."""
    if not model.arguments:
        return {}
    identifier = f"{module_name(name)}_model"
    tables["model"] |= {"name": identifier, "flavor": "planned"}
    tables["experimental"] = {"custom_import": identifier}
    notes.append(
        f"model: none of torchtitan's own flavors; {identifier}.py registers it and must be "
        "on PYTHONPATH"
    )
    return {"_model.py": model_module(model, identifier, trained_by)}


def tables_of(job: TrainingJob, name: str) -> tuple[Tables, TitanModel, list[str]]:
    """Return the tables of a configuration, its model, and notes.

    Raises
    ------
    PlanError: a setting that torchtitan cannot run, with its limit and the nearest possible value.
    """
    check_torchtitan(job)
    notes = list(check_order(job, TOOL))
    model = titan_model(job)
    checkpoint = _recompute(job, notes)
    sharding = _sharding(job, notes)
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
        "compile": {"enable": is_compiled(job)},
    }
    if job.settings.quantised:
        converter, table = _quantised(job, notes)
        tables["model"]["converters"] = [converter]
        tables[converter] = table
    return tables, model, notes


def _degrees(job: TrainingJob) -> dict[str, Value]:
    s, own = job.settings, said(job.settings, RUNTIME, "parallelism")
    names = ["context_parallel_degree", "expert_parallel_degree", "enable_async_tensor_parallel"]
    if s.cp > 1:
        names.append("context_parallel_rotate_method")
    degrees: dict[str, Value] = {"tensor_parallel_degree": job.tp}
    degrees |= {name: own[name] for name in names}
    if s.ep > 1:
        degrees["expert_tensor_parallel_degree"] = job.expert_tp
    return degrees


def _quantised(job: TrainingJob, notes: list[str]) -> tuple[str, dict[str, Value]]:
    """Return the converter of the layers' products, and its table.

    torchao scales by the current maximum, gradients in e5m2 (`float8`), or by blocks (`mx`).
    """
    kernels = job.settings.kernels
    recipe = kernels.quantised
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
    return said(job.settings, RUNTIME, "model")["converters"], table


def _sharding(job: TrainingJob, notes: list[str]) -> dict[str, Value]:
    """Return how data-parallel ranks share states; FSDP or plain replicas."""
    optimizer = job.settings.optimizer
    if alone(job):
        return {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 1}
    if optimizer.sharding == "none":
        return {"data_parallel_replicate_degree": job.dp, "data_parallel_shard_degree": 1}
    if optimizer.sharding == "optimizer":
        notes.append(
            "settings.optimizer.sharding: optimizer; torchtitan's FSDP shards gradients and FP32 "
            "parameters as well and keeps gathered BF16 parameters between forward and backward"
        )
    policy = "fsdp_reshard_after_forward"
    return {
        "data_parallel_replicate_degree": optimizer.instances,
        "data_parallel_shard_degree": job.dp // optimizer.instances,
        policy: said(job.settings, RUNTIME, "parallelism")[policy],
    }


def _pipeline(job: TrainingJob) -> dict[str, Value]:
    """Return the schedule and the exact place of every module."""
    if job.pp == 1:
        return {"pipeline_parallel_degree": 1}
    return {
        "pipeline_parallel_degree": job.pp,
        "pipeline_parallel_schedule": TORCH_SCHEDULES[job.schedule.name],
        "pipeline_parallel_microbatch_size": job.micro_batch,
        "module_fqns_per_model_part": stage_modules(job, output="output"),
    }


def _recompute(job: TrainingJob, notes: list[str]) -> dict[str, Value]:
    """Return the activation checkpointing that recomputes just what the plan does."""
    recompute = job.settings.recompute
    if OPERATORS in recompute.modules:
        return {"mode": "selective", "selective_ac_option": "op"}
    if recompute.granularity == "selective":
        notes.append(
            "settings.recompute: core_attn; torch's fused attention never keeps the scores, so "
            "that nothing is left to recompute"
        )
    return {"mode": "full" if recompute.granularity == "full" else "none"}


def toml_text(tables: Tables, job: TrainingJob, name: str, notes: list[str]) -> str:
    """Return TOML text; JSON's strings, numbers and booleans are TOML's as well."""
    about = [f"{TOOL}: {name}", *describe(job, engine=False)]
    lines = commented([*about, *(f"note: {n}" for n in notes)])
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        for key, value in values.items():
            if isinstance(value, list):
                rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
                lines.append(f"{key} = [\n{rows},\n]")
            else:
                lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


# ---- the module that registers a model -----------------------------------------------------------


def model_module(model: TitanModel, identifier: str, trained_by: str = "") -> str:
    """Return the Python module that registers a model with torchtitan. trained_by: the module whose
    parallelization it has; empty: the model's own."""
    names = CLASSES[model.name]
    values = dict(model.arguments)
    experts = values.pop("moe_args", None)
    if (ffn := values.pop("ffn", None)) is not None:
        values |= _llama_width(int(str(values["dim"])), int(str(ffn)))
    lines = [f"    {key}={value!r},\n" for key, value in values.items()]
    imports = [
        f"from torchtitan.models.{model.name} import {names}, get_train_spec\n"
        if not trained_by
        else f"from {trained_by} import get_train_spec\n"
        f"from torchtitan.models.{model.name} import {names}\n",
        "from torchtitan.protocols.train_spec import register_train_spec\n",
    ]
    if isinstance(experts, dict):
        imports.insert(1, "from torchtitan.models.moe import MoEArgs\n")
        inner = {**experts, "score_func": "softmax", "route_norm": True}
        inner["score_before_experts"] = False
        lines.append(
            f"    moe_args=MoEArgs({', '.join(f'{k}={v!r}' for k, v in inner.items())}),\n"
        )
    return (
        f'"""The model of a plan, for {TOOL}; imported through experimental.custom_import."""\n\n'
        "from dataclasses import replace\n\n"
        f"{''.join(imports)}\n"
        f"PLANNED = {names}(\n{''.join(lines)})\n\n"
        f"register_train_spec({identifier!r}, "
        'replace(get_train_spec(), model_args={"planned": PLANNED}))\n'
    )


def _llama_width(dim: int, ffn: int) -> Arguments:
    """Return the values that make llama3's `FeedForward` exactly so wide.

    It takes 2/3 of 4 dim times the multiplier, rounded down and then up to a multiple.
    """
    return {"ffn_dim_multiplier": ffn / int(8 * dim / 3), "multiple_of": ffn}
