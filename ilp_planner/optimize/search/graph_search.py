"""The search of parts that are stage graphs, for a plan, a proof and the next best plans.

Each part is bounded by Lagrange multipliers on devices (`bounds/resource_prices`) on a small
outline of its stage graph; the residual problem below the incumbent is a stage graph, solved by
labels (`bounds/resource_paths`) or an integer program. If that is too much, parts that can be a
chain of groups are searched in boxes (`climb`), up to a little above their bound each time. A
part's bound only rises, so an interrupt loses nothing.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import PlannerError
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.costs.seat_patterns import is_packed, spread_over
from ilp_planner.evaluate import Evaluation, evaluate
from ilp_planner.optimize.bounds.resource_paths import PathSearch, search_resource_paths
from ilp_planner.optimize.bounds.resource_prices import SPLITS, Interval, PricedGraph
from ilp_planner.optimize.result import Ranked, Status, Stop
from ilp_planner.optimize.search.climb import boxable, climb
from ilp_planner.optimize.search.group_search import LABELS, GroupSearch, PartState, narrowed
from ilp_planner.optimize.search.part_team import act_in
from ilp_planner.optimize.solvers import registry

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ilp_planner.optimize.search.parts import OpenGraph
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec


# ---- plan and proof ------------------------------------------------------------------------------


WIDTHS = (300, 3_000, 10_000, 30_000, 2**62)  # labels per node, until nothing is left open
MANY = 20_000  # stage candidates: labels alone leave too much open
SKETCH_SPLITS = 6
SKETCH_WIDTHS = (20, 200)
STEP = 0.1  # relative: how far above its bound a part is searched next
DIVE_WIDTH = 300
DIVES = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Relative: how far above the bound to look for a first plan."""
NEAR = 0.05  # relative: a guess so near to the incumbent is the incumbent
MOST_BETWEEN = 200_000  # labels
FEW = 8  # parts that are looked into at once for a first plan: the next ones know of it
AT_ONCE = 4  # parts that are looked into at once, of those that are open


def outline_parts(search: GroupSearch[Any]) -> None:
    """Bound all parts by their outlines, the least bound first, and tell which are large.

    Raises
    ------
    OutOfTimeError: the time is up.
    """
    act_in(search, sorted(search.states, key=lambda s: s.bound), outline_one)


def outline_one(search: GroupSearch[Any], state: PartState[Any]) -> None:
    """Bound a part by its outline, and tell whether it is large."""
    choices = search.outline(state, search.objective)
    many = choices is not None and choices.size > MANY
    state.boxed = many and boxable(search, state)


def search_graphs(search: GroupSearch[Any]) -> None:
    """Work until proof or gap, or until all that can be searched has been.

    Raises
    ------
    OutOfTimeError: the time is up.
    """
    for state in sorted(search.states, key=lambda s: s.bound):
        search.check_time()
        if search.plan is None and not search.closed(state):
            sketch(search, state)
    dive(search)
    while not search.gap_reached():
        search.forget_closed()
        open_ones = [state for state in search.states if not search.closed(state)]
        if not open_ones:
            break
        # Without a plan there is nothing to be near to, and there may be none: look far soon.
        act = partial(advance, far=search.plan is None)
        act_in(search, sorted(open_ones, key=lambda s: s.bound)[:AT_ONCE], act)


def sketch(search: GroupSearch[Any], state: PartState[Any]) -> None:
    """Look for a good plan in a part."""
    part = state.part
    opened = part.sketch()
    if opened is None:
        return
    for width in SKETCH_WIDTHS:
        cutoff = search.objective - part.constant
        if not opened.graph.arcs:
            return
        opened, intervals = narrowed(opened, cutoff, search.goon, SKETCH_SPLITS)
        if not intervals:
            return
        found = find(search, state, opened, intervals, cutoff, width)
        if found.exact or not search.goon():
            return
    state.boxed = boxable(search, state)


def find(
    search: GroupSearch[Any],
    state: PartState[Any],
    opened: OpenGraph,
    intervals: list[Interval],
    cutoff: float,
    width: int,
) -> PathSearch:
    """Look for a good plan at true times, without a proof; return the results of its graph."""
    found = search_resource_paths(
        opened.graph,
        opened.context if opened.seated is None else opened.seated,
        cutoff=cutoff,
        width=width,
        intervals=intervals,
        effort=search.effort,
    )
    if found.path:
        choices = opened.choice[list(found.path)].tolist()
        if opened.seated is None:
            search.take(state, choices)
        else:
            plan = state.part.seat(choices)
            if plan is not None:
                search.accept(plan, state)
    return found


def dive(search: GroupSearch[Any]) -> None:
    """Look for a good plan not far above the bounds of the parts, a little further each time."""
    base = search.bound
    if any(state.boxed for state in search.states):  # too large for few labels
        return
    # Parts that were searched as far come in the order of their bounds before: plans are in the
    # first ones, and spare the others most.
    order = search.states
    for slack in DIVES:
        guess = base * (1 + slack)
        if guess >= search.objective or guess >= NEVER:
            return
        order = sorted(order, key=lambda s: s.bound)
        below = [state for state in order if state.bound < guess]
        act_in(search, below, partial(dive_below, guess=guess), FEW)
        if search.objective <= guess or any(state.boxed for state in search.states):
            return


def dive_below(search: GroupSearch[Any], state: PartState[Any], guess: float) -> None:
    """Look for plans of a part below `guess` seconds, by few labels."""
    if not look_below(search, state, min(guess, search.objective), DIVE_WIDTH):
        state.boxed = boxable(search, state)


