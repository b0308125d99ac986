"""The search for plans that are plainer than the fastest one, and take hardly longer.

A job's plainness follows from its degrees, settings, schedule and recomputation, before its layers
are cut; only whether stages are unequal is not (`plainness`). So variants are looked at class by
class, the plainest class first, until one has a plan.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.team import Team, together
from ilp_planner.spaces.training.bounds.near_cuts import NEAR, best_spread
from ilp_planner.spaces.training.bounds.variant import (
    bounded_variants,
    crowded_bound,
    look_at_memory,
)
from ilp_planner.spaces.training.enumerate.layouts import best_layout, even_ends, fits_layout
from ilp_planner.spaces.training.enumerate.partition import best_cut
from ilp_planner.spaces.training.enumerate.plainness import (
    AGAIN,
    BLOCK,
    Traits,
    grades,
    recomputation,
)
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.search.any_layout import AnyLayout
from ilp_planner.specs.pipeline_layout import ANYHOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.optimize.search.preference import Grades, Preference
    from ilp_planner.spaces.training.enumerate.partition import CutSearch, CutTables
    from ilp_planner.spaces.training.search.parts import MegatronPart


PLAINEST = Variant(1, NOTHING)  # no variant of a part is plainer, in any row of the order
TOGETHER = 8  # questions about one part that are asked at once
FIRST_BATCH, LAST_BATCH = 8, 128  # variants that are looked at with one limit, at first and at last


class Pipeline(NamedTuple):
    """Equally plain variants of a part that differ in recomputation.

    number: of the part. one: the variant without recomputation, allowed or not. grade: of their
    recomputation.
    """

    number: int
    one: Variant
    grade: int


class Within(NamedTuple):
    """What may be asked of a part, by its number: the schedules with which plans may take so many
    seconds at most, with their grades; or else the variants with which they may."""

    number: int
    limit: float
    variants: bool = False


class Question(NamedTuple):
    """What may be asked of a variant of a part, by the part's number. bound: seconds that its plans
    take at least. equal: that a plan of equal stages may take. limit: that any plan has to
    undercut; 0.0: no other is of interest."""

    number: int
    variant: Variant
    bound: float
    equal: float
    limit: float


Asked = Within | tuple[Question, ...]


class Found(NamedTuple):
    """The ends of equal stages and of others that a variant has within the limits; none: empty."""

    even: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def offer_plainer(search: PartSearch[MegatronPart], preference: Preference) -> None:
    """Offer plans that are plainer than the chosen one, or as plain and faster, until there are
    none or the time is up. Beside a plan that is proved to be the fastest, none is faster."""
    if search.team is None:
        search.team = Team(partial(answer, search), search.limits.workers)
    fastest = preference.chosen if search.proved() else None
    found = _classes(search, preference.limit, preference.chosen.grades[:-1])
    left, size = _in_order(search, found, preference.limit), FIRST_BATCH
    while batch := [*islice(left, size)]:
        chosen, asked = preference.chosen, []
        for plain, bound, number, variant in batch:
            if plain > chosen.grades[:-1]:
                break
            alike = chosen.grades[:-1] == plain
            equal = chosen.seconds if alike and not chosen.grades[-1] else preference.limit
            limit = chosen.seconds if alike else preference.limit
            if alike and (chosen is fastest or not chosen.grades[-1]):
                limit = 0.0
            if bound < equal:
                asked.append((plain, Question(number, variant, bound, equal, limit)))
        answers = _answers(search, [question for _, question in asked])
        for (plain, question), one in zip(asked, answers, strict=True):
            if plain > preference.chosen.grades[:-1]:
                return
            part = search.states[question.number].part
            for ends in filter(None, one or ()):
                preference.offer(part.group_plan(question.variant, ends))
        if not search.goon() or batch[-1][0] > preference.chosen.grades[:-1]:
            return
        size = min(2 * size, LAST_BATCH)


def answer(search: PartSearch[MegatronPart], question: Asked) -> Any:
    """Answer a question, with None for what is left when the time is up. The search itself stays as
    it is."""
    if isinstance(question, Within):
        part = search.states[question.number].part
        look = _variants_within if question.variants else _pipelines_within
        return look(part, question.limit) if search.goon() else None
    if question and search.goon():  # all are about one part
        part = search.states[question[0].number].part
        look_at_memory(part, [one.variant for one in question])
    return [
        _look(search.states[one.number].part, one, search.goon) if search.goon() else None
        for one in question
    ]


def _asked(search: PartSearch[MegatronPart], questions: Sequence[tuple[int, Asked]]) -> list[Any]:
    """Return the answers to questions, each after the number of its part, in order."""
    assert search.team is not None
    found = search.team.ask(questions)
    # Another process was begun with less time, or has reached the memory limit by itself.
    return [
        answer(search, question) if own is None or (isinstance(own, list) and None in own) else own
        for (_, question), own in zip(questions, found, strict=True)
    ]


def _answers(search: PartSearch[MegatronPart], questions: Sequence[Question]) -> list[Found | None]:
    """Return the answers to questions, in order; those about a part are asked together."""
    groups = together([question.number for question in questions], TOGETHER)
    asked = [tuple(questions[place] for place in group) for group in groups]
    found: list[Found | None] = [None] * len(questions)
    answers = _asked(search, [(one[0].number, one) for one in asked])
    for group, own in zip(groups, answers, strict=True):
        for place, one in zip(group, own, strict=True):
            found[place] = one
    return found


def _in_order(
    search: PartSearch[MegatronPart], found: dict[Grades, list[Pipeline]], limit: float
) -> Iterator[tuple[Grades, float, int, Variant]]:
    """Yield the variants that may be within the limit, the plainest class first, in each the least
    bound first."""
    known: dict[int, dict[Pipeline, list[tuple[Variant, float]]]] = {}
    for plain in sorted(found):
        numbers = dict.fromkeys(one.number for one in found[plain])
        unknown = [number for number in numbers if number not in known]
        answers = _asked(search, [(n, Within(n, limit, variants=True)) for n in unknown])
        for number, bounds in zip(unknown, answers, strict=True):
            own = known.setdefault(number, {})
            for variant, bound in (bounds or {}).items():
                grade = recomputation(variant.recompute)
                one = Pipeline(number, variant.computing(NOTHING), grade)
                own.setdefault(one, []).append((variant, bound))
        some = [
            (bound, one.number, variant)
            for one in found[plain]
            for variant, bound in known[one.number].get(one, ())
        ]
        for bound, number, variant in sorted(some, key=lambda entry: entry[0]):
            yield plain, bound, number, variant


def _look(part: MegatronPart, question: Question, goon: Callable[[], bool]) -> Found:
    """Look for plans of a variant."""
    variant = question.variant
    least = crowded_bound(part, variant)
    if least > max(question.equal, question.limit):
        return Found()
    even = even_ends(part, variant)
    if even and not _is_plan(part, variant, even, question.equal):
        even = ()
    if max(least, question.bound) >= question.limit:
        return Found(even)
    cut = _best(part, variant, question.limit, goon).cut
    return Found(even, () if cut is None else cut.ends)


def _classes(
    search: PartSearch[MegatronPart], limit: float, most: Grades
) -> dict[Grades, list[Pipeline]]:
    """Return the variants that may take at most `limit` seconds, by plainness, equal stages
    assumed; less plain ones than `most` are left out."""
    found: dict[Grades, list[Pipeline]] = defaultdict(list)
    numbers = [
        number
        for number, state in enumerate(search.states)
        if state.bound <= limit and _grades(state.part, PLAINEST) <= most
    ]
    # Of parts with all bounds by arithmetic there is nothing to ask: they are within the limit.
    unknown = [number for number in numbers if not search.states[number].part.bounded]
    asked = _asked(search, [(number, Within(number, limit)) for number in unknown])
    if not search.goon():
        return {}
    answers = dict(zip(unknown, asked, strict=True))
    for number in numbers:
        part = search.states[number].part
        pairs = answers[number] if number in answers else _pipelines(part)
        again = {recomputation(one) for one in part.recomputations} if pairs else set()
        if part.costs.runtime.blocks:
            again.add(BLOCK)
        for one, plain in pairs.items():
            for grade in again:
                own = (*plain[:AGAIN], grade, *plain[AGAIN + 1 :])
                if own <= most:
                    found[own].append(Pipeline(number, one, grade))
    return found


def _pipelines_within(part: MegatronPart, limit: float) -> dict[Variant, Grades]:
    """Return the schedules of a part, without recomputation, and how plain they are; none if no
    plan takes at most so many seconds."""
    if part.trivial_bound() > limit or part.least_bound() > limit:
        return {}
    return _pipelines(part)


def _pipelines(part: MegatronPart) -> dict[Variant, Grades]:
    """Return the schedules of a part, without recomputation, and how plain they are."""
    return {one: _grades(part, one) for one in part.pipelines}


def _variants_within(part: MegatronPart, limit: float) -> dict[Variant, float]:
    """Return the variants of a part that may take at most so many seconds, with their bounds."""
    return bounded_variants(part, nextafter(limit, inf))[0]


def _grades(part: MegatronPart, variant: Variant) -> Grades:
    """Return how plain the plans of a variant are, but for unequal stages."""
    traits = Traits(
        runtime=part.costs.runtime,
        settings=part.settings,
        tp=part.degrees.tp,
        pp=part.degrees.pp,
        virtual=variant.virtual,
        recompute=variant.recompute,
        turn=variant.turn,
        schedule=variant.schedule,
    )
    return grades(traits)[:-1]


def _is_plan(part: MegatronPart, variant: Variant, ends: tuple[int, ...], limit: float) -> bool:
    """Tell whether stages that end there are equal, fit, and take at most `limit` seconds."""
    sizes = [stop - start for start, stop in pairwise(part.stops(variant, ends))]
    sizes[0] -= 1
    sizes[-1] -= 1
    if len({*sizes}) > 1 or not part.keeps(variant, ends) or part.seconds(variant, ends) > limit:
        return False
    job = part.job_of_stages(variant, part.stops(variant, ends))
    return fits_layout(part, replace(part.memory(variant), job=job))


def _best(
    part: MegatronPart, variant: Variant, limit: float, goon: Callable[[], bool]
) -> CutSearch:
    """Return a good cut of a variant that takes less than `limit` seconds."""
    if part.spread(variant):

        def solve(tables: CutTables, cutoff: float) -> CutSearch:
            return best_cut(tables, cutoff, goon)

        return best_spread(part, variant, limit, solve, goon, NEAR[0])
    if variant.remainder == ANYHOW:
        return AnyLayout(part, variant).look(limit, goon)
    return best_layout(part, variant, limit, goon)
