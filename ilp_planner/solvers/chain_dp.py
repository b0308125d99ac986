"""Exact dynamic programming over the stage graph: everything a chain can say, in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.result import Status, Stop
from ilp_planner.solvers.base import GraphSolution, Limits, Progress

if TYPE_CHECKING:
    from ilp_planner.graph import StageGraph


class ChainDP:
    """Labels (slowest stage, sum of stages) from the end of the chain to its beginning."""

    name = "dp"

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
        from ilp_planner.bounds.paths import best_path

        path, value = best_path(graph)
        if progress is not None:
            progress(value, value)
        return GraphSolution(
            path=path,
            objective=value,
            bound=value,
            status=Status.OPTIMAL if path else Status.INFEASIBLE,
            stopped_by=Stop.PROOF,
            solver=self.name,
        )
