"""Ranges of the chain that fit the devices of a pipeline rank: `job.memory`, for all stages at
once.

The need of a device counts (`RankMemory.needed`): the peak of PyTorch's tensors, and beside it the
context, communication buffers and fragmentation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.costs.training.job import spread
from ilp_planner.job.memory import captured_bytes, kept_bytes, stage_memory
from ilp_planner.job.overheads import outside
from ilp_planner.job.parts import Part
from ilp_planner.specs.layer_kinds import LAYER_KINDS, PLAIN
from ilp_planner.specs.pipeline_layout import ALONE, FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.job.counts import Count
    from ilp_planner.job.memory import MemoryParts, StageMemory
    from ilp_planner.job.parts import Activations
    from ilp_planner.schedule.formulas import Schedule
    from ilp_planner.specs.training import TrainingJob

    Chunks = tuple[tuple[NDArray[np.int64], ...], ...]


@dataclass(frozen=True, eq=False)
class Fits:
    """row: int64 [ranks]; possible: bool [rows, n + 1, n + 1], whether [start, stop) fits."""

    row: NDArray[np.int64]
    possible: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RankCounts:
    """Counts of ranks' contents, arrays that broadcast to [rows, counts].

    dense, expert: layers without and with experts. others: layers of a hybrid, from the third kind
    on. embedding, output: whether they are there.
    ending: whether the last layer is there, if that is asked, and else whether the output is.
    """

    dense: NDArray[np.int64]
    expert: NDArray[np.int64]
    embedding: NDArray[np.bool_]
    output: NDArray[np.bool_]
    ending: NDArray[np.bool_]
    others: tuple[NDArray[np.int64], ...] = ()

    @property
    def layers(self) -> NDArray[np.int64]:
        """Return the layers of all kinds."""
        return np.asarray(self.dense + self.expert + sum(self.others))


@dataclass(frozen=True, eq=False)
class ChainRanges:
    """The different counts of a chain's ranges; L layers, chain of n = L + 2.

    number: int64 [n + 1, n + 1], of a range's counts. there: bool [n + 1, n + 1], ranges that are
    not empty. start, stop: by number, of one such range. counts: by number, [1, counts].
    """

    number: NDArray[np.int64]
    there: NDArray[np.bool_]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    counts: RankCounts


@lru_cache(maxsize=8)
def chain_ranges(layer_kinds: tuple[int, ...], ends: bool = False) -> ChainRanges:
    """Return the counts of all ranges; number 0 stands for empty ones.

    layer_kinds: as `TrainingJob` has them. ends: ranges are told apart by whether they have the
    last layer.
    """
    before = layers_before(layer_kinds)
    edge = np.arange(len(layer_kinds) + 3)
    start, stop = np.triu_indices(edge.size, 1)
    last = len(layer_kinds) if ends else edge[-1] - 1  # the last layer, or the output
    counts = np.stack(
        [
            *(before[:2, stop] - before[:2, start]),
            start == 0,
            stop == edge[-1],
            (start <= last) & (stop > last),
            *(before[2:, stop] - before[2:, start]),
        ]
    )
    unique, first, inverse = np.unique(counts, axis=1, return_index=True, return_inverse=True)
    number = np.zeros((edge.size, edge.size), np.int64)
    number[start, stop] = np.asarray(inverse).reshape(-1)
    return ChainRanges(
        number=number,
        there=edge[:, None] < edge,
        start=start[first],
        stop=stop[first],
        counts=RankCounts(
            dense=unique[None, 0],
            expert=unique[None, 1],
            embedding=unique[None, 2] > 0,
            output=unique[None, 3] > 0,
            ending=unique[None, 4] > 0,
            others=tuple(unique[None, 5:].transpose(1, 0, 2)),
        ),
    )


def layers_before(layer_kinds: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the layers of each kind before every edge of a chain, [kinds, n + 1]."""
    kinds = np.arange(max(PLAIN, max(layer_kinds) + 1))
    flags = np.array(layer_kinds, np.int64) == kinds[:, None]
    sums = flags.cumsum(axis=1)
    none = np.zeros((kinds.size, 2), np.int64)
    return np.concatenate((none, sums, sums[:, -1:]), axis=1)


