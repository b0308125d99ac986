"""Good plans of Megatron's space soon, without a proof.

A plan is looked for if memory is least, with the most recomputation: in some parts before anything
is bounded, then near the best one, and again in parts with the least bounds. From there on less is
recomputed, for every number of pipeline ranks in turn.
"""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.spaces.training.bounds.cut_tables import timed_tables
from ilp_planner.spaces.training.bounds.schedule import LeastCuts, last_room
from ilp_planner.spaces.training.bounds.variant import (
    bounded_variants,
    never_fits,
    whole_bounds,
)
from ilp_planner.spaces.training.enumerate.distance import nearest
from ilp_planner.spaces.training.enumerate.partition import least_peak
from ilp_planner.spaces.training.enumerate.variants import leanest, lightest
from ilp_planner.spaces.training.search.possible import likely_degrees, plainest_part

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.spaces.training.search.search import Looked, MegatronSearch

FEW = 8  # choices of degrees that are not worth a choice among them
LIKELY, RANKS = 16, 2  # groups of degrees that are looked at together; pipeline ranks of each
CLOSE = 0.15  # relative: a first plan is good enough if the least of these bounds is so near
DIVES = 200  # parts in which a first plan is looked for
DIVES_BESIDE = 16  # likewise, of those with the least bounds, where there is a plan already
AFTER = 40  # of them that are looked at after a plan was found
SAMPLES = 100  # parts in which one is looked for before there is any bound
SOONEST = 12  # of the samples, in which any plan will do
AFTER_SAMPLE, POLISHED_SAMPLE = 4, 8  # of the samples
NEAREST = 12  # parts that are near to that of a plan
POLISHED, TRIED = 40, 8  # parts in which less is computed again, and variants of each
AT_ONCE = 12  # of these parts


class Likely(NamedTuple):
    """A variant that may be a good one. bound: seconds that its plans take at least."""

    bound: float
    part: MegatronPart
    variant: Variant


def likely_variants(
    problem: Problem[MegatronCosts], goon: Callable[[], bool]
) -> Iterator[list[Likely]]:
    """Yield variants that good plans mostly have, some at a time, the least bounds of schedules
    first; nothing if there are few degrees.

    Degrees that differ in data and pipeline parallelism alone are one group. Of a group, those with
    the fewest pipeline ranks count that fit into memory with nothing computed again, or as little
    as is allowed, and those with the next more. If none fit, those that do with the most
    recomputation count. Each counts with the fewest virtual stages, which need the least memory,
    and with the schedule that has the least bound.
    """
    groups = likely_degrees(problem, problem.costs)
    left = iter(groups if sum(map(len, groups)) > FEW else ())
    while some := [*islice(left, LIKELY)]:
        if found := _likely_of(problem, some, goon):
            yield found


def likely_beside(
    problem: Problem[MegatronCosts], best: MegatronDegrees, goon: Callable[[], bool]
) -> list[Likely]:
    """Return variants as `likely_variants` has them, of the groups of degrees that have twice or
    half of one degree of a plan."""
    own = _sizes(best)
    some = [
        group
        for group in likely_degrees(problem, problem.costs)
        if sorted(max(a, b) / min(a, b) for a, b in zip(own, _sizes(group[0]), strict=True))
        == [*[1.0] * (len(own) - 1), 2.0]
    ]
    return _likely_of(problem, some, goon)


def _sizes(one: MegatronDegrees) -> tuple[int, ...]:
    return one.tp, one.cp, one.ep, one.micro_batch


def _likely_of(
    problem: Problem[MegatronCosts],
    groups: Sequence[Sequence[MegatronDegrees]],
    goon: Callable[[], bool],
) -> list[Likely]:
    """Return likely variants of groups of degrees, the least bounds first."""
    for choose in (lightest, leanest):
        found: list[Likely] = []
        for group in groups:
            found += _with_fewest_ranks(problem, group, choose, goon)
        if found:
            return sorted(found, key=lambda one: one.bound)
    return []


def _with_fewest_ranks(
    problem: Problem[MegatronCosts],
    group: Sequence[MegatronDegrees],
    choose: Callable[[MegatronPart], Variant],
    goon: Callable[[], bool],
) -> list[Likely]:
    """Return variants of each of the parts with the fewest pipeline ranks that memory does not rule
    out."""
    found: list[MegatronPart] = []
    likely: list[Likely] = []
    for degrees in group:
        part = plainest_part(problem, problem.costs, degrees) if goon() else None
        if part is None or not part.fits_at_all:
            continue
        variant = choose(part)
        if variant.divided or never_fits(part, variant):  # of divided ones memory is unknown
            continue
        found.append(part)
        likely += [Likely(scheduled_bound(part, v), part, v) for v in _schedules(part, variant)]
        if len(found) == RANKS:
            break
    return likely


def _schedules(part: MegatronPart, variant: Variant) -> dict[Variant, None]:
    """Return a variant, and the same with the schedule that has the least bound."""
    every = [one for one in part.pipelines if not one.divided]
    bounds = whole_bounds(part, every, (variant.recompute,))
    place = min(range(len(every)), key=lambda place: float(bounds[place][1][0]))
    return dict.fromkeys((variant, every[place].computing(variant.recompute)))


