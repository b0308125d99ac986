"""Limits of a job, and differences from a plan, that both releases of torchtitan share."""

from collections.abc import Iterator

from ilp_planner.spaces.runtimes.limits import Unfit, unlike_moments
from ilp_planner.specs.training import TrainingJob


def is_compiled(job: TrainingJob) -> bool:
    """Tell whether torchtitan compiles layers: its async tensor parallelism is a pass of the
    compiler, and needs it (`maybe_enable_async_tp` of 0.2.2; `CompileConfig` of 0.3.0)."""
    return job.settings.kernels.compiled or job.settings.overlap_tensor


def _compile_notes(job: TrainingJob) -> Iterator[str]:
    """Yield effects of torchtitan's compiled layers that a plan's figures lack."""
    if job.settings.overlap_tensor and not job.settings.kernels.compiled:
        yield (
            "settings.overlap_tensor: by torch.compile with async tensor parallelism, which "
            "compiles every layer as well"
        )
    if is_compiled(job):
        yield (
            "settings.kernels.compiled: what torch.compile makes of the loss is in neither the "
            "plan's seconds nor its bytes"
        )


def check_shared_states(job: TrainingJob, tool: str, optimizers: str) -> None:
    """Refuse optimisers, shares of states and precisions that neither release has.

    optimizers: those that it has, as a clause.

    Raises
    ------
    PlanError: names the setting.
    """
    s, optimizer = job.settings, job.settings.optimizer
    if optimizer.name not in ("adam", "adamw"):
        raise Unfit("settings.optimizer.name", optimizer.name).but(optimizers, "name = adam")
    if 0 < optimizer.offload < 1:
        raise Unfit("settings.optimizer.offload", optimizer.offload).but(
            f"{tool} offloads all states or none", f"offload = {round(optimizer.offload)}"
        )
    if s.precision == "fp16":
        raise Unfit("settings.precision", "fp16").but(
            f"{tool} has bf16 and fp32",
            f"precision = {'bf16' if job.gpu_architecture.bf16 else 'fp32'}",
        )


def shared_differences(job: TrainingJob) -> Iterator[str]:
    """Yield torchtitan's differences, so that nobody takes the plan's bytes for its own."""
    s = job.settings
    if job.padded_vocab != job.model.vocab:
        yield (
            f"settings.vocab_multiple: {s.vocab_multiple}; torchtitan does not pad the vocabulary "
            f"({job.model.vocab}, not {job.padded_vocab})"
        )
    if s.optimizer.gradient != 4:
        yield (
            f"settings.optimizer.gradient: {s.optimizer.gradient} bytes; torchtitan adds gradients "
            "up in 4"
        )
    yield from unlike_moments(job, "torchtitan")
    if s.optimizer.offload:
        yield (
            "settings.optimizer.offload: torchtitan moves parameters and gradients to the host too"
        )
    if s.optimizer.overlap_offload:
        yield (
            "settings.optimizer.overlap_offload: true; not written: torchtitan orders copies and "
            "steps itself"
        )
    yield from _compile_notes(job)
    yield "the plan's seconds and bytes are for Megatron's kernels and buffers; torchtitan's differ"
