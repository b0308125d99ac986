"""What `ilp-plan analyze` was given, as training jobs: options, a launch line or a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.cli.analyze_inputs import Found, devices_of, one_source, read_cluster_named

if TYPE_CHECKING:
    import typer

    from ilp_planner.cli.analyze_inputs import Devices
    from ilp_planner.specs.training import TrainingJob


def read_job(ctx: typer.Context) -> Found:
    """Return what was asked for.

    Raises
    ------
    PlannerError: what cannot be read or cannot be, and the value that would repair it.
    """
    asked = ctx.params
    source = one_source(ctx)
    spec = read_cluster_named(asked["cluster"])
    devices = devices_of(spec, asked["device_memory"])
    if source == "model":
        from ilp_planner.cli.analyze_job import job_of_options

        job, name, notes = job_of_options(asked, devices)
        return _found(job, name, devices, notes)
    if source == "plan_file":
        from ilp_planner.cli.analyze_plan import jobs_of_plan

        return jobs_of_plan(asked, spec, devices)
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
    return _found(
        replace(job, devices_per_node=per_node, generation=devices.generation),
        f"the model of {name}",
        devices,
        unmodelled(arguments),
    )


def _found(job: TrainingJob, name: str, devices: Devices, notes: tuple[str, ...]) -> Found:
    notes += devices.notes
    if devices.count and job.world > devices.count:
        notes += (f"the job needs {job.world} GPUs, the cluster has {devices.count}",)
    return Found(
        jobs=(job,) * job.pp, name=name, limit=devices.memory, device=devices.name, notes=notes
    )
