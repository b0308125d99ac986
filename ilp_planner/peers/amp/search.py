"""The search of AMP's space with its own program: every choice of degrees in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.peers.amp.degrees import rank_plans
from ilp_planner.peers.amp.parts import part_name
from ilp_planner.peers.amp.placement import place

if TYPE_CHECKING:
    from ilp_planner.optimize.search.group_search import GroupSearch
    from ilp_planner.peers.amp.costs import AmpCosts


def run_amp(search: GroupSearch[Any], *, free: bool) -> None:
    """Search the space; bounds and the plan go into the state of the search."""
    problem = search.problem
    costs: AmpCosts = problem.costs
    states = {state.part.name: state for state in search.states}
    if free:
        placed = place(
            costs,
            problem.cluster,
            problem.global_batch,
            max_tp=problem.max_tp,
            deadline=search.deadline,
            workers=search.limits.workers,
        )
        search.notes.append(f"placement: {placed.proof}")
        for state in search.states:
            state.raise_bound(placed.bound, "placement")
        search.accept(placed.plan.group_plan(problem.model, problem.global_batch))
        return
    for plan in rank_plans(costs, problem.cluster, problem.global_batch, max_tp=problem.max_tp):
        found = states.get(part_name(plan.degrees))
        if found is not None:
            found.raise_bound(plan.bound, "partition dp")
            search.accept(plan.group_plan(problem.model, problem.global_batch))
    for state in search.states:
        state.raise_bound(search.objective, "partition dp")
