"""The protocol between cost models and everything that optimises or judges a plan.

A stage of operators i .. j-1 on g devices, with k stages after it, takes

    time   = enter(i) + sum(compute) + sum(recompute of flagged) + sum(reshard) + leave(j-1)
    memory = state_factor * W + in_flight(k) * live + peak + reserved
    live   = input(i) + sum(activations) - sum(saved by pairs of flagged neighbours)
    peak   = the largest run of flagged pairs between checkpoints
    reserved = max(max forward_reserved + max backward_reserved, weight_floor * W), last operator
    excluded

with W the bytes of weights on a device. A cost model says what each term is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ilp_planner.plan import Stage, Surroundings
    from ilp_planner.profiles.table import Origin


class Option(NamedTuple):
    """One way to spread an operator over the devices of its stage."""

    tp: int
    dp: int
    split: int


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage judged: seconds per micro-batch, bytes per device, and the named terms of both."""

    time: float
    memory: float
    time_terms: Mapping[str, float]
    memory_terms: Mapping[str, float]
    unprofiled: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTables:
    """What the optimiser reads for one micro-batch size and one device-group size.

    n operators of the chain fall into U kinds with identical rows; O options per operator; P kinds
    of neighbouring pairs; T distinct tensor degrees. Seconds and bytes throughout; an option that
    is not profiled for a kind has allowed False and zero elsewhere.
    """

    devices: int
    micro_batch: int
    options: tuple[Option, ...]
    degree: NDArray[np.int64]  # [O] index of the option's tp among the distinct ones
    kind: NDArray[np.int64]  # [n]
    pair: NDArray[np.int64]  # [n] kind of the pair (i-1, i); 0 for i = 0
    allowed: NDArray[np.bool_]  # [U, O]
    compute: NDArray[np.float64]  # [U, O] forward + backward (+ work shared by micro-batches / B)
    recompute: NDArray[np.float64]  # [U, O]
    activations: NDArray[np.float64]  # [U, O]
    weights: NDArray[np.float64]  # [U, O]
    input: NDArray[np.float64]  # [U, O] kept per micro-batch in flight by a stage beginning here
    forward_reserved: NDArray[np.float64]  # [U, O]
    backward_reserved: NDArray[np.float64]  # [U, O]
    enter: NDArray[np.float64]  # [2, U, O] receiving inside a node / from another one
    leave: NDArray[np.float64]  # [2, U, O, T] sending, by the degree of the stage's first operator
    reshard: NDArray[np.float64]  # [P, O, O] between neighbours' layouts; inf if impossible
    saves: NDArray[np.bool_]  # [n] flagged i and i+1: the output of i is dropped
    closes: NDArray[np.bool_]  # [n] flagged i and i+1: the recompute run ends after i
    shared: NDArray[np.bool_]  # [n] i keeps nothing; a run open here at a stage's end is dropped
    state_factor: float
    weight_floor: bool


class CostModel(Protocol):
    """Prices stages of one model on one cluster with one profile."""

    name: str

    @property
    def operators(self) -> tuple[str, ...]:
        """The chain."""

    def micro_batches(self) -> tuple[int, ...]:
        """Sizes that the profile allows for the pipeline, ascending."""

    def tables(self, micro_batch: int, devices: int, micro_batch_count: int) -> StageTables | None:
        """Return what the optimiser reads, or None when no option is profiled."""

    def in_flight(self, behind: int, micro_batch_count: int) -> int:
        """Micro-batches whose activations a stage with `behind` stages after it holds at its
        peak."""

    def stage_cost(self, stage: Stage, around: Surroundings) -> StageCost:
        """Judge one stage in plain floating point, without the optimiser's tables."""

    def time_origins(self, stage: Stage, around: Surroundings) -> Iterator[tuple[Origin, float]]:
        """Yield the seconds of a profiled stage with where they come from."""
