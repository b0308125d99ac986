"""A saved plan as what `ilp-plan analyze` is to analyse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.cli.analyze_inputs import Found, decoder_of, devices_of
from ilp_planner.errors import PlanError, SpecError
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import model_and_cluster, problem_of
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.decoder import as_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ilp_planner.analysis.analyze import GroupKind
    from ilp_planner.cli.analyze_inputs import Devices
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def jobs_of_plan(asked: dict[str, Any], spec: ClusterSpec | None, devices: Devices) -> Found:
    """Return the jobs of a saved plan, or what its cost model says where it has none.

    Raises
    ------
    PlanError: it cannot be read, or its inputs are not what they were.
    """
    from ilp_planner.formats.megatron.plan import job_of_plan

    file: Path = asked["plan_file"]
    saved = read_saved(file)
    changed = asked["accept_changed"]
    model, cluster = model_and_cluster(saved, file, accept_changed=changed)
    if model is None or as_decoder(model.architecture) is None:
        named = f"the model is of the family {model.family}" if model else "the plan names no model"
        return judged(saved, file, named, changed=changed)
    cluster = spec or cluster
    typed = asked["device_memory"] is not None
    devices = devices_of(cluster, asked["device_memory"])
    found = Found(
        jobs=(), name=model.name, limit=devices.memory, device=devices.name, notes=devices.notes
    )
    try:
        job = job_of_plan(saved.plan, model, cluster)
    except PlanError as error:
        if is_of_groups(saved.plan):
            return placed_found(found, saved.plan, model, cluster, file, str(error), typed=typed)
        return judged(saved, file, str(error), changed=changed)
    return replace(
        found,
        jobs=(replace(job, devices_per_node=devices.per_node, generation=devices.generation),)
        * job.pp,
    )


def placed_found(
    found: Found,
    plan: GroupPlan,
    model: ModelSpec,
    cluster: ClusterSpec,
    file: Path,
    reason: str,
    *,
    typed: bool,
) -> Found:
    """Return a plan of whole layers stage by stage, on its own devices.

    Parameters
    ----------
    typed: the user says how much memory of a device may be used.
    """
    from ilp_planner.analysis.placed import placed_links, stage_jobs

    cp = plan.settings.cp if plan.settings else 1
    try:
        jobs = stage_jobs(plan, decoder_of(model, file), model.precision, cluster)
    except (PlanError, SpecError) as error:
        raise PlanError(f"{file}: {error}") from None
    notes = (*found.notes, f"no launch line says all of this plan: {reason}")
    if plan.settings is None:
        notes += (
            "the plan does not say how its ranks train: Adam with states on every replica, flash "
            "attention and no recomputation are assumed",
        )
    if any(len({replica.samples for replica in stage.replicas}) > 1 for stage in plan.stages):
        notes += ("replicas take different numbers of samples: the fullest of each stage is shown",)
    return replace(
        found,
        jobs=jobs,
        limits=() if typed else tuple(_limits(plan, cluster)),
        notes=tuple(note for note in notes if note not in found.notes or typed),
        placed=tuple(_kinds(plan, cluster, cp)),
        links=placed_links(plan, cluster, cp),
    )


def _limits(plan: GroupPlan, cluster: ClusterSpec) -> Iterator[float]:
    """Yield the memory of the smallest device of every stage, bytes."""
    for stage in plan.stages[: plan.ranks]:
        names = {cluster.type_of[device] for device in stage.devices}
        yield float(min(cluster.device_types[name].memory for name in names))


def _kinds(plan: GroupPlan, cluster: ClusterSpec, cp: int) -> list[GroupKind]:
    from ilp_planner.analysis.analyze import PURPOSES, GroupKind
    from ilp_planner.analysis.placed import device_names, link_of, placed_groups

    names = device_names(cluster)
    return [
        GroupKind(
            kind=f"stage {group.stage} {group.kind}",
            purpose=PURPOSES[group.kind],
            size=len(group.devices[0]),
            count=len(group.devices),
            link=link_of(cluster, group.devices),
            members=tuple(tuple(names[d] for d in devices) for devices in group.devices),
        )
        for group in placed_groups(plan, cp)
        if len(group.devices[0]) > 1
    ]


def judged(saved: SavedPlan, file: Path, reason: str, *, changed: bool) -> Found:
    """Return what the plan's own cost model says of its stages."""
    from ilp_planner.evaluate import evaluate
    from ilp_planner.report.analysis_judged import Judged, judged_stages

    problem = problem_of(saved, file, accept_changed=changed)
    evaluation = evaluate(problem, saved.plan)
    violations = evaluation.violations
    if not evaluation.stages:
        raise PlanError(f"{file}: plan: {violations[0] if violations else 'it cannot be priced'}")
    told = Judged(
        name=problem.model,
        costs=problem.costs.name,
        reason=reason,
        micro_batches=saved.plan.micro_batches,
        stages=tuple(judged_stages(saved.plan, evaluation.stages)),
        violations=tuple(map(str, violations)),
    )
    return Found(jobs=(), name=problem.model, judged=told)
