"""Layouts that are tried one by one: the requested one, interleaved ones of models with different
layers, and layouts of schedules that divide backward passes.

Of the latter two, all virtual stages have equally many layers, but the first and the last, with any
number (`num_layers_in_first_pipeline_stage` and `..._last_...` of Megatron core, on virtual
stages). If backward passes are divided, there are others: the rank of the output has any number of
layers, and the other ranks have equally many, the first or the last of them one more; the layers of
a rank are spread likewise over its virtual stages.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from itertools import accumulate, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.costs.training.job import ends_of, layout_of, spread
from ilp_planner.costs.training.memory import layers_before
from ilp_planner.job.memory import kept_bytes, stage_of_rank
from ilp_planner.schedule.formulas import rank_of_stage
from ilp_planner.spaces.training.enumerate.keeping import keeping, keeps
from ilp_planner.spaces.training.enumerate.partition import Cut, CutSearch
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.pipeline_layout import ANYHOW, FIRST, LAST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.job.memory import MemoryParts
    from ilp_planner.schedule.formulas import Schedule
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.specs.pipeline_layout import PipelineLayout
    from ilp_planner.specs.training import Recompute


# ---- layouts that may fit memory -----------------------------------------------------------------
# Of schedules that divide backward passes all of them at once, of interleaved ones stage by stage.
# A rank holds its states, and at some moment every mix of micro-batches of its schedule
# (`Schedule.held`). Other needs are not counted here, so that a layout that does not fit never
# does.


STATES = ("weights", "gradients", "optimizer")


def may_fit(
    parts: MemoryParts, limits: Sequence[float], layouts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each layout may fit, bool [layouts].

    Parameters
    ----------
    parts: of a job without recomputation. limits: bytes on the devices of each rank. layouts: ends
        of the virtual stages on the chain, int64 [layouts, stages + 1].
    """
    job = parts.job
    kinds = ("embedding", *(LAYER_KINDS[k].name for k in job.layer_kinds), "output")
    each = {kind: parts.parts[kind] for kind in {*kinds}}
    bytes_of = {
        kind: (sum(getattr(part, name) for name in STATES), part.left, part.waiting)
        for kind, part in each.items()
    }
    states, kept, waiting = (
        _between(column, layouts) for column in np.array([bytes_of[kind] for kind in kinds]).T
    )
    waiting[:, 0] = 0.0  # of the first stage only the gradient of its output
    place = [list(job.stages_of(rank)) for rank in range(job.pp)]
    fits = np.ones(len(layouts), np.bool_)
    for own, limit in zip(place, limits, strict=True):
        # the first micro-batch is in all stages of a rank before it goes back through the last
        one = states[:, own].sum(axis=1) + kept[:, own].sum(axis=1)
        fits &= one <= limit * (1 + FINE_ROUNDING)
    if not fits.any():
        return fits
    for rank, (own, limit) in enumerate(zip(place, limits, strict=True)):
        mixes = _mixes(job.schedule, job.pp - 1 - rank)
        held = np.concatenate((kept[:, own], waiting[:, own]), axis=1) @ mixes.T
        fits &= states[:, own].sum(axis=1) + held.max(axis=1) <= limit * (1 + FINE_ROUNDING)
    return fits


@lru_cache(maxsize=4096)  # jobs with other settings have the same
def _mixes(schedule: Schedule, behind: int) -> NDArray[np.float64]:
    """Return the mixes of micro-batches of a rank with so many downstream ones, [mixes, ...]."""
    return np.array(schedule.held(behind), np.float64)


