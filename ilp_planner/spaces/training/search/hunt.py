"""Heuristics on Megatron's space: the chain is cut by the heuristic, variant by variant.

`gradient` takes the variants with the least bounds first, and stops when many in a row brought
nothing better. `anneal` moves degrees, virtual stages and recomputation; as in AMP's search, a
dynamic program cuts the chain for each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.numerics import NEVER
from ilp_planner.optimize.search.choice_annealing import ChoiceAnnealing, Nearness
from ilp_planner.optimize.search.graph_hunt import FEWER, solve_graph
from ilp_planner.spaces.training.enumerate.layouts import best_layout
from ilp_planner.spaces.training.enumerate.partition import CutSearch, CutTables, best_cut
from ilp_planner.spaces.training.enumerate.variants import Variant, in_turns, leanest
from ilp_planner.spaces.training.search.cut_graph import cut_graph, cut_of
from ilp_planner.spaces.training.search.search import MegatronSearch, parts_of

if TYPE_CHECKING:
    import numpy as np

    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.spaces.training.search.parts import MegatronPart

PATIENCE = 64  # variants without a better plan
LEAN = 0.5  # of the first choices compute everything again: memory is least there
OTHER_PART = 0.5  # of the moves change degrees, the others the variant
ANY_VARIANT = 0.3  # of the moves to other degrees take any variant


def cut_by_heuristic(
    search: PartSearch[MegatronPart], tables: CutTables, cutoff: float, starts: int
) -> CutSearch:
    """Return a good cut below the cutoff, seconds, found with so many starts."""
    if not tables.fits.any():
        return CutSearch(None, cutoff)
    graph = cut_graph(tables)
    return cut_of(graph, solve_graph(search, graph, starts), cutoff)


# ---- the variants with the least bounds first ---------------------------------------------------


def hunt_megatron(search: PartSearch[MegatronPart]) -> None:
    """Look through the variants, the least bounds first."""
    starts = search.limits.starts
    few = max(1, starts // FEWER)
    failed = 0

    def solve(tables: CutTables, cutoff: float) -> CutSearch:
        nonlocal failed
        found = cut_by_heuristic(search, tables, cutoff, few)
        failed = failed + 1 if found.cut is None else 0
        return found

    def raised(number: int) -> None:
        search.states[number].raise_bound(engine.bounds[number], engine.sources[number])

    engine = MegatronSearch(
        parts_of(search),
        goon=lambda: search.goon() and (search.plan is None or failed < PATIENCE),
        solve=solve,
        accept=search.accept,
        raised=raised,
    )
    engine.run()
    if engine.best and few < starts and search.goon():
        best = engine.best[0]
        part = engine.parts[best.part]
        if part.spread(best.variant):
            found = cut_by_heuristic(search, part.tables(best.variant), NEVER, starts)
            if found.cut is not None and part.keeps(best.variant, found.cut.ends):
                search.accept(part.group_plan(best.variant, found.cut.ends))


# ---- annealing ----------------------------------------------------------------------------------


class MegatronChoice(NamedTuple):
    """part: its number."""

    part: int
    variant: Variant


def anneal_megatron(search: PartSearch[MegatronPart]) -> None:
    """Anneal over degrees, virtual stages and recomputation."""
    ChoiceAnnealing(MegatronChoices(search), search.limits, search.goon).run()


class MegatronChoices:
    """A part and a variant of it (`choice_annealing.Choices`)."""

    def __init__(self, search: PartSearch[MegatronPart]) -> None:
        self.search = search
        self.parts = parts_of(search)
        self.nearness = Nearness([part.degrees for part in self.parts])
        self.known: dict[int, tuple[Variant, ...]] = {}

    def variants(self, part: int) -> tuple[Variant, ...]:
        """Return the variants of a part."""
        if part not in self.known:
            self.known[part] = self.parts[part].variants()
        return self.known[part]

    def draw(self, random: np.random.Generator) -> MegatronChoice:
        """Return any part, with any variant or the one that needs least memory."""
        part = int(random.integers(len(self.parts)))
        if random.random() < LEAN:
            return MegatronChoice(part, leanest(self.parts[part]))
        return MegatronChoice(part, self.any_variant(part, random))

    def any_variant(self, part: int, random: np.random.Generator) -> Variant:
        """Return any variant of a part: any schedule and recomputation, and then one of theirs."""
        alike: dict[object, list[Variant]] = {}
        for variant in self.variants(part):
            key = variant.schedule, variant.virtual, variant.recompute
            alike.setdefault(key, []).append(variant)
        every = list(alike.values())
        drawn = every[int(random.integers(len(every)))]
        return drawn[int(random.integers(len(drawn)))]

    def near(self, choice: MegatronChoice, random: np.random.Generator) -> MegatronChoice:
        """Return other degrees, mostly with the same variant if they have it, or another variant
        that has as many virtual stages or the same recomputation."""
        if random.random() < OTHER_PART:
            part = self.nearness.draw(choice.part, random)
            if random.random() < ANY_VARIANT:
                return MegatronChoice(part, self.any_variant(part, random))
            for variant in (choice.variant, Variant(1, choice.variant.recompute)):
                if variant in self.variants(part):
                    return MegatronChoice(part, variant)
            return MegatronChoice(part, self.any_variant(part, random))
        wanted = choice.variant
        near = [
            v
            for v in self.variants(choice.part)
            if (v.virtual != wanted.virtual)
            + (v.recompute != wanted.recompute)
            + (v.remainder != wanted.remainder)
            + (v.schedule != wanted.schedule)
            == 1
        ]
        if not near:
            return choice
        return MegatronChoice(choice.part, near[int(random.integers(len(near)))])

    def least(self, choice: MegatronChoice) -> float:
        """Return the arithmetic bound of a variant, seconds."""
        return self.parts[choice.part].bound(choice.variant)

    def cost(self, choice: MegatronChoice) -> float:
        """Return the seconds of the best cut, inf without one; offer its plan."""
        part = self.parts[choice.part]
        return min(self.of_turn(part, variant) for variant in in_turns(part, choice.variant))

    def of_turn(self, part: MegatronPart, variant: Variant) -> float:
        """Return the same of one of the microbatch groups."""
        search = self.search
        if part.spread(variant):
            found = best_cut(part.tables(variant), goon=search.goon)
        else:
            found = best_layout(part, variant, NEVER, search.goon)
        if found.cut is None or not part.keeps(variant, found.cut.ends):
            return math.inf
        value = part.seconds(variant, found.cut.ends)
        if value < search.objective:
            search.accept(part.group_plan(variant, found.cut.ends))
        return value
