"""The search of Megatron's space: the variant with the least bound first, until no bound is below
the best plan.

A part is bounded by arithmetic, then by its variants; a variant by a lower bound of its schedule
for all cuts (`bounds.schedule`). Cuts that are near to that are simulated, and the best one under a
formula, by dynamic programming or by the solver that was asked for. A variant with a bound below
the best plan waits for its turn, and more of its cuts are simulated.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.numerics import FINE_ROUNDING, NEVER
from ilp_planner.base.team import Team, together
from ilp_planner.costs.training.ranks import shared_of
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import LAYOUT
from ilp_planner.optimize.result import Ranked, Stop
from ilp_planner.optimize.solvers import registry
from ilp_planner.spaces.training.bounds.near_cuts import NEAR, ROUNDING, best_spread
from ilp_planner.spaces.training.bounds.variant import (
    bounded_variants,
    crowded_bound,
    kind_of,
    look_at_memory,
    never_fits,
)
from ilp_planner.spaces.training.bounds.work import ARITHMETIC
from ilp_planner.spaces.training.enumerate.layouts import best_layout
from ilp_planner.spaces.training.enumerate.partition import Cut, CutSearch, CutTables, best_cut
from ilp_planner.spaces.training.enumerate.recomputations import FULL, whole_stages
from ilp_planner.spaces.training.enumerate.variants import in_turns, leanest
from ilp_planner.spaces.training.search.any_layout import AnyLayout
from ilp_planner.spaces.training.search.cut_graph import cut_graph, cut_of
from ilp_planner.spaces.training.search.few import few_plans, judge_each
from ilp_planner.spaces.training.search.first_plans import (
    CLOSE,
    DIVES,
    DIVES_BESIDE,
    SAMPLES,
    by_settings,
    climb,
    dive,
    likely_beside,
    likely_variants,
    look_at_likely,
    look_at_samples,
    polished,
)
from ilp_planner.spaces.training.search.membership import variant_of
from ilp_planner.spaces.training.search.plainer import answer as answer_plainer
from ilp_planner.spaces.training.search.possible import (
    choose_together,
    megatron_parts,
    plainest_parts,
)
from ilp_planner.specs.pipeline_layout import ANYHOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.first_plans import Likely
    from ilp_planner.spaces.training.search.parts import MegatronPart


# ---- search --------------------------------------------------------------------------------------


SCHEDULE = "schedule bound"
FIRST_BATCH, LAST_BATCH = (
    16,
    256,
)  # variants that are looked at with one cutoff, at first and at last
LIGHT = 8  # bounds of parts that count as one variant
TOGETHER = 8  # things to know of parts that share results, in one question
UNBOUNDED, EARLIEST, TRIVIAL, BOUNDED = -4, -3, -2, -1  # how well a part in the queue is bounded
NEARBY = 2  # turns of the best plan's variant, before others have one
BETWEEN_REPORTS = 0.2  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The best plan of a variant: seconds."""

    value: float
    plan: GroupPlan
    part: int
    variant: Variant


class Entry(NamedTuple):
    """What waits for its turn: a part, or one of its variants. bound: seconds, at least. place: how
    well a part is bounded (`UNBOUNDED`: not at all), or the place of the variant in its part."""

    bound: float
    number: int
    place: int
    variant: Variant | None = None

    @property
    def alone(self) -> bool:
        """Whether what is to know depends on what was known before."""
        return self.variant is not None and self.variant.remainder == ANYHOW


class Question(NamedTuple):
    """What may be asked: the next thing to know of entries, as `MegatronSearch.answer` has it.
    turns: of their variants. cutoff: in seconds. behind: the variants that wait for each."""

    entries: tuple[Entry, ...]
    turns: tuple[int, ...]
    cutoff: float
    behind: tuple[tuple[Variant, ...], ...]


class Polish(NamedTuple):
    """A question for the variants of a part with little recomputation, as `polished` takes it."""

    number: int
    cutoff: float
    turns: Mapping[Variant, int]
    done: tuple[Variant, ...]


