"""Lower bounds of variants by arithmetic, and variants that memory rules out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING, NEVER
from ilp_planner.costs.training.memory import most_by_states, most_in_turns, most_layers
from ilp_planner.job.counts import Count, larger
from ilp_planner.job.parts import Activations
from ilp_planner.schedule.formulas import DIVIDED, rank_of_stage, schedule_of
from ilp_planner.spaces.training.enumerate.layouts import BOTH, FORWARD, layout_bounds, layouts_of
from ilp_planner.spaces.training.enumerate.partition import INFINITE
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import (
    Variant,
    block_layers,
    block_of,
    most_virtual,
)
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.pipeline_layout import ALONE, ANYHOW, FIRST, LAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.job.memory import MemoryParts
    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.specs.training import Recompute


AT_ONCE = 2**20  # numbers of an array: of deep models, tables are made in pieces


class LeastWork(NamedTuple):
    """Lower bounds of a part's cuts, in seconds of a micro-batch.

    once: all elements, each on the fastest kind of rank. again: recomputation of all layers.
    layer, layer_again: the same of the shortest layer. longest: of the longest one, recomputation
    included. through: the first virtual stages of the ranks before each rank, one layer in each or
    the embedding, added up over all ranks. sync: of an iteration, after the passes.
    """

    once: float
    again: Count
    layer: float
    layer_again: Count
    longest: Count
    through: float
    sync: float


def variant_bound(part: MegatronPart, variant: Variant) -> float:
    """Return a lower bound in seconds of a variant's plans, memory aside.

    The ranks' total work is at least every element's time on the fastest kind of rank, and the
    slowest rank takes at least its share of that (`_slowest`). If a layout is asked for, its own
    bound counts (`layout_bounds`).
    """
    if not part.fits_at_all:
        return INFINITE
    if part.problem.constraints.one_layout is not None:
        (bounds,) = layout_bounds(part, variant, [variant.recompute], layouts_of(part, variant))
        return float(bounds[0] + part.ranks.constant)
    again, least, how = variant.recompute, _least_work(part, variant), passing(part, variant)
    block = 0
    if again.method == "block":
        counts = _recomputed(part, variant, np.array([again.layers]))
        (work,), block = _block_passes(part, how, again, counts, least), int(counts[0])
    else:
        slowest = _slowest_of(part, variant)
        work = _passes(how, slowest, least.once + least.again, least)
    if variant.remainder == ANYHOW:
        work = max(work, _anyhow_bound(part, part.repeated(again), block))
    return float(work + least.sync + part.ranks.constant)


def bounded_variants(part: MegatronPart, below: float) -> tuple[dict[Variant, float], float]:
    """Return the variants of a part with a bound below so many seconds, in the order of `variants`,
    with their bounds; and the least bound of all others."""
    found: dict[Variant, float] = {}
    rest, every = INFINITE, part.pipelines
    layers = [block_layers(part, pipeline) for pipeline in every]
    rows = zip(
        every, whole_bounds(part, every), layers, block_bounds(part, every, layers), strict=True
    )
    for pipeline, (wholes, bounds), blocks, more in rows:
        bounds = np.concatenate((bounds, more))
        again = [*wholes, *map(block_of, blocks.tolist())]
        places = np.flatnonzero(bounds < below)
        if places.size and tried_one_by_one(part, pipeline):
            some = [again[place] for place in places.tolist()]
            own = _least_of_layouts(part, pipeline, some, below)
            bounds[places] = np.maximum(bounds[places], own)
            places = np.flatnonzero(bounds < below)
        rest = min(rest, float(bounds[bounds >= below].min(initial=INFINITE)))
        for place in places.tolist():
            found[pipeline.computing(again[place])] = float(bounds[place])
    return found, rest


def _least_of_layouts(
    part: MegatronPart, pipeline: Variant, every: Sequence[Recompute], below: float
) -> NDArray[np.float64]:
    """Return lower bounds in seconds of the layouts that are tried one by one with each
    recomputation, float64 [recomputations]: of those below so many seconds, the least bounds.

    Layouts that take as long without recomputation are left out, with that.
    """
    layouts, constant = layouts_of(part, pipeline), part.ranks.constant
    plain = layout_bounds(part, pipeline, [NOTHING], layouts)[0] + constant
    if [*every] == [NOTHING]:
        return np.asarray(plain.min(keepdims=True, initial=INFINITE))
    left = plain < below
    own = layout_bounds(part, pipeline, every, layouts[left]) + constant
    least = plain[~left].min(initial=INFINITE)
    return np.asarray(own.min(axis=1, initial=least), np.float64)


def tried_one_by_one(part: MegatronPart, pipeline: Variant) -> bool:
    """Tell whether there are layouts whose own bounds are higher than those of a variant."""
    one_layout = part.problem.constraints.one_layout is not None
    return not (one_layout or part.spread(pipeline) or pipeline.remainder == ANYHOW)


def fill_factor(part: MegatronPart) -> float:
    """Return how many times the work of one micro-batch on all ranks an iteration takes at least:
    all micro-batches on every rank's share, and the filling of the pipeline.

    It is the least of the bounds of a part's schedules (`_passes`) for work of one second, of which
    nothing is known but that layers have equal shares, if they are alike on ranks that are.
    """
    asked, runtime = part.problem.constraints, part.costs.runtime
    divided = (n for n in runtime.schedules if n in DIVIDED and asked.allows("schedule", n))
    if asked.layout is not None or any(divided):
        return part.micro_batches / part.degrees.pp
    most = most_virtual(part)
    alike = most > 1 and part.alike
    even = alike and len(part.ranks.distinct) == 1
    return _fill_factor(
        part.micro_batches, part.degrees.pp, most, part.costs.model.layers, alike, even
    )


@lru_cache(maxsize=4096)
def _fill_factor(
    micro_batches: int, pp: int, most: int, layers: int, alike: bool, even: bool
) -> float:
    """Return the result of `fill_factor`. most: virtual stages of a rank. alike: layers are spread
    over them. even: no layer has more than its share of the work."""
    share = 1 / layers if even else INFINITE
    least = LeastWork(1.0, 0.0, 0.0, 0.0, share, 0.0, 0.0)
    found = INFINITE
    for virtual in range(1, most + 1):
        spread = virtual == 1 or alike
        for remainder in (FIRST, LAST, ALONE) if alike and virtual > 1 else (FIRST,):
            fair = spread and remainder == FIRST
            how = _passing(micro_batches, pp, virtual, spread, fair, remainder == ALONE)
            found = min(found, _passes(how, 1 / pp, 1.0, least))
    return found


def _one_by_one(part: MegatronPart) -> bool:
    """Tell whether variants have to be bounded one by one."""
    return not part.fits_at_all or part.problem.constraints.one_layout is not None


def least_bound(part: MegatronPart) -> float:
    """Return the least bound in seconds of a part's schedules, without recomputation."""
    every = part.pipelines
    found = whole_bounds(part, every, (NOTHING,))
    return min((float(bounds[0]) for _, bounds in found), default=INFINITE)


