"""What plan spaces have in common whose parts are stage graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.result import Stop
from ilp_planner.spaces.base import Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.plan import GroupPlan
    from ilp_planner.result import Ranked
    from ilp_planner.search.confirm import LastProblem
    from ilp_planner.search.group_search import GroupSearch


class GraphSpace(Space):
    """Searched, proved and ranked by the general programs."""

    def search(self, search: GroupSearch) -> Stop:
        """Work until proof, gap or time."""
        from ilp_planner.search.graph_search import search_graphs

        search_graphs(search)
        if search.proved() or search.plan is None:
            return Stop.PROOF
        return Stop.GAP if search.gap_reached() else Stop.EFFORT

    def prove(self, search: GroupSearch, claims: list[float]) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.search.graph_certificate import graph_bounds

        yield from graph_bounds(search, claims)

    def rank(self, search: GroupSearch, top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""
        from ilp_planner.search.ranking import rank_graphs

        return rank_graphs(search, top)

    def last_problem(self, search: GroupSearch, plan: GroupPlan) -> LastProblem | None:
        """Return what is open of the part that holds a legal plan, up to the plan."""
        from ilp_planner.search.last_problem import last_of_graphs

        return last_of_graphs(search, plan)

    def hunt(self, search: GroupSearch) -> None:
        """Look for a good plan by the heuristic that was asked for."""
        from ilp_planner.search.graph_hunt import GraphHunt

        GraphHunt(search, search.states).run()

    def explain(self) -> str:
        """Return one line for a problem that is proved infeasible."""
        from ilp_planner.spaces.infeasible import explain_layers

        return explain_layers(self.problem)
