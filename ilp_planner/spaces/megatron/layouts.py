"""Layouts that are tried one by one: the one that is asked for, or interleaved ones of models whose
layers differ.

Of the latter, all virtual stages have equally many layers, but the first and the last, which have
any number (`num_layers_in_first_pipeline_stage` and `..._last_...` of Megatron core, on virtual
stages).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.anatomy.memory import stage_of_rank
from ilp_planner.numerics import FINE_ROUNDING
from ilp_planner.spaces.megatron.job import ends_of, layout_of
from ilp_planner.spaces.megatron.keeping import keeping, keeps
from ilp_planner.spaces.megatron.partition import Cut, CutSearch
from ilp_planner.specs.pipeline_layout import balanced_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.anatomy.memory import MemoryParts
    from ilp_planner.spaces.megatron.parts import MegatronPart
    from ilp_planner.spaces.megatron.variants import Variant
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.pipeline_layout import PipelineLayout


def equal_layouts(layers: int, stages: int) -> NDArray[np.int64]:
    """Return where the virtual stages end on the chain, [layouts, stages + 1]."""
    found = []
    for each in range(1, layers // max(1, stages - 2) + 1):
        rest = layers - each * (stages - 2)
        for first in range(rest + 1):
            found.append((first + 1, *[each] * (stages - 2), rest - first + 1))
    sizes = np.array(found, np.int64).reshape(len(found), stages)
    return np.concatenate((np.zeros((len(found), 1), np.int64), sizes.cumsum(axis=1)), axis=1)


def layouts_of(part: MegatronPart, virtual: int) -> NDArray[np.int64]:
    """Return where the virtual stages of the layouts end that are tried one by one, so many on each
    rank, [layouts, stages + 1]."""
    if part.problem.constraints.one_layout is None:
        return keeping(part, equal_layouts(part.costs.model.layers, part.degrees.pp * virtual))
    layout = layout_asked_of(part, virtual)
    assert layout is not None
    return np.array([ends_of(layout)], np.int64)


def layout_asked_of(part: MegatronPart, virtual: int) -> PipelineLayout | None:
    """Return the layout that is asked for, of so many virtual stages on each rank; None where none
    is, or where it has others, or other stages than those that are kept."""
    asked, model = part.problem.constraints.one_layout, part.costs.model
    stages = part.degrees.pp * virtual
    if asked is None:
        return None
    layout = asked.of(model.layers, model.prediction_layers, stages)
    return layout if layout and keeps(part, ends_of(layout)) else None


def plain_layout(model: Decoder, stages: int) -> PipelineLayout:
    """Return a layout of so many stages with layers in all; where they are too few, with the
    embedding and the output alone in the first and the last one."""
    if stages > model.layers:
        return layout_of([(model.layers + 2) * k // stages for k in range(stages + 1)], model)
    return balanced_layout(model.layers, stages, prediction_layers=model.prediction_layers)


def best_layout(
    part: MegatronPart, variant: Variant, cutoff: float, goon: Callable[[], bool] = lambda: True
) -> CutSearch:
    """Return the fastest of these layouts that fits and is below the cutoff, and a bound on all."""
    layouts = layouts_of(part, variant.virtual)
    bounds = layout_bounds(part, variant, layouts) + part.ranks.constant
    parts = part.memory(variant)
    best: Cut | None = None
    for place in np.argsort(bounds, kind="stable").tolist():
        least = float(bounds[place])
        if least >= cutoff:
            break
        if not goon():
            return CutSearch(best, least)
        ends = tuple(layouts[place].tolist())
        job = dataclasses.replace(parts.job, layout=layout_of(ends, part.costs.model))
        if fits_layout(part, dataclasses.replace(parts, job=job)):
            value = part.seconds(variant, ends)
            if value < cutoff:
                best, cutoff = Cut(ends, value), value
    return CutSearch(best, cutoff)


def fits_layout(part: MegatronPart, own: MemoryParts) -> bool:
    """Tell whether every rank of a job can hold what its layout gives it.

    own: of the job with its layout.
    """
    needs = (stage_of_rank(own, rank).needed for rank in range(part.degrees.pp))
    return all(
        need <= most * (1 + FINE_ROUNDING) for need, most in zip(needs, part.limits, strict=True)
    )


def layout_bounds(
    part: MegatronPart, variant: Variant, layouts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return seconds per iteration that layouts take at least, without the constant: a rank's work,
    and a micro-batch through the first virtual stages of the ranks before it."""
    pp, virtual, again = part.degrees.pp, variant.virtual, variant.recompute
    row = np.tile(part.rank_rows, virtual)
    start, stop = layouts[:, :-1], layouts[:, 1:]

    def between(
        values: NDArray[np.float64], first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        sums = np.pad(values.cumsum(axis=1), ((0, 0), (1, 0)))
        found: NDArray[np.float64] = sums[row, last] - sums[row, first]
        return found

    times = between(part.elements[:, 0], start, stop)
    layers = part.costs.model.layers
    first, last = np.maximum(start, 1), np.minimum(stop, layers + 1)
    if again.method == "block":
        last = np.minimum(last, first + again.layers)
    times = times + between(part.repeated(again), first, np.maximum(first, last))
    syncs = between(part.syncs[:, 1:], start, stop)
    shape = (layouts.shape[0], virtual, pp)
    first_stages = times.reshape(shape)[:, 0]
    before = first_stages.cumsum(axis=1) - first_stages
    load = times.reshape(shape).sum(axis=1)
    sync = syncs.reshape(shape).sum(axis=1) + part.syncs[row[:pp], 0]
    seconds = (before + part.micro_batches * load).max(axis=1) + sync.max(axis=1)
    return np.asarray(seconds, np.float64)
