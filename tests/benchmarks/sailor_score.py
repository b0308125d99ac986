"""What Sailor says of a plan: the seconds and the memory of its planner, by its formulas.

Sailor (SOSP 2025, https://github.com/eth-easl/sailor, sailor/Planner/sailor_planner/cpp_src/
planner_utils.cpp: `simulate_time_single_stage`, `merge_stages_get_time`, `check_stage_fits`;
utils/network_utils.cpp) takes for n micro-batches

    T = (n - 1) * straggler + sum of compute + 2 * sum of sends + largest gradient reduction

compute: of the slowest replica of a stage. straggler: the largest compute of a stage with what it
sends forward and back. A send takes bytes / rate by the curve of the two machines; a reduction
among d replicas 2 (d - 1) parts of 1 / d of each bucket, on the curve of the type that is slowest.
The optimiser's step counts where there is one stage only.

Nothing here is the planner's own: a plan is stages, and a stage layers and replicas. Sailor gives
all replicas as many samples; where a plan does not, each takes its own, on the line between the
sizes that were measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BUCKET = 500_000_000  # bytes
FLOAT_BYTES, STATE_BYTES = 4, 24
OUTSIDE, OUTSIDE_PARALLEL = 2e9, 3e9  # bytes, alone and among tensor-parallel ranks
MOST_REDUCED = 4  # the largest degree that a reduction is looked up for
MEMORY = {"A100-40": 40 * 2**30, "V100-16": 16 * 2**30}  # GPU_MEMORY of planner_utils.cpp


class Replica(NamedTuple):
    """One replica of a stage. samples: of a micro-batch."""

    gpu: str
    tp: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers [start, stop), and replicas, each kind once with how many there are."""

    start: int
    stop: int
    replicas: Mapping[Replica, int]

    @property
    def dp(self) -> int:
        """How many replicas there are."""
        return sum(self.replicas.values())