def _between(each: NDArray[np.float64], layouts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums over the elements of every stage, [layouts, stages]."""
    sums = np.concatenate(([0.0], np.cumsum(each)))
    return np.diff(sums[layouts], axis=1)


class StageBytes(NamedTuple):
    """Lower bounds on ranks' memory, by their virtual stages, for `LayoutTree`.

    A row for every rank and mix of micro-batches that it holds at once. fixed, limits: bytes
    [rows].
    often: float64 [stages, rows], how often a stage's activations of a micro-batch are held. own:
    float64 [stages, rows], 1 if the stage is the rank's. states, kept: bytes [n + 1, n + 1], of
    ranges of the chain.
    """

    fixed: NDArray[np.float64]
    limits: NDArray[np.float64]
    often: NDArray[np.float64]
    own: NDArray[np.float64]
    states: NDArray[np.float64]
    kept: NDArray[np.float64]

    def with_stage(
        self, held: NDArray[np.float64], stage: int, start: int, stops: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the bytes [stops, rows] with one more stage, from `start` to each of its stops."""
        states = np.multiply.outer(self.states[start, stops], self.own[stage])
        kept = np.multiply.outer(self.kept[start, stops], self.often[stage])
        return np.asarray(held + states + kept)


def stage_bytes(parts: MemoryParts, limits: Sequence[float]) -> StageBytes:
    """Return lower bounds on ranks' memory in a job with interleaved stages."""
    job = parts.job
    kinds = ["embedding", *(LAYER_KINDS[k].name for k in job.layer_kinds), "output"]
    states = np.array([sum(getattr(parts.parts[k], name) for name in STATES) for k in kinds])
    predictions = job.model.prediction_layers
    states[-1] += predictions * sum(getattr(parts.parts["prediction layer"], n) for n in STATES)
    before = layers_before(job.layer_kinds)
    dense, expert, *others = np.maximum(0, before[:, None, :] - before[:, :, None])
    own = kept_bytes(parts, layers=dense, expert_layers=expert, others=tuple(others))
    kept = np.array(own, np.float64)
    kept[0] += parts.parts["embedding"].kept
    kept[:, -1] += predictions * parts.parts["prediction layer"].left
    every = [np.array(job.schedule.held(job.pp - 1 - r), np.float64) for r in range(job.pp)]
    rank = np.repeat(np.arange(job.pp), [len(mixes) for mixes in every])
    often = np.zeros((job.pp * job.virtual, rank.size))
    for r, mixes in enumerate(every):
        often[r :: job.pp, rank == r] = mixes.T
    own = np.arange(job.pp * job.virtual)[:, None] % job.pp == rank
    fixed = np.full(rank.size, float(sum(parts.fixed.values())))
    most = np.array(limits)[rank] * (1 + FINE_ROUNDING)
    total = np.concatenate(([0.0], states.cumsum()))
    return StageBytes(fixed, most, often, own * 1.0, np.triu(total - total[:, None]), kept)


# ---- layouts -------------------------------------------------------------------------------------


BOTH, FORWARD = 0, 2  # rows of `MegatronPart.elements`: seconds of both passes, of one


@lru_cache(maxsize=256)
def equal_layouts(layers: int, stages: int) -> NDArray[np.int64]:
    """Return the ends of the virtual stages on the chain, [layouts, stages + 1]."""
    found = []
    for each in range(1, (layers // (stages - 2) if stages > 2 else 1) + 1):
        rest = layers - each * (stages - 2)
        for first in range(rest + 1):
            found.append((first + 1, *[each] * (stages - 2), rest - first + 1))
    sizes = np.array(found, np.int64).reshape(len(found), stages)
    return np.concatenate((np.zeros((len(found), 1), np.int64), sizes.cumsum(axis=1)), axis=1)


@lru_cache(maxsize=256)
def divided_layouts(layers: int, pp: int, virtual: int, *, v_shaped: bool) -> NDArray[np.int64]:
    """Return the ends of the virtual stages for divided backward passes: of the layouts above, and
    of ranks with even layers, but for the rank of the output, [layouts, stages + 1].

    v_shaped: stages go down the ranks and back up.
    """
    ranks = [rank_of_stage(k, pp, v_shaped=v_shaped) for k in range(pp * virtual)]
    place = [[k for k, rank in enumerate(ranks) if rank == own] for own in range(pp)]
    found: dict[tuple[int, ...], None] = {}
    for own, among, inside in product(range(layers + 1), (FIRST, LAST), (FIRST, LAST)):
        others = iter(spread(layers - own, pp - 1, among))
        sizes = [0] * len(ranks)
        for rank, stages in enumerate(place):
            count = own if rank == ranks[-1] else next(others)
            for k, size in zip(stages, spread(count, virtual, inside), strict=True):
                sizes[k] = size
        sizes[0] += 1
        sizes[-1] += 1
        if min(sizes) > 0:
            found[(0, *accumulate(sizes))] = None
    even = np.array([*found], np.int64).reshape(-1, len(ranks) + 1)
    return np.unique(np.concatenate((equal_layouts(layers, len(ranks)), even)), axis=0)


def layouts_of(part: MegatronPart, variant: Variant) -> NDArray[np.int64]:
    """Return the ends of the virtual stages of the layouts that are tried one by one, [layouts,
    stages + 1]."""
    stages = part.degrees.pp * variant.virtual
    if part.problem.constraints.one_layout is None:
        layers = part.costs.model.layers
        if not variant.divided:
            return keeping(part, equal_layouts(layers, stages), variant)
        shape = layers, part.degrees.pp, variant.virtual
        return keeping(part, divided_layouts(*shape, v_shaped=variant.v_shaped), variant)
    layout = layout_asked_of(part, variant.virtual, v_shaped=variant.v_shaped)
    return np.array([ends_of(layout)] if layout else [], np.int64).reshape(-1, stages + 1)


def layout_asked_of(
    part: MegatronPart, virtual: int, *, v_shaped: bool = False
) -> PipelineLayout | None:
    """Return the layout that is asked for, of so many virtual stages on each rank; None if none is,
    or if it has others, or other stages than the kept ones, or begins where none may."""
    asked, model = part.problem.constraints.one_layout, part.costs.model
    stages = part.degrees.pp * virtual
    if asked is None:
        return None
    layout = asked.of(model.layers, model.prediction_layers, stages)
    limited = part.problem.constraints.keep or part.costs.model.bound
    if layout is None or not limited:
        return layout
    return layout if keeps(part, ends_of(layout), v_shaped=v_shaped) else None


def even_ends(part: MegatronPart, variant: Variant) -> tuple[int, ...]:
    """Return the ends of a variant's ranks, or of virtual stages tried one by one, with equally
    many layers in all virtual stages; nothing if there is none."""
    layers, stages = part.costs.model.layers, part.degrees.pp * variant.virtual
    if layers % stages:
        return ()
    each, count = layers // stages, stages
    if part.spread(variant):
        each, count = each * variant.virtual, part.degrees.pp
    ends = (0, *(1 + each * k for k in range(1, count)), layers + 2)
    if part.spread(variant) or variant.remainder == ANYHOW:
        return ends
    every = layouts_of(part, variant)
    return ends if (every == np.array(ends)).all(axis=1).any() else ()


def best_layout(
    part: MegatronPart, variant: Variant, cutoff: float, goon: Callable[[], bool] = lambda: True
) -> CutSearch:
    """Return the fastest of these layouts that fits and is below the cutoff, and a bound on all."""
    layouts = layouts_of(part, variant)
    (bounds,) = layout_bounds(part, variant, [variant.recompute], layouts) + part.ranks.constant
    below = bounds < cutoff
    layouts, bounds = layouts[below], bounds[below]
    parts = part.memory(variant) if len(layouts) else None
    if parts is not None and variant.divided:
        fits = may_fit(parts, part.limits, layouts)
        layouts, bounds = layouts[fits], bounds[fits]
    best: Cut | None = None
    for place in np.argsort(bounds, kind="stable").tolist():
        least = float(bounds[place])
        if least >= cutoff:
            break
        if not goon():
            return CutSearch(best, least)
        assert parts is not None
        ends = tuple(layouts[place].tolist())
        job = dataclasses.replace(parts.job, layout=layout_of(ends, part.costs.model))
        if fits_layout(part, dataclasses.replace(parts, job=job)):
            value = part.seconds(variant, ends)
            if value < cutoff:
                best, cutoff = Cut(ends, value), value
    return CutSearch(best, cutoff)


def fits_layout(part: MegatronPart, own: MemoryParts) -> bool:
    """Tell whether every rank of a job can hold its share of the layout.

    own: of the job with its layout.
    """
    needs = (stage_of_rank(own, rank).needed for rank in range(part.degrees.pp))
    return all(
        need <= most * (1 + FINE_ROUNDING) for need, most in zip(needs, part.limits, strict=True)
    )


@lru_cache(maxsize=256)
def _places(pp: int, virtual: int, *, v_shaped: bool) -> NDArray[np.int64]:
    """Return the virtual stages of each rank, [pp, virtual]."""
    ranks = np.array([rank_of_stage(k, pp, v_shaped=v_shaped) for k in range(pp * virtual)])
    return np.argsort(ranks, kind="stable").reshape(pp, virtual)


def layout_bounds(
    part: MegatronPart,
    variant: Variant,
    recomputations: Sequence[Recompute],
    layouts: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return seconds per iteration that layouts take at least with each recomputation, without the
    constant, float64 [recomputations, layouts]: a rank's work, and a micro-batch through the first
    virtual stages of the ranks before it and back; forward alone if gradients of weights, divided
    from the others, may come last.

    variant: any recomputation. layouts: int64 [layouts, stages + 1].
    """
    pp = part.degrees.pp
    place = _places(pp, variant.virtual, v_shaped=variant.v_shaped)
    row = np.empty(place.size, np.int64)
    row[place] = part.rank_rows[:, None]
    start, stop = layouts[:, :-1], layouts[:, 1:]

    def between(
        values: NDArray[np.float64], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        sums = np.zeros((values.shape[0], values.shape[1] + 1))
        np.cumsum(values, axis=1, out=sums[:, 1:])
        if first is start and len(sums) == 1:
            return np.diff(sums[0, layouts], axis=1)
        found: NDArray[np.float64] = sums[row, last] - sums[row, first]
        return found

    every = [n for n, again in enumerate(recomputations) if again.granularity != "none"]
    times = np.repeat(between(part.elements[:, BOTH], start, stop)[None], len(recomputations), 0)
    if every:
        layers = part.costs.model.layers
        first, last = np.maximum(start, 1), np.minimum(stop, layers + 1)
        last = np.maximum(first, last)
        blocks = [n for n in every if recomputations[n].method == "block"]
        if blocks:
            counts = np.array([recomputations[n].layers for n in blocks])[:, None, None]
            repeated = part.repeated(recomputations[blocks[0]])
            times[blocks] += between(repeated, first, np.minimum(last, first + counts))
        for n in {*every}.difference(blocks):
            times[n] += between(part.repeated(recomputations[n]), first, last)
    first_stages = times[:, :, :pp]
    if variant.divided:
        first_stages = between(part.elements[:, FORWARD], start, stop)[None, :, :pp]
    before = first_stages.cumsum(axis=2) - first_stages
    load = times[:, :, place].sum(axis=3)
    syncs = between(part.syncs[:, 1:], start, stop)
    sync = syncs[:, place].sum(axis=2) + part.syncs[part.rank_rows, 0]
    seconds = (before + part.micro_batches * load).max(axis=2) + sync.max(axis=1)
    return np.asarray(seconds, np.float64)
