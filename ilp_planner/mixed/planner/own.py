"""The planner's own space: any groups of devices, idle devices allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.evaluate import Violation
from ilp_planner.mixed.graph_space import GraphSpace
from ilp_planner.mixed.planner.parts import PlannerPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.mixed.search import GroupSearch
    from ilp_planner.mixed.space import SpacePart
    from ilp_planner.plan import GroupPlan


class PlannerSpace(GraphSpace):
    """A part for every number of micro-batches."""

    idles = True

    def parts(self) -> list[SpacePart]:
        """Return the parts of the space."""
        return [PlannerPart(self.problem, batches) for batches in self.problem.micro_batches]

    def left_out(self, parts: Sequence[SpacePart]) -> list[str]:
        """Return a line for the user where the parts do not hold every group of devices."""
        few = [p for p in parts if isinstance(p, PlannerPart) and not p.complete]
        if not few:
            return []
        counts = ", ".join(str(part.micro_batches) for part in few)
        return [
            f"stages of several device types: with {counts} micro-batches there are too many to "
            "try all, only some with powers of two of replicas were; the bound is for these and "
            "for all stages of one type"
        ]

    def check_samples(self, plan: GroupPlan) -> Iterator[Violation]:
        """Equal devices take equally many samples, and every replica some."""
        for s, stage in enumerate(plan.stages):
            types = {self.problem.cluster.type_of[d] for d in stage.devices}
            samples = {replica.samples for replica in stage.replicas}
            if len(types) == 1 and len(samples) > 1:
                have = f"replicas with {', '.join(map(str, sorted(samples)))} samples"
                yield Violation("degrees", f"stage {s}", have, "equal shares on equal devices")
            if 0 in samples:
                yield Violation("degrees", f"stage {s}", "a replica without samples", "at least 1")

    def hunt(self, search: GroupSearch) -> None:
        """Look among groups of one device type first: they are few, and what they reach says where
        mixed ones can pay."""
        from ilp_planner.mixed.heuristic import GraphHunt
        from ilp_planner.mixed.search import PartState

        hunt = GraphHunt(search, search.states)
        if len(self.problem.cluster.type_names) > 1:
            parts = [PlannerPart(self.problem, b, alone=True) for b in self.problem.micro_batches]
            alone = GraphHunt(search, [PartState(part=part) for part in parts])
            alone.run()
            if alone.found:
                hunt.look_where(alone.found)
                return
        hunt.run()
