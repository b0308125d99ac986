"""What no plan of a variant undercuts, by arithmetic, and which variants memory rules out."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.schedule import rank_of_stage
from ilp_planner.spaces.megatron.layouts import BOTH, FORWARD, layout_bounds, layouts_of
from ilp_planner.spaces.megatron.memory import most_layers
from ilp_planner.spaces.megatron.partition import INFINITE
from ilp_planner.spaces.megatron.variants import Variant
from ilp_planner.specs.pipeline_layout import ALONE, ANYHOW, FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.spaces.megatron.parts import MegatronPart

MOST_FIGURES = 4_000_000  # of memory at once


def variant_bound(part: MegatronPart, variant: Variant) -> float:
    """Return seconds that no plan of a variant undercuts, memory aside.

    What ranks compute together is at least every element's time on the fastest kind of rank,
    and the slowest rank takes at least its share of that (`_slowest`). Where a layout is asked for,
    its own bound counts (`layout_bounds`).
    """
    if not part.fits_at_all:
        return INFINITE
    if part.problem.constraints.one_layout is not None:
        bounds = layout_bounds(part, variant, layouts_of(part, variant))
        return float(bounds[0] + part.ranks.constant)
    again, pp, v = variant.recompute, part.degrees.pp, variant.virtual
    block = again.layers if again.method == "block" else 0
    if part.spread(variant):
        block *= v - (variant.remainder == ALONE)  # of a rank's layers, which are spread evenly
    repeated = part.repeated(again)
    last = rank_of_stage(part.degrees.pp * v - 1, pp, v_shaped=variant.v_shaped)
    key = (again.granularity, again.modules, block, last)
    if key not in part.slowest:
        part.slowest[key] = _slowest(part, repeated, block, last)
    slowest = part.slowest[key]
    total = float(part.elements[:, 0].min(axis=0).sum())
    if block:
        # However its layers are spread, a rank that has the mean, or more, computes so many again.
        least = float(repeated[:, 1:-1].min())
        total += min(block, -(-part.costs.model.layers // pp)) * least
    else:
        total += float(repeated.min(axis=0).sum())
    syncs = part.syncs.min(axis=0)
    sync = syncs[0] + max(syncs[1:].sum() / pp, syncs[1:].max())
    fair = part.spread(variant) and (v == 1 or variant.remainder == FIRST)
    bound = _fair_bound if fair else _unfair_bound
    work = bound(part, variant, slowest, total)
    if variant.remainder == ANYHOW:
        work = max(work, _anyhow_bound(part, repeated, block))
    return float(work + sync + part.ranks.constant)


def _unfair_bound(part: MegatronPart, variant: Variant, slowest: float, total: float) -> float:
    """Return seconds that the passes of an iteration take at least, whatever the first virtual
    stage of a rank has of its layers: one at least, or the embedding.

    slowest, total: as in `_fair_bound`. A rank makes M of its own passes, and before them a
    micro-batch goes through the first virtual stages of the ranks before it, and after them back;
    but gradients of weights, where they are divided from the others, may come last.
    """
    pp, m, way = part.degrees.pp, part.micro_batches, FORWARD if variant.divided else BOTH
    before = np.full(pp, float(part.elements[:, way, 1:-1].min()))
    before[0] = part.elements[part.rank_rows[0], way, 0]
    return max(m * slowest, (m * total + float(before @ np.arange(pp)[::-1])) / pp)


def _anyhow_bound(part: MegatronPart, repeated: NDArray[np.float64], block: int) -> float:
    """Return seconds that the passes of an iteration take at least, however layers are spread over
    virtual stages, of which every rank has several.

    A rank begins when the first micro-batch has come through the first virtual stages of the ranks
    before, and its last gradients go back through them: the embedding at least, or a layer, and the
    messages between. In between it makes its own passes of all M micro-batches. So within T seconds
    it can have so many layers as these leave time for, and all ranks together must have all.

    repeated, block: as in `_slowest`.
    """
    pp, m, rows = part.degrees.pp, part.micro_batches, part.rank_rows
    times = part.elements[:, 0] + (0.0 if block else repeated)
    layer = times[:, 1:-1].min(axis=1)
    more = repeated[:, 1:-1].min(axis=1) if block else np.zeros_like(layer)
    first = layer[rows]
    first[0] = times[rows[0], 0]
    through = first[:-1] + np.array(part.ranks.transfers[: pp - 1])
    ready = np.concatenate(([0.0], through.cumsum()))
    ready[0] += m * times[rows[0], 0]
    ready[-1] += m * times[rows[-1], -1]
    steps = np.arange(1, part.costs.model.layers + 1)
    took = m * (steps * layer[:, None] + np.minimum(steps, block) * more[:, None])
    ends = np.sort(ready[:, None] + took[rows], axis=None)
    return max(float(ends[steps.size - 1]), float(ready.max()))


def _fair_bound(part: MegatronPart, variant: Variant, slowest: float, total: float) -> float:
    """Return seconds that the passes of an iteration take at least where the first virtual stage of
    a rank has its share of the rank's layers, or more.

    slowest: of a micro-batch on the slowest rank. total: on all of them. Rank r ends M of its own
    passes and one through the ranks before it, virtual stages apart, so that ranks that end
    together have loads that fall by 1 - 1 / (M v) from one to the next. In 1F1B, half of what it
    waits for the ranks behind counts as well (`schedule_bound`): all ranks' loads, and M - 1 -
    (pp - 1 - r) / 2 times its own.
    """
    pp, m, virtual = part.degrees.pp, part.micro_batches, variant.virtual
    steps = m * virtual
    falling = total / virtual / (1 - (1 - 1 / steps) ** pp) if steps > 1 else total
    found = max(m * slowest, falling)
    if virtual == 1 and m > pp:
        weights = m - 1 - np.arange(pp) / 2
        found = max(
            found,
            total * (1 + 1 / float((1 / weights).sum())),
            total + float(weights.min()) * slowest,
        )
    return found


def _slowest(part: MegatronPart, repeated: NDArray[np.float64], block: int, last: int) -> float:
    """Return seconds of a micro-batch that the slowest rank takes at least.

    Within tau seconds, a rank computes at most what takes tau * s on the fastest kind of rank, with
    s the best ratio that any element has there; and whole layers, beside the embedding on the first
    rank and the output on that of the last stage. All ranks together must do all.

    Parameters
    ----------
    repeated: seconds [kinds, n] that elements take once more. block: or only the first so many
        layers of every virtual stage; 0: all. last: the rank of the last stage.
    """
    times = part.elements[:, 0] + (0.0 if block else repeated)
    fastest = times.min(axis=0)
    speed = (fastest / times).max(axis=1)[part.rank_rows]
    mean = float(fastest.sum() / speed.sum())
    layer = times[:, 1:-1].min(axis=1)
    more = repeated[:, 1:-1].min(axis=1) if block else np.zeros_like(layer)
    steps = np.arange(1, part.costs.model.layers + 1)
    took = steps * layer[:, None] + np.minimum(steps, block) * more[:, None]  # [kinds, L]
    edges = np.zeros(part.degrees.pp)  # what ranks have besides: the embedding, the output
    edges[0] += times[part.rank_rows[0], 0]
    edges[last] += times[part.rank_rows[last], -1]
    ends = edges[:, None] + took[part.rank_rows]  # when a rank can have had so many layers
    moments = np.sort(ends, axis=None)

    def done(moment: int) -> bool:
        return bool((ends <= moments[moment]).sum() >= steps[-1])

    first = bisect_left(range(moments.size - 1), True, key=done)
    return max(mean, float(moments[first]), float(edges.max()), float(fastest.max()))


def never_fits(part: MegatronPart, variant: Variant) -> bool:
    """Tell whether memory rules out what a variant computes again with any number of virtual
    stages.

    Rank r of R has at least R - r micro-batches of each of its virtual stages at once: of all but
    the last R, and of that 2 (R - r) - 1 or more (Megatron's warm-up, where they take turns of R or
    more). So it keeps at least what it keeps in 1F1B, however its layers are spread; what is
    computed again of the first layers alone depends on that, and is not looked at, nor what ranks
    hold where backward passes are divided. Layers with and without experts must fit all ranks
    together, each kind if there were no others.
    """
    again = variant.recompute
    if again.method == "block" or variant.divided:
        return False
    if again not in part.never:
        parts = part.memory(Variant(1, again))
        fixed = {**parts.fixed, "between stages": 0.0}
        least, kinds = replace(parts, fixed=fixed), part.costs.model.expert_layers
        part.never[again] = any(
            int(most_layers(least, part.limits, layers=(kind,) * kinds.count(kind)).sum())
            < kinds.count(kind)
            for kind in set(kinds)
        )
    return part.never[again]


def hopeless(part: MegatronPart, family: Sequence[Variant]) -> list[Variant]:
    """Return the variants whose ranks cannot hold all layers together, however they are cut.

    family: variants that differ in how many layers are computed again.
    """
    first, layers, found = family[0], part.costs.model.layers, []
    parts, remainder = part.memory(first), first.remainder
    step = max(1, MOST_FIGURES // (part.degrees.pp * 40 * layers))
    for begin in range(0, len(family), step):
        some = family[begin : begin + step]
        sizes = [v.recompute.layers for v in some] if first.recompute.layers else []
        held = most_layers(parts, part.limits, sizes, remainder=remainder).sum(axis=1)
        found += [v for v, few in zip(some, (held < layers).tolist(), strict=True) if few]
    return found