def scheduled_bound(part: MegatronPart, variant: Variant) -> float:
    """Return a lower bound in seconds of a variant's plans, memory aside: of its schedule, if its
    cuts are between ranks."""
    if not part.spread(variant):
        return part.bound(variant)
    tables = timed_tables(part, variant)
    least = LeastCuts(tables, last_room(tables)).seconds
    return least + least_peak(tables) + part.ranks.constant


def look_at_likely(search: MegatronSearch, likely: Sequence[Likely]) -> None:
    """Look for a plan in parts, each with one variant that may be a good one."""
    for number, one in enumerate(likely):
        if one.bound >= search.cutoff or not search.goon():
            return
        search.work(number, one.variant)


def look_at_samples(search: MegatronSearch) -> None:
    """Look for a plan in a few of the parts, before anything is bounded: for any plan at all in
    every eighth of them, so that there is one soon, and then in all."""
    chosen = samples(search.parts)
    dive(search, chosen[:: SAMPLES // SOONEST], 0, 0)
    dive(search, chosen, AFTER_SAMPLE, POLISHED_SAMPLE)


def dive(
    search: MegatronSearch, numbers: Sequence[int], most: int = AFTER, polished: int = POLISHED
) -> None:
    """Look for a first plan in some of the parts, and in so many at `most` after it, if memory is
    least: with the most recomputation. Then `polish` so many parts."""
    firsts = []
    for number in numbers:
        if not search.goon():
            break
        if search.parts[number].fits_at_all:
            variant = leanest(search.parts[number])
            firsts.append((search.parts[number].bound(variant), number, variant))
    firsts.sort(key=lambda entry: entry[:2])
    more, before = len(firsts), search.cutoff
    for place, (bound, number, variant) in enumerate(firsts[:DIVES]):
        if bound >= search.cutoff or place > more or not search.goon():
            break
        if (number, variant) not in search.done:
            search.work(number, variant)
        if search.cutoff < before:
            more = min(more, place + most)
    turns = in_turns([number for _, number, _ in firsts], search.parts)
    fitting = (number for number in turns[:DIVES] if not search.is_too_large(number))
    polish(search, islice(fitting, polished))


def polish(search: MegatronSearch, numbers: Iterable[int]) -> None:
    """Look in some parts for a plan with less recomputation: in several parts at once, in each up
    to the best plan before."""
    left = iter(numbers)
    while (some := [*islice(left, AT_ONCE)]) and search.goon():
        for number, looks in zip(some, search.ask_polished(some), strict=True):
            for variant, looked in looks:
                if (number, variant) not in search.done:
                    search.take_look(number, variant, looked, search.cutoff)


def polished(
    search: MegatronSearch,
    number: int,
    cutoff: float,
    turns: Mapping[Variant, int],
    done: Collection[Variant],
) -> list[tuple[Variant, Looked]]:
    """Return what is found of variants of a part, the fastest ones first, until one has a plan
    below the cutoff: few are tried. The search itself stays as it is.

    turns: that variants had. done: the ones that are looked at no more.
    """
    bounds, _ = bounded_variants(search.parts[number], cutoff)
    single = [variant for variant in bounds if variant.virtual == 1]
    had, ended, found = Counter(turns), {*done}, []
    for variant in (
        *heapq.nsmallest(TRIED, single, key=bounds.__getitem__),
        *heapq.nsmallest(TRIED, bounds, key=bounds.__getitem__),
    ):
        if variant in ended or not search.goon():
            continue
        looked = search.look(number, variant, cutoff, had[variant])
        found.append((variant, looked))
        if looked.best is not None and looked.best[1].value < cutoff:
            break
        had[variant] += 1
        if search.ends(looked, had[variant], cutoff):
            ended.add(variant)
    return found


def climb(search: MegatronSearch) -> None:
    """Look for better plans in the parts that are nearest to that of the best one, as long as there
    are any: of each part once."""
    seen: set[int] = set()
    while search.best and search.goon():
        before, best = search.cutoff, search.best[0].plan
        left = (number for number in range(len(search.parts)) if number not in seen)
        near = nearest(search.parts, best, left, NEAREST)
        seen.update(near)
        polish(search, near)
        if search.cutoff >= before:
            return


def samples(parts: Sequence[MegatronPart]) -> list[int]:
    """Return the numbers of some parts, spread evenly over parts of the plainest settings and order
    of ranks: a plan is looked for in them before anything is bounded."""
    plainest, others = by_settings(parts)
    chosen = plainest or others
    return chosen[:: -(-len(chosen) // SAMPLES)]


def by_settings(parts: Sequence[MegatronPart]) -> tuple[list[int], list[int]]:
    """Return the numbers of parts: of the plainest settings and order of ranks, and all others."""
    plainest: list[int] = []
    others: list[int] = []
    for number, part in enumerate(parts):
        alike = others if part.degrees.choice + part.degrees.order else plainest
        alike.append(number)
    return plainest, others


def in_turns(numbers: Iterable[int], parts: Sequence[MegatronPart]) -> list[int]:
    """Return numbers of parts in another order: the first ones of every number of pipeline ranks
    first, then the second ones, and so on."""
    seen = Counter[int]()
    turns = []
    for number in numbers:
        ranks = parts[number].degrees.pp
        turns.append((seen[ranks], number))
        seen[ranks] += 1
    return [number for _, number in sorted(turns, key=lambda turn: turn[0])]
