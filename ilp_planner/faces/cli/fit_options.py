"""Changes of the options of a job that describe another one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlannerError, SpecError
from ilp_planner.faces.cli.analyze_job import OPEN, UNSAID, job_of_options
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.changes import LineChange, as_said, line_change
from ilp_planner.formats.megatron.launch import runnable_arguments
from ilp_planner.settings.job_options import changed_options
from ilp_planner.specs.pipeline_layout import is_even, write_layout

if TYPE_CHECKING:
    from ilp_planner.analysis.devices import Devices
    from ilp_planner.specs.training import TrainingJob

# Options that are completed where they are not given.
COMPLETED = ("dp", "pp", "layout", "recompute", *reversed(OPEN))


def check_options(job: TrainingJob) -> None:
    """Refuse a job of options that Megatron-LM cannot run.

    Raises
    ------
    PlanError: the field of the job, the rule that it breaks, and a repair.
    """
    runnable_arguments(job)


def option_change(
    asked: dict[str, Any], devices: Devices, before: TrainingJob, after: TrainingJob
) -> LineChange | None:
    """Return the changes of options from one job to another one.

    The changed options are read again, and say that job. If no option does, the arguments of
    Megatron-LM's launch line are returned; None if none has it either.

    Parameters
    ----------
    asked: the parameters of the command. before: the job that they say.
    """
    try:
        launch = line_change(arguments_of_job(before), before, after)
    except SpecError:
        launch = None
    if launch is None:
        return None
    wanted = _values(after)
    if after.pipeline == before.pipeline:  # said in other words, perhaps
        wanted |= {name: asked[name] for name in ("layout", "virtual")}
    said = {n: wanted[n] for n in UNSAID if n in wanted and wanted[n] != asked[n]}
    if asked["world_size"] is not None and after.world != before.world:
        said["world_size"] = after.world

    def says_it(options: dict[str, Any]) -> bool:
        try:
            again, _, _ = job_of_options(asked | options, devices)
        except PlannerError:
            return False
        return as_said(again) == as_said(after)

    if not says_it(said):
        return replace(launch, language="Megatron-LM")
    for name in COMPLETED:  # what follows from the others needs no word
        others = {other: value for other, value in said.items() if other != name}
        if name in said and says_it(others):
            said = others
    add: list[str] = []
    drop = []
    for name, value in said.items():
        if value is True:
            add.append(option_of(name))
        elif value in (False, None):
            drop.append(option_of(name))
        else:
            add += [option_of(name), str(value)]
    return LineChange(
        add=tuple(add),
        drop=tuple(drop),
        gpus=after.world if after.world != before.world else 0,
    )


def _values(job: TrainingJob) -> dict[str, Any]:
    """Return the values of options that say a job, as far as there are such options."""
    again = job.settings.recompute
    even = is_even(job.pipeline, job.stages[-1].prediction_layers)
    full = again.granularity == "full"
    return {
        "tp": job.tp,
        "pp": job.pp,
        "dp": job.dp,
        "virtual": job.virtual if even else 1,
        "layout": None if even else write_layout(job.pipeline),
        "micro_batch": job.micro_batch,
        "recompute": again.granularity,
        "recompute_modules": ",".join(again.modules) or None,
        "recompute_method": again.method if full else None,
        "recompute_layers": again.layers if full else None,
        "distributed_optimizer": False,
        **changed_options(job.settings),
    }
