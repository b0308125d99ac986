"""AMP's space, and the problem of a request in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.evaluate import Violation
from ilp_planner.optimize.result import Stop
from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees, mixed_forward
from ilp_planner.peers.amp.degrees import amp_space
from ilp_planner.peers.amp.search import AmpPart, part_name
from ilp_planner.peers.amp.source import amp_source
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.layers import Costing, layer_problem, refuse_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.confirm import LastProblem
    from ilp_planner.optimize.search.group_search import GroupSearch
    from ilp_planner.plan import GroupPlan, Plan


# ---- AMP's space ---------------------------------------------------------------------------------
# One choice of degrees for all stages, placed in AMP's order or freely.


FEWEST = 16  # of so many starts one, for each degrees whose ranks are placed


@dataclass(frozen=True, kw_only=True, repr=False)
class AmpSpace(GraphSpace[AmpCosts, AmpPart]):
    """A part for every choice of degrees. free: ranks are placed anyhow, else in AMP's order."""

    name = "amp"
    noun = "AMP plan"
    leaves_out = False

    free: bool = False

    def options(self) -> Mapping[str, str]:
        """Return how ranks are placed."""
        return {"placement": "free"} if self.free else {}

    @property
    def threaded(self) -> bool:
        """CP-SAT places ranks freely."""
        return self.free

    def check_whole(self, problem: Problem[AmpCosts], plan: Plan[Any]) -> Iterator[Violation]:
        """Stages are alike, on a tensor degree that is profiled: AMP has no price for others."""
        broken = tuple(super().check_whole(problem, plan))
        yield from broken
        if broken:
            return
        shapes = sorted({(stage.tp, stage.dp) for stage in plan.stages})
        samples = sorted({replica.samples for stage in plan.stages for replica in stage.replicas})
        if len(shapes) > 1:
            have = f"(tp, dp) {', '.join(map(str, shapes))}"
            yield Violation("degrees", "plan", have, "the same in all stages")
        elif len(samples) > 1:
            have = f"replicas with {', '.join(map(str, samples))} samples"
            yield Violation("degrees", "plan", have, "equal shares")
        elif mixed_forward(problem.costs.profile, problem.cluster, shapes[0][0]) is None:
            limit = "a row of the profile for every device type"
            yield Violation("profiled", "plan", f"tp {shapes[0][0]}", limit)

    def why_unranked(self) -> str:
        """Return why the best plans cannot be listed in order, and the kinds that can."""
        if not self.free:
            return ""
        return (
            "with `placement=free`, where only the best placement of each choice of degrees is "
            "known, expected 1, or `placement=default`"
        )

    def parts(self, problem: Problem[AmpCosts]) -> list[AmpPart]:
        """Return the parts of the space."""
        costs, cluster, batch = problem.costs, problem.cluster, problem.global_batch
        return [
            AmpPart(costs, cluster, degrees, batch, problem.model)
            for degrees in amp_space(costs, cluster, batch, max_tp=problem.max_tp).degrees
            if degrees.micro_batches(batch) in problem.micro_batches
        ]

    def describe(self, problem: Problem[AmpCosts]) -> str:
        """Return the plans of the proofs."""
        order = "any placement of" if self.free else "AMP's order of"
        return (
            f"{self.tried(problem)}, every device used, equal degrees in all stages and {order} "
            "ranks"
        )

    def exclusions(self, problem: Problem[AmpCosts], plan: GroupPlan) -> Iterator[str]:
        """Untried degrees, and other orders of ranks if these are not free."""
        samples = {replica.samples for stage in plan.stages for replica in stage.replicas}
        shapes = {(stage.tp, stage.dp) for stage in plan.stages}
        if len(shapes) > 1 or len(samples) > 1:
            yield "degrees: they differ from stage to stage, or samples from replica to replica"
            return
        (tp, dp), (size,) = shapes.pop(), samples
        degrees = AmpDegrees(tp, dp, len(plan.stages), size)
        if all(part.degrees != degrees for part in self.parts(problem)):
            yield f"degrees: {part_name(degrees)} is not tried"
        node_of = problem.cluster.node_of
        ranks = [replica.devices for stage in plan.stages for replica in stage.replicas]
        if not self.free:
            if [d for devices in ranks for d in devices] != list(range(tp * dp * len(plan.stages))):
                yield "devices: another order of ranks than AMP's"
        elif any(len({node_of[d] for d in devices}) > 1 for devices in ranks):
            yield "devices: a replica on several nodes"

    def search(self, search: GroupSearch[AmpPart]) -> Stop:
        """Search with the program of this space, or with the solver that was asked for: but for
        free placements, as the graphs are of AMP's own order."""
        from ilp_planner.optimize.search.group_search import LABELS
        from ilp_planner.peers.amp.search import run_amp

        if search.solver not in LABELS:
            if not self.free:
                return super().search(search)
            search.notes.append(
                f"{search.solver}: no stage graph holds free placements, which the space's own "
                "program searches"
            )
        run_amp(search, free=self.free)
        return Stop.PROOF if search.gap_reached() else Stop.TIME

    def prove(
        self, search: GroupSearch[AmpPart], records: Sequence[Mapping[str, Any]]
    ) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.peers.amp.search import run_amp

        run_amp(search, free=self.free)
        yield from super().prove(search, records)

    def last_problem(self, search: GroupSearch[AmpPart], plan: Plan[Any]) -> LastProblem | None:
        """Return the open partitions in AMP's order; None if other orders are open too."""
        return None if self.free else super().last_problem(search, plan)

    def anneal(self, search: GroupSearch[AmpPart]) -> bool:
        """Anneal over degrees and placements."""
        from ilp_planner.peers.amp.search import anneal_amp

        anneal_amp(search, free=self.free)
        return True

    def look(self, search: GroupSearch[AmpPart]) -> None:
        """Cut in AMP's own order of ranks; then place them, if that is free."""
        if not self.free:
            super().look(search)
            return
        from ilp_planner.optimize.search.graph_hunt import GraphHunt
        from ilp_planner.optimize.search.group_search import PartState
        from ilp_planner.peers.amp.search import anneal_placements

        # What is proved of AMP's own order is not proved of others: the search must not have it.
        hunt = GraphHunt(search, [PartState(part=state.part) for state in search.states])
        hunt.run()
        search.notes.append(f"{search.solver}: cuts in AMP's own order of ranks; annealing placed")
        anneal_placements(search, hunt.ranked()[: max(1, search.limits.starts // FEWEST)])


# ---- from the request to the problem -------------------------------------------------------------


def build(files: InputFiles) -> Problem[AmpCosts]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    asked = files.request
    refuse_stages(files, AmpSpace.name)
    for name, value in (
        ("micro_batch_sizes", asked.micro_batch_sizes),
        ("memory_limit", asked.memory_limit),
    ):
        if value:
            raise UsageError(
                f"{name}: found it with `space=amp`, which tries every micro-batch and has "
                "no model of memory"
            )
    profile, (cluster, _) = amp_source(files), files.cluster
    free = asked.placement not in ("", "default")
    costs = AmpCosts(profile=profile, repaired=free)
    degrees = amp_space(costs, cluster, files.global_batch, max_tp=asked.max_tp)
    model = files.model_name or profile.model.name
    costing = Costing(costs, model, profile.source, degrees.notes)
    return layer_problem(files, AmpSpace(free=free), cluster, costing, costs.degrees())
