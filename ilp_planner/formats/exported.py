"""The result of an exporter: the files of a run, and their omissions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ilp_planner.base.units import counted
from ilp_planner.job.quantised import recipe_variables
from ilp_planner.specs.pipeline_layout import write_layout
from ilp_planner.specs.training import TrainingJob

# What AMD's Primus 26.5.1 sets for every job (`runner/helpers/envs/base_env.sh`): few hardware
# queues, copies by the DMA engines, scratch memory that stays (jobs with experts crash without),
# streams of RCCL that go first, and the backward attention of Composable Kernel that it measures.
# RCCL reads the names of NCCL, and Megatron itself asks for CUDA_DEVICE_MAX_CONNECTIONS.
ROCM = {
    "GPU_MAX_HW_QUEUES": "2",
    "HSA_ENABLE_SDMA": "1",
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    "NVTE_CK_USES_BWD_V3": "1",
}


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of one run in another tool's words.

    files: text by the suffix after the run's name, the main file first. notes: differences of the
    tool from the plan, one line each.
    """

    files: dict[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expectations of a run before it starts.

    iteration: seconds. memory: peak bytes of every pipeline rank. hosts: names of the nodes by node
    rank; empty: any. ordered: the plan tells its nodes apart. vendor: of the GPUs; empty: unknown.
    model: its name at Hugging Face; empty: unknown.
    """

    iteration: float | None = None
    memory: tuple[float, ...] = ()
    hosts: tuple[str, ...] = ()
    ordered: bool = False
    vendor: str = ""
    model: str = ""


def file_name(name: str, suffix: str) -> str:
    """Return the name of one of a run's files; that of Python can be imported."""
    return (module_name(name) if suffix.endswith(".py") else name) + suffix


def module_name(name: str) -> str:
    """Return the name with nothing but letters, digits and underscores."""
    return re.sub(r"\W", "_", name)


def unlike_torch(job: TrainingJob, tool: str) -> Iterator[str]:
    """Yield differences of a tool from PyTorch's FSDP and DTensor, the plan's own system."""
    if job.settings.optimizer.from_master:
        yield (
            f"settings.optimizer.from_master: true; {tool} keeps parameters in the training "
            "precision beside the master copy"
        )
    if job.settings.keeps_gathered and job.settings.sequence_parallel and job.tp > 1:
        yield (
            f"settings.keeps_gathered: true; {tool} gathers the inputs of products again in the "
            "backward pass"
        )


def describe(job: TrainingJob, *, engine: bool | None = None) -> tuple[str, ...]:
    """Return a description of the run, for the head of a file.

    engine: the variables that the run needs are said, as `rocm_variables` has them; None: they are
    not, as that file or another one sets them.
    """
    s = job.settings
    degrees = f"tp {job.tp}, cp {s.cp}, ep {s.ep}, dp {job.dp}, pp {job.pp}"
    batches = f"{counted(job.micro_batches, 'micro-batch')} of {job.micro_batch} per replica"
    layout = write_layout(job.pipeline)
    if len(layout) > 80:
        counts = [stage.layers for stage in job.stages]
        layout = f"{len(counts)} stages of {min(counts)} to {max(counts)} layers"
    return (
        f"{counted(job.world, 'device')}: {degrees}",
        f"global batch {job.global_batch}: {batches}",
        f"pipeline {layout}",
        *(() if engine is None else environment_lines(job, engine=engine)),
    )


def rocm_variables(job: TrainingJob, *, engine: bool) -> dict[str, str]:
    """Return the variables that a run needs set on AMD's GPUs; nothing on others.

    engine: Transformer Engine runs it, which has variables of its own.
    """
    if job.gpu_architecture.vendor != "AMD":
        return {}
    found = {name: value for name, value in ROCM.items() if engine or not name.startswith("NVTE_")}
    return found | recipe_variables(job) if engine else found


def environment_lines(job: TrainingJob, *, engine: bool) -> tuple[str, ...]:
    """Return the same as one line of words, for a file that sets no variables."""
    words = [f"{name}={value}" for name, value in rocm_variables(job, engine=engine).items()]
    return (f"environment: {' '.join(words)}",) if words else ()


def commented(lines: list[str]) -> list[str]:
    """Return comment lines of TOML and YAML, with any characters in names."""
    return [f"# {' '.join(line.split())}" for line in lines]
