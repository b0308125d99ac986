"""Good layouts of virtual stages that may have any numbers of layers: from the best even spread of
layers over them, a layer at a time goes to another virtual stage as long as that is faster.

No bound comes from here: how slow all others are, `variant_bound` says.
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ilp_planner.spaces.megatron.job import layout_of
from ilp_planner.spaces.megatron.layouts import best_layout, fits_layout
from ilp_planner.spaces.megatron.near_cuts import NEAR, best_spread
from ilp_planner.spaces.megatron.partition import Cut, CutSearch, CutTables, best_cut
from ilp_planner.specs.pipeline_layout import REMAINDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.spaces.megatron.parts import MegatronPart
    from ilp_planner.spaces.megatron.variants import Variant

    Stops = tuple[int, ...]

NEARLY = 1.1  # times the cutoff: even spreads that are slower are not improved


def near_layout(
    part: MegatronPart,
    variant: Variant,
    cutoff: float,
    goon: Callable[[], bool] = lambda: True,
    *,
    moves: bool = True,
) -> CutSearch:
    """Return a good layout below the cutoff, with where its virtual stages end, and the bound of
    arithmetic on all layouts.

    moves: whether layers go to other virtual stages, beyond even spreads.
    """
    best = min(_even(part, variant, cutoff, goon), key=lambda cut: cut.value, default=None)
    if best is not None and moves and best.value < cutoff * NEARLY:
        best = _improved(part, variant, best, goon)
    found = best if best is not None and best.value < cutoff else None
    return CutSearch(found, part.bound(variant))


def _even(
    part: MegatronPart, variant: Variant, cutoff: float, goon: Callable[[], bool]
) -> Iterator[Cut]:
    """Yield the best of the layouts that are tried without being asked for."""

    def solve(tables: CutTables, limit: float) -> CutSearch:
        return best_cut(tables, limit, goon)

    if not part.alike:
        found = best_layout(part, variant, cutoff * NEARLY, goon).cut
        if found is not None:
            yield found
        return
    for remainder in REMAINDERS:
        even = dataclasses.replace(variant, remainder=remainder)
        found = best_spread(part, even, cutoff * NEARLY, solve, goon, NEAR[0]).cut
        if found is not None:
            yield Cut(tuple(part.stops(even, found.ends)), found.value)


def _improved(part: MegatronPart, variant: Variant, best: Cut, goon: Callable[[], bool]) -> Cut:
    """Return a layout that no move of a layer makes faster, or the best one when time is up."""
    parts, better = part.memory(variant), True
    while better:
        better = False
        for stops in _moved(part, best.ends):
            if not goon():
                return best
            if not part.keeps(variant, stops):
                continue
            value = part.seconds(variant, stops)
            if value < best.value:
                job = dataclasses.replace(parts.job, layout=layout_of(stops, part.costs.model))
                if fits_layout(part, dataclasses.replace(parts, job=job)):
                    best, better = Cut(stops, value), True
                    break
    return best


def _moved(part: MegatronPart, ends: Stops) -> Iterator[Stops]:
    """Yield layouts with a layer in another virtual stage, of the busiest rank first."""
    sizes, pp = [b - a for a, b in pairwise(ends)], part.degrees.pp
    stages, last = range(len(sizes)), len(sizes) - 1
    held = [sum(sizes[rank::pp]) for rank in range(pp)]
    for source in sorted(stages, key=lambda stage: -held[stage % pp]):
        if sizes[source] == 1:
            continue
        near = {source - 1, source + 1, *range(source % pp, len(sizes), pp), 0, last}
        light = min(range(pp), key=held.__getitem__)
        near |= {*range(light, len(sizes), pp)}
        for target in sorted(near.intersection(stages) - {source}):
            own = list(sizes)
            own[source], own[target] = own[source] - 1, own[target] + 1
            yield (0, *accumulate(own))