class Sailor:
    """Sailor's figures of one model in one zone.

    times: type -> micro-batch -> tp -> layer -> [forward, backward, update]; sizes: tp -> layer ->
    figures; network: type -> GPUs -> zone -> type -> GPUs -> [coefficients, largest rate].
    """

    def __init__(
        self, times: dict[str, Any], sizes: dict[str, Any], network: dict[str, Any], zone: str
    ) -> None:
        self.network, self.zone = network, zone
        self.layers = len(next(iter(sizes.values())))
        self.passes, self.update = {}, {}
        for gpu, by_size in times.items():
            for size, by_degree in by_size.items():
                for tp, rows in by_degree.items():
                    row = np.array([rows[str(i)] for i in range(self.layers)])
                    self.passes[gpu, int(tp), int(size)] = row[:, 0] + row[:, 1]
                    self.update[gpu, int(tp), int(size)] = float(row[:, 2].max())
        self.figures = {
            (int(tp), name): np.array([float(rows[str(i)][name]) for i in range(self.layers)])
            for tp, rows in sizes.items()
            for name in ("params_floats", "act_mem_floats", "act_output_floats")
        }
        self.compute, self.send, self.reduced = map(
            cache, (self._compute, self._send, self._reduced)
        )

    def measured(self, gpu: str, tp: int) -> tuple[int, ...]:
        """Return the micro-batches that were measured, ascending."""
        return tuple(sorted(n for kind, degree, n in self.passes if (kind, degree) == (gpu, tp)))

    def _compute(self, replica: Replica, start: int, stop: int) -> float:
        """Return seconds of a micro-batch through layers; on the line between two measured sizes,
        or through the last two."""
        gpu, tp, samples = replica
        known = self.measured(gpu, tp)
        if samples in known:
            return float(self.passes[gpu, tp, samples][start:stop].sum())
        above = next((place for place, n in enumerate(known) if n > samples), len(known) - 1)
        low, high = known[max(above, 1) - 1], known[max(above, 1)]
        a, b = (float(self.passes[gpu, tp, n][start:stop].sum()) for n in (low, high))
        return a + (b - a) * (samples - low) / (high - low)

    def _send(self, sender: Replica, receiver: Replica, layer: int) -> float:
        """Return seconds of sending what a layer makes of the sender's samples."""
        size = FLOAT_BYTES * self.figures[1, "act_output_floats"][layer] * sender.samples
        return self._rate(sender, receiver).seconds(size)

    def reduce(self, kinds: Iterable[Replica], dp: int, start: int, stop: int) -> float:
        """Return seconds of reducing the gradients of layers among `dp` replicas of some kinds."""
        parameters = float(self.figures[1, "params_floats"][start:stop].sum())
        return self.reduced(tuple(kinds), dp, parameters)

    def _reduced(self, kinds: tuple[Replica, ...], dp: int, parameters: float) -> float:
        if dp == 1:
            return 0.0
        slowest = min(kinds, key=lambda replica: self._rate(replica, replica).largest)
        end = slowest._replace(tp=min(MOST_REDUCED, *(replica.tp for replica in kinds)))
        curve = self._rate(end, end)
        left, seconds = FLOAT_BYTES * parameters, 0.0
        while left > 0:
            bucket = min(left, BUCKET)
            seconds += 2 * (dp - 1) * curve.seconds(bucket // dp)
            left -= bucket
        return seconds

    def step(self, kinds: Iterable[Replica], layers: int) -> float:
        """Return seconds of the optimiser's step of so many layers, where there is one stage."""
        known = [(r.gpu, r.tp, self.measured(r.gpu, r.tp)[0]) for r in kinds]
        return layers * max(self.update[key] for key in known)

    def _rate(self, sender: Replica, receiver: Replica) -> Curve:
        coefficients, largest = self.network[sender.gpu][str(sender.tp)][self.zone][receiver.gpu][
            str(receiver.tp)
        ]
        return Curve(tuple(coefficients), largest)

    def seconds(self, stages: Sequence[Stage], micro_batches: int) -> float:
        """Return the iteration time of a plan."""
        compute = [
            max(self.compute(replica, stage.start, stage.stop) for replica in stage.replicas)
            for stage in stages
        ]
        sends = [
            max(self.send(a, b, one.stop - 1) for a in one.replicas for b in two.replicas)
            for one, two in pairwise(stages)
        ]
        around = [a + b for a, b in zip([0.0, *sends], [*sends, 0.0], strict=True)]
        straggler = max(a + b for a, b in zip(compute, around, strict=True))
        fill = sum(compute) + 2 * sum(sends)
        reduction = max(self.reduce(s.replicas, s.dp, s.start, s.stop) for s in stages)
        only = stages[0]
        step = self.step(only.replicas, only.stop - only.start) if len(stages) == 1 else 0.0
        return (micro_batches - 1) * straggler + fill + reduction + step

    def fits(self, stages: Sequence[Stage]) -> bool:
        """Tell whether every replica has the memory that Sailor counts."""
        return all(
            self.room(replica, stage.start, stage.stop, len(stages) - place) >= 0
            for place, stage in enumerate(stages)
            for replica in stage.replicas
        )

    def room(self, replica: Replica, start: int, stop: int, in_flight: int) -> float:
        """Return the bytes that are left on a GPU as Sailor counts; below 0: so many too few."""
        parameters, kept = (
            float(self.figures[replica.tp, name][start:stop].sum())
            for name in ("params_floats", "act_mem_floats")
        )
        activations = FLOAT_BYTES * kept * replica.samples
        outside = OUTSIDE if replica.tp == 1 else OUTSIDE_PARALLEL
        return MEMORY[replica.gpu] - STATE_BYTES * parameters - in_flight * activations - outside


class Curve(NamedTuple):
    """A link: a polynomial in log2 of megabytes that gives GB/s, and its largest rate, bytes/s."""

    coefficients: tuple[float, ...]
    largest: float

    def seconds(self, size: float) -> float:
        """Return seconds of so many bytes."""
        rate = 0.0
        megabytes = math.log2(size / 1e6)
        for coefficient in self.coefficients:
            rate = rate * megabytes + coefficient
        return size / 1e9 / rate
