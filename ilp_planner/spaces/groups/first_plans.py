"""A good plan at once, before any bound and before a part's candidates are there; and a better one
if a part is large: pipelines of equal groups (`pipelines`), placed and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.evaluate import evaluate
from ilp_planner.spaces.groups.pipelines import Pipeline, Pipelines
from ilp_planner.spaces.groups.place import place
from ilp_planner.spaces.groups.seating import Seating, seat_all
from ilp_planner.spaces.groups.work import work_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.groups.parts import GroupPart

SECONDS, SHARE = 0.6, 0.5  # to look in, and at most that part of the time
LONGER, STEPS = 0.05, 30_000  # part of the time for annealing a part, and changes to try
MOST_PACKINGS = 8  # to try where links differ from node to node

Looked = list[tuple["PartState[GroupPart]", Pipelines]]
"""Parts, and their pipelines that were looked at."""


def look_first(search: GroupSearch[GroupPart]) -> None:
    """Bound all parts by their work, then look for a first plan in them, beginning with parts
    without a partial micro-batch: as long as there is no plan, and for a moment."""
    bounds = work_bounds(search.problem, search.states[0].part.degrees) if search.states else {}
    for state in search.states:
        state.raise_bound(bounds[state.part.micro_batches], "work")
    search.report()
    search.check_time()
    if search.plan is not None and search.problem.costs.spread:  # the best packed one, or near it
        return
    moment = search.deadline.moment(min(SECONDS, SHARE * search.deadline.left))
    seating, looked = Seating(search.problem.cluster), Looked()
    even = [state for state in search.states if not state.part.schedule.short]
    short = [state for state in search.states if state.part.schedule.short]
    for state in (*middle_first(even), *middle_first(short)):
        if looked and not moment.goon():
            _judge(search, looked, seating, moment)
            if search.plan is not None:
                return
            search.check_time()
            looked.clear()
        if not search.closed(state):
            pipelines = Pipelines(state.part, seating, quick=True)
            pipelines.improve(moment)
            looked.append((state, pipelines))
    _judge(search, looked, seating, moment)


def middle_first(states: Sequence[PartState[GroupPart]]) -> Iterator[PartState[GroupPart]]:
    """Yield the one in the middle, then the middle of each rest: very few and very many
    micro-batches are seldom best."""
    runs = [states]
    while runs := [run for run in runs if run]:
        for run in runs:
            yield run[len(run) // 2]
        runs = [part for run in runs for part in (run[: len(run) // 2], run[len(run) // 2 + 1 :])]


def look_longer(search: GroupSearch[GroupPart]) -> None:
    """Look for better plans in parts that are searched in boxes, the least bound first."""
    large = [state for state in search.states if state.boxed and not search.closed(state)]
    seating = Seating(search.problem.cluster)
    for state in sorted(large, key=lambda s: s.bound):
        if search.gap_reached():
            return
        moment = search.deadline.moment(LONGER * search.deadline.left)
        pipelines = Pipelines(state.part, seating)
        pipelines.improve(moment)
        pipelines.anneal(STEPS, moment, search.limits.seed)
        search.check_time()
        _judge(search, [(state, pipelines)], seating, search.deadline)


def _judge(
    search: GroupSearch[GroupPart], looked: Looked, seating: Seating, moment: Deadline
) -> None:
    """Judge pipelines, the fastest first: true links may be slower than the best ones. A first plan
    is worth a moment beyond the limit."""
    found = [
        (state.part.constant + seconds, n, shape)
        for n, (state, pipelines) in enumerate(looked)
        for seconds, shape in pipelines.found
    ]
    for seconds, n, shape in sorted(found):
        if search.plan is not None and (seconds >= search.objective or not moment.goon()):
            return
        state, pipelines = looked[n]
        pipeline = pipelines.pipeline(shape)
        plan = placed(search.problem, state.part.micro_batches, pipeline, seating)
        if plan is not None and evaluate(search.problem, plan).legal:
            search.accept(plan, state)


def placed(
    problem: Problem[GroupTables], micro_batches: int, pipeline: Pipeline, seating: Seating
) -> GroupPlan | None:
    """Return the plan of a pipeline on devices; None if it cannot be placed."""
    if problem.cluster.symmetric:
        return seat_all(problem, micro_batches, pipeline.choices, seating)
    return place(problem, micro_batches, pipeline.choices, most_packings=MOST_PACKINGS).plan
