"""The plan spaces by name, as parts that the search goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.space import SpacePart


def parts_of(problem: GroupProblem) -> list[SpacePart]:
    """Return the parts of the problem's plan space."""
    if problem.space == "metis":
        return _metis_parts(problem)
    if problem.space == "amp":
        return _amp_parts(problem)
    if problem.space == "megatron":
        return _megatron_parts(problem)
    from ilp_planner.mixed.planner.parts import PlannerPart

    return [PlannerPart(problem, batches) for batches in problem.micro_batches]


def left_out(parts: Sequence[SpacePart]) -> list[str]:
    """Return a line for the user where the parts do not hold every group of devices."""
    from ilp_planner.mixed.planner.parts import PlannerPart

    few = [p for p in parts if isinstance(p, PlannerPart) and not p.complete]
    if not few:
        return []
    counts = ", ".join(str(part.micro_batches) for part in few)
    return [
        f"stages of several device types: with {counts} micro-batches there are too many to try "
        "all, only some with powers of two of replicas were; the bound is for these and for all "
        "stages of one type"
    ]


def _metis_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.metis import MetisCosts
    from ilp_planner.mixed.metis.parts import metis_parts

    assert isinstance(problem.costs, MetisCosts)
    return list(metis_parts(problem, problem.costs))


def _amp_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.amp import AmpCosts
    from ilp_planner.mixed.amp.parts import amp_parts

    costs = problem.costs
    assert isinstance(costs, AmpCosts)
    parts = amp_parts(
        costs, problem.cluster, problem.global_batch, problem.model, max_tp=problem.max_tp
    )
    return [part for part in parts if part.micro_batches in problem.micro_batches]


def _megatron_parts(problem: GroupProblem) -> list[SpacePart]:
    from ilp_planner.costs.megatron.costs import MegatronCosts
    from ilp_planner.mixed.megatron.parts import megatron_parts

    assert isinstance(problem.costs, MegatronCosts)
    return cast("list[SpacePart]", megatron_parts(problem, problem.costs))
