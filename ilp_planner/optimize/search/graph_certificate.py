"""Proofs of layer-level plans that can be run again: every part of the space, and whether it still
holds; and the residual problem of such a proof, as an integer program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.certificate import claimed_bound
from ilp_planner.optimize.search.climb import boxable, search_boxes
from ilp_planner.optimize.search.confirm import PLACEMENT, ROOM, LastGraph
from ilp_planner.optimize.search.graph_search import WIDTHS, look_below, place_exactly
from ilp_planner.optimize.search.group_search import GroupSearch, PartState, narrowed
from ilp_planner.optimize.solvers.arc_reduction import reduced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.plan import GroupPlan


# ---- proofs that can be run again ----------------------------------------------------------------


def graph_bounds(search: GroupSearch[Any], records: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Yield a bound of every part that is a stage graph, as high as is claimed if that is true."""
    for state, record in zip(search.states, records, strict=True):
        claimed = claimed_bound(record)
        yield at_most(claimed, _bound(search, state, claimed))


def at_most(claimed: float, derived: float) -> float:
    """Return a bound derived again; values above the claim do not matter, but infeasibility
    does."""
    return derived if derived >= NEVER else min(derived, max(claimed, 0.0))


def _bound(search: GroupSearch[Any], state: PartState[Any], claimed: float) -> float:
    for width in WIDTHS:
        search.objective = claimed  # plans that take as long are of no interest
        if state.bound >= claimed * (1 - ROUNDING):
            break
        exact = look_below(search, state, claimed, width)
        if not state.done and state.bound < claimed * (1 - ROUNDING) and boxable(search, state):
            search_boxes(search, state, claimed)
            place_exactly(search, state)
            break
        if exact:
            break
    return min(state.bound, search.objective) if search.objective < claimed else state.bound


# ---- the residual problem ------------------------------------------------------------------------


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
