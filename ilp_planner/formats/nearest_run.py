"""The nearest plan that a training system runs, if it does not run the exported one.

Nearest: as few settings as possible differ, among settings that leave the computation as it is; if
none of these plans is run or fits memory, other degrees, the nearest of Megatron's space. Of
equally near ones it is the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import PlannerError
from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.settings import values
from ilp_planner.settings.table import with_degrees_of
from ilp_planner.specs.pipeline_layout import PipelineLayout, split_layout, write_layout
from ilp_planner.specs.training import (
    ORDERS,
    SHARDINGS,
    Offload,
    Recompute,
    TrainingJob,
)

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

# The system's reason not to run a job; empty: it runs it.
Refusal = Callable[[TrainingJob], str]
SECONDS = 5.0  # of looking for another plan
MOST_CHANGES = 4  # of settings at once
MOST_JOBS = 500  # that a system is asked for, of one choice of degrees
# How refusals begin of what the model is, or what of it is trained: alike in all other plans.
OF_MODEL = ("model.", "settings.tuning")
# Choices that a system may not have, and their value without.
PLAINER = (
    (values.OVERLAP, "none"),
    (values.DEFER_EMBEDDING_WGRAD, "off"),
    (values.ENCODER_RECOMPUTE, "none"),
)
RECOMPUTED = (
    Recompute(),
    Recompute(granularity="selective"),
    Recompute(granularity="full", method="uniform", layers=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearRun:
    """A job that a system runs, with the plan of it.

    plan: as Megatron-LM runs the job. differs: changes of the job from the requested plan. seconds:
    of an iteration.
    before: seconds of the plan that was asked for; None: it cannot be judged alike.
    """

    job: TrainingJob
    plan: GroupPlan
    differs: tuple[str, ...]
    seconds: float
    before: float | None

    def __str__(self) -> str:
        text = f"{', '.join(self.differs)}; {format_seconds(self.seconds)} per iteration"
        if self.before is None:
            return text
        return f"{text}, {compared(self.seconds, self.before)}"


def compared(seconds: float, before: float) -> str:
    """Return how much slower or faster than before something is."""
    change = seconds / before - 1
    if abs(change) < 5e-4:
        return f"as fast as {format_seconds(before)}"
    kind = "slower" if change > 0 else "faster"
    return f"{format_percent(abs(change))} {kind} than {format_seconds(before)}"


def nearest_run(
    job: TrainingJob,
    model: ModelSpec,
    cluster: ClusterSpec,
    refusal: Refusal,
    asked: Request | None = None,
) -> NearRun | None:
    """Return the nearest plan that a system runs on a cluster; None if none was found.

    Parameters
    ----------
    refusal: of the system. Times are those of Megatron-LM's space, of both plans alike. asked: the
        request of the plan, if known.
    """
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.spaces.training.build import build
    from ilp_planner.spaces.training.search.nearest import near_request

    if refusal(job).startswith(OF_MODEL):
        return None
    try:
        request = near_request(job.global_batch, job.settings, asked)
        problem = build(InputFiles(request, objects={"model": model, "cluster": cluster}))
    except PlannerError:
        return None
    judged = _judged(problem, job)
    before = judged[1] if judged else None
    deadline = Deadline(SECONDS)
    for start in chain([job], _other_degrees(problem, model, job)):
        if not deadline.goon():
            return None
        for jobs in _accepted(start, refusal):
            plans = [(found, near) for near in jobs if (found := _judged(problem, near))]
            if plans:
                (plan, seconds), near = min(plans, key=lambda pair: pair[0][1])
                return NearRun(
                    job=near,
                    plan=plan,
                    differs=tuple(differences(job, near)),
                    seconds=seconds,
                    before=before,
                )
    return None


def _judged(problem: Problem[Any], job: TrainingJob) -> tuple[GroupPlan, float] | None:
    """Return the plan of a job as Megatron-LM runs it, and its seconds; None if that is not legal
    on the cluster.

    Settings that Megatron-LM lacks are as it does them: the plan came from another system, or goes
    to one.
    """
    from ilp_planner.evaluate import evaluate
    from ilp_planner.formats.megatron.plan import plan_of_job
    from ilp_planner.spaces.training.enumerate.untold import as_it_does

    runtime, base = problem.costs.runtime, problem.costs.settings
    try:
        own = as_it_does(runtime, job, base)
        plan = plan_of_job(own, problem.cluster, model=problem.model)
        evaluation = evaluate(problem, plan)
    except PlannerError:
        return None
    return (plan, evaluation.iteration_time) if evaluation.legal else None


def _accepted(job: TrainingJob, refusal: Refusal) -> Iterator[list[TrainingJob]]:
    """Yield the jobs that a system runs, with the fewest changed settings first.

    A changed setting is kept only if the system has another reason then, or none: only refused
    settings must change.
    """
    reasons = {job: refusal(job)}
    if not reasons[job]:
        yield [job]
        return
    rim = [job]
    for _ in range(MOST_CHANGES):
        reached = {near: at for at in rim for near in neighbours(at) if near not in reasons}
        found = {near: refusal(near) for near in islice(reached, MOST_JOBS)}
        reasons |= found
        if accepted := [near for near, reason in found.items() if not reason]:
            yield accepted
        rim = [
            near for near, reason in found.items() if reason and reason != reasons[reached[near]]
        ]


def neighbours(job: TrainingJob) -> Iterator[TrainingJob]:
    """Yield the jobs on the same ranks that compute the same and differ in one setting."""
    s = job.settings
    others: list[dict[str, Any]] = [
        *({"order": order} for order in ORDERS),
        {"sequence_parallel": not s.sequence_parallel and job.tp > 1},
        {"schedule": USUAL},
        {"turn": 0},
        {"overlap_sends": True},
        {"overlap_tensor": False},
        {"overlap_experts": False},
        {"offload": Offload()},
        *({"etp": etp} for etp in (0, 1)),
        *({"recompute": again} for again in RECOMPUTED),
        {"kernels": replace(s.kernels, graphs="", graphed=())},
        {"kernels": replace(s.kernels, compiled=False)},
        {"optimizer": replace(s.optimizer, from_master=False)},
        *({"optimizer": s.optimizer.sharing(kind)} for kind in SHARDINGS),
        *({"optimizer": replace(s.optimizer, offload=share)} for share in (0.0, 1.0)),
        {"optimizer": replace(s.optimizer, instances=1)},
    ]
    plainer = (choice.write(s, value) for choice, value in PLAINER)
    for settings in (*(replace(s, **other) for other in others), *plainer):
        if settings is not None and settings != s:
            yield replace(job, settings=settings)
    if job.virtual > 1:
        held = [sum(job.stages[k].layers for k in job.stages_of(rank)) for rank in range(job.pp)]
        yield replace(job, layout=split_layout(held))


def _other_degrees(
    problem: Problem[Any], model: ModelSpec, job: TrainingJob
) -> Iterator[TrainingJob]:
    """Yield jobs of other degrees with the settings of a job otherwise, the nearest first."""
    from ilp_planner.costs.training.job import ends_of
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.spaces.training.search.nearest import Wish, nearest_plans

    wish = Wish(
        tp=job.tp,
        pp=job.pp,
        micro_batch=job.micro_batch,
        ends=ends_of(job.pipeline),
        recompute=job.settings.recompute,
    )
    for near in nearest_plans(problem, wish):
        other = job_of_plan(near.plan, model, problem.cluster)
        yield replace(other, settings=with_degrees_of(job.settings, other.settings))


def differences(one: object, other: object, place: str = "") -> Iterator[str]:
    """Yield the differences of two jobs, in the names of their fields."""
    assert is_dataclass(one)
    assert is_dataclass(other)
    for f in fields(one):
        before, after = getattr(one, f.name), getattr(other, f.name)
        if before == after or not f.compare:
            continue
        if is_dataclass(before) and type(before) is type(after) and not _whole(before):
            yield from differences(before, after, f"{place}{f.name}.")
        else:
            yield f"{place}{f.name} {_shown(after)} instead of {_shown(before)}"


def _whole(value: object) -> bool:
    """Tell whether a value has a text of its own."""
    return isinstance(value, PipelineLayout | Recompute)


def _shown(value: object) -> str:
    if isinstance(value, PipelineLayout):
        return write_layout(value)
    if isinstance(value, Recompute):
        words = (value.granularity, *value.modules, value.method, str(value.layers or ""))
        return " ".join(word for word in words if word)
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"
