"""The best cut of a variant between ranks: cuts are judged one by one, best bound first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.numerics import NEVER
from ilp_planner.spaces.training.bounds.cut_tables import (
    timed_tables,
    with_least_memory,
    with_memory,
)
from ilp_planner.spaces.training.bounds.schedule import LeastCuts, last_room
from ilp_planner.spaces.training.bounds.variant import overfills_in_turns
from ilp_planner.spaces.training.enumerate.partition import (
    INFINITE,
    Cut,
    CutSearch,
    CutTables,
    least_peak,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart

NEAR = (8, 64, 512, 4096)  # cuts of a variant that are simulated, each time that it is its turn
ROUNDING = 1e-9  # relative: a bound so near to a plan is met


def best_spread(
    part: MegatronPart,
    variant: Variant,
    cutoff: float,
    solve: Callable[[CutTables, float], CutSearch],
    goon: Callable[[], bool] = lambda: True,
    most: int = NEAR[-1],
) -> CutSearch:
    """Return the fastest cut between ranks below the cutoff, and a bound on all of them.

    The cut of the least bound and the one that `solve` finds by a formula are judged, and then
    others whose bound is below the best, the least first, so many at `most`; if these come to an
    end, nothing is faster.
    """
    if variant.virtual > 1 and overfills_in_turns(part, variant):
        return CutSearch(None, NEVER)
    tables = timed_tables(part, variant)
    if variant.virtual > 1:  # what fits takes longer to say than what fits one virtual stage
        tables = with_least_memory(part, variant, tables)
    least = LeastCuts(tables, last_room(tables)).seconds
    if least >= INFINITE:
        return CutSearch(None, NEVER)
    bound = least + least_peak(tables) + part.ranks.constant
    if bound >= cutoff:
        return CutSearch(None, bound)
    tables = with_memory(part, variant, tables)
    cuts = LeastCuts(tables, last_room(tables))
    if cuts.seconds >= INFINITE:
        return CutSearch(None, NEVER)
    once = least_peak(tables) + part.ranks.constant
    bound = cuts.seconds + once
    if bound >= cutoff:
        return CutSearch(None, bound)
    judged: dict[tuple[int, ...], float] = {}

    def judge(ends: tuple[int, ...]) -> None:
        if ends not in judged:
            judged[ends] = part.seconds(variant, ends) if part.keeps(variant, ends) else NEVER

    judge(cuts.ends)
    by_formula = solve(tables, INFINITE).cut
    if by_formula is not None:
        judge(by_formula.ends)
    room = (min(*judged.values(), cutoff) - once) * (1 - ROUNDING)
    if goon():
        near = cuts.nearest(room, most)
        for least, ends in near.cuts:
            if least + once < min(judged.values()) and goon():
                judge(ends)
        left = [least for least, ends in near.cuts if ends not in judged]
        left += [near.rest] if near.rest < room else []
        bound = min(*(least + once for least in left), *judged.values(), cutoff)
    ends, best = min(judged.items(), key=lambda item: item[1])
    return CutSearch(Cut(ends, best) if best < cutoff else None, min(bound, best))
