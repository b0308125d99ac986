"""The best plans that differ in more than cuts.

Two plans are of one family when they have the same number of micro-batches and the same groups one
after the other; they differ in cuts only, and the fastest one stands for them. All families below a
cutoff are listed by labels that dominate only within their family; the cutoff grows until there are
enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.costs.seat_patterns import is_packed, spread_over
from ilp_planner.evaluate import Evaluation, evaluate
from ilp_planner.optimize.bounds.resource_paths import search_resource_paths
from ilp_planner.optimize.result import Ranked
from ilp_planner.optimize.search.group_search import GroupSearch, PartState, narrowed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec

FIRST_SLACK = 0.01  # relative: how far above the best plan to list at first
LAST_SLACK = 1e3
GROWTH = 2.5
MOST_LABELS = 2_000_000


def rank_graphs(search: GroupSearch[Any], top: int) -> tuple[Ranked, ...]:
    """Return the `top` best plans, the fastest first; fewer when there are no more, or no more
    time."""
    slack = FIRST_SLACK
    best: list[tuple[float, GroupPlan, Evaluation]] = []
    unlisted = search.bound
    while search.goon():
        cutoff = search.objective * (1 + slack)
        listed, complete = [], cutoff
        for state in search.states:
            if state.bound >= cutoff:
                continue
            families, exact = list_families(search, state, cutoff, top)
            listed += families
            complete = min(complete, exact)
        if len(listed) >= len(best):
            best, unlisted = sorted(listed, key=lambda entry: entry[0]), complete
        # Where links raise what one takes above the cutoff, others that are not listed yet may be
        # better.
        settled = sum(value <= unlisted for value, _, _ in best)
        if settled >= top or slack > LAST_SLACK:
            break
        slack *= GROWTH
    return ranked(search, best, unlisted)[:top]


def list_families(
    search: GroupSearch[Any], state: PartState[Any], cutoff: float, top: int
) -> tuple[list[tuple[float, GroupPlan, Evaluation]], float]:
    """Return the families of a part below the cutoff as (seconds on the best links, plan, its
    evaluation), and the seconds up to which these are all."""
    part, below = state.part, cutoff - state.part.constant
    # also of candidates that others beat: they make the second best family
    opened = part.unplaced(below) or part.graph(below, None)
    if not opened.graph.arcs:
        return [], cutoff
    opened, intervals = narrowed(opened, below, search.goon)
    if not intervals:
        return [], cutoff
    numbers: dict[Hashable, int] = {}
    families = [numbers.setdefault(part.family(c), len(numbers)) for c in opened.choice.tolist()]
    found = search_resource_paths(
        opened.graph,
        opened.context,
        cutoff=below,
        intervals=intervals,
        families=np.array(families, np.int64),
        most_labels=MOST_LABELS,
    )
    complete = cutoff if found.exact else found.bound + part.constant
    plans: list[tuple[float, GroupPlan, Evaluation]] = []
    seen: set[tuple[int, ...]] = set()
    for value, path in found.others:
        if len(plans) == top:
            complete = min(complete, value + part.constant)
            break
        own = tuple(families[arc] for arc in path)
        if own in seen:  # the cheapest one of the family has been met
            continue
        seen.add(own)
        choices = opened.choice[list(path)].tolist()
        placed = part.placed(choices)
        plan = placed.plan or part.plan(choices)
        if plan is not None:
            evaluation = evaluate(search.problem, plan)
            if evaluation.legal:
                least = max(value, placed.bound) if placed.plan else value
                plans.append((least + part.constant, plan, evaluation))
    return plans, complete


def ranked(
    search: GroupSearch[Any], best: list[tuple[float, GroupPlan, Evaluation]], unlisted: float
) -> tuple[Ranked, ...]:
    """Put the incumbent first and the others in the order of their true times."""
    assert search.plan is not None
    assert search.evaluation is not None
    cluster = search.problem.cluster
    shape = _shape(search.plan, cluster)
    others = sorted(
        (entry for entry in best if _shape(entry[1], cluster) != shape),
        key=lambda entry: entry[2].iteration_time,
    )
    # the r-th best family takes at least the r-th least time on the best links
    values = sorted(value for value, _, _ in best)
    entries = [Ranked(plan=search.plan, evaluation=search.evaluation, bound=search.bound)]
    for place, (_, plan, evaluation) in enumerate(others, 1):
        least = values[place] if place < len(values) else unlisted
        bound = min(max(search.bound, min(least, unlisted)), evaluation.iteration_time)
        entries.append(Ranked(plan=plan, evaluation=evaluation, bound=bound))
    return tuple(entries)


def _shape(plan: GroupPlan, cluster: ClusterSpec) -> tuple[object, ...]:
    """Return the common choices of plans of one family."""
    types = cluster.type_of
    return (
        plan.micro_batches,
        tuple(
            (
                tuple(sorted((types[r.devices[0]], r.tp) for r in stage.replicas)),
                0 if is_packed(stage, cluster) else len(spread_over(stage, cluster)),
            )
            for stage in plan.stages
        ),
    )
