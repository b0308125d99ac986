"""AMP's space: one choice of degrees for all stages, placed in AMP's order or freely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.result import Stop
from ilp_planner.spaces.amp.costs import AmpCosts, AmpDegrees
from ilp_planner.spaces.amp.parts import AmpPart, amp_parts, part_name
from ilp_planner.spaces.graph_space import GraphSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.plan import GroupPlan
    from ilp_planner.search.group_search import GroupSearch
    from ilp_planner.search.parts import SpacePart

FEWEST = 16  # of so many starts one, for each degrees whose ranks are placed


class AmpSpace(GraphSpace):
    """A part for every choice of degrees."""

    def parts(self) -> list[SpacePart]:
        """Return the parts of the space."""
        problem, costs = self.problem, self.problem.costs
        assert isinstance(costs, AmpCosts)
        parts = amp_parts(
            costs, problem.cluster, problem.global_batch, problem.model, max_tp=problem.max_tp
        )
        return [part for part in parts if part.micro_batches in problem.micro_batches]

    def describe(self) -> str:
        """Return which plans the proofs are about."""
        order = "any placement of" if self.problem.placement == "free" else "AMP's order of"
        return f"{self.tried()}, every device used, equal degrees in all stages and {order} ranks"

    def exclusions(self, plan: GroupPlan) -> Iterator[str]:
        """Degrees that are not tried, and other orders of ranks where these are not free."""
        samples = {replica.samples for stage in plan.stages for replica in stage.replicas}
        shapes = {(stage.tp, stage.dp) for stage in plan.stages}
        if len(shapes) > 1 or len(samples) > 1:
            yield "degrees: they differ from stage to stage, or samples from replica to replica"
            return
        (tp, dp), (size,) = shapes.pop(), samples
        degrees = AmpDegrees(tp, dp, len(plan.stages), size)
        if all(part.degrees != degrees for part in self.parts() if isinstance(part, AmpPart)):
            yield f"degrees: {part_name(degrees)} is not tried"
        node_of = self.problem.cluster.node_of
        ranks = [replica.devices for stage in plan.stages for replica in stage.replicas]
        if self.problem.placement != "free":
            if [d for devices in ranks for d in devices] != list(range(tp * dp * len(plan.stages))):
                yield "devices: another order of ranks than AMP's"
        elif any(len({node_of[d] for d in devices}) > 1 for devices in ranks):
            yield "devices: a replica on several nodes"

    def search(self, search: GroupSearch) -> Stop:
        """Search with the program of this space, or with the solver that was asked for."""
        from ilp_planner.search.group_search import LABELS
        from ilp_planner.spaces.amp.search import run_amp

        if search.solver not in LABELS:
            return super().search(search)
        run_amp(search)
        return Stop.PROOF if search.gap_reached() else Stop.TIME

    def prove(self, search: GroupSearch, claims: list[float]) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.spaces.amp.search import run_amp

        run_amp(search)
        yield from super().prove(search, claims)

    def anneal(self, search: GroupSearch) -> bool:
        """Anneal over degrees and placements."""
        from ilp_planner.spaces.amp.anneal import anneal_amp

        anneal_amp(search)
        return True

    def hunt(self, search: GroupSearch) -> None:
        """Cut in AMP's own order of ranks; then place them, where that is free."""
        if self.problem.placement != "free":
            super().hunt(search)
            return
        from ilp_planner.search.graph_hunt import GraphHunt
        from ilp_planner.search.group_search import PartState
        from ilp_planner.spaces.amp.anneal import anneal_placements

        # What is proved of AMP's own order is not proved of others: the search must not have it.
        hunt = GraphHunt(search, [PartState(part=state.part) for state in search.states])
        hunt.run()
        search.notes.append(f"{search.solver}: cuts in AMP's own order of ranks; annealing placed")
        anneal_placements(search, hunt.ranked()[: max(1, search.limits.starts // FEWEST)])
