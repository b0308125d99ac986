"""Stages with recomputation that can be of use.

A stage recomputes nothing, the core of the attention of every layer (`selective`), its first n
layers (`block`) or all of them (`full`). Its layers [i, c) have the profile's figures of recomputed
layers, the others [c, j) of plain ones:

    u      = max over r of sum of time'(d_r, tp, x_r) over [i, c)
                           + sum of time(d_r, tp, x_r) over [c, j)
    memory = state + in_flight * x_r * (activation' over [i, c) + activation over [c, j))
             + max over layers of workspace' or workspace

Of two stages that differ in how many layers they recompute, the one with fewer takes no longer, for
any last micro-batch: the saving in a partial one's peak is at most a fraction of the addition to
the sum over stages (`costs/groups.py`). So only stages that hold more micro-batches than all with
fewer can be of use, and none once a stage holds as many as it may ever have to: its own, and one
for each possible downstream stage with a layer and a device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.costs.groups import RecomputedStages
from ilp_planner.costs.layer_rows import ALL_IN_FLIGHT, LayerRows
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.specs.training import Recompute

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.layers import LayerKey

NONE, SELECTIVE, FULL, BLOCK = "none", "selective", "full", "block"
ROWS_OF = {SELECTIVE: (SELECTIVE,), FULL: (FULL, BLOCK)}
"""Rows of a profile -> the kinds of recomputation that they price."""


def known_kinds(rows: LayerRows, asked: Collection[str]) -> tuple[str, ...]:
    """Return the requested kinds of recomputation that rows price; all if none are."""
    priced = [NONE, *(kind for name in rows.again for kind in ROWS_OF[name])]
    return tuple(kind for kind in priced if not asked or kind in asked)


def rows_needed(asked: Collection[str]) -> tuple[str, ...]:
    """Return the rows that price the requested kinds; all if none are."""
    return tuple(name for name, kinds in ROWS_OF.items() if not asked or {*kinds} & {*asked})


# ---- all stages of an option --------------------------------------------------------------------


class Runs(NamedTuple):
    """The runs of an option's replicas, each once.

    keys, last: with a full micro-batch, and with a short last one. kinds: of recomputation that may
    be. most: int64 [L + 1], micro-batches that a stage holds at most, by its last layer.
    fixed: float64 [L, L + 1], seconds of the peak that depends on no recomputation. part: of a full
    micro-batch that the last one is. devices: of the cluster.
    """

    keys: Sequence[LayerKey]
    last: Sequence[LayerKey]
    kinds: Collection[str]
    most: NDArray[np.int64]
    fixed: NDArray[np.float64]
    part: float
    devices: int


class Cuts(NamedTuple):
    """Stages [start, stop) with recomputed layers before `cut`, in one of `WAYS`; they hold `held`
    micro-batches. int64 [stages] each."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    cut: NDArray[np.int64]
    way: NDArray[np.int64]
    held: NDArray[np.int64]


class AllCuts(NamedTuple):
    """The recomputing stages of some replicas, for any number of micro-batches: shared by options
    with the same runs.

    before: int64 [stages], micro-batches of stages that recompute fewer layers. time: float64
    [stages], seconds of a full micro-batch.
    """

    cuts: Cuts
    before: NDArray[np.int64]
    time: NDArray[np.float64]

    def of_use(self, most: NDArray[np.int64]) -> tuple[Cuts, NDArray[np.float64]]:
        """Return the stages that are of use if none holds more than `most`, int64 [L + 1] by last
        layer, and their seconds."""
        use = self.before < most[self.cuts.stop]
        if use.all():
            return self.cuts, self.time
        return Cuts(*(column[use] for column in self.cuts)), self.time[use]


WAYS = (
    Recompute(),
    Recompute(granularity=SELECTIVE),
    Recompute(granularity=FULL, method="uniform", layers=1),
)
"""Recomputations by number; those after them are blocks of 1, 2 ... layers."""


def recompute_of(way: int) -> Recompute:
    """Return the recomputation that a number stands for."""
    if way < len(WAYS):
        return WAYS[way]
    return Recompute(granularity=FULL, method=BLOCK, layers=way - len(WAYS) + 1)


def is_priced(recompute: Recompute) -> bool:
    """Tell whether it has a number."""
    blocks = recompute.kind == BLOCK and recompute == recompute_of(len(WAYS) - 1 + recompute.layers)
    return blocks or recompute in WAYS


def most_held(layers: int, devices: int, micro_batches: int) -> NDArray[np.int64]:
    """Return the most micro-batches in flight of a stage, by its last layer, int64 [L + 1]: every
    downstream stage has a layer and one of so many devices."""
    behind = np.minimum(layers - np.arange(layers + 1), devices)
    return np.asarray(_held(layers, micro_batches))[behind]


@lru_cache
def _held(layers: int, micro_batches: int) -> tuple[int, ...]:
    """Return the micro-batches in flight with 0, 1 ... so many downstream stages."""
    schedule = OneForwardOneBackward(micro_batches)
    return tuple(schedule.in_flight(behind) for behind in range(layers + 1))


