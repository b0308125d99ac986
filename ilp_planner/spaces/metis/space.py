"""Metis's space: its own rule of memory, and its orders of device types to anneal over."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ilp_planner.evaluate import Violation
from ilp_planner.numerics import ROUNDING
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.metis.costs import MetisCosts
from ilp_planner.spaces.metis.parts import MetisPart, metis_parts
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.costs.groups import PlanCost
    from ilp_planner.plan import GroupPlan
    from ilp_planner.search.group_search import GroupSearch
    from ilp_planner.search.parts import SpacePart


class MetisSpace(GraphSpace):
    """A part for every order of device types and number of micro-batches."""

    @property
    def costs(self) -> MetisCosts:
        """Metis's, whose space it is."""
        assert isinstance(self.problem.costs, MetisCosts)
        return self.problem.costs

    def parts(self) -> list[SpacePart]:
        """Return the parts of the space."""
        return list(metis_parts(self.problem, self.costs))

    def describe(self) -> str:
        """Return which plans the proofs are about."""
        return (
            f"{self.tried()}, devices type by type in any order of the types, stages of a power "
            "of two of them, and Metis's shares of samples"
        )

    def exclusions(self, plan: GroupPlan) -> Iterator[str]:
        """Everything that is no path of a graph."""
        problem = dataclasses.replace(self.problem, micro_batches=(plan.micro_batches,))
        if not any(part.holds(plan) for part in metis_parts(problem, self.costs)):
            yield "stages: groups, degrees, samples or devices that Metis does not enumerate"

    def check_memory(self, plan: GroupPlan, cost: PlanCost) -> Iterator[Violation]:
        """Every device holds what it must; under Metis's rule, every group in sum."""
        if self.problem.memory_rule != "metis":
            yield from super().check_memory(plan, cost)
            return
        needs = self.costs.group_memory(plan, self.problem.cluster)
        for s, (wanted, available) in enumerate(needs):
            if wanted > available * (1 + ROUNDING):
                limit = f"at most {format_bytes(available)} (Metis's rule)"
                yield Violation("memory", f"stage {s}", format_bytes(wanted), limit)

    def anneal(self, search: GroupSearch) -> bool:
        """Anneal over orders of device types and numbers of micro-batches."""
        from ilp_planner.search.part_choices import anneal_parts

        parts = [state.part for state in search.states]
        rows = [
            (*part.whole.sequence, part.micro_batches)
            for part in parts
            if isinstance(part, MetisPart)
        ]
        anneal_parts(search, rows)
        return True
