"""The cost of every range of the chain on every pipeline rank, in a variant of a part."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.training.memory import (
    chain_ranges,
    fits,
    fitting_counts,
    of_ranges,
    stage_layers,
)
from ilp_planner.job.parts import Part
from ilp_planner.spaces.training.enumerate.keeping import fits_kept
from ilp_planner.spaces.training.enumerate.partition import CutTables, Spread
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.pipeline_layout import FIRST

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.specs.training import Recompute


PARTS_KEPT = 8  # parts whose times of ranges are kept: as many as are looked at in turn
LONG = 512  # layers: of longer chains the times of one part alone, which take 200 MiB, are kept


def cut_tables(part: MegatronPart, variant: Variant) -> CutTables:
    """Return the cost of every range of the chain."""
    return with_memory(part, variant, timed_tables(part, variant))


def with_memory(part: MegatronPart, variant: Variant, tables: CutTables) -> CutTables:
    """Return the tables of a variant in which ranges that do not fit are ruled out."""
    found = fits(part.memory(variant), part.limits, variant.remainder)
    found = fits_kept(part, variant.virtual, found)
    return replace(tables, row=found.row, fits=found.possible)


def with_least_memory(part: MegatronPart, variant: Variant, tables: CutTables) -> CutTables:
    """Return the tables of a variant in which some ranges that do not fit are ruled out: those that
    would not with one virtual stage per rank, for any number of them.

    As in `variant.never_fits`: ranks keep no less than in 1F1B with as many recomputed layers, at
    most V times as many if these are the first ones of V virtual stages.
    """
    again = variant.recompute
    if again.method == "block":
        layers = min(again.layers * variant.virtual, part.costs.model.layers)
        again = replace(again, layers=layers)
    if again not in part.least_memory:
        parts = part.memory_of_each([again])
        norm = {"final norm": Part()}  # which rank has it depends on all
        parts = replace(parts, parts={**parts.parts, **norm})
        kinds = {LAYER_KINDS[kind].name for kind in part.job.layer_kinds}
        left = min(parts.parts[kind].left for kind in kinds)
        if again.method == "block" and left < parts.checkpoint:
            part.least_memory[again] = None  # recomputed ones keep more
        else:
            part.least_memory[again] = fitting_counts(parts, part.limits)
    counts = part.least_memory[again]
    if counts is None:
        return tables
    found = of_ranges(counts, part.job)
    return replace(tables, row=found.row, fits=found.possible)


def timed_tables(part: MegatronPart, variant: Variant) -> CutTables:
    """Return the seconds of every range of the chain, as if all fitted."""
    sends = part.sends(variant.virtual)
    rows: dict[tuple[int, float], int] = {}
    pairs = zip(part.rank_rows.tolist(), sends, strict=True)
    kind = [rows.setdefault(pair, len(rows)) for pair in pairs]
    load, peak, work, ahead = [], [], [], []
    waits = part.waits(variant.recompute)
    moved = variant.recompute if waits.any() else None
    for row, send in rows:
        (total, _, forward), (there, back) = part.elements[row], waits[row]
        both = _kept(part, ("both", row, moved), partial(_ranges, total + there + back))
        own = both + _kept_again(part, variant, row)
        passes = _kept(part, ("forward", row, moved), partial(_ranges, forward + there))
        sync = _kept(part, ("sync", row), partial(_ranges, part.syncs[row, 1:]))
        work.append(own / variant.virtual)
        ahead.append(passes / variant.virtual)
        load.append((own + send) / variant.virtual)
        peak.append(sync + part.syncs[row, 0])
    v, pp, count = variant.virtual, part.degrees.pp, part.costs.model.layers + 3
    least = [v + (v > 1 and variant.remainder == FIRST), *[v] * (pp - 1)]
    return CutTables(
        kind=np.array(kind, np.int64),
        load=np.array(load),
        peak=np.array(peak),
        row=np.zeros(pp, np.int64),
        fits=np.ones((1, count, count), bool),
        least=np.array(least, np.int64),
        weight=part.schedule(v).weight,
        work=np.array(work),
        forward=np.array(ahead),
        sends=np.array((*part.ranks.transfers[: pp - 1], 0.0)),
        micro_batches=part.micro_batches,
        virtual=v,
        sample=_sample(part) if part.alike else None,
        spread=_spread(part, variant, [row for row, _ in rows]) if v > 1 else None,
    )


def stage_ranges(part: MegatronPart, recompute: Recompute) -> NDArray[np.float64]:
    """Return the seconds [kinds, 3, n + 1, n + 1] that a virtual stage with a range of the chain
    takes at least: a micro-batch forward, and backward, and synchronisation."""
    waits, alone, found = part.waits(recompute), Variant(1, recompute), []
    for row, (total, _, forward) in enumerate(part.elements):
        there = _ranges(forward + waits[row, 0])
        both = _ranges(total + waits[row].sum(axis=0)) + _again(part, alone, row)
        found.append((there, both - there, _ranges(part.syncs[row, 1:])))
    return np.array(found)


def _spread(part: MegatronPart, variant: Variant, rows: list[int]) -> Spread:
    """Return the times of virtual stages by their number of equal layers."""
    total, _, forward = part.elements[rows].transpose(1, 0, 2)
    counts = np.arange(part.costs.model.layers + 1)
    recompute = variant.recompute
    repeated, seconds = counts, part.repeated(recompute)[rows, 1]
    if recompute.method == "block":
        repeated = np.minimum(counts, recompute.layers)
    there, back = part.waits(recompute)[rows].transpose(1, 0, 2)
    forward, backward = forward + there, total - forward + back
    return Spread(
        forward=forward[:, 1:2] * counts,
        backward=backward[:, 1:2] * counts + seconds[:, None] * repeated,
        edge=np.ascontiguousarray(np.stack((forward[:, [0, -1]], backward[:, [0, -1]]), axis=2)),
        around=part.ranks.transfers[-1],
        remainder=variant.remainder,
        turn=variant.turn or part.degrees.pp,
    )


@lru_cache(maxsize=PARTS_KEPT)
def _tables_of(part: MegatronPart) -> dict[object, NDArray[np.float64]]:
    """Return what is kept of a part."""
    return {}


@lru_cache(maxsize=1)
def _long_tables_of(part: MegatronPart) -> dict[object, NDArray[np.float64]]:
    """Return what is kept of a part with many layers."""
    return {}


def _kept(
    part: MegatronPart, key: tuple[object, ...], make: Callable[[], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the settled times of ranges that several variants of a part share."""
    known = (_long_tables_of if part.costs.model.layers > LONG else _tables_of)(part)
    if key not in known:
        known[key] = _settled(part, make())
    return known[key]


