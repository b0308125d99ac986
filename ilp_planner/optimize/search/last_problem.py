"""The residual problem of a proof by stage graphs, as an integer program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.search.confirm import PLACEMENT, ROOM, LastGraph
from ilp_planner.optimize.search.group_search import GroupSearch, PartState, narrowed
from ilp_planner.optimize.solvers.arc_reduction import reduced

if TYPE_CHECKING:
    from ilp_planner.plan import GroupPlan


def last_of_graphs(search: GroupSearch[Any], plan: GroupPlan) -> LastGraph | None:
    """Return the graph of the stages that plans up to this one may have, in the part that holds it.

    None if no part does, as for freely placed ranks, and if the graph without context is too large.
    """
    part = next((s.part for s in search.states if s.part.holds(plan)), None)
    if part is None:
        return None
    guess = evaluate(search.problem, plan).iteration_time * (1 + ROOM)
    cutoff = guess - part.constant
    # What it learns is up to a cutoff above the plan: it must not count as a bound of the search.
    choices = search.outline(PartState(part=part), guess)
    opened, _ = narrowed(part.graph(cutoff, choices), cutoff, search.goon)
    explicit = part.explicit(opened)
    if explicit is None:
        return None
    if explicit is not opened:
        explicit, _ = narrowed(explicit, cutoff, search.goon)
    return LastGraph(
        graph=reduced(explicit.graph, cutoff).graph,
        constant=part.constant,
        lacks=PLACEMENT if opened.context is not None else "",
    )
