"""Stages that plans must keep, from saved plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.settings.kept import KeptStage, shape_of

if TYPE_CHECKING:
    from ilp_planner.inputs.constraints import Constraints


def with_kept_stages(constraints: Constraints) -> Constraints:
    """Return constraints with the stages that they keep read from their plans.

    Raises
    ------
    PlanError, SpecError, UsageError: a file is no plan for a training system, or lacks the stage.
    """
    keep = (stage if stage.ranges else read_stage(stage) for stage in constraints.keep)
    return constraints.with_(keep=tuple(keep))


def read_stage(wanted: KeptStage) -> KeptStage:
    """Return a stage with the content of its saved plan.

    Raises
    ------
    PlanError, SpecError, UsageError: the file is no plan for a training system, or lacks the stage.
    """
    # Imported here: whoever keeps no stage needs no reader of plans.
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import model_and_cluster
    from ilp_planner.inputs.devices import usable_devices
    from ilp_planner.inputs.files import InputFiles, plan_folders
    from ilp_planner.plan import is_of_groups

    name, number = wanted.place
    path = Path(name)
    saved = read_saved(path)
    plan = saved.plan
    if not is_of_groups(plan) or plan.settings is None:
        raise UsageError(
            f"keep: found {path}, a plan that is for no training system, expected one of "
            "`space=megatron` or of another runtime"
        )
    if number >= plan.ranks:
        last = f" to stage{plan.ranks - 1}" if plan.ranks > 1 else ""
        raise UsageError(f"keep: found stage{number}, expected stage0{last}, which {path} has")
    model, cluster = model_and_cluster(saved, path)
    if model is None:
        raise UsageError(f"keep: found {path}, a plan without a model, expected one that names it")
    whole = InputFiles(saved.inputs, plan_folders(path)).whole_cluster
    numbers = usable_devices(whole, saved.inputs.constraints)
    job, rank = job_of_plan(plan, model, cluster), plan.stages[number]
    return replace(
        wanted,
        ranges=tuple((stage.start, stage.stop) for stage in plan.stages[number :: plan.ranks]),
        devices=tuple(tuple(numbers[d] for d in replica.devices) for replica in rank.replicas),
        tp=job.tp,
        cp=job.settings.cp,
        ep=job.settings.ep,
        etp=job.expert_tp if job.model.experts else 0,
        model=model.name,
        layers=job.model.layers,
        cluster=shape_of(whole),
    )
