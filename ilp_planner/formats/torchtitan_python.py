"""The Python configuration of a run, as torchtitan 0.3.0 reads it.

Since 0.3.0 torchtitan is configured by a module with a function that returns its `Trainer.Config`
(`torchtitan/config/manager.py`: `--module`, `--config`). The written code calls torchtitan's own
classes with literals: no text of a plan is ever part of the program.
"""

from dataclasses import dataclass

from ilp_planner.formats.exported import (
    Expected,
    Exported,
    commented,
    describe,
    module_name,
)
from ilp_planner.formats.torchtitan_python_models import (
    Literals,
    call,
    family_of,
    model_text,
)
from ilp_planner.formats.torchtitan_stages import stage_modules
from ilp_planner.spaces.runtimes.limits import TORCH_SCHEDULES
from ilp_planner.spaces.runtimes.torchtitan_python import (
    CONVERTERS,
    TOOL,
    check_runnable,
    differences,
    recomputes_all,
    replicas,
    takes_graphs,
)
from ilp_planner.spaces.runtimes.torchtitan_python_models import check_model
from ilp_planner.spaces.runtimes.torchtitan_releases import is_compiled
from ilp_planner.specs.training import OPERATORS, TrainingJob

FUNCTION = "planned"  # what `--config` names


def export_torchtitan_python(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the module that configures a run of this name, or raise a PlanError: a setting that
    torchtitan cannot run, with its limit and the nearest possible value."""
    check_model(job)
    check_runnable(job)
    notes = tuple(differences(job))
    head = commented(
        [
            f"{TOOL}: {name}",
            *describe(job),
            *(f"note: {note}" for note in notes),
            f"start: torchrun ... -m torchtitan.train --module {module_name(name)} --config "
            f"{FUNCTION} --hf_assets_path ... --dataloader.dataset ...",
        ]
    )
    text = "\n".join(head) + f"\n\n{_imports(job)}\n\n{model_text(job.model)}\n\n{_planned(job)}"
    return Exported({".py": text}, notes)


@dataclass(frozen=True, slots=True)
class Import:
    """Names of one module of torchtitan."""

    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"from torchtitan.{self.module} import {', '.join(self.names)}"


def _imports(job: TrainingJob) -> str:
    """Return the lines that import what the module calls."""
    family, experts = family_of(job.model), job.model.experts
    found = [
        Import("components.loss", ("CrossEntropyLoss",)),
        Import("components.optimizer", ("default_adamw",)),
        Import("config", ("CompileConfig", "ParallelismConfig", "TrainingConfig")),
        Import("hf_datasets.text_datasets", ("HuggingFaceTextDataLoader",)),
        Import("models.common", (family.rope, "Embedding", "Linear", "RMSNorm")),
        Import("models", (f"{family.folder} as family",)),
        Import("trainer", ("Trainer",)),
    ]
    if experts and experts.shared_ffn and not job.model.latent:
        found.append(Import("models.common.config_utils", ("make_ffn_config",)))
    if job.model.tied:
        found.append(Import("models.common.param_init", ("skip_param_init",)))
    if policy := _policy(job):
        found.append(Import("distributed.activation_checkpoint", (policy,)))
    if job.settings.quantised:
        found.append(
            Import("components.quantization", (CONVERTERS[job.settings.kernels.quantised],))
        )
    lines = sorted(map(str, found))
    return "\n".join(["from dataclasses import replace", "", *lines, ""])


def _planned(job: TrainingJob) -> str:
    """Return the function that `--config` names."""
    s = job.settings
    policy = _policy(job)
    checkpoint = f"{policy}.Config()" if policy else "None"
    return (
        f"def {FUNCTION}() -> Trainer.Config:\n"
        "    config = model()\n"
        f"{_quantised(job)}"
        '    spec = family.model_registry("debugmodel")\n'
        "    return Trainer.Config(\n"
        '        model_spec=replace(spec, flavor="planned", model=config),\n'
        f"        loss=CrossEntropyLoss.Config(global_vocab_size={job.model.vocab}),\n"
        "        optimizer=default_adamw(),\n"
        "        dataloader=HuggingFaceTextDataLoader.Config(),\n"
        f"        training={call('TrainingConfig', _training(job), 8)},\n"
        f"        parallelism={call('ParallelismConfig', _parallelism(job), 8)},\n"
        f"        activation_checkpoint={checkpoint},\n"
        f"        compile=CompileConfig(enable={is_compiled(job)!r}, "
        f"enable_async_tensor_parallel={s.overlap_tensor!r}),\n"
        "    )\n"
    )


def _training(job: TrainingJob) -> Literals:
    s = job.settings
    return {
        "seq_len": job.model.sequence,
        "local_batch_size": job.micro_batch * (job.micro_batches if job.pp > 1 else 1),
        "global_batch_size": job.global_batch,
        "dtype": "float32",
        "mixed_precision_param": "float32" if s.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": s.optimizer.offload > 0,
        "disable_cuda_graphs": not takes_graphs(job),
    }


def _parallelism(job: TrainingJob) -> Literals:
    """Return degrees, sharding of states, schedule, and the place of every module."""
    s, optimizer = job.settings, job.settings.optimizer
    found: dict[str, object] = {
        "data_parallel_replicate_degree": replicas(job),
        "data_parallel_shard_degree": job.dp // replicas(job),
        "fsdp_reshard_after_forward": "always" if optimizer.sharding == "parameters" else "never",
        "tensor_parallel_degree": job.tp,
        "enable_sequence_parallel": s.sequence_parallel,
        "context_parallel_degree": s.cp,
        "expert_parallel_degree": s.ep,
        "pipeline_parallel_degree": job.pp,
    }
    if job.pp > 1:
        found |= {
            "pipeline_parallel_schedule": TORCH_SCHEDULES[job.schedule.name],
            "pipeline_parallel_microbatch_size": job.micro_batch,
            "module_fqns_per_model_part": stage_modules(job, output="lm_head"),
        }
    return found


def _policy(job: TrainingJob) -> str:
    """Return the class of the policy that recomputes as the plan does; empty for nothing."""
    if OPERATORS in job.settings.recompute.modules:
        return "SelectiveAC"
    return "FullAC" if recomputes_all(job) else ""


def _quantised(job: TrainingJob) -> str:
    """Return the lines that swap the products of layers for quantised ones."""
    kernels = job.settings.kernels
    if not kernels.quantised:
        return ""
    last = job.model.layers - kernels.exact_last
    names = [f"layers.{layer}." for layer in range(kernels.exact_first, last)]
    words = f"fqns={names!r}, model_compile_enabled={is_compiled(job)!r}"
    made = f"{CONVERTERS[kernels.quantised]}.Config({words}).build()"
    return f"    config = {made}.convert(config)\n"