def _kept_again(part: MegatronPart, variant: Variant, row: int) -> NDArray[np.float64]:
    """Return the settled recomputation seconds of every range."""
    again = variant.recompute
    if again.method == "block":
        return _settled(part, _again(part, variant, row))
    key = "again", row, again.granularity, again.modules
    return _kept(part, key, partial(_again, part, variant, row))


def _sample(part: MegatronPart) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and stops of ranges that have all the times there are: of equal counts, one."""
    ranges = chain_ranges(part.job.layer_kinds)
    return ranges.start, ranges.stop


def _settled(part: MegatronPart, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the times of ranges, if ranges of equal counts take exactly the same.

    As differences of running sums they differ in the last digit, and a limit that one of them
    sets would exclude the others.
    """
    if not part.alike:
        return values
    ranges = chain_ranges(part.job.layer_kinds)
    found: NDArray[np.float64] = values[ranges.start, ranges.stop][ranges.number]
    return np.where(ranges.there, found, values)


def _again(part: MegatronPart, variant: Variant, row: int) -> NDArray[np.float64]:
    """Return the recomputation seconds of every range."""
    recompute = variant.recompute
    repeated = part.repeated(recompute)[row]
    if recompute.method != "block":
        return _ranges(repeated)
    inner = np.ones_like(repeated)
    inner[[0, -1]] = 0.0
    if variant.virtual > 1:
        layers = _ranges(inner).astype(np.int64)
        place = np.arange(len(layers))
        first, last = (place == 0)[:, None] & (layers >= 0), (place == place[-1]) & (layers >= 0)
        stages = stage_layers(layers, first, last, variant.virtual, variant.remainder)
        spread = sum(np.minimum(recompute.layers, stage) for stage in stages)
        seconds: NDArray[np.float64] = spread * repeated[1]
        return seconds
    sums = np.concatenate(([0.0], np.cumsum(repeated)))
    edge = np.arange(sums.size)
    begin = np.maximum(edge, 1)  # the embedding is no layer
    stop = np.minimum(begin[:, None] + recompute.layers, np.maximum(edge[None, :], begin[:, None]))
    return np.where(edge[:, None] < edge[None, :], sums[stop] - sums[begin][:, None], 0.0)


def _ranges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over [start, stop); 0 if the range is empty or backward."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return np.where(_forward(sums.size), sums[None, :] - sums[:, None], 0.0)


@lru_cache(maxsize=8)
def _forward(count: int) -> NDArray[np.bool_]:
    """Return whether a stop is after a start."""
    return np.triu(np.ones((count, count), bool), 1)
