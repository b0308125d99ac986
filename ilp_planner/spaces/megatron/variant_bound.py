"""What no plan of a variant undercuts, by arithmetic, and which variants memory rules out."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.spaces.megatron.memory import most_layers
from ilp_planner.spaces.megatron.partition import INFINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.spaces.megatron.parts import MegatronPart
    from ilp_planner.spaces.megatron.variants import Variant

MOST_FIGURES = 4_000_000  # of memory at once


def variant_bound(part: MegatronPart, variant: Variant) -> float:
    """Return seconds that no plan of a variant undercuts, memory aside.

    What ranks compute together is at least every element's time on the fastest kind of rank,
    and the slowest rank takes at least its share of that (`_slowest`).
    """
    if not part.fits_at_all:
        return INFINITE
    again, pp, v = variant.recompute, part.degrees.pp, variant.virtual
    kind = {"selective": 2, "full": 1}.get(again.granularity, 0)
    block = again.layers if again.method == "block" else 0
    if part.spread(variant):
        block *= v  # of a rank's layers, which are spread evenly
    sends = np.zeros(pp)
    total, least_again = part.least_work[kind if not block else 0]
    slowest = _slowest(part, kind, block, sends)
    if block:
        # However its layers are spread, a rank that has the mean, or more, computes so many again.
        total += min(block, -(-part.costs.model.layers // pp)) * least_again
    syncs = part.syncs.min(axis=0)
    sync = syncs[0] + max(syncs[1:].sum() / pp, syncs[1:].max())
    return float(_work_bound(part, v, slowest, total) + sync + part.ranks.constant)


def _work_bound(part: MegatronPart, virtual: int, slowest: float, total: float) -> float:
    """Return seconds that the passes of an iteration take at least.

    slowest: of a micro-batch on the slowest rank. total: on all of them. Rank r ends M of its own
    passes and one through the ranks before it, virtual stages apart, so that ranks that end
    together have loads that fall by 1 - 1 / (M v) from one to the next. In 1F1B, half of what it
    waits for the ranks behind counts as well (`schedule_bound`): all ranks' loads, and M - 1 -
    (pp - 1 - r) / 2 times its own.
    """
    pp, m = part.degrees.pp, part.micro_batches
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


def _slowest(part: MegatronPart, kind: int, block: int, sends: NDArray[np.float64]) -> float:
    """Return seconds of a micro-batch that the slowest rank takes at least.

    Within tau seconds, a rank computes at most what takes (tau - sending) * s on the fastest
    kind of rank, with s the best ratio that any element has there; and whole layers. All ranks
    together must do all.

    Parameters
    ----------
    kind: row of `elements` that is computed again, 0 for none. block: or only the first so many
        layers of every virtual stage.
    """
    row = part.rank_rows
    times = part.elements[:, 0].copy()
    if kind and not block:
        times[:, 1:-1] += part.elements[:, kind, 1:-1]
    fastest = times.min(axis=0)
    speed = (fastest / times).max(axis=1)[row]
    mean = float((fastest.sum() + (speed * sends).sum()) / speed.sum())
    layer = times[:, 1:-1].min(axis=1)
    more = part.elements[:, 1, 1:-1].min(axis=1) if block else np.zeros_like(layer)
    steps = np.arange(1, part.costs.model.layers + 1)
    took = steps * layer[:, None] + np.minimum(steps, block) * more[:, None]  # [kinds, L]
    pairs, count = np.unique(np.stack((row, sends)), axis=1, return_counts=True)
    rows = pairs[0].astype(np.int64)
    ends = took[rows] + pairs[1][:, None]  # when a rank can have had so many layers
    moments = np.sort(ends, axis=None)

    def done(moment: int) -> bool:
        return bool(((ends <= moments[moment]).sum(axis=1) * count).sum() >= steps[-1])

    first = bisect_left(range(moments.size - 1), True, key=done)
    return max(mean, float(moments[first]), float(fastest.max()))


def hopeless(part: MegatronPart, family: Sequence[Variant]) -> list[Variant]:
    """Return the variants whose ranks cannot hold all layers together, however they are cut.

    family: variants that differ in how many layers are computed again.
    """
    first, layers, found = family[0], part.costs.model.layers, []
    parts = part.memory(first)
    step = max(1, MOST_FIGURES // (part.degrees.pp * 40 * layers))
    for begin in range(0, len(family), step):
        some = family[begin : begin + step]
        blocks = [v.recompute.layers for v in some] if first.recompute.method == "block" else []
        held = most_layers(parts, part.limits, blocks).sum(axis=1)
        found += [v for v, few in zip(some, (held < layers).tolist(), strict=True) if few]
    return found