class Looked(NamedTuple):
    """What was found of a variant. bound: of its plans, in seconds. best: the fastest cut below the
    cutoff, with the microbatch groups that it has. crowded: of the first look, as
    `MegatronPart.crowded` has it. behind: `crowded_bound` of the variants that wait for it."""

    bound: float
    best: tuple[Variant, Cut] | None = None
    crowded: Mapping[int, int] | None = None
    behind: tuple[float, ...] = ()


class MegatronSearch:
    """Solves variants until nothing can be among the `top` best.

    Parameters
    ----------
    goon: tells whether there is time left. solve: finds the best cut of tables below a cutoff.
    accept: called with every plan found. gap: relative; smaller gains are not searched. floor:
        lower bound of plans in seconds, known before any part is examined. team: processes that
        look at parts at once; what is found does not depend on them.
    """

    def __init__(
        self,
        parts: Sequence[MegatronPart],
        *,
        goon: Callable[[], bool],
        solve: Callable[[CutTables, float], CutSearch] | None = None,
        accept: Callable[[GroupPlan], None] = lambda plan: None,
        raised: Callable[[int], None] = lambda number: None,
        top: int = 1,
        gap: float = 0.0,
        floor: float = 0.0,
        team: Team[Any, Any] | None = None,
    ) -> None:
        self.gap, self.floor = max(gap, FINE_ROUNDING), floor
        self.team: Team[Any, Any] = team or Team(self.answer, 1)
        self.parts, self.goon, self.accept, self.raised, self.top = parts, goon, accept, raised, top
        self.solve = solve or (lambda tables, cutoff: best_cut(tables, cutoff, goon))
        self.bounds = [0.0] * len(parts)
        self.sources = [""] * len(parts)
        self.open: list[dict[Variant, float]] = [{} for _ in parts]
        self.closed = [NEVER] * len(parts)
        self.above = [NEVER] * len(parts)  # bounds of variants that were never of interest
        self.best: list[Solved] = []
        self.ceiling = NEVER
        self.opened: set[int] = set()
        self.turns: Counter[tuple[int, Variant]] = Counter()
        self.done: set[tuple[int, Variant]] = set()
        self.layouts: dict[tuple[int, Variant], AnyLayout] = {}
        self.behind: dict[tuple[int, Variant | None], list[Entry]] = {}

    @property
    def cutoff(self) -> float:
        """Seconds: plans that take as long are of no interest."""
        known = self.best[self.top - 1].value if len(self.best) >= self.top else NEVER
        return min(known, self.ceiling)

    def start(self, search: PartSearch[MegatronPart]) -> None:
        """Begin with the plan and the bounds that a search has already."""
        self.bounds = [state.bound for state in search.states]
        self.sources = [state.source for state in search.states]
        self.ceiling = min(search.objective, NEVER)
        plan = search.plan
        number = next((n for n, part in enumerate(self.parts) if plan and part.holds(plan)), None)
        if plan is None or number is None:
            return
        variant = variant_of(self.parts[number], plan)
        if variant is not None:
            value = search.objective
            self.best = [Solved(value=value, plan=plan, part=number, variant=variant)]

    def run(self, *, sampled: bool = False, started: bool = False, closing: bool = False) -> bool:
        """Search; tell whether it came to the end.

        sampled: some parts were looked at before. started: it begins with a plan that a search came
        to its end with, or one like it, and there is hardly a better one near it. closing: the
        ceiling is a good plan's of another set of nodes, so that no first plan is looked for.
        """
        queue: list[Entry] = []
        if not (sampled or started or closing):
            look_at_samples(self)
        if not (started or closing):
            climb(self)
        plainest, others = by_settings(self.parts)
        for numbers, satisfied in ((plainest, started), (others, True)):
            if not self.bound_first(numbers):
                return False
            queue += [Entry(self.bounds[number], number, EARLIEST) for number in numbers]
            if not (closing or (satisfied and self.best)):
                most = DIVES_BESIDE if self.cutoff < NEVER else DIVES
                dive(self, [entry.number for entry in heapq.nsmallest(most, queue)])
        heapq.heapify(queue)
        if not (closing or self.best):
            dive(self, range(len(self.parts)))
        size = FIRST_BATCH
        while queue:
            if queue[0].bound >= self.cutoff * (1 - self.gap):
                return True
            if not self.goon():
                return False
            batch, before = self.next_of(queue, size), self.cutoff
            for entry, answer in zip(batch, self.ask(batch), strict=True):
                if answer is None:  # the time is up
                    heapq.heappush(queue, entry)
                elif entry.place == BOUNDED:
                    left = self.take_variants(entry.number, *answer)
                    for first in self.firsts(entry.number, left):
                        heapq.heappush(queue, first)
                elif entry.variant is None:
                    self.bounds[entry.number] = max(entry.bound, min(answer, NEVER))
                    self.raised(entry.number)
                    again = Entry(self.bounds[entry.number], entry.number, entry.place + 1)
                    self.parts[entry.number].bounded = again.place == BOUNDED
                    heapq.heappush(queue, again)
                else:
                    if (entry.number, entry.variant) not in self.done:
                        self.take_look(entry.number, entry.variant, answer, self.cutoff)
                    if (entry.number, entry.variant) not in self.done:
                        least = self.open[entry.number][entry.variant]
                        heapq.heappush(queue, entry._replace(bound=least))
                    self.release(queue, entry, answer.behind)
            size = (
                max(FIRST_BATCH, size // 2) if self.cutoff < before else min(2 * size, LAST_BATCH)
            )
        return True

    def bound_first(self, numbers: Sequence[int]) -> bool:
        """Bound parts by their products, and by their kernels where that leaves them open; tell
        whether there was time for all."""
        alike: dict[tuple[object, ...], list[int]] = {}
        room = self.cutoff * (1 - self.gap)
        before: MegatronPart | None = None
        for number in numbers:
            if self.bounds[number] > self.floor:
                continue
            part = self.parts[number]
            if before is not None:
                part.share_fill(before)
            before = part
            least = part.earliest_bound(part.least_products())
            if least >= room:
                self.take_arithmetic(number, least)
            else:
                alike.setdefault(part.alone, []).append(number)
        known = shared_of(self.parts[0].costs.model).known_least() if alike else {}
        unknown = [key for key in alike if key not in known]
        answers = self.ask([Entry(0.0, alike[key][0], UNBOUNDED) for key in unknown])
        for key, least in zip(unknown, answers, strict=True):
            if least is None:
                return False
            known[key] = least
        for key, group in alike.items():
            for number in group:
                self.take_arithmetic(number, self.parts[number].earliest_bound(known[key]))
        return self.goon()

    def take_arithmetic(self, number: int, bound: float) -> None:
        """Take the first bound of a part, in seconds."""
        self.bounds[number], self.sources[number] = max(self.floor, bound), ARITHMETIC
        self.raised(number)

    # ---- questions that any process may answer --------------------------------------------------

    def next_of(self, queue: list[Entry], size: int) -> list[Entry]:
        """Take the entries with the least bounds below the cutoff off the queue: at most so many
        variants, and more of what takes less time."""
        batch: list[Entry] = []
        weight = 0
        while queue and weight < LIGHT * size:
            if queue[0].bound >= self.cutoff * (1 - self.gap):
                break
            entry = heapq.heappop(queue)
            if entry.variant is None or (entry.number, entry.variant) not in self.done:
                batch.append(entry)
                weight += LIGHT if entry.place >= BOUNDED else 1
            else:
                self.release(queue, entry)
        return batch

    def firsts(self, number: int, left: dict[Variant, float]) -> list[Entry]:
        """Return the variants of a part that are looked at first: of those that memory rules out
        for one reason, the one with the least bound. The others wait for it."""
        alike: dict[tuple[object, ...], list[Entry]] = {}
        for place, (variant, least) in enumerate(left.items()):
            entry = Entry(least, number, place, variant)
            alike.setdefault(kind_of(variant), []).append(entry)
        found = []
        for entries in alike.values():
            first, *others = sorted(entries, key=lambda one: one[:3])
            found.append(first)
            self.behind[number, first.variant] = others
        return found

    def release(self, queue: list[Entry], entry: Entry, known: Sequence[float] = ()) -> None:
        """Let the variants have their turn that wait for this one. known: their `crowded_bound`, if
        that is known."""
        number, part = entry.number, self.parts[entry.number]
        gone = []
        for place, one in enumerate(self.behind.pop((number, entry.variant), ())):
            if one.variant is None or (number, one.variant) in self.done:
                continue
            crowded = known[place] if known else crowded_bound(part, one.variant)
            bound = max(one.bound, crowded)
            if bound >= NEVER:
                gone.append(one.variant)
                continue
            if one.variant in self.open[number]:
                self.open[number][one.variant] = bound
            heapq.heappush(queue, one._replace(bound=bound))
        if gone:
            self.close(number, *gone)
        elif number in self.opened:
            self.settle(number)

    def ask(self, entries: Sequence[Entry]) -> list[Any]:
        """Return what there is to know of entries, in order: perhaps of other processes, but for
        layouts that are searched step by step. What shares results is asked together."""
        keys = [
            (
                entry.variant is None,
                entry.alone,
                self.family(entry.number),
                entry.place if entry.variant is None else entry.number,
            )
            for entry in entries
        ]
        groups = together(keys, TOGETHER)
        questions = [self.question([entries[place] for place in group]) for group in groups]
        others = [
            (self.family(question.entries[0].number), question)
            for question in questions
            if not question.entries[0].alone
        ]
        answers = iter(self.team.ask(others))
        found: list[Any] = [None] * len(entries)
        for group, question in zip(groups, questions, strict=True):
            own = None if question.entries[0].alone else next(answers)
            # Another process may have reached the memory limit by itself for a moment.
            if own is None or any(one is None for one in own):
                own = self.answer(question)
            for place, one in zip(group, own, strict=True):
                found[place] = one
        return found

    def ask_polished(self, numbers: Sequence[int]) -> list[list[tuple[Variant, Looked]]]:
        """Return what `polished` finds in parts, perhaps in other processes."""
        turns: dict[int, dict[Variant, int]] = {number: {} for number in numbers}
        done: dict[int, list[Variant]] = {number: [] for number in numbers}
        for (number, variant), count in self.turns.items():
            if number in turns:
                turns[number][variant] = count
        for number, variant in self.done:
            if number in done:
                done[number].append(variant)
        asked = [Polish(n, self.cutoff, turns[n], tuple(done[n])) for n in numbers]
        answers = self.team.ask([(self.family(one.number), one) for one in asked])
        return [
            self.answer(one) if own is None else own
            for one, own in zip(asked, answers, strict=True)
        ]

    def question(self, entries: Sequence[Entry]) -> Question:
        """Return what is to be asked of entries."""
        turns = [0 if e.variant is None else self.turns[e.number, e.variant] for e in entries]
        behind = tuple(
            tuple(one.variant for one in self.waiting(entry) if one.variant) for entry in entries
        )
        return Question(tuple(entries), tuple(turns), self.cutoff, behind)

    def waiting(self, entry: Entry) -> list[Entry]:
        """Return the variants that wait for one: until it has had a turn."""
        return self.behind.get((entry.number, entry.variant), []) if entry.variant else []

    def family(self, number: int) -> tuple[int, ...]:
        """Return what parts have in common that share most results."""
        d = self.parts[number].degrees
        return d.tp, d.cp, d.ep, d.etp, d.micro_batch

    def answer(self, question: Question | Polish) -> Any:
        """Answer a question, with None for what is left when the time is up. The search itself
        stays as it is."""
        if isinstance(question, Polish):
            return polished(self, *question)
        several: dict[int, list[Variant]] = {}
        every = [*zip(question.entries, question.turns, question.behind, strict=True)]
        for entry, turn, behind in every:
            if entry.variant is not None and not turn:
                several.setdefault(entry.number, []).extend((entry.variant, *behind))
        for number, variants in several.items() if self.goon() else ():
            look_at_memory(self.parts[number], variants)
        return [
            self.known_of(entry, turn, question.cutoff, behind) if self.goon() else None
            for entry, turn, behind in every
        ]

    def known_of(
        self, entry: Entry, turn: int, cutoff: float, behind: Sequence[Variant] = ()
    ) -> Any:
        """Return the next thing to know of an entry. behind: variants that wait for it."""
        part = self.parts[entry.number]
        if entry.variant is not None:
            looked = self.look(entry.number, entry.variant, cutoff, turn)
            return looked._replace(behind=tuple(crowded_bound(part, one) for one in behind))
        if entry.place == BOUNDED:
            return bounded_variants(part, cutoff)
        if entry.place == TRIVIAL:
            return part.least_bound()
        return part.trivial_bound() if entry.place == EARLIEST else part.least_alone()

    def improve(self) -> None:
        """Look at layouts near to that of the best plan, and at a few others of its variant."""
        for entry in self.best[:1]:
            key = entry.part, entry.variant
            while self.turns[key] < NEARBY and key not in self.done and self.goon():
                self.work(*key)

    def expand(self, number: int, cutoff: float | None = None) -> dict[Variant, float]:
        """Bound the variants of a part that are not solved; return those below the cutoff."""
        cutoff = self.cutoff if cutoff is None else cutoff
        return self.take_variants(number, *bounded_variants(self.parts[number], cutoff))

    def take_variants(
        self, number: int, found: dict[Variant, float], rest: float
    ) -> dict[Variant, float]:
        """Take the bounds of a part's variants, and the least one of those above the cutoff; return
        the variants that are not solved."""
        least = self.bounds[number]
        left = {v: bound for v, bound in found.items() if (number, v) not in self.done}
        self.open[number] = {v: max(least, min(bound, NEVER)) for v, bound in left.items()}
        self.above[number] = max(least, min(rest, NEVER))
        self.opened.add(number)
        self.settle(number)
        return dict(self.open[number])

    def prove(self, number: int, claimed: float) -> float:
        """Return a bound on a part, as high as `claimed` seconds if that is true."""
        self.bounds[number] = max(self.floor, min(self.parts[number].least_bound(), NEVER))
        if self.bounds[number] < claimed:
            for variant, least in self.expand(number, claimed).items():
                while least < claimed and (number, variant) not in self.done:
                    self.work(number, variant, claimed)
                    least = self.open[number].get(variant, NEVER)
        return self.bounds[number]

    def work(self, number: int, variant: Variant, cutoff: float | None = None) -> None:
        """Look for plans of a variant below the cutoff, and bound it, until it is done."""
        cutoff = self.cutoff if cutoff is None else cutoff
        looked = self.look(number, variant, cutoff, self.turns[number, variant])
        self.take_look(number, variant, looked, cutoff)

    def look(self, number: int, variant: Variant, cutoff: float, turn: int) -> Looked:
        """Look for plans of a variant below the cutoff, and bound it. At first with the smallest
        microbatch groups alone: plans come soon, and all groups have one bound by arithmetic."""
        part = self.parts[number]
        crowded: Mapping[int, int] | None = None
        if not turn and variant.divided and never_fits(part, variant):
            return Looked(NEVER)
        if not turn and not variant.divided:
            least = crowded_bound(part, variant)
            crowded = part.crowded[kind_of(variant)]
            if least >= cutoff:
                return Looked(least, crowded=crowded)
        most, bound, best = NEAR[turn], NEVER, None
        for place, one in enumerate(in_turns(part, variant)):
            if place and (not turn or not self.goon()):
                bound = min(bound, part.bound(variant))
                break
            limit = cutoff if best is None else best[1].value
            if part.spread(variant):
                found = best_spread(part, one, limit, self.solve, self.goon, most)
            elif variant.remainder == ANYHOW:
                found = self.any_layout(number, one).look(limit, self.goon, turn)
            else:
                found = best_layout(part, one, limit, self.goon)
            bound = min(bound, found.bound)
            best = best if found.cut is None else (one, found.cut)
        return Looked(bound, best, crowded)

    def take_look(self, number: int, variant: Variant, looked: Looked, cutoff: float) -> None:
        """Take what was found of a variant."""
        part, key = self.parts[number], (number, variant)
        if looked.crowded:
            kind = kind_of(variant)
            part.crowded.setdefault(kind, {}).update(looked.crowded)
            if looked.bound >= NEVER and looked.best is None and never_fits(part, variant):
                self.close(number, variant)
                return
        self.turns[key] += 1
        if looked.best is not None and looked.best[1].value < cutoff:
            turned, cut = looked.best
            plan = part.group_plan(turned, cut.ends)
            entry = Solved(value=cut.value, plan=plan, part=number, variant=variant)
            if self.top == 1 or not (whole_stages(plan) and FULL in part.recomputations):
                others = [e for e in self.best if (e.part, e.variant) != key]
                self.best = sorted([*others, entry], key=lambda e: e.value)[: self.top]
            self.accept(plan)
            cutoff = cut.value
        if self.ends(looked, self.turns[key], cutoff) or not self.goon():
            self.close(number, variant, bound=looked.bound)
        elif number in self.opened:
            self.open[number][variant] = looked.bound
            self.settle(number)

    @staticmethod
    def ends(looked: Looked, turns: int, cutoff: float) -> bool:
        """Tell whether a variant is looked at no more, after so many turns."""
        return looked.bound >= cutoff * (1 - ROUNDING) or turns == len(NEAR)

    def any_layout(self, number: int, variant: Variant) -> AnyLayout:
        """Return the layouts of a variant that may have any, with their bounds."""
        key = number, variant
        if key not in self.layouts:
            self.layouts[key] = AnyLayout(self.parts[number], variant)
        return self.layouts[key]

    def is_too_large(self, number: int) -> bool:
        """Tell whether not even the leanest plan of a part fits."""
        part = self.parts[number]
        return never_fits(part, leanest(part))

    def close(self, number: int, *variants: Variant, bound: float = NEVER) -> None:
        """Look at variants no more; with a lower bound in seconds."""
        for variant in variants:
            self.done.add((number, variant))
            self.open[number].pop(variant, None)
            for one in in_turns(self.parts[number], variant) if self.layouts else ():
                self.layouts.pop((number, one), None)
        self.closed[number] = min(self.closed[number], bound)
        if number in self.opened:
            self.settle(number)

    def settle(self, number: int) -> None:
        """Raise a part's bound to that of its variants."""
        left = self.open[number]
        known = min(self.above[number], min(left.values(), default=NEVER))
        least = min(self.closed[number], known)
        if least > self.bounds[number]:
            self.bounds[number] = least
            worked = any(self.turns[number, v] for v, bound in left.items() if bound == least)
            self.sources[number] = (
                SCHEDULE if worked or least >= self.closed[number] else ARITHMETIC
            )
            self.raised(number)


def solver_of(search: PartSearch[MegatronPart]) -> Callable[[CutTables, float], CutSearch]:
    """Return the finder of the best cut: the program of this space, or the solver asked for."""
    if search.solver in ("auto", "dp"):
        return lambda tables, cutoff: best_cut(tables, cutoff, search.goon)

    def solve(tables: CutTables, cutoff: float) -> CutSearch:
        if best_cut(tables, cutoff, search.goon).cut is None:
            return CutSearch(None, cutoff)  # nothing to look for
        graph = cut_graph(tables)
        solver = registry.get(search.solver)
        solution = solver.solve(graph, search.exactly, deadline=search.deadline)
        if solution.stopped_by is Stop.USER:
            raise KeyboardInterrupt
        return cut_of(graph, solution, cutoff)

    return solve


def parts_of(search: PartSearch[MegatronPart]) -> list[MegatronPart]:
    """Return the parts of Megatron's space."""
    return [state.part for state in search.states]


def scout(search: PartSearch[MegatronPart]) -> bool:
    """Look for a plan in a few parts before all are listed: in those that good plans mostly have,
    or, if there are many, in some of all; tell whether any were looked at."""
    problem = search.problem
    for likely in likely_variants(problem, search.goon):
        tried, best = likely, None
        while found := _best_of(tried, search.goon, NEVER if best is None else best.value):
            best = found
            if likely[0].bound >= best.value * (1 - CLOSE):
                break
            tried = likely_beside(problem, tried[best.part].part.degrees, search.goon)
        if best is not None:
            search.accept(best.plan)
        if best is not None or not search.goon():
            return True
    parts = list(plainest_parts(problem, problem.costs, SAMPLES))
    if parts:
        look_at_samples(MegatronSearch(parts, goon=search.goon, accept=search.accept))
    return bool(parts)


def _best_of(likely: Sequence[Likely], goon: Callable[[], bool], ceiling: float) -> Solved | None:
    """Return the best plan of likely variants below so many seconds; None if there is none."""
    engine = MegatronSearch([one.part for one in likely], goon=goon)
    engine.ceiling = ceiling
    look_at_likely(engine, likely)
    return next(iter(engine.best), None)


def look_at_usual_layouts(search: PartSearch[MegatronPart]) -> None:
    """Look for the best plan of the usual layouts, in half of the time: with `any` layout, plans
    are then no worse than without."""
    problem = search.problem
    problem = replace(problem, constraints=problem.constraints.but({LAYOUT}))
    half = search.deadline.moment(search.deadline.left / 2)
    engine = MegatronSearch(
        megatron_parts(problem, problem.costs, search.check_time),
        goon=lambda: half.goon() and search.goon(),
        solve=solver_of(search),
        accept=search.accept,
        gap=search.limits.gap,
        floor=search.bound,
    )
    engine.ceiling = min(search.objective, NEVER)
    engine.run()


def run_megatron(search: PartSearch[MegatronPart]) -> Stop:
    """Search Megatron's space for a solve; bounds and the plan go into its state."""
    started = search.from_an_end
    sampled = False

    def look() -> None:
        nonlocal sampled
        sampled = not (started or search.closing or search.listed) and scout(search)

    workers = search.limits.workers if search.solver in ("auto", "dp") else 1
    if workers == 1 or search.listed:
        look()
    else:
        choose_together(search.problem, search.problem.costs, workers, look, search.check_time)
    states = search.states
    few = few_plans(parts_of(search))
    if few is not None:
        return judge_each(search, few)

    told = 0.0

    def raised(number: int) -> None:
        nonlocal told
        states[number].raise_bound(engine.bounds[number], engine.sources[number])
        # The bound of all is a walk over the parts.
        if search.progress is not None and time.monotonic() - told > BETWEEN_REPORTS:
            search.report()
            told = time.monotonic()

    def answer(question: Any) -> Any:
        if isinstance(question, (Question, Polish)):
            return engine.answer(question)
        return answer_plainer(search, question)

    search.team = Team(answer, workers, begun=search.begun)
    # The queue tells whether the gap is reached: asking the search is a walk over all parts.
    engine = MegatronSearch(
        parts_of(search),
        goon=search.goon,
        solve=solver_of(search),
        accept=search.accept,
        raised=raised,
        gap=search.limits.gap,
        floor=search.bound,
        team=search.team,
    )
    asked = search.problem.constraints
    free = asked.layout is not None and asked.one_layout is None
    if free and not started:
        look_at_usual_layouts(search)
    engine.start(search)
    if free:
        engine.improve()
    started = started or (free and search.plan is not None)
    ended = engine.run(sampled=sampled, started=started, closing=search.closing)
    search.report()
    if search.gap_reached():
        return Stop.PROOF if search.proved() else Stop.GAP
    if not ended:
        return Stop.TIME
    # Variants are given up after so many cuts; where none has a plan, all are done with.
    return Stop.PROOF if search.bound >= NEVER else Stop.EFFORT


def rank_megatron(search: PartSearch[MegatronPart], top: int) -> tuple[Ranked, ...]:
    """Return the `top` best plans that differ in more than cuts, the fastest first.

    Fewer if there is no time for others, but always the search's own plan.
    """
    assert search.plan is not None
    assert search.evaluation is not None
    first = Ranked(plan=search.plan, evaluation=search.evaluation, bound=search.bound)
    if not search.listed:
        return (first,)
    engine = MegatronSearch(parts_of(search), goon=search.goon, top=top, solve=solver_of(search))
    ended = engine.run()
    found = []
    for entry in engine.best:
        evaluation = evaluate(search.problem, entry.plan)
        bound = evaluation.iteration_time if ended else search.bound
        found.append(Ranked(plan=entry.plan, evaluation=evaluation, bound=bound))
    others = [entry for entry in found if entry.plan != search.plan]
    return tuple(found) if len(others) < len(found) else (first, *others)[:top]
