"""Small moves of a plan at its true times, if placing its groups takes more than the stage graph
promises: of groups that swap, merge or part, and of cuts."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.spaces.groups.parts import GroupPart

Rows = list[tuple[int, int, int]]
"""Option, start and stop of each stage."""
ROUNDS = 6
MOST = 400  # placements
WORSE = 1.05  # times the best plan: what stages on the best links may take to be placed at all


def improve_placed(search: GroupSearch[Any], state: PartState[Any], choices: Sequence[int]) -> None:
    """Move to the best neighbour of a plan's stage candidates, until none is better."""
    part: GroupPart = state.part
    seen: set[tuple[int, ...]] = set()
    best, current = np.inf, tuple(choices)
    for _ in range(ROUNDS):
        found = best
        for near in (current, *neighbours(part, current)):
            if near in seen or len(seen) >= MOST:
                continue
            if part.best_links(near) + part.constant >= min(best, WORSE * search.objective):
                continue
            search.check_time()
            seen.add(near)
            plan = part.plan(near)
            if plan is None:
                continue
            evaluation = evaluate(search.problem, plan)
            if evaluation.legal and evaluation.iteration_time < found:
                found, following = evaluation.iteration_time, near
                if found < search.objective:
                    search.accept(plan, state)
        if found >= best:
            return
        best, current = found, following


def neighbours(part: GroupPart, choices: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield rows of candidates with a few changed stages: two have swapped groups, or places, a cut
    has moved by a layer, two share a group of the devices of both, or one is two halves."""
    c = part.catalogue.stages
    use = part.catalogue.use
    rows = [(int(c.option[n]), int(c.start[n]), int(c.stop[n])) for n in choices]
    for stages in (*_swapped(rows), *_cut_anew(rows), *_merged(use, rows), *_halved(use, rows)):
        found = []
        for s, (option, start, stop) in enumerate(stages):
            held = part.schedule.in_flight(len(stages) - 1 - s)
            able = (c.option == option) & (c.start == start) & (c.stop == stop)
            able &= c.in_flight >= held
            found += sorted(np.flatnonzero(able).tolist(), key=lambda n: float(c.time[n]))[:1]
        if len(found) == len(stages):
            yield tuple(found)


def _swapped(rows: Rows) -> Iterator[Rows]:
    for a, b in combinations(range(len(rows)), 2):
        groups = list(rows)
        groups[a], groups[b] = (rows[b][0], *rows[a][1:]), (rows[a][0], *rows[b][1:])
        yield groups
        order = list(rows)
        order[a], order[b] = rows[b], rows[a]
        start, places = 0, []
        for option, first, stop in order:
            places.append((option, start, start + stop - first))
            start += stop - first
        yield places


def _cut_anew(rows: Rows) -> Iterator[Rows]:
    for a in range(len(rows) - 1):
        for step in (-1, 1):
            cut = rows[a][2] + step
            stages = list(rows)
            stages[a], stages[a + 1] = (*rows[a][:2], cut), (rows[a + 1][0], cut, rows[a + 1][2])
            yield stages


def _merged(use: NDArray[np.int64], rows: Rows) -> Iterator[Rows]:
    for a in range(len(rows) - 1):
        both = use[rows[a][0]] + use[rows[a + 1][0]]
        for option in np.flatnonzero((use == both).all(axis=1)).tolist():
            yield [*rows[:a], (option, rows[a][1], rows[a + 1][2]), *rows[a + 2 :]]


def _halved(use: NDArray[np.int64], rows: Rows) -> Iterator[Rows]:
    for a, (whole, start, stop) in enumerate(rows):
        middle = (start + stop) // 2
        for option in np.flatnonzero((2 * use == use[whole]).all(axis=1)).tolist():
            for cut in (middle, middle + 1):
                halves = [(option, start, cut), (option, cut, stop)]
                yield [*rows[:a], *halves, *rows[a + 1 :]]