def whole_bounds(
    part: MegatronPart, every: Sequence[Variant], wholes: Sequence[Recompute] | None = None
) -> list[tuple[Sequence[Recompute], NDArray[np.float64]]]:
    """Return lower bounds in seconds of the plans of schedules with each of some recomputations
    without a number of layers, float64 [recomputations], beside these; by default all that a part
    has."""
    wholes = part.recomputations if wholes is None else wholes
    found: list[tuple[Sequence[Recompute], NDArray[np.float64]]] = []
    for pipeline in every:
        own = (NOTHING,) if pipeline.divided else wholes
        found.append((own, np.zeros(len(own))))
    if _one_by_one(part) or not wholes:
        for pipeline, (own, bounds) in zip(every, found, strict=True):
            bounds[:] = [part.bound(pipeline.computing(again)) for again in own]
        return found
    alike: dict[tuple[bool, int, Recompute, int], list[int]] = {}
    for number, (pipeline, (own, _)) in enumerate(zip(every, found, strict=True)):
        key = pipeline.divided, _last(part, pipeline), own[0], len(own)
        alike.setdefault(key, []).append(number)
    for key, numbers in alike.items():
        own = found[numbers[0]][0]
        if key not in part.wholes:
            way = FORWARD if every[numbers[0]].divided else BOTH
            repeated = part.repeated_of_each(own)
            slowest = _slowest(part, repeated, np.zeros(0, np.int64), key[1])
            part.wholes[key] = least_work(part, repeated, way), slowest
        least, slowest = part.wholes[key]
        for group, how in _stacked([passing(part, every[number]) for number in numbers]):
            work = _passes(how, slowest, least.once + least.again, least)
            work = work + least.sync + part.ranks.constant
            for place, row in zip(
                group, np.broadcast_to(work, (len(group), len(own))), strict=True
            ):
                found[numbers[place]][1][:] = row
        for number in numbers:
            if every[number].remainder == ANYHOW:
                anyhow = np.array([_anyhow_bound(part, part.repeated(one), 0) for one in own])
                more = anyhow + least.sync + part.ranks.constant
                np.maximum(found[number][1], more, out=found[number][1])
    return found


