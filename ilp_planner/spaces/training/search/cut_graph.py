"""Cuts between pipeline ranks as a stage graph: under a formula, all that solvers need to know.

An iteration takes about weight * (slowest rank) + sum of ranks + largest synchronisation, seconds:
good cuts under it are good plans, and their schedule then judges them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.spaces.training.enumerate.partition import Cut, CutSearch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.solvers.base import GraphSolution
    from ilp_planner.spaces.training.enumerate.partition import CutTables


def cut_graph(tables: CutTables) -> StageGraph:
    """Return all cuts under the formula."""
    ranks, count = tables.kind.size, tables.load.shape[1]
    before = np.concatenate(([0], np.cumsum(tables.least)))
    grid = np.arange(count)
    parts = []
    for rank in range(ranks):
        start, stop = np.meshgrid(grid, grid, indexing="ij")
        fits = (stop - start >= tables.least[rank]) & tables.fits[tables.row[rank]]
        fits &= (start >= before[rank]) & (stop <= count - 1 - (before[-1] - before[rank + 1]))
        fits &= (start == 0) if rank == 0 else True
        fits &= (stop == count - 1) if rank == ranks - 1 else True
        first, last = np.nonzero(fits)
        parts.append((np.full(first.size, rank), first, last))
    return graph_of(tables, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def graph_of(
    tables: CutTables,
    rank: NDArray[np.int64],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> StageGraph:
    """Return the graph of possible ranks, an arc each; nodes are (ranks so far, element)."""
    ranks, count = tables.kind.size, tables.load.shape[1]
    row = tables.kind[rank]
    return StageGraph(
        nodes=ranks * count + 1,
        sources=(0,),
        sink=ranks * count,
        operators=count - 1,
        weight=tables.weight,
        tail=rank * count + start,
        head=np.where(rank == ranks - 1, ranks * count, (rank + 1) * count + stop),
        start=start,
        stop=stop,
        time=tables.load[row, start, stop],
        peaks=tables.peak[row, start, stop][None, :],
    )


def cut_of(graph: StageGraph, solution: GraphSolution, cutoff: float) -> CutSearch:
    """Return a solver's result of `cut_graph`: the cut, if it is below the cutoff."""
    bound = min(solution.bound, cutoff)
    if not solution.path:
        return CutSearch(None, bound)
    arcs = list(solution.path)
    cut = Cut((0, *graph.stop[arcs].tolist()), graph.path_time(arcs))
    return CutSearch(cut if cut.value < cutoff else None, bound)
