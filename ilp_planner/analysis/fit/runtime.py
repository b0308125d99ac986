"""The training system that judges a job of options, where Megatron-LM cannot train its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.errors import PlannerError, SpecError
from ilp_planner.spaces.megatron.runtime import MEGATRON
from ilp_planner.spaces.megatron.space import MegatronSpace
from ilp_planner.spaces.megatron.unfit import check_model
from ilp_planner.spaces.registry import RUNTIMES, runtime_named

if TYPE_CHECKING:
    from ilp_planner.spaces.megatron.runtime import Runtime
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob


class Chosen(NamedTuple):
    """The space of what runs a job; None: nothing does, so that its times are not known. note: what
    to say of that; empty where Megatron-LM can train the model, by whose rules it is judged."""

    space: MegatronSpace | None = None
    note: str = ""


def runtime_for(job: TrainingJob, cluster: ClusterSpec) -> Chosen:
    """Return what a job is judged by: Megatron-LM if it can train the model, else the first
    training system that runs the job."""
    try:
        check_model(job.model)
    except SpecError as error:
        head = f"Megatron-LM cannot train the model ({error})"
    else:
        return Chosen()
    spaces = [_space_of(name) for name in RUNTIMES if "@" not in name and name != MEGATRON.name]
    refusals = [(space, _refusal(space.runtime, job, cluster)) for space in spaces]
    able = [(space, refusal) for space, refusal in refusals if refusal is not None]
    if not able:
        names = " nor ".join(space.runtime.title for space in spaces)
        return Chosen(note=f"{head}, and neither {names} can: its times are not known")
    options = " or ".join(f"`space={space.name}`" for space, _ in able)
    for space, refusal in able:
        if not refusal:
            judged = f"judged as {space.runtime.title} runs it"
            return Chosen(space, f"{head}: {judged}; `solve` with {options} plans it")
    (space, refusal), *_ = able
    title = space.runtime.title
    return Chosen(
        note=f"{head}; {title} can, but does not run this job: {refusal}; `solve` with {options} "
        "finds one that it runs"
    )


def _space_of(name: str) -> MegatronSpace:
    """Return the space of what a training system runs."""
    runtime = runtime_named(name)
    return next(space for space in MegatronSpace.__subclasses__() if space.runtime is runtime)()


def _refusal(runtime: Runtime, job: TrainingJob, cluster: ClusterSpec) -> str | None:
    """Return why a training system does not run a job, empty where it does; None where it cannot
    even train the model."""
    kernels, precision = job.settings.kernels, job.settings.precision
    try:
        plain = runtime.settings(job.model, precision, cluster, kernels.quantised)
        runtime.check_model(job.model, plain)
    except PlannerError:
        return None
    return next(runtime.refusals(job), "")