def recomputed_stages(
    rows: LayerRows, runs: Runs, held: NDArray[np.int64]
) -> RecomputedStages | None:
    """Return the stages that recompute layers and can be of use; None if none can.

    Parameters
    ----------
    held: int64 [L, L + 1], micro-batches that fit without; 0 if that is not allowed.
    """
    if not rows.again or not (np.triu(held < runs.most, 1)).any():
        return None
    columns, layers = [], len(rows.chain)
    # A layer on each device behind: no stage of any option has to hold more. What is kept depends
    # on the replicas and the way alone, as `held` and the limits follow from these.
    most = most_held(layers, runs.devices, layers + 1)
    every = runs._replace(most=np.maximum(runs.most, most))
    for name, again in rows.again.items():
        key = (name, *runs.keys, every.most.tobytes())
        found_cuts = rows.cuts.get(key)
        if found_cuts is None:
            found_cuts = _all_cuts(rows, name, every, held)
            rows.cuts.keep(key, found_cuts, found_cuts.time.size)
        cuts, time = found_cuts.of_use(runs.most)
        peaks = [runs.fixed[cuts.start, cuts.stop]]
        if runs.last:
            busy = _longest(rows, again, runs.last, cuts)
            peaks.append(np.maximum(busy - runs.part * time, 0.0))
        columns.append(
            RecomputedStages(cuts.start, cuts.stop, cuts.way, time, np.stack(peaks), cuts.held)
        )
    found = RecomputedStages(
        *(np.concatenate(column, axis=-1) for column in zip(*columns, strict=True))
    )
    return found if found.start.size else None


def _longest(
    rows: LayerRows, again: LayerRows, keys: Sequence[LayerKey], cuts: Cuts
) -> NDArray[np.float64]:
    """Return the seconds of stages on the replica that takes longest."""
    found = np.zeros(cuts.start.size)
    for key in keys:
        first, rest = again.ends_of("time", key), rows.ends_of("time", key)
        seconds = first[cuts.cut] - first[cuts.start] + rest[cuts.stop] - rest[cuts.cut]
        np.maximum(found, seconds, out=found)
    return found


def _all_cuts(rows: LayerRows, way: str, runs: Runs, held: NDArray[np.int64]) -> AllCuts:
    """Return the stages of a kind of recomputation that hold more than stages that recompute fewer
    layers."""
    again = rows.again[way]

    def ends(of: LayerRows, what: str) -> NDArray[np.float64]:
        return np.array([key.samples * of.ends_of(what, key) for key in runs.keys])

    def largest(of: LayerRows) -> NDArray[np.float64]:
        return np.array([of.range_of("workspace", key) for key in runs.keys])

    blocks = way == FULL
    found = _held_more(
        held,
        runs.most,
        np.array([rows.limits.get(key.device, 0.0) * (1 - FINE_ROUNDING) for key in runs.keys]),
        np.array([rows.ends_of("state", key) for key in runs.keys]),
        ends(rows, "activation"),
        ends(again, "activation"),
        largest(rows),
        largest(again),
        not blocks or FULL in runs.kinds,
        blocks and BLOCK in runs.kinds,
    )
    start, stop, cut, number, more, before = found.copy()
    cuts = Cuts(start, stop, cut, number if blocks else np.ones_like(number), more)
    return AllCuts(cuts, before, _longest(rows, again, runs.keys, cuts))


@kernel
def _held_more(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    held, most, limits, state, kept, kept_again, space, space_again, whole, some
):
    """Return start, stop, cut, kind and micro-batches of the stages that hold more of them than
    stages with fewer recomputed layers, and the number of these, int64 [6, stages].

    held: int64 [L, L + 1], without. most: int64 [L + 1], by a stage's last layer. limits: float64
    [keys], bytes. state, kept, kept_again: float64 [keys, L + 1], bytes of the layers before one.
    space, space_again: float64 [keys, L, L + 1], the largest of a range of layers. whole, some: all
    layers of a stage may be recomputed, and any number of them.
    """
    keys, layers = space.shape[0], space.shape[1]
    room = 0
    for i in range(layers):
        for j in range(i + 1, layers + 1):
            if held[i, j] < most[j]:
                room += min(j - i, most[j] - held[i, j])
    found = np.empty((6, room), np.int64)
    count = 0
    for i in range(layers):
        for j in range(i + 1, layers + 1):
            best = held[i, j]
            if best >= most[j]:
                continue
            first = max(i, 1)
            last = max(min(j, layers - 1), first)  # embedding and output are not computed again
            cut = min(first + 1, last) if some else last
            while cut <= last and best < most[j]:
                end = min(cut, j)
                fitting = ALL_IN_FLIGHT
                for k in range(keys):
                    used = state[k, j] - state[k, i]
                    extra = space_again[k, i, end] if end > i else 0.0
                    if end < j:
                        extra = max(extra, space[k, end, j])
                    each = kept_again[k, end] - kept_again[k, i] + kept[k, j] - kept[k, end]
                    left = limits[k] - used - extra
                    if each > 0:
                        fitting = min(fitting, max(int(np.floor(left / each)), 0))
                    elif left < 0:
                        fitting = 0
                if fitting > best:
                    found[5, count] = best
                    best = fitting
                    found[0, count], found[1, count], found[2, count] = i, j, end
                    found[3, count] = 2 if whole and cut == last else 2 + max(cut - first, 1)
                    found[4, count] = fitting
                    count += 1
                cut += 1
    return found[:, :count]