def fits(parts: MemoryParts, limits: Sequence[float], remainder: str = FIRST) -> Fits:
    """Return the fitting ranges.

    Parameters
    ----------
    parts: of a job with the right number of virtual stages per rank. limits: bytes on the devices
        of each rank. remainder: as in `spread`.
    """
    return of_ranges(fitting_counts(parts, limits, remainder), parts.job)


def fitting_counts(parts: MemoryParts, limits: Sequence[float], remainder: str = FIRST) -> Fits:
    """Return the result of `fits` by number of `chain_ranges`: possible [rows, counts]."""
    return Fits(*_good(parts, _ranges(parts.job).counts, limits, remainder))


def of_ranges(found: Fits, job: TrainingJob) -> Fits:
    """Return the fitting ranges of a job's chain. found: by counts."""
    return Fits(row=found.row, possible=found.possible[:, _ranges(job).number])


def _ranges(job: TrainingJob) -> ChainRanges:
    return chain_ranges(job.layer_kinds, job.model.prediction_layers > 0)


def most_layers(
    parts: MemoryParts,
    limits: Sequence[float],
    most: int,
    *,
    kind: int = 0,
    sizes: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Return the layers of one kind that each rank holds at most in 1F1B, [1, ranks]; far below 0
    if even zero layers do not fit.

    Parameters
    ----------
    parts: of a job without virtual stages. limits: bytes on the devices of each rank. most: how
        many there are. kind: their number in `LAYER_KINDS`. sizes: for a job that recomputes the
        first layers of every rank, or chunks of layers: numbers of these layers to try instead, a
        row each.

    More layers never take less memory: of many sizes, steps of some layers say where to look at
    every number. A last norm that is no part of the output is left out: which rank has it says the
    whole cut.
    """
    job = parts.job
    parts = replace(parts, parts={**parts.parts, "final norm": Part()})
    if sizes:
        parts = replace(parts, size=np.array(sizes)[:, None, None])  # type: ignore[arg-type]
    ranks = np.arange(job.pp)[:, None]
    first, last = ranks == 0, ranks == job.pp - 1
    in_flight = np.array([[job.schedule.in_flight(job.pp - 1 - rank)] for rank in range(job.pp)])
    enough = np.array(limits)[:, None] * (1 + FINE_ROUNDING)
    held, left = np.full((max(1, len(sizes)), job.pp, 1), -1), most + 1
    for step in (isqrt(most) + 1, 1) if sizes else (1,):
        more = held + step * np.arange(1, -(-left // step) + 1)
        counts = [more if own == kind else 0 for own in range(max(PLAIN, kind + 1))]
        stage = stage_memory(
            parts,
            layers=counts[0],
            expert_layers=counts[1],
            others=tuple(counts[PLAIN:]),
            embedding=first,
            output=last,
            prediction_layers=last * job.model.prediction_layers,
            in_flight=in_flight,
        )
        fit = (_on_device(job, stage) <= enough) & (more <= most)
        held, left = held + step * fit.sum(axis=2, keepdims=True), step - 1
    return np.where(held < 0, -(10**6), held)[:, :, 0]


def most_by_states(
    parts: MemoryParts,
    limits: Sequence[float],
    kept: Mapping[str, Activations],
    *,
    kind: int = 0,
    flights: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Return an upper bound on the result of `most_layers` for a job that recomputes no whole
    layers, [recomputations, ranks]: of states, and of what layers keep, which is asked in no time.

    parts: of a job with any recomputation. kept: of each kind of layer, as the job recomputes, with
    a column [recomputations, 1] of each figure.
    flights: micro-batches of all its layers that each rank holds at once; by default, as in 1F1B.

    A peak has at least the states of a rank and what its micro-batches in flight keep, pools of
    CUDA graphs aside, and a layer's moment above that.
    """
    job = parts.job
    flights = flights or [job.schedule.in_flight(job.pp - 1 - rank) for rank in range(job.pp)]
    states, held, room = _room(parts, limits, kept, kind)
    each = states + np.array(flights) * held
    found: NDArray[np.float64] = np.where(room < 0, -1e6, room / np.maximum(each, 1e-9))
    return found


def most_in_turns(
    parts: MemoryParts,
    limits: Sequence[float],
    kept: Mapping[str, Activations],
    schedule: Schedule,
    remainder: str,
) -> NDArray[np.int64]:
    """Return an upper bound on the layers that each rank holds with several virtual stages, for a
    job with layers of one kind that recomputes no whole ones, [ranks]: of states, and of what
    layers keep, likewise; -1 if there is no room for zero layers.

    parts: of a job with any layout and recomputation. remainder: as in `spread`.
    """
    job, (kind, *_) = parts.job, parts.job.layer_kinds
    states, held, room = _room(parts, limits, kept, kind)
    flights = layers_in_flight(schedule, job.pp, job.model.layers, remainder)
    counts = np.arange(flights.shape[1])
    fit = states * counts + held * flights <= room[:, None]
    return np.asarray(np.where(fit, counts, -1).max(axis=1))


@lru_cache(maxsize=1024)
def layers_in_flight(
    schedule: Schedule, ranks: int, layers: int, remainder: str
) -> NDArray[np.float64]:
    """Return how many layers keep the activations of a micro-batch on each rank at most, counted
    for every micro-batch that is held, by the layers of the rank, [ranks, layers + 1]."""
    counts = np.arange(layers + 1)
    found = []
    for rank in range(ranks):
        edges = {"embedding": rank == 0, "output": rank == ranks - 1}
        stages = np.stack(spread(counts, schedule.virtual, remainder, **edges))
        found.append((_held(schedule, ranks - 1 - rank) @ stages).max(axis=0))
    return np.stack(found)


def _room(
    parts: MemoryParts, limits: Sequence[float], kept: Mapping[str, Activations], kind: int
) -> tuple[float, Count, NDArray[np.float64]]:
    """Return the bytes of a layer's states, those of what it keeps of a micro-batch, and the bytes
    that each rank has for both at most."""
    job, kinds = parts.job, parts.parts
    own = kept[LAYER_KINDS[kind].name]
    edges = np.zeros(job.pp)
    edges[0] += _states(kinds["embedding"])
    edges[-1] += _states(kinds["output"])
    alone = sum(outside(job, 0.0).values())
    share = 1.0 + sum(outside(job, 1.0).values()) - alone  # of a peak, with all that grows with it
    moment = np.minimum.reduce([np.zeros_like(own.moment), *(one.moment for one in kept.values())])
    room = (np.array(limits) * (1 + FINE_ROUNDING) - alone) / share - edges - moment
    return _states(kinds[LAYER_KINDS[kind].name]), own.kept - own.moved - own.captured, room


def _states(part: Part) -> float:
    return part.weights + part.gradients - part.deferred + part.optimizer


def _good(
    parts: MemoryParts, counts: RankCounts, limits: Sequence[float], remainder: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the row of each rank, and whether counts fit it, [rows, counts]."""
    job = parts.job
    if job.virtual == 1:
        rows: dict[tuple[int, float], int] = {}
        flights = [job.schedule.in_flight(behind) for behind in reversed(range(job.pp))]
        row = [rows.setdefault(pair, len(rows)) for pair in zip(flights, limits, strict=True)]
        in_flight = np.array([[n] for n, _ in rows])
        needed = _needed(parts, counts, counts.ending, in_flight=in_flight)
        most = np.array([[limit] for _, limit in rows])
    else:
        row = list(range(job.pp))
        chunks = _chunks(parts, counts, remainder)
        ending = _ending(parts, counts, chunks, remainder)
        kept = _interleaved(parts, counts, chunks, ending)
        captured = _captured(parts, chunks)
        needed = _needed(parts, counts, ending, chunks, kept=kept, captured=captured)
        most = np.array(limits)[:, None]
    return np.array(row, np.int64), needed <= most * (1 + FINE_ROUNDING)


def _ending(
    parts: MemoryParts, counts: RankCounts, chunks: Chunks, remainder: str
) -> NDArray[np.bool_]:
    """Return whether ranks with several virtual stages have the last norm, [ranks, counts].

    In models that predict further tokens it is the rank before the last one that has it if the
    output is alone (`job.decoder.has_final_norm`). That it is alone because the last rank has too
    few layers cannot be told from another rank's counts: there it is left out
    (`MegatronPart.keeps`).
    """
    shape = parts.job.pp, counts.dense.shape[1]
    found = np.array(np.broadcast_to(counts.output, shape))
    if parts.job.model.prediction_layers:
        found &= sum(chunks[-1]) > 0
        if remainder == ALONE:
            found[-2] = ~np.broadcast_to(counts.output, shape)[-2]
    return found


def _needed(
    parts: MemoryParts,
    counts: RankCounts,
    ending: NDArray[np.bool_],
    chunks: Chunks = (),
    **activations: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return bytes by row and counts.

    ending: whether the last norm is there, [rows, counts] or [1, counts].
    """
    stage = stage_memory(
        parts,
        layers=counts.dense,
        expert_layers=counts.expert,
        others=counts.others,
        embedding=counts.embedding,
        output=counts.output,
        final_norm=ending,
        prediction_layers=counts.output * parts.job.model.prediction_layers,
        chunks=chunks,
        **activations,
    )
    return _on_device(parts.job, stage)


def _on_device(job: TrainingJob, stage: StageMemory) -> NDArray[np.float64]:
    """Return the bytes that a stage needs of a device, with memory outside of tensors."""
    total: NDArray[np.float64] = stage.peak + sum(outside(job, stage.peak, stage.reserved).values())
    return total


def _chunks(parts: MemoryParts, counts: RankCounts, remainder: str) -> Chunks:
    """Return the layers without and with experts of every virtual stage, by counts: a rank's
    layers, all of one kind, are spread over them (`costs.training.job.spread`)."""
    virtual, layers = parts.job.virtual, counts.layers
    found = stage_layers(layers, counts.embedding, counts.output, virtual, remainder)
    kinds = (counts.dense, counts.expert, *counts.others)
    return tuple(tuple(np.where(kind > 0, count, 0) for kind in kinds) for count in found)


def stage_layers(
    layers: NDArray[np.int64],
    embedding: NDArray[np.bool_],
    output: NDArray[np.bool_],
    virtual: int,
    remainder: str,
) -> list[NDArray[np.int64]]:
    """Return the layers of every virtual stage of ranks by the rank's layers, arrays of one
    shape."""
    first, inner, last = (
        spread(layers, virtual, remainder, embedding=place == 0, output=place == 2)
        for place in range(3)
    )
    edges = [embedding, output]
    return [np.select(edges, [a, c], b) for a, b, c in zip(first, inner, last, strict=True)]


def _interleaved(
    parts: MemoryParts, counts: RankCounts, chunks_of: Chunks, ending: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the bytes that each rank keeps at most, [ranks, counts].

    ending: whether ranks have the last norm, [ranks, counts].
    """
    job = parts.job
    kept = []
    for chunk, (dense, expert, *others) in enumerate(chunks_of):
        own = kept_bytes(parts, layers=dense, expert_layers=expert, others=tuple(others))
        if chunk == 0:
            own = own + counts.embedding * parts.parts["embedding"].kept
        if chunk == job.virtual - 1:
            predictions = counts.output * job.model.prediction_layers
            own = own + predictions * parts.parts["prediction layer"].left
        kept.append(own[0])
    chunks = np.stack(kept).astype(np.float64)  # [virtual, counts]
    norms = (ending & ~counts.output) * parts.parts["final norm"].kept

    def most(rank: int) -> NDArray[np.float64]:
        own = np.concatenate([chunks[:-1], chunks[-1:] + norms[rank]])
        states = _held(job.schedule, job.pp - 1 - rank) @ own
        return np.asarray(states.max(axis=0), np.float64)

    return np.stack([most(rank) for rank in range(job.pp)])


def _captured(parts: MemoryParts, chunks_of: Chunks) -> NDArray[np.float64]:
    """Return the bytes that each rank has in pools of CUDA graphs at most, [ranks, counts]."""
    job = parts.job
    each = [
        captured_bytes(parts, layers=a, expert_layers=b, others=tuple(others))[0]
        for a, b, *others in chunks_of
    ]
    chunks = np.stack(each).astype(np.float64)  # [virtual, counts]
    states = (_held(job.schedule, job.pp - 1 - rank) @ chunks for rank in range(job.pp))
    return np.stack([np.asarray(found.max(axis=0), np.float64) for found in states])


@lru_cache(maxsize=4096)
def _held(schedule: Schedule, behind: int) -> NDArray[np.float64]:
    """Return the micro-batches held per virtual stage, a row for every combination that no other
    one exceeds."""
    states = np.unique(np.array(schedule.held(behind), np.float64), axis=0)
    exceeded = np.all(states[:, None, :] <= states[None, :, :], axis=2)
    np.fill_diagonal(exceeded, False)
    found: NDArray[np.float64] = states[~np.any(exceeded, axis=1)]
    return found
