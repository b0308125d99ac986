"""Common code of arc-flow backends: the model of a reduced graph, and paths from its columns.

Model: one 0/1 variable per arc, one unit of flow from the sources to the sink, and a bottleneck
variable that is at least the total time of the arcs over each operator. A path has exactly one arc
over each operator, so these rows say "slowest arc" with far fewer and much tighter rows than one
row per arc. Each peak has a variable like that, too. The limit of each device type is one row.

Tried and left out: 0/1 thresholds on the bottleneck (x_a <= z_k for arcs slower than threshold k)
close a third to a half of the root gap, but cost the solvers more time than they save.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.solvers.arc_rows import (
    Rows,
    above,
    capacity_rows,
    cover_rows,
    flow_rows,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.arc_reduction import Reduced


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Minimise cost over 0/1 columns, one per arc, and continuous ones for maxima.

    maxima: name, least and greatest value of each continuous column: the bottleneck, then the
    peaks.
    rows: by name: flow, cover, one group per peak, capacity.
    scale: the model's time unit is 1 / scale seconds.
    """

    arcs: int
    cost: NDArray[np.float64]
    maxima: tuple[tuple[str, float, float], ...]
    rows: dict[str, Rows]
    scale: float

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.arcs + len(self.maxima)

    def value(self, chosen: Sequence[int]) -> float:
        """Return the cost of some arcs, with every maximum as small as its rows allow; each row
        bounds one of them from below."""
        on = np.zeros(self.columns)
        on[list(chosen)] = 1.0
        values = np.array([low for _, low, _ in self.maxima])
        for rows in self.rows.values():
            least = rows.low - np.bincount(rows.row, rows.value * on[rows.column], len(rows))
            held = rows.column >= self.arcs
            np.maximum.at(values, rows.column[held] - self.arcs, least[rows.row[held]])
        return float(self.cost[: self.arcs] @ on[: self.arcs] + self.cost[self.arcs :] @ values)


def linear_model(problem: Reduced, *, scale: float) -> LinearModel:
    """Return the arc-flow model of a reduced graph, times in units of 1 / scale seconds."""
    graph = problem.graph
    arcs = graph.arcs
    cover = cover_rows(graph)
    rows = {"flow": flow_rows(graph)}
    maxima = [("t_max", problem.bottleneck * scale, float(graph.time.max()) * scale)]
    if graph.weight > 0:  # otherwise the bottleneck costs nothing
        rows["cover"] = under(arcs, cover, scale)
    for number, (peak, least) in enumerate(zip(graph.peaks, problem.peaks.tolist(), strict=True)):
        name = f"peak_{number}"
        rows[name] = under(arcs + len(maxima), above(cover, peak, least), scale)
        maxima.append((name, least * scale, float(peak.max()) * scale))
    if graph.capacity:
        rows["capacity"] = capacity_rows(graph)
    weights = [graph.weight] + [1.0] * len(graph.peaks)
    return LinearModel(
        arcs=arcs,
        cost=np.concatenate([(graph.time + graph.extra) * scale, weights]),
        maxima=tuple(maxima),
        rows=rows,
        scale=scale,
    )


def maxima_of(graph: StageGraph, path: Sequence[int]) -> list[float]:
    """Return the slowest arc's time and each peak of a path, seconds."""
    arcs = list(path)
    return [float(graph.time[arcs].max()), *graph.peaks[:, arcs].max(axis=1).tolist()]


def solver_scale(problem: Reduced) -> float:
    """Return the power of two (so that scaling is exact) that brings the bottleneck to 64 .. 128.

    The solvers' tolerances are absolute, and seconds may be 1e-4 or 1e3.
    """
    return 2.0 ** (7 - math.frexp(problem.bottleneck)[1])


def ordered_path(graph: StageGraph, arcs: Iterable[int]) -> tuple[int, ...]:
    """Return a solver's set of arcs as a path.

    Raises
    ------
    SolverError: they do not form one.
    """
    path = tuple(sorted((int(arc) for arc in arcs), key=lambda arc: int(graph.start[arc])))
    if not graph.is_path(path):
        raise SolverError(f"solver returned {len(path)} arcs that form no path to the sink")
    return path
