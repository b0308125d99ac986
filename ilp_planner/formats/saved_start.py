"""From saved plans: the start of a search, and stages that plans must keep."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import space_of
from ilp_planner.formats.versions import OWN, versions
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.search.start import Start
from ilp_planner.settings.kept import KeptStage, shape_of

if TYPE_CHECKING:
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.inputs.constraints import Constraints


def read_start(path: Path) -> Start:
    """Read the start of a search.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    return start_of(read_saved(path), str(path))


def start_of(saved: SavedPlan, name: str) -> Start:
    """Return the start of a search.

    Parameters
    ----------
    name: of the file, for people.
    """
    claim = saved.claim
    return Start(
        name=name,
        plan=saved.plan,
        space=space_of(saved),
        seconds=math.nan if claim is None else claim.objective,
        request=saved.inputs,
        certificate=saved.certificate,
        why_unproved=_why_unproved(saved),
        ended=claim is not None and claim.stopped_by is Stop.PROOF,
        prefer_plain=math.nan if claim is None else claim.prefer_plain,
        fastest=None if claim is None or claim.fastest is None else claim.fastest.plan,
    )


def _why_unproved(saved: SavedPlan) -> str:
    """Return why bounds may be of other costs than today's: only one version of the planner is
    known to have them."""
    run = None if saved.claim is None else saved.claim.run
    there, here = None if run is None else run.versions.get(OWN), versions().get(OWN)
    if there is None:
        return f"it does not say which {OWN} proved any"
    return "" if there == here else f"{OWN} {there} there, {here} here"


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
