"""CUDA graphs that a job without any could have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.settings.table import BY_NAME
from ilp_planner.settings.values import CUDA_GRAPHS
from ilp_planner.spaces.training.enumerate.choices import CHOICES
from ilp_planner.spaces.training.enumerate.rules import check_job

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.training import TrainingJob

NAME = next(name for name, choice in CHOICES.items() if choice is CUDA_GRAPHS)
# The most of a layer first, which saves most starts; a whole iteration asks most of a job.
BY_STARTS = ("layer", "router", "attn", "full_iteration")


def graphs_beside(problem: Problem[MegatronCosts], job: TrainingJob, runtime: Runtime) -> str:
    """Return the value of CUDA graphs that a job without any could have by every rule of its
    training system; empty for none, or where it has some."""
    if job.settings.kernels.graphs or NAME not in runtime.listens:
        return ""
    there = {*BY_NAME[NAME].domain.values}.intersection(runtime.search_of(NAME).demandable)
    for value in BY_STARTS:
        settings = CUDA_GRAPHS.write(job.settings, value)
        if value not in there or settings is None:
            continue
        graphed = replace(job, settings=settings)
        asked = problem.constraints.with_(**{NAME: (value,)})
        if runtime.tries(graphed, asked) and not any(
            check_job(problem, graphed, runtime.violations)
        ):
            return value
    return ""