def block_bounds(
    part: MegatronPart, every: Sequence[Variant], layers: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.float64]]:
    """Return lower bounds in seconds of the plans of each schedule, float64 [numbers].

    layers: of each schedule, numbers of first layers of a virtual stage that are computed again.
    """
    if _one_by_one(part):
        pairs = zip(every, layers, strict=True)
        return [
            np.array([part.bound(one.computing(block_of(n))) for n in own.tolist()])
            for one, own in pairs
        ]
    found = [np.zeros(own.size) for own in layers]
    some = [number for number, own in enumerate(layers) if own.size]
    if not some:
        return found
    again = block_of(1)
    least = _least_work(part, every[some[0]].computing(again))
    counts = {n: _recomputed(part, every[n], layers[n]) for n in some}
    for group, how in _stacked([passing(part, every[number]) for number in some]):
        numbers = [some[place] for place in group]
        sizes = [layers[number].size for number in numbers]
        rows = np.concatenate([counts[number] for number in numbers])
        passes = _block_passes(part, how.repeated(sizes), again, rows, least)
        ends = np.cumsum(sizes)[:-1]
        for number, own in zip(numbers, np.split(passes, ends), strict=True):
            if every[number].remainder == ANYHOW:
                repeated = part.repeated(again)
                anyhow = [_anyhow_bound(part, repeated, n) for n in counts[number].tolist()]
                own = np.maximum(own, anyhow)
            found[number] = own + least.sync + part.ranks.constant
    return found


