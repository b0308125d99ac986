"""Demands on a plan: those of `settings.rules` on its job, and those of its problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.costs.training.job import node_order
from ilp_planner.evaluate import Violation
from ilp_planner.settings.rules import JOB_RULES, MEGATRON_RULES
from ilp_planner.spaces.training.enumerate.degrees import sequence_rules, tensor_rules
from ilp_planner.specs.recipes import check_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.settings.rules import Broken
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.specs.training import Settings, TrainingJob


def violations(found: Iterable[Broken]) -> Iterator[Violation]:
    """Yield rules that a job breaks as those of its plan."""
    for broken in found:
        yield Violation(broken.rule, "plan", broken.have, broken.limit)


def check_megatron(job: TrainingJob) -> Iterator[Violation]:
    """Check Megatron-LM's further demands on a job."""
    for check in MEGATRON_RULES:
        yield from violations(check(job))


def check_plan(
    problem: Problem[MegatronCosts],
    plan: GroupPlan,
    own: Callable[[TrainingJob, Settings], Iterator[Violation]],
) -> Iterator[Violation]:
    """Check the rules of every runtime's plans, and a runtime's own checks of their jobs."""
    costs = problem.costs
    try:
        job = costs.job(plan, problem.cluster)
    except PlanError as error:
        yield Violation("training job", "plan", str(error).removeprefix("plan: "), "one job")
        return
    if node_order(plan, problem.cluster) is None:
        yield Violation("rank order", "plan", "other devices", "whole nodes one after the other")
        return
    yield from check_job(problem, job, own)


def check_job(
    problem: Problem[MegatronCosts],
    job: TrainingJob,
    own: Callable[[TrainingJob, Settings], Iterator[Violation]],
) -> Iterator[Violation]:
    """Check the same of a job with ranks that fill the nodes of the problem in order."""
    yield from check_precision(problem, job)
    yield from check_tensor(problem, job)
    for check in JOB_RULES:
        yield from violations(check(job))
    yield from own(job, problem.costs.settings)


def check_precision(problem: Problem[MegatronCosts], job: TrainingJob) -> Iterator[Violation]:
    """Every device type computes in the precision, and in the recipe of quantised products."""
    settings, own = job.settings, problem.costs.settings
    recipe = settings.kernels.quantised
    if (settings.precision, recipe) == (own.precision, own.kernels.quantised):
        return
    try:
        problem.cluster.check_figures(settings.precision, problem.model)
        check_recipe(problem.cluster, recipe)
    except SpecError:
        yield Violation("precision", "plan", recipe or settings.precision, "one of all devices")


def check_tensor(problem: Problem[MegatronCosts], job: TrainingJob) -> Iterator[Violation]:
    """Tensor parallelism stays in a node and divides the model; so does context parallelism its
    samples."""
    each, cp = problem.cluster.nodes[0].devices, job.settings.cp
    if each % job.tp:
        yield Violation("degrees", "plan", f"tp {job.tp}", f"a divisor of {each}, within a node")
    for text in tensor_rules(job.model, job.tp):
        yield Violation("degrees", "plan", f"tp {job.tp}", text)
    parts = job.tp if job.settings.sequence_parallel else 1
    for text in sequence_rules(job.model, parts, cp):
        yield Violation("degrees", "plan", f"tp {job.tp}, cp {cp}", text)
    if cp > problem.costs.max_cp:
        yield Violation("degrees", "plan", f"cp {cp}", f"at most {problem.costs.max_cp}")