def advance(search: GroupSearch[Any], state: PartState[Any], *, far: bool) -> None:
    """Look for plans of a part up to a little above its bound: little is open there. far: further
    each time.

    A search that finds nothing raises the bound. One that is not exact is tried again with more
    labels.
    """
    if state.boxed and state.bound > 0:
        climb(search, state)
        if state.done:
            place_exactly(search, state)
        return
    step = STEP * 2**state.climbs if far else STEP
    guess = state.bound * (1 + step)
    # A part without an outline has no bound yet, and ten percent above nothing is nothing.
    if state.bound <= 0 or guess * (1 + NEAR) >= search.objective:
        guess = min(search.objective, NEVER)
    if look_below(search, state, guess, WIDTHS[state.steps]):
        state.climbs += 1
    else:
        state.steps = min(state.steps + 1, len(WIDTHS) - 1)
        state.boxed = boxable(search, state)


def look_below(search: GroupSearch[Any], state: PartState[Any], guess: float, width: int) -> bool:
    """Search a part for plans below `guess` seconds; tell whether the search was exact."""
    part = state.part
    cutoff = min(guess - part.constant, NEVER)
    choices = search.outline(state, guess)
    if choices is not None and not choices.size:
        return True
    search.check_time()
    opened = part.graph(cutoff, choices)
    priced = PricedGraph(opened.graph)
    intervals = search.bounded(state, priced, cutoff, SPLITS)
    if not intervals:
        return True
    opened = opened.only(priced.open_arcs(intervals, cutoff))
    search.check_time()
    if search.solver not in LABELS and (guess >= search.objective or math.isinf(search.objective)):
        exact = backend(search, state, opened, guess)
        if exact is not None:
            return exact
    reached = None
    if opened.seated is not None:
        reached = find(search, state, opened, intervals, cutoff, min(width, DIVE_WIDTH)).reached
        cutoff = min(cutoff, search.objective - part.constant)
    found = search_resource_paths(
        opened.graph,
        opened.context,
        cutoff=cutoff,
        width=width,
        intervals=intervals,
        effort=search.effort,
        reached=reached,
    )
    state.raise_bound(min(min(found.bound, cutoff) + part.constant, NEVER), "dp")
    search.report()
    if found.path:
        search.take(state, opened.choice[list(found.path)].tolist())
        if found.exact:
            settle(search, state)
    return found.exact


def settle(search: GroupSearch[Any], state: PartState[Any]) -> None:
    """Finish with a part with a known shortest path, at least on the best links: branching nodes
    count the seats in nodes, and their residual groups are placed in all ways."""
    if not search.closed(state) and not state.boxed and boxable(search, state):
        state.boxed = True
        return
    place_exactly(search, state)
    state.done = True


def place_exactly(search: GroupSearch[Any], state: PartState[Any]) -> None:
    """Place every plan that is faster on the best links than the incumbent on the true ones.

    Labels count the best links that groups can have; paths without a placement keep the bound below
    the incumbent. If few plans are in between, placing them all closes the gap.
    """
    part, constant = state.part, state.part.constant
    if state.bound >= search.objective * (1 - PROVED) or not search.goon():
        return
    cutoff = search.objective - constant
    opened = part.unplaced(cutoff)
    if opened is None or not opened.graph.arcs:
        return
    opened, intervals = narrowed(opened, cutoff, search.goon)
    found = search_resource_paths(
        opened.graph,
        opened.context,
        cutoff=cutoff,
        intervals=intervals,
        families=opened.choice,
        most_labels=MOST_BETWEEN,
        effort=search.effort,
    )
    # What was not looked at costs at least the cutoff, or the bound, on the best links.
    least = cutoff if found.exact else found.bound
    for value, path in found.others:
        if value >= min(least, search.objective - constant):
            break
        state.raise_bound(min(least, value) + constant, "placement")
        if search.gap_reached() or not search.goon():
            least = min(least, value)
            break
        choices = opened.choice[list(path)].tolist()
        if part.at_least(choices) + constant >= search.objective:
            continue
        placed = part.placed(choices)
        if placed.plan is not None:
            search.accept(placed.plan, state)
        least = min(least, placed.bound)
    state.raise_bound(min(least + constant, search.objective), "placement")


def backend(
    search: GroupSearch[Any], state: PartState[Any], opened: OpenGraph, guess: float
) -> bool | None:
    """Let an integer program solve the residual problem below `guess` seconds; tell whether it
    proved its answer. None: labels must take over."""
    constant = state.part.constant
    explicit = state.part.explicit(opened)
    if explicit is None:
        search.notes.append(f"{state.part.name}: too much is open for {search.solver}, dp went on")
        return None
    solver = registry.get(search.solver)
    try:
        solution = solver.solve(explicit.graph, search.exactly, deadline=search.deadline)
    except (PlannerError, RuntimeError, ValueError, OSError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        search.notes.append(f"{search.solver} failed ({reason}); dp went on")
        search.solver = "dp"
        return None
    cutoff = min(guess - constant, NEVER)
    state.raise_bound(min(min(solution.bound, cutoff) + constant, NEVER), solution.solver)
    search.report()
    if solution.path:
        search.take(state, explicit.choice[list(solution.path)].tolist())
    if solution.stopped_by is Stop.USER:
        raise KeyboardInterrupt
    if solution.status is Status.OPTIMAL:
        settle(search, state)
    # Nothing below the guess: there may be something above it, which the next look sees.
    return solution.status in (Status.OPTIMAL, Status.INFEASIBLE)


# ---- the best plans that differ in more than cuts ------------------------------------------------
# Two plans are of one family when they have the same number of micro-batches and the same groups
# one after the other; they differ in cuts only, and the fastest one stands for them. All families
# below a cutoff are listed by labels that dominate only within their family; the cutoff grows until
# there are enough.


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