def _recomputed(
    part: MegatronPart, pipeline: Variant, layers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many layers of every rank are computed again at most if so many first layers of
    each virtual stage are; of layouts that are tried one by one, at least."""
    size = 1
    if part.spread(pipeline):
        # a rank's layers are spread evenly
        size = pipeline.virtual - (pipeline.remainder == ALONE)
    return np.minimum(size * layers, part.costs.model.layers)


def _slowest_of(part: MegatronPart, variant: Variant) -> float:
    """Return the result of `_slowest` where all layers are computed again, in all or in parts."""
    again, last = variant.recompute, _last(part, variant)
    key = again.granularity, again.modules, last
    if key not in part.slowest:
        found = _slowest(part, part.repeated(again)[None], np.zeros(0, np.int64), last)
        part.slowest[key] = float(found[0])
    return part.slowest[key]


def _last(part: MegatronPart, variant: Variant) -> int:
    """Return the rank of the last virtual stage."""
    pp = part.degrees.pp
    return rank_of_stage(pp * variant.virtual - 1, pp, v_shaped=variant.v_shaped)


def _least_work(part: MegatronPart, variant: Variant) -> LeastWork:
    """Return lower bounds of a variant's cuts."""
    again, way = variant.recompute, FORWARD if variant.divided else BOTH
    key = (again.granularity, again.modules, way)
    if key not in part.least:
        columns = least_work(part, part.repeated(again)[None], way)
        part.least[key] = LeastWork(*(float(np.max(column)) for column in columns))
    return part.least[key]


def least_work(part: MegatronPart, repeated: NDArray[np.float64], way: int) -> LeastWork:
    """Return lower bounds of cuts with each of some recomputations, columns of each figure that
    depends on it.

    repeated: seconds [recomputations, kinds, n] that elements take once more. way: row of
    `MegatronPart.elements` that fills the pipeline.
    """
    pp, times = part.degrees.pp, part.elements[:, 0]
    through = np.full(pp, float(part.elements[:, way, 1:-1].min()))
    through[0] = part.elements[part.rank_rows[0], way, 0]
    syncs, again = part.syncs.min(axis=0), repeated.min(axis=1)
    return LeastWork(
        once=float(times.min(axis=0).sum()),
        again=again.sum(axis=1),
        layer=float(times[:, 1:-1].min()),
        layer_again=again[:, 1:-1].min(axis=1),
        longest=(times + repeated)[:, :, 1:-1].max(axis=(1, 2)),
        through=float(through @ np.arange(pp)[::-1]),
        sync=float(syncs[0] + max(syncs[1:].sum() / pp, syncs[1:].max())),
    )


def _block_passes(
    part: MegatronPart,
    how: Passing,
    again: Recompute,
    counts: NDArray[np.int64],
    least: LeastWork,
) -> NDArray[np.float64]:
    """Return lower bounds on the passes of an iteration if the first layers of virtual stages are
    recomputed, `counts` of every rank's layers, or all of them if it has fewer; float64 [counts].

    If no rank has more than n layers, recomputation is least if as many ranks as possible have n,
    and one the rest: it grows no faster than the layers of a rank. And the rank that has n takes
    its time for them. One n is that of the plan, so the least of all n is a bound.
    """
    pp, layers = part.degrees.pp, part.costs.model.layers
    n = np.arange(-(-layers // pp), layers + 1)
    every, place = np.unique(counts, return_inverse=True)
    slowest = _slowest_of_blocks(part, part.repeated(again)[None])[every - 1]
    few, (full, rest) = every[:, None], np.divmod(layers, n)
    load = n * least.layer + np.minimum(few, n) * least.layer_again
    np.maximum(load, slowest[:, None], out=load)
    more = (full * np.minimum(few, n) + np.minimum(few, rest)) * least.layer_again
    found, at_once = np.empty(counts.size), max(1, AT_ONCE // n.size)
    for first in range(0, counts.size, at_once):
        rows = slice(first, first + at_once)
        some = place[rows]
        passes = _passes(how.only(rows), load[some], least.once + more[some], least)
        found[rows] = np.min(passes, axis=1)
    return found


def _slowest_of_blocks(part: MegatronPart, repeated: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the result of `_slowest` for every number of first layers, [L]. repeated: as there."""
    if part.slowest_blocks is None:
        pp, layers = part.degrees.pp, part.costs.model.layers
        every, at_once = np.arange(1, layers + 1), max(1, AT_ONCE // (pp * layers))
        pieces = (every[first : first + at_once] for first in range(0, layers, at_once))
        part.slowest_blocks = np.concatenate(
            [_slowest(part, repeated, some, pp - 1) for some in pieces]
        )
    return part.slowest_blocks


class Passing(NamedTuple):
    """How micro-batches pass through the ranks of a schedule: numbers, or columns [schedules, 1] of
    schedules that `_passes` bounds alike.

    fair: the first virtual stage of a rank has its share of the rank's layers, or more. spread:
    layers are spread over virtual stages. single: one virtual stage per rank, and more
    micro-batches than ranks. falling: loads of ranks that end together, in all, as a multiple of
    the first one's share. loads, ranks: of `_shares`.
    """

    fair: bool
    spread: bool
    single: bool
    micro_batches: int
    pp: int
    virtual: Count
    falling: Count
    loads: Count
    ranks: Count

    def repeated(self, sizes: Sequence[int]) -> Passing:
        """Return the columns with so many rows for each schedule."""
        columns = (np.repeat(column, sizes, axis=0) for column in self[5:])
        return Passing(*self[:5], *columns)

    def only(self, rows: slice) -> Passing:
        """Return some rows of the columns, or the same numbers."""
        columns = (one[rows] if isinstance(one, np.ndarray) else one for one in self[5:])
        return Passing(*self[:5], *columns)


def passing(part: MegatronPart, variant: Variant) -> Passing:
    """Return how micro-batches pass through the ranks of a variant."""
    spread, alone = part.spread(variant), variant.remainder == ALONE
    fair = spread and (variant.virtual == 1 or variant.remainder == FIRST)
    return _passing(part.micro_batches, part.degrees.pp, variant.virtual, spread, fair, alone)


@lru_cache(maxsize=4096)
def _passing(
    micro_batches: int, pp: int, virtual: int, spread: bool, fair: bool, alone: bool
) -> Passing:
    steps, falling, shares = micro_batches * virtual, 1.0, (1.0, 1.0)
    if fair and steps > 1:
        falling = 1 - (1 - 1 / steps) ** pp
    if spread and not fair:
        shares = _shares(micro_batches, virtual, pp, alone)
    single = fair and virtual == 1 and micro_batches > pp
    return Passing(fair, spread, single, micro_batches, pp, virtual, falling, *shares)


def _stacked(every: Sequence[Passing]) -> list[tuple[list[int], Passing]]:
    """Return schedules as columns, those that are bounded alike together, after their places."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, how in enumerate(every):
        groups.setdefault(how[:3], []).append(place)
    found = []
    for places in groups.values():
        some = [every[place] for place in places]
        columns = (np.array([how[at] for how in some])[:, None] for at in range(5, 9))
        found.append((places, Passing(*some[0][:5], *columns)))
    return found


def _passes(how: Passing, slowest: Count, total: Count, least: LeastWork) -> Count:
    """Return seconds that the passes of an iteration take at least, numbers or arrays.

    slowest: of a micro-batch on the slowest rank, at least. total: on all ranks. least: numbers or
    arrays.
    """
    if how.fair:
        return _fair_bound(how, slowest, total)
    # Whatever the first virtual stage of a rank has of its layers, one at least or the embedding:
    # a rank makes M of its own passes, and before them a micro-batch goes through the first virtual
    # stages of the ranks before it, and after them back; but gradients of weights, where they are
    # divided from the others, may come last.
    m, pp, virtual = how.micro_batches, how.pp, how.virtual
    found = larger(m * slowest, (m * total + least.through) / pp)
    if not how.spread:
        return found
    # The first virtual stage has a layer less than any other one at most, so all but that of its
    # share of the rank's load.
    less = (virtual - 1) / virtual * least.longest
    return larger(found, (total - how.ranks * less) / how.loads)


@lru_cache(maxsize=4096)
def _shares(micro_batches: int, virtual: int, ranks: int, alone: bool) -> tuple[float, float]:
    """Return (a, b): if within T seconds every rank r has time for M times its load x_r, after the
    first virtual stages of the ranks before it, which take x_q / v - c each, then the loads add up
    to a T + b c at most.

    By duality: M x_r + sum of (x_q / v - c) over q < r is at most T; these rows with weights y that
    add up to 1 in every column, which fall as M v grows and are never negative. alone: the first
    rank's first virtual stage has no layer, and nothing is said of it.
    """
    loads = before = 0.0
    for rank in reversed(range(ranks)):
        counted = rank > 0 or not alone
        weight = (1.0 - (loads / virtual if counted else 0.0)) / micro_batches
        loads += weight
        before += weight * max(0, rank - alone)
    return loads, before


def _anyhow_bound(part: MegatronPart, repeated: NDArray[np.float64], block: int) -> float:
    """Return a lower bound on the passes of an iteration for all layouts with several virtual
    stages per rank.

    A rank begins when the first micro-batch has come through the first virtual stages of the ranks
    before, and its last gradients go back through them: the embedding at least, or a layer, and the
    messages between. In between it makes its own passes of all M micro-batches. So within T seconds
    it can have so many layers as these leave time for, and all ranks together must have all.

    repeated: as in `_slowest`. block: only the first so many layers of a rank are computed again;
        0: all.
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


def _fair_bound(how: Passing, slowest: Count, total: Count) -> Count:
    """Return a lower bound on the passes of an iteration if the first virtual stage of a rank has
    its share of the rank's layers, or more.

    slowest: of a micro-batch on the slowest rank. total: on all of them. Rank r ends M of its own
    passes and one through the ranks before it, virtual stages apart, so that ranks that end
    together have loads that fall by 1 - 1 / (M v) from one to the next. In 1F1B, half of its wait
    for downstream ranks counts as well (`bounds.schedule`): all ranks' loads, and M - 1 - (pp - 1 -
    r) / 2 times its own.
    """
    longest = larger(how.micro_batches * slowest, total / how.virtual / how.falling)
    if how.single:
        mean, least = _weights(how.micro_batches, how.pp)
        longest = larger(longest, larger(total * (1 + mean), total + least * slowest))
    return longest


@lru_cache(maxsize=4096)
def _weights(micro_batches: int, ranks: int) -> tuple[float, float]:
    """Return the harmonic mean, over the number of ranks, and the least of M - 1 - (pp - 1 - r) / 2
    over the ranks."""
    weights = micro_batches - 1 - np.arange(ranks) / 2
    return 1 / float((1 / weights).sum()), float(weights.min())


def _slowest(
    part: MegatronPart, repeated: NDArray[np.float64], blocks: NDArray[np.int64], last: int
) -> NDArray[np.float64]:
    """Return seconds of a micro-batch that the slowest rank takes at least, float64
    [recomputations], or [blocks] of a single one.

    Within tau seconds, a rank computes at most tau * s seconds of the fastest kind of rank, with s
    the best ratio that any element has there; and whole layers, beside the embedding on the first
    rank and the output on that of the last stage. All ranks together must do all.

    Parameters
    ----------
    repeated: seconds [recomputations, kinds, n] that elements take once more. blocks: or only the
        first so many layers of every rank, for each of these numbers; empty: all. last: the rank of
        the last stage.
    """
    rows, pp = part.rank_rows, part.degrees.pp
    times = part.elements[:, 0] + (np.zeros((1, 1, 1)) if blocks.size else repeated)
    fastest = times.min(axis=1, keepdims=True)
    speed = (fastest / times).max(axis=2)[:, rows]
    mean = fastest.sum(axis=(1, 2)) / speed.sum(axis=1)
    steps = np.arange(1, part.costs.model.layers + 1)
    took = steps * times[:, :, 1:-1].min(axis=2, keepdims=True)  # [recomputations, kinds, L]
    if blocks.size:
        more = repeated[:, :, 1:-1].min(axis=2, keepdims=True)
        took = took + np.minimum(steps, blocks[:, None, None]) * more
    edges = np.zeros((len(times), pp, 1))  # what ranks have besides: the embedding, the output
    edges[:, 0, 0] += times[:, rows[0], 0]
    edges[:, last, 0] += times[:, rows[last], -1]
    # when a rank can have had so many layers
    ends = (edges + took[:, rows]).reshape(len(took), -1)
    enough: NDArray[np.float64] = np.partition(ends, steps.size - 1)[:, steps.size - 1]
    for one in (mean, edges.max(axis=(1, 2)), fastest.max(axis=(1, 2))):
        enough = np.maximum(enough, one)
    return enough


def never_fits(part: MegatronPart, variant: Variant) -> bool:
    """Tell whether memory rules out a variant's recomputation, for all layouts over its virtual
    stages.

    Rank r of R has at least R - r micro-batches of each of its virtual stages at once: of all but
    the last R, and of that 2 (R - r) - 1 or more (Megatron's warm-up, with groups of R or more). So
    it keeps at least as much as in 1F1B with as many recomputed layers: if these are the first ones
    of each of V virtual stages, at most V times as many. Of schedules with divided backward passes,
    states and activations are counted that a rank has of all its virtual stages at once. Layers
    with and without experts must fit all ranks together, each kind if there were no others.
    """
    return most_of_a_rank(part, variant) > part.costs.model.layers


def overfills_in_turns(part: MegatronPart, variant: Variant) -> bool:
    """Tell whether memory rules out a variant with layers spread over several virtual stages, by
    what ranks hold of them at least; of recomputed whole layers nothing is said."""
    again = variant.recompute
    if again.granularity == "full":
        return False
    layers, shape = part.costs.model.layers, (part.micro_batches, part.degrees.pp)
    kept = {
        name: part.activations(again, name)
        for name in {LAYER_KINDS[kind].name for kind in part.job.layer_kinds}
    }
    schedule = schedule_of(shape[0], ranks=shape[1], virtual=variant.virtual, turn=variant.turn)
    most = most_in_turns(part.bare, part.limits, kept, schedule, variant.remainder)
    return bool(most.min() < 0 or most.sum() < layers)


def most_of_a_rank(part: MegatronPart, variant: Variant) -> int:
    """Return how many layers some rank has at least, as memory leaves the others fewer; more than
    there are if memory rules the variant out (`never_fits`)."""
    kind, size = kind_of(variant), _again_at_most(part, variant)
    if variant.divided:
        kind = variant.schedule, variant.virtual
        if kind not in part.crowded:
            count = part.costs.model.layers + 1 if _overfills(part, variant) else 0
            part.crowded[kind] = {size: count}
    elif size not in part.crowded.get(kind, ()):
        look_at_memory(part, (variant,))
    return part.crowded[kind][size]


def _again_at_most(part: MegatronPart, variant: Variant) -> int:
    """Return how many layers of a rank are recomputed at most if it is the first ones of each
    virtual stage; 0 for other recomputations."""
    if variant.recompute.method != "block":
        return 0
    return min(variant.recompute.layers * variant.virtual, part.costs.model.layers)


def look_at_memory(part: MegatronPart, variants: Iterable[Variant]) -> None:
    """Find out how many layers some rank has at least (`most_of_a_rank`) with the recomputations of
    several variants at once; divided ones aside."""
    unknown: dict[tuple[object, ...], dict[int, Recompute]] = {}
    for variant in variants:
        kind, size = kind_of(variant), _again_at_most(part, variant)
        if not variant.divided and size not in part.crowded.get(kind, ()):
            unknown.setdefault(kind, {})[size] = variant.recompute
    some = {}
    for kind, by_size in unknown.items():
        again = next(iter(by_size.values()))
        if again.granularity == "full":
            sizes = sorted(filter(None, by_size))
            found = _crowded_whole(part, again, sizes)
            part.crowded.setdefault(kind, {}).update(zip(sizes or (0,), found, strict=True))
        else:
            some[kind] = again
    if some:
        for kind, count in zip(some, _crowded(part, [*some.values()]), strict=True):
            part.crowded[kind] = {0: count}


def crowded_bound(part: MegatronPart, variant: Variant) -> float:
    """Return a lower bound in seconds of a variant's plans: of the passes of the rank that has the
    most layers, as memory leaves the others fewer."""
    count = most_of_a_rank(part, variant)
    if count > part.costs.model.layers:
        return NEVER
    if not count or not part.fits_at_all or part.problem.constraints.one_layout is not None:
        return 0.0
    least, again = _least_work(part, variant), variant.recompute
    repeated = min(again.layers, count) if again.method == "block" else count
    load = count * least.layer + repeated * least.layer_again
    return float(part.micro_batches * load + least.sync + part.ranks.constant)


def kind_of(variant: Variant) -> tuple[object, ...]:
    """Return what variants have in common that memory rules out for one reason."""
    again = variant.recompute
    if variant.divided or again.method == "block":
        return variant.divided, again.method
    return again.granularity, again.method, again.layers, again.modules


def _overfills(part: MegatronPart, variant: Variant) -> bool:
    """Tell whether memory rules out a schedule with divided backward passes, by what ranks hold at
    least: a micro-batch of all their virtual stages, and more where the schedule says so."""
    pp = part.degrees.pp
    once = "once", ()
    if once not in part.crowded:
        part.crowded[once] = {0: int(_ruled_out(part, (NOTHING,), (1,) * pp)[0])}
    if part.crowded[once][0]:
        return True
    shape = part.micro_batches, pp, variant.virtual, variant.schedule
    return bool(_ruled_out(part, (NOTHING,), held_of_all(*shape))[0])


GROUPS = 3  # of micro-batches: ranks have warmed up, and gone once through their steady state


def held_of_all(micro_batches: int, pp: int, virtual: int, name: str) -> tuple[int, ...]:
    """Return how many micro-batches of all its virtual stages each rank holds at some moment.

    A looped schedule has held what its first groups hold when their last forward pass has begun,
    and after that these hold less and less: no more micro-batches are looked at.
    """
    if DIVIDED[name].looped:
        micro_batches = min(micro_batches, GROUPS * pp)
    return _held_of_all(micro_batches, pp, virtual, name)


@lru_cache(maxsize=4096)
def _held_of_all(micro_batches: int, pp: int, virtual: int, name: str) -> tuple[int, ...]:
    schedule = schedule_of(micro_batches, ranks=pp, virtual=virtual, name=name)
    mixes = (schedule.held(pp - 1 - rank) for rank in range(pp))
    return tuple(max(1, *(min(mix[:virtual]) for mix in own)) for own in mixes)


def _crowded(part: MegatronPart, every: Sequence[Recompute]) -> list[int]:
    """Return the result of `most_of_a_rank` for recomputations of no whole layers in 1F1B."""
    kinds = part.job.layer_kinds
    found = np.full(len(every), len(kinds) + 1)
    left = np.flatnonzero(~_ruled_out(part, every))
    if left.size:
        parts = part.memory_of_each([every[place] for place in left.tolist()])
        found[left] = _fullest(part, parts, left.size)
    return [int(one) for one in found]


def _crowded_whole(part: MegatronPart, again: Recompute, sizes: Sequence[int]) -> list[int]:
    """Return the result of `most_of_a_rank` for a recomputation of whole layers in 1F1B: one
    number, or one for each of these numbers of a rank's first layers that are recomputed."""
    found = _fullest(part, part.memory_of_each([again]), max(1, len(sizes)), sizes)
    return [int(one) for one in found]


def _fullest(
    part: MegatronPart, parts: MemoryParts, count: int, sizes: Sequence[int] = ()
) -> NDArray[np.int64]:
    """Return how many layers some rank has at least, [count]. parts: of one recomputation, or of so
    many. sizes: as `most_layers` has them."""
    kinds = part.job.layer_kinds
    found = np.zeros(count, np.int64)
    for kind, several in _counts(kinds).items():
        if sizes and parts.parts[LAYER_KINDS[kind].name].left < parts.checkpoint:
            continue  # with its activations on the host, a layer keeps less than its input
        held = most_layers(parts, part.limits, several, kind=kind, sizes=sizes)
        # The least n with which ranks that have n at most hold all.
        each = np.arange(1, several + 1)[:, None]
        enough = np.minimum(held[:, None, :], each).sum(axis=2) >= several
        least = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, len(kinds) + 1)
        found = np.maximum(found, least)
    return found


@lru_cache(maxsize=8)
def _counts(kinds: tuple[int, ...]) -> dict[int, int]:
    """Return how many layers there are of each kind."""
    return {kind: kinds.count(kind) for kind in set(kinds)}


def _ruled_out(
    part: MegatronPart, every: Sequence[Recompute], flights: Sequence[int] = ()
) -> NDArray[np.bool_]:
    """Tell of recomputations of no whole layers whether states and kept activations alone exceed
    the memory. Parts with the same layers share these figures, so that this takes no time.

    flights: as `most_by_states` has them.
    """
    counts = _counts(part.job.layer_kinds)
    kept = {}
    for kind in counts:
        name = LAYER_KINDS[kind].name
        rows = np.array([part.activations(again, name) for again in every])
        kept[name] = Activations(*rows.T[:, :, None])
    found = np.zeros(len(every), bool)
    for kind, count in counts.items():
        most = most_by_states(part.bare, part.limits, kept, kind=kind, flights=flights)
        found |= np.minimum(np.floor(most + FINE_ROUNDING), count).sum(axis=1) < count
    return found
