"""pipeDejavu's slicing problems: L layers in k stages, integer costs, as stage graphs.

Layer costs and communication costs are drawn uniformly from 5 .. 9 (numpy's `randint(5, 10)`, as in
the notebook of explcre/pipeDejavu), the latter for every place of a cut and every stage before it;
the seeds are ours. To minimise: (B - 1) * slowest stage + communication at the cuts, B = 3.

A stage graph adds the stages' own times, too. Every path covers all layers once, so that is the
total of the layer costs, the same for all: `Slicing.value` subtracts it, and communication is the
`extra` of the stage before the cut. All numbers are small integers, exact in float64.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ilp_planner.optimize.graph import StageGraph

BATCHES = 3
LOW, HIGH = 5, 9


@dataclass(frozen=True, kw_only=True, eq=False)
class Slicing:
    """One problem. layers: float64 [L]. cuts: float64 [L - 1, k - 1], by place and stage."""

    layers: NDArray[np.float64]
    cuts: NDArray[np.float64]

    @property
    def stages(self) -> int:
        """How many stages there must be."""
        return int(self.cuts.shape[1]) + 1

    def graph(self) -> StageGraph:
        """Return the stage graph; its nodes are (layers placed, stages placed)."""
        count, stages = self.layers.size, self.stages
        before = np.concatenate([[0.0], np.cumsum(self.layers)])
        tails, heads, starts, stops, extras = [], [], [], [], []
        for stage in range(stages):
            last = stage == stages - 1
            begins = np.arange(stage, count - stages + stage + 1) if stage else np.array([0])
            ends = np.array([count]) if last else np.arange(stage + 1, count - stages + stage + 2)
            begin, end = (grid.ravel() for grid in np.meshgrid(begins, ends, indexing="ij"))
            begin, end = begin[begin < end], end[begin < end]
            tails.append(begin * (stages + 1) + stage)
            heads.append(end * (stages + 1) + stage + 1)
            starts.append(begin)
            stops.append(end)
            extras.append(np.zeros(end.size) if last else self.cuts[end - 1, stage])
        start, stop = np.concatenate(starts), np.concatenate(stops)
        return StageGraph(
            nodes=(count + 1) * (stages + 1),
            sources=(0,),
            sink=count * (stages + 1) + stages,
            operators=count,
            weight=BATCHES - 1.0,
            tail=np.concatenate(tails),
            head=np.concatenate(heads),
            start=start,
            stop=stop,
            time=before[stop] - before[start],
            extra=np.concatenate(extras),
        )

    def value(self, seconds: float) -> float:
        """Return pipeDejavu's objective for what a path of the graph costs."""
        return seconds - float(self.layers.sum())

    def of_sizes(self, sizes: NDArray[np.int64]) -> float:
        """Return pipeDejavu's objective for stages of so many layers."""
        ends = np.cumsum(sizes)
        before = np.concatenate([[0.0], np.cumsum(self.layers)])[np.concatenate([[0], ends])]
        cuts = self.cuts[ends[:-1] - 1, np.arange(self.stages - 1)]
        return float((BATCHES - 1) * np.diff(before).max() + cuts.sum())

    def uniform(self) -> float:
        """Return it for equally many layers in every stage, the rest in the last one."""
        each = self.layers.size // self.stages
        sizes = np.full(self.stages, each)
        sizes[-1] = self.layers.size - each * (self.stages - 1)
        return self.of_sizes(sizes)


def slicing(layers: int, stages: int, seed: int) -> Slicing:
    """Draw a problem."""
    random = np.random.default_rng(seed)
    return Slicing(
        layers=random.integers(LOW, HIGH + 1, layers).astype(np.float64),
        cuts=random.integers(LOW, HIGH + 1, (layers - 1, stages - 1)).astype(np.float64),
    )
