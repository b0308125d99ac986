"""Stages of a few operators and options at random, and what every way to run them costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.prices import Ends
from ilp_planner.optimize.bounds.sweep import Memory, Operators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SECOND, BYTE = 2.0**-10, 2.0**20
"""Times are whole numbers of the one, sizes of the other: sums are exact, and there are ties."""


@dataclass(frozen=True)
class Way:
    """One way to run a stage, or its end. memory: bytes in the order of its last line but peaks and
    what is reserved. longest: bytes of the largest recomputed pair, run: of the largest run."""

    path: tuple[int, ...]
    time: float
    memory: float
    peak: float
    reserved: float
    pair: float
    run: float

    @property
    def bytes(self) -> float:
        return self.memory + self.peak + self.reserved


@dataclass(frozen=True)
class Stage:
    """What kernels are given of a stage."""

    operators: Operators
    ends: Ends
    memory: Memory

    @property
    def size(self) -> int:
        return len(self.operators.compute)

    @property
    def options(self) -> int:
        return self.operators.compute.shape[1]

    @cached_property
    def ways(self) -> list[Way]:
        """All ways that can be."""
        ways = (self.way(path) for path in self.paths(self.size))
        return [way for way in ways if way.time < INFINITE and self.ends.first[way.path[0] >> 1]]

    def paths(self, length: int) -> Iterator[tuple[int, ...]]:
        """Yield every state of so many operators."""
        return product(range(2 * self.options), repeat=length)

    def way(self, path: tuple[int, ...]) -> Way:
        """Return what a way costs that says a state of every operator."""
        ops, last = self.operators, self.size - 1
        own, flag = [state >> 1 for state in path], [state & 1 == 1 for state in path]
        time = self.ends.enter[own[0]] + self.ends.leave[own[-1]]
        live = self.ends.inputs[own[0]]
        runs, run, pair, longest = [0.0], 0.0, 0.0, 0.0
        for q, o in enumerate(own):
            time += ops.compute[q, o] + flag[q] * ops.recompute[q, o]
            time += ops.reshard[ops.pair[q], own[q - 1], o] if q else 0.0
            size = ops.activations[q, o]
            live += size
            if q < last and flag[q] and flag[q + 1]:
                run, pair = run + size, max(pair, size)
                longest = max(longest, run)
                live -= size * ops.saves[q]
                if not (ops.closes[q] or (q + 1 == last and not ops.shared[q])):
                    continue
            if q < last:
                runs.append(run)
                run = 0.0
        reserved = sum(
            max((table[q, o] for q, o in enumerate(own[:-1])), default=0.0)
            for table in (ops.forward, ops.backward)
        )
        total = sum(ops.weights[q, o] for q, o in enumerate(own))
        return Way(
            path,
            float(time),
            float(self.memory.factor * total + self.memory.in_flight * live),
            max(runs),
            float(max(reserved, total) if self.memory.floor else reserved),
            pair,
            longest,
        )

    def limited(self, limit: float) -> Stage:
        return replace(self, memory=self.memory._replace(limit=limit))


def random_stage(seed: int, most: int = 4) -> Stage:
    """Return a stage of up to so many operators with one to three options."""
    random = np.random.default_rng(seed)
    m, options = int(random.integers(1, most + 1)), int(random.integers(1, 4))
    if options == 3:
        m = min(m, 3)
    kinds = int(random.integers(1, 3))

    def table(high: int, unit: float, *shape: int) -> NDArray[np.float64]:
        return random.integers(0, high, shape).astype(np.float64) * unit

    compute = table(9, SECOND, m, options)
    compute[random.random((m, options)) < 0.1] = INFINITE
    reshard = table(4, SECOND, kinds, options, options)
    reshard[random.random(reshard.shape) < 0.05] = INFINITE
    reshard[random.random(kinds) < 0.4] = 0.0
    first = random.random(options) < 0.8
    first[int(random.integers(options))] = True
    operators = Operators(
        compute,
        table(4, SECOND, m, options),
        *(table(high, BYTE, m, options) for high in (9, 5, 5, 5)),
        pair=random.integers(0, kinds, m),
        reshard=reshard,
        free=np.array([not matrix.any() for matrix in reshard]),
        saves=random.random(m) < 0.7,
        closes=random.random(m) < 0.4,
        shared=random.random(m) < 0.4,
    )
    ends = Ends(
        inputs=table(9, BYTE, options),
        enter=table(5, SECOND, options),
        leave=table(5, SECOND, options),
        first=first,
    )
    memory = Memory(
        in_flight=float(random.integers(1, 4)),
        factor=float(random.integers(1, 4)),
        floor=bool(random.integers(2)),
        limit=INFINITE,
    )
    return Stage(operators, ends, memory)
