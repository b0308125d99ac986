"""Layouts that may fit memory: of schedules that divide backward passes all of them at once, of
interleaved ones stage by stage.

A rank holds its states, and at some moment every mix of micro-batches of its schedule
(`Schedule.held`). Other needs are not counted here, so that a layout that does not fit never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.job.memory import kept_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.job.memory import MemoryParts

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
    experts = job.model.expert_layers
    kinds = ("embedding", *("expert layer" if e else "layer" for e in experts), "output")
    chain = [parts.parts[kind] for kind in kinds]
    states, kept, waiting = (
        _between(np.array(each, np.float64), layouts)
        for each in (
            [sum(getattr(part, name) for name in STATES) for part in chain],
            [part.left for part in chain],
            [part.waiting for part in chain],
        )
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
        mixes = np.array(job.schedule.held(job.pp - 1 - rank), np.float64)
        held = np.concatenate((kept[:, own], waiting[:, own]), axis=1) @ mixes.T
        fits &= states[:, own].sum(axis=1) + held.max(axis=1) <= limit * (1 + FINE_ROUNDING)
    return fits


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
    experts = np.array(job.model.expert_layers)
    kinds = ["embedding", *("expert layer" if e else "layer" for e in experts), "output"]
    states = np.array([sum(getattr(parts.parts[k], name) for name in STATES) for k in kinds])
    predictions = job.model.prediction_layers
    states[-1] += predictions * sum(getattr(parts.parts["prediction layer"], n) for n in STATES)
    layers = np.concatenate(([0, 0], np.arange(1, experts.size + 1), [experts.size]))
    with_experts = np.concatenate(([0, 0], experts.cumsum(), [experts.sum()]))
    few, some = (np.maximum(0, e[None, :] - e[:, None]) for e in (layers, with_experts))
    kept = np.array(kept_bytes(parts, layers=few - some, expert_layers=some), np.float64)
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
