"""A plan in Megatron's words: degrees, the micro-batch of a replica, the layout of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.faces.report.tables import span
from ilp_planner.plan import is_of_groups, is_of_operators
from ilp_planner.specs.pipeline_layout import write_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.training import TrainingJob


BETWEEN = "  "  # what parts things that stand on one line


class Parallelism(NamedTuple):
    """The parallelism of stages: values of tp, dp and samples of a micro-batch per replica, of all
    of them.
    pp, cp, ep, virtual, micro_batches: of the whole plan. layout: empty if no training job says
    it."""

    tp: Sequence[int]
    dp: Sequence[int]
    samples: Sequence[int]
    pp: int
    cp: int
    ep: int
    virtual: int
    micro_batches: int
    layout: str


def parallelism(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None) -> Parallelism:
    """Return a plan in Megatron's words. evaluation: without a price there is no layout."""
    tp, dp, samples = _degrees(plan)
    priced = evaluation is not None and evaluation.cost is not None
    job = problem.space.job(problem, plan) if priced else None
    return Parallelism(
        tp=tp,
        dp=dp,
        samples=samples,
        pp=plan.ranks,
        cp=plan.cp,
        ep=1 if plan.settings is None else plan.settings.ep,
        virtual=plan.virtual,
        micro_batches=plan.micro_batches,
        layout="" if job is None else write_layout(job.pipeline),
    )


def degree_words(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[list[str], str]:
    """Return `tp 4`, `pp 4` and so on, and the layout of the pipeline, empty if none says it."""
    found = parallelism(problem, plan, evaluation)
    words = [f"tp {span(found.tp)}", f"pp {found.pp}", f"cp {found.cp}", f"dp {span(found.dp)}"]
    if found.ep > 1:
        words.insert(3, f"ep {found.ep}")
    words.append(f"micro-batch {span(found.samples)}")
    return words, f"layout {found.layout}" if found.layout else ""


def parallelism_of_job(job: TrainingJob) -> Parallelism:
    """Return a training job in the same words."""
    return Parallelism(
        tp=(job.tp,),
        dp=(job.dp,),
        samples=(job.micro_batch,),
        pp=job.pp,
        cp=job.settings.cp,
        ep=job.settings.ep,
        virtual=job.virtual,
        micro_batches=job.micro_batches,
        layout=write_layout(job.pipeline),
    )


def _degrees(plan: AnyPlan) -> tuple[list[int], list[int], list[int]]:
    """Return tp, dp and the samples of a micro-batch per replica, of stages or of operators."""
    if is_of_groups(plan):
        tp = [degree // plan.cp for stage in plan.stages for degree in stage.degrees]
        replicas = [replica.samples for stage in plan.stages for replica in stage.replicas]
        return tp, [stage.dp for stage in plan.stages], replicas
    assert is_of_operators(plan)
    every = [strategy for stage in plan.stages for strategy in stage.strategies]
    dp = [one.dp for one in every]
    return [one.tp for one in every], dp, [plan.micro_batch_size // number for number in dp]


def parallelism_object(found: Parallelism) -> dict[str, int | str | None]:
    """Return the same as JSON: null if stages or operators differ, and without a layout."""
    return {
        "tp": _same(found.tp),
        "pp": found.pp,
        "cp": found.cp,
        "ep": found.ep,
        "dp": _same(found.dp),
        "virtual_stages": found.virtual,
        "micro_batch_size": _same(found.samples),
        "micro_batches": found.micro_batches,
        "layout": found.layout or None,
    }


def parallelism_lines(found: Parallelism) -> list[tuple[str, str]]:
    """Say the same on one line."""
    parts = [
        f"tp {span(found.tp)}, pp {found.pp}, cp {found.cp}, ep {found.ep}, dp {span(found.dp)}",
        f"micro-batch size {span(found.samples)} per replica",
    ]
    if found.layout:
        parts.append(f"layout {found.layout}")
    return [("parallelism", "; ".join(parts))]


def _same(values: Sequence[int]) -> int | None:
    """Return the common value; None if they differ."""
    distinct = {*values}
    return distinct.pop() if len(distinct) == 1 else None
