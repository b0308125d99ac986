"""The verb `analyze`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.analyze import analyze as analyze_job
from ilp_planner.api.check import Saved, is_layers
from ilp_planner.api.result import Result, need_plan
from ilp_planner.api.words import expect
from ilp_planner.errors import PlanError
from ilp_planner.specs.training import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.analysis.analyze import Analysis


def analyze(
    subject: TrainingJob | Result | Saved,
    *,
    name: str = "",
    limit: float | None = None,
    device: str = "",
    notes: Sequence[str] = (),
) -> Analysis:
    """Return what every rank of a training job or of a plan holds and sends.

    Parameters
    ----------
    subject: a job, a result, or what `load` returned.
    name: of the model, for people. limit: bytes of a device that may be used. device: its name.
        Of a plan, all three come from its problem unless they are said.

    Raises
    ------
    UsageError: an object of another kind. PlanError: neither a training job nor its stages
    one by one can say the plan.
    """
    expect("analyze", subject, TrainingJob, Result, Saved)
    if isinstance(subject, TrainingJob):
        return analyze_job(subject, name=name, limit=limit, device=device, notes=notes)
    from ilp_planner.cli.analyze_inputs import Found, devices_of
    from ilp_planner.cli.analyze_plan import placed_found
    from ilp_planner.formats.megatron.plan import job_of_plan

    problem = subject.problem
    if problem.model is None:
        raise PlanError("analyze: found a plan without a model, expected one whose model is named")
    devices = devices_of(problem.cluster)
    memory = devices.memory if limit is None else limit
    plan: Any = need_plan(subject) if isinstance(subject, Result) else subject.plan
    try:
        job = job_of_plan(plan, problem.model, problem.cluster)
    except PlanError as error:
        if not is_layers(problem):
            raise
        found = Found(
            jobs=(),
            name=name or problem.model.name,
            limit=memory,
            device=device or devices.name,
            notes=(*notes, *devices.notes),
        )
        file = subject.file if isinstance(subject, Saved) else Path("result")
        return placed_found(
            found, plan, problem.model, problem.cluster, file, str(error), typed=limit is not None
        ).analysis()
    return analyze_job(
        replace(job, devices_per_node=devices.per_node, generation=devices.generation),
        name=name or problem.model.name,
        limit=memory,
        device=device or devices.name,
        notes=(*notes, *devices.notes),
    )
