"""The launch of a plan, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import file_name
from ilp_planner.formats.exports import EXPORTS, Target, expected_of, export_job, runtime_of

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem

USUAL = "megatron"  # of plans that are for no runtime


class Launch(NamedTuple):
    """The main file that starts a plan. runtime: the training system. name: of the file.
    comments: the lines it begins with that a reader may skip; text: the rest. refusal: why there is
    none; empty if there is one."""

    runtime: str
    name: str = ""
    comments: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    refusal: str = ""


def launch_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation, stem: str) -> Launch:
    """Return the launch of a plan under its training system, or Megatron-LM if it has none.

    Parameters
    ----------
    stem: how the names of files begin.
    """
    from ilp_planner.formats.megatron.plan import job_of_plan

    own = problem.space.name
    runtime = runtime_of(own if own.partition("@")[0] in EXPORTS else USUAL)
    if problem.spec is None:
        return Launch(str(runtime), refusal="a profile alone says what is planned, not a model")
    time = evaluation.iteration_time if evaluation.cost is not None else None
    target = Target(problem.spec, problem.cluster, time)
    try:
        job = job_of_plan(plan, problem.spec, problem.cluster, problem.request)
        exported = export_job(runtime, job, stem, expected_of(plan, job, target))
    except PlanError as refusal:
        return Launch(str(runtime), refusal=str(refusal))
    suffix, text = next(iter(exported.files.items()))
    return Launch(str(runtime), file_name(stem, suffix), *parted(text), exported.notes)


def parted(text: str) -> tuple[str, str]:
    """Return the comments that a file begins with, and the rest."""
    lines = text.splitlines(keepends=True)
    begin = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    return "".join(lines[:begin]), "".join(lines[begin:])
