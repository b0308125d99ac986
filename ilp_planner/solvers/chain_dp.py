"""Exact dynamic programming over the stage graph: everything a chain can say, in milliseconds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.result import Status, Stop
from ilp_planner.solvers.base import GraphSolution, Limits, Progress

if TYPE_CHECKING:
    from ilp_planner.graph import StageGraph


class ChainDP:
    """Labels (slowest stage, sum of stages) from the end of the chain to its beginning."""

    name = "dp"

    def __init__(self, most_labels: int = 2**62) -> None:
        """Give up beyond so many labels, with the bound that is known by then."""
        self.most_labels = most_labels

    def available(self) -> bool:
        """Always."""
        return True

    def solve(
        self,
        graph: StageGraph,
        limits: Limits,
        *,
        hint: tuple[int, ...] = (),
        progress: Progress | None = None,
    ) -> GraphSolution:
        """Return the cheapest path; its time is the bound."""
        from ilp_planner.bounds.paths import search_paths

        path, value, bound = search_paths(graph, most_labels=self.most_labels)
        if not path and math.isfinite(bound):
            return GraphSolution(
                path=(),
                objective=math.inf,
                bound=bound,
                status=Status.UNKNOWN,
                stopped_by=Stop.TIME,
                solver=self.name,
            )
        if progress is not None:
            progress(value, value)
        return GraphSolution(
            path=path,
            objective=value,
            bound=bound,
            status=Status.OPTIMAL if path else Status.INFEASIBLE,
            stopped_by=Stop.PROOF,
            solver=self.name,
        )
