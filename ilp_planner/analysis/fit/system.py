"""The training system that a job is judged by, as its options or its file imply it.

One rule for all commands. Spaces are imported where another system than Megatron-LM is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError, SpecError
from ilp_planner.formats.nearest_run import differences
from ilp_planner.job.shard import eager
from ilp_planner.settings.job_options import of_others
from ilp_planner.settings.values import BY_TRAINER, MOMENTS, by_peft_trained
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.spaces.training.enumerate.untold import as_it_does, untold
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.spaces.training.space import MegatronSpace
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


def system_of(job: TrainingJob, cluster: ClusterSpec, own: str = "", *, line: bool) -> Chosen:
    """Return the system that a job is judged by: its own, if it is of a file of that; that which
    its options imply; and of a launch line Megatron-LM, but for settings of others.

    Parameters
    ----------
    own: one of `RUNTIMES`, of a job that is said in its keys; empty: none.
    line: a launch line says the job, and not options.
    """
    if own:
        return runtime_of(job, cluster, own)
    others = MOMENTS.read(job.settings) in BY_TRAINER or job.settings.tuning.adapters or eager(job)
    return Chosen(job) if line and not others else runtime_for(job, cluster)


def runtime_for(job: TrainingJob, cluster: ClusterSpec) -> Chosen:
    """Return the system that judges a job: Megatron-LM if it can train the model, else that one
    which runs the job with the fewest settings otherwise, the first of several."""
    try:
        check_model(job.model)
    except SpecError as error:
        head = f"Megatron-LM cannot train the model ({error})"
    else:
        tuning = job.settings.tuning
        if tuning.base:
            found = "a base in 4 bits"
        elif tuning.adapters:
            found = f"adapters named {tuning.targets[0]}"
        elif found := of_others(job.settings):
            pass
        elif eager(job):
            found = "layers as transformers has them"
        else:
            return Chosen(job)
        head = f"Megatron-LM has not {found}"
    newest = (name for name in RUNTIMES if "@" not in name and name != MEGATRON.name)
    spaces = [*map(space_of_runtime, newest)]
    able = [(space, *said) for space in spaces if (said := _tried(space.runtime, job, cluster))]
    if not able:
        names = " nor ".join(space.runtime.title for space in spaces)
        return Chosen(job, note=f"{head}, and neither {names} can: its times are not known")
    running = [(space, own) for space, own, refusal in able if not refusal]
    options = " or ".join(f"`space={space.name}`" for space, *_ in running or able)
    if running:
        space, own = min(running, key=lambda one: len([*differences(job, one[1])]))
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


def runtime_of(job: TrainingJob, cluster: ClusterSpec, name: str) -> Chosen:
    """Return a training system as the judge of a job of its own.

    name: one of `RUNTIMES`.
    """
    space = space_of_runtime(name)
    title, tried = space.runtime.title, _tried(space.runtime, job, cluster)
    if tried is None:
        return Chosen(job, note=f"{title} cannot train the model: its times are not known")
    own, refusal = tried
    if refusal:
        return Chosen(job, note=f"{title} does not run this job: {refusal}; times are not known")
    return Chosen(own, space, f"judged as {title} runs it")


def space_of_runtime(name: str) -> MegatronSpace:
    """Return the space of a training system. name: one of `RUNTIMES`."""
    from ilp_planner.spaces.training.space import MegatronSpace

    runtime = runtime_named(name)
    spaces: tuple[type[MegatronSpace], ...] = (MegatronSpace, *MegatronSpace.__subclasses__())
    return next(space for space in spaces if space.runtime is runtime)()


def _tried(
    runtime: Runtime, job: TrainingJob, cluster: ClusterSpec
) -> tuple[TrainingJob, str] | None:
    """Return a job as a training system runs it, if the settings that it lacks are as usual, and
    why it does not run it, empty if it does; None if it cannot even train the model."""
    kernels, precision = job.settings.kernels, job.settings.precision
    try:
        plain = runtime.settings(job.model, precision, cluster, kernels.quantised)
        trained = job.settings.by_trainer
        runtime.check_model(job.model, by_peft_trained(plain) if trained else plain)
    except PlannerError:
        return None
    own = as_it_does(runtime, job, plain, usual=USUAL)
    made = runtime.search_of("batching").demandable
    if job.batching and job.batching not in made:
        return own, f"batching: found {job.batching}, expected {' or '.join(made)}"
    refused = (*runtime.refusals(own), *map(str, untold(runtime, own, plain)))
    return own, next(iter(refused), "")
