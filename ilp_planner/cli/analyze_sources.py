"""What `ilp-plan analyze` was given, analysed: options, a launch line or a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.cli.analyze_inputs import device_memory, one_source, read_cluster_named

if TYPE_CHECKING:
    import typer

    from ilp_planner.analysis import Analysis
    from ilp_planner.analysis.devices import Devices
    from ilp_planner.report.analysis_judged import Judged
    from ilp_planner.specs.training import TrainingJob


def read_analysis(ctx: typer.Context) -> Analysis | Judged:
    """Analyse what was asked for; of a plan that is no training job, judge it.

    Raises
    ------
    PlannerError: what cannot be read or cannot be, and the value that would repair it.
    """
    asked = ctx.params
    source = one_source(ctx)
    spec = read_cluster_named(asked["cluster"])
    limit, notes = device_memory(asked["device_memory"])
    if source == "plan_file":
        from ilp_planner.cli.analyze_plan import analysis_of_plan

        return analysis_of_plan(
            asked["plan_file"], spec, limit, notes, changed=asked["accept_changed"]
        )
    from ilp_planner.analysis.devices import devices_of

    devices = devices_of(spec, limit)
    devices = replace(devices, notes=(*notes, *devices.notes))
    if source == "model":
        from ilp_planner.cli.analyze_job import job_of_options

        return _analysis(*job_of_options(asked, devices), devices)
    from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
    from ilp_planner.formats.megatron.notes import unmodelled

    world = asked["world_size"]
    if source == "megatron_args":
        arguments = read_arguments(asked["megatron_args"], world=world, source="--megatron-args")
        name = "--megatron-args"
    else:
        from ilp_planner.formats.megatron.script import read_script

        arguments = read_script(asked["megatron_script"], world=world)
        name = asked["megatron_script"].name
    job = job_of_arguments(arguments)
    per_node = asked["devices_per_node"] or (devices.per_node if spec else job.devices_per_node)
    job = replace(job, devices_per_node=per_node, generation=devices.generation)
    return _analysis(job, f"the model of {name}", unmodelled(arguments), devices)


def _analysis(job: TrainingJob, name: str, notes: tuple[str, ...], devices: Devices) -> Analysis:
    """Analyse a job. notes: on what was assumed."""
    from ilp_planner.analysis import analyze

    notes += devices.notes
    if devices.count and job.world > devices.count:
        notes += (f"the job needs {job.world} GPUs, the cluster has {devices.count}",)
    return analyze(job, name=name, limit=devices.memory, device=devices.name, notes=notes)
