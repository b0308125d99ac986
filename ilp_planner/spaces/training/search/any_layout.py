"""The best layout of virtual stages that may have any numbers of layers.

From the best layout of the usual ones, a layer at a time goes to another virtual stage, or two
stages change places, as long as that is faster. A tree of all layouts bounds all others
(`layout_tree`), and finds layouts beyond these steps.
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import NEVER
from ilp_planner.costs.training.job import layout_of
from ilp_planner.spaces.training.bounds.near_cuts import NEAR, best_spread
from ilp_planner.spaces.training.enumerate.layouts import best_layout, fits_layout
from ilp_planner.spaces.training.enumerate.partition import Cut, CutSearch, CutTables, best_cut
from ilp_planner.spaces.training.search.layout_tree import LayoutTree
from ilp_planner.specs.pipeline_layout import REMAINDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart

    Stops = tuple[int, ...]

NEARLY = 1.1  # times the cutoff: usual layouts that are slower are not improved
PATHS = (
    0,
    2,
    8,
    16,
)  # layouts whose critical paths bound all others, each time that it is its turn


class AnyLayout:
    """The layouts of a variant, step by step."""

    def __init__(self, part: MegatronPart, variant: Variant) -> None:
        self.part, self.variant = part, variant
        self.memory = part.memory(variant)
        self.tree: LayoutTree | None = None
        self.bound = part.bound(variant)

    def look(
        self, cutoff: float, goon: Callable[[], bool] = lambda: True, turn: int = 0
    ) -> CutSearch:
        """Return the best layout below the cutoff among the examined ones, with the ends of its
        virtual stages, and a bound on all layouts.

        turn: place in `NEAR`; the first one takes usual layouts alone, and the bound of arithmetic.
        """
        most = NEAR[turn]
        best = min(self._usual(cutoff, goon, most), key=lambda cut: cut.value, default=None)
        if turn and goon():
            if self.tree is None:
                self.tree = LayoutTree(self.part, self.variant)
            self.tree.tighten(PATHS[turn])
            if best is not None and best.value < cutoff * NEARLY:
                best = self._improved(self.tree, best, goon, most)
            limit = cutoff if best is None else min(cutoff, best.value)
            found = self.tree.search(limit, NEAR[turn - 1], goon, self.seconds)
            best, self.bound = found.cut or best, max(self.bound, found.bound)
        return CutSearch(best if best is not None and best.value < cutoff else None, self.bound)

    def seconds(self, stops: Stops) -> float:
        """Return the seconds of a layout; `NEVER` if it does not fit."""
        part, variant = self.part, self.variant
        if not part.keeps(variant, stops):
            return NEVER
        job = dataclasses.replace(self.memory.job, layout=layout_of(stops, part.costs.model))
        fits = fits_layout(part, dataclasses.replace(self.memory, job=job))
        return part.seconds(variant, stops) if fits else NEVER

    def _usual(self, cutoff: float, goon: Callable[[], bool], most: int) -> Iterator[Cut]:
        """Yield the best of the layouts that are tried without being asked for."""
        part, variant = self.part, self.variant

        def solve(tables: CutTables, limit: float) -> CutSearch:
            return best_cut(tables, limit, goon)

        if not part.alike:
            found = best_layout(part, variant, cutoff * NEARLY, goon).cut
            if found is not None:
                yield found
            return
        for remainder in REMAINDERS:
            even = dataclasses.replace(variant, remainder=remainder)
            found = best_spread(part, even, cutoff * NEARLY, solve, goon, most).cut
            if found is not None:
                yield Cut(tuple(part.stops(even, found.ends)), found.value)

    def _improved(self, tree: LayoutTree, best: Cut, goon: Callable[[], bool], most: int) -> Cut:
        """Return a local optimum of layouts, or the best one after `most` judgements, in the order
        of the tree's sums."""
        better = True
        while better:
            better, near = False, near_layouts(best.ends)
            if not near.size:
                break
            least = tree.least(near) + self.part.ranks.constant
            for place in np.argsort(least, kind="stable").tolist():
                if least[place] >= best.value or most <= 0 or not goon():
                    break
                most -= 1
                stops = tuple(near[place].tolist())
                value = self.seconds(stops)
                if value < best.value:
                    best, better = Cut(stops, value), True
                    break
        return best


def near_layouts(ends: Stops) -> NDArray[np.int64]:
    """Return the ends of virtual stages, [layouts, stages + 1], with one element in another stage,
    or two stages of different sizes swapped."""
    sizes = [stop - start for start, stop in pairwise(ends)]
    found: dict[Stops, None] = {}
    for source, size in enumerate(sizes):
        for target, other in enumerate(sizes):
            own = list(sizes)
            if source != target and size > 1:
                own[source], own[target] = size - 1, other + 1
                found[0, *accumulate(own)] = None
            if source < target and size != other:
                own = list(sizes)
                own[source], own[target] = other, size
                found[0, *accumulate(own)] = None
    return np.array([*found], np.int64).reshape(-1, len(ends))
