"""The training system that judges a job of options, if Megatron-LM cannot train its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError, SpecError
from ilp_planner.formats.nearest_run import differences
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.spaces.training.enumerate.untold import as_it_does, untold
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob


USUAL = Settings()  # of a job that says no more


class Chosen(NamedTuple):
    """The space of the system that runs a job; None: nothing does, so that its times are not known.
    job: with the system's own behaviour for settings that it lacks. note: on that; empty if
    Megatron-LM can train the model and judges it."""

    job: TrainingJob
    space: MegatronSpace | None = None
    note: str = ""


def runtime_for(job: TrainingJob, cluster: ClusterSpec) -> Chosen:
    """Return the system that judges a job: Megatron-LM if it can train the model, else the first
    training system that runs the job."""
    try:
        check_model(job.model)
    except SpecError as error:
        head = f"Megatron-LM cannot train the model ({error})"
    else:
        return Chosen(job)
    spaces = [_space_of(name) for name in RUNTIMES if "@" not in name and name != MEGATRON.name]
    able = [(space, *said) for space in spaces if (said := _tried(space.runtime, job, cluster))]
    if not able:
        names = " nor ".join(space.runtime.title for space in spaces)
        return Chosen(job, note=f"{head}, and neither {names} can: its times are not known")
    options = " or ".join(f"`space={space.name}`" for space, *_ in able)
    for space, own, refusal in able:
        if not refusal:
            judged = f"judged as {space.runtime.title} runs it"
            if others := ", ".join(differences(job, own)):
                judged += f" ({others})"
            return Chosen(own, space, f"{head}: {judged}; `solve` with {options} plans it")
    (space, _, refusal), *_ = able
    title = space.runtime.title
    return Chosen(
        job,
        note=f"{head}; {title} can, but does not run this job: {refusal}; `solve` with {options} "
        "finds one that it runs",
    )


def _space_of(name: str) -> MegatronSpace:
    """Return the space of a training system."""
    runtime = runtime_named(name)
    return next(space for space in MegatronSpace.__subclasses__() if space.runtime is runtime)()


def _tried(
    runtime: Runtime, job: TrainingJob, cluster: ClusterSpec
) -> tuple[TrainingJob, str] | None:
    """Return a job as a training system runs it, if the settings that it lacks are as usual, and
    why it does not run it, empty if it does; None if it cannot even train the model."""
    kernels, precision = job.settings.kernels, job.settings.precision
    try:
        plain = runtime.settings(job.model, precision, cluster, kernels.quantised)
        runtime.check_model(job.model, plain)
    except PlannerError:
        return None
    own = as_it_does(runtime, job, plain, usual=USUAL)
    refused = (*runtime.refusals(own), *map(str, untold(runtime, own, plain)))
    return own, next(iter(refused), "")
