"""Search a part in boxes (`bounds/boxes`), each time up to a little above its bound.

Few candidates are open a little above a bound, and closed ones cost nothing: a few searches that
say no and one that finds the best plan take less than one search below a poor plan.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.optimize.bounds.boxes import BoxSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.optimize.search.group_search import GroupSearch, PartState

FIRST_REACH, LEAST_REACH, MOST_REACH = 0.03, 0.03, 0.12  # relative: how far above a bound to look
QUICK, SLOW = 0.03, 0.05  # of the time left: look further, or less far, next time
LEAST_LEVELS, MOST_LEVELS = 6, 32  # stages after a stage, told apart in potentials
MOST_SUMS = 2_000_000  # of potentials: where regions are counted, fewer stages are told apart


def boxable(search: GroupSearch[Any], state: PartState[Any]) -> bool:
    """Tell whether a part may be searched in boxes."""
    return search.solver in ("auto", "dp") and state.part.boxable


def climb(search: GroupSearch[Any], state: PartState[Any]) -> None:
    """Search a part up to a little above its bound."""
    guess = state.bound * (1 + state.reach)
    if guess * (1 + LEAST_REACH) >= search.objective:
        guess = search.objective
    left = search.deadline.left
    search_boxes(search, state, guess)
    took = left - search.deadline.left
    if search.deadline.steady:
        return
    if took < QUICK * left:
        state.reach = min(2 * state.reach, MOST_REACH)
    elif took > SLOW * left:
        state.reach = max(state.reach / 2, LEAST_REACH)


def search_boxes(search: GroupSearch[Any], state: PartState[Any], guess: float) -> None:
    """Search a part for plans below `guess` seconds."""
    part = state.part
    constant = part.constant
    cutoff = min(guess - constant, NEVER)
    chain = part.chain(cutoff)
    assert chain is not None
    search.check_time()
    behind = chain.stages.behind
    limiting = behind[behind < behind.max(initial=0)]
    most = MOST_LEVELS
    if chain.regions.most > 1:
        sums = chain.layers * chain.states.group.size * chain.regions.most
        most = min(most, max(MOST_SUMS // sums, LEAST_LEVELS))
    levels = min(int(limiting.max(initial=0)) + 2, most)
    with ThreadPoolExecutor(search.limits.workers) as pool:
        each = pool.map if search.limits.workers > 1 else map
        boxes = BoxSearch(chain, cutoff, levels, goon=search.goon, each=each)
        taken = set[tuple[int, ...]]()  # a box finds what the one before has found, perhaps
        while not boxes.finished:
            search.check_time()
            found = boxes.advance(search.effort)
            if found and found.choices not in taken and found.value < search.objective - constant:
                taken.add(found.choices)
                take_near(search, state, found.choices, found.value + constant)
                boxes.lower(search.objective - constant)
            state.raise_bound(min(boxes.bound, cutoff) + constant, "boxes")
            search.report()
            if search.gap_reached():
                return
    state.raise_bound(min(boxes.bound, cutoff) + constant, "boxes")
    # The cheapest chain has no placement as good: boxes can tell no more.
    state.done = boxes.bound < cutoff and state.bound < search.objective


def take_near(
    search: GroupSearch[Any], state: PartState[Any], choices: Sequence[int], seconds: float
) -> None:
    """Judge the plan of stage candidates that take so long if nodes are shared well: seated one
    after the other and, if that takes longer, placed otherwise."""
    if search.problem.cluster.symmetric:
        plan = state.part.seat(choices)
        if plan is not None:
            search.accept(plan, state)
    if search.objective > seconds * (1 + ROUNDING):
        search.take(state, choices)
