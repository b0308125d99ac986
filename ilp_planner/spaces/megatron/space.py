"""Megatron-LM's space: one training job, with its rules and a search of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ilp_planner.spaces.base import Space
from ilp_planner.spaces.megatron.costs import MegatronCosts
from ilp_planner.spaces.megatron.parts import megatron_parts
from ilp_planner.spaces.megatron.rules import check_megatron

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Violation
    from ilp_planner.plan import GroupPlan
    from ilp_planner.result import Ranked, Stop
    from ilp_planner.search.confirm import LastProblem
    from ilp_planner.search.group_search import GroupSearch
    from ilp_planner.search.parts import SpacePart


class MegatronSpace(Space):
    """A part for every choice of degrees."""

    def parts(self) -> list[SpacePart]:
        """Return the parts of the space."""
        assert isinstance(self.problem.costs, MegatronCosts)
        return cast("list[SpacePart]", megatron_parts(self.problem, self.problem.costs))

    def describe(self) -> str:
        """Return which plans the proofs are about."""
        return (
            f"{self.tried()} of the planner's settings, nodes ordered by type; recomputation none, "
            "selective, full uniform 1 or full block; a rank's layers spread evenly over its "
            "virtual stages, or, where layers differ, as many in each but the first and the last"
        )

    def exclusions(self, plan: GroupPlan) -> Iterator[str]:
        """Degrees, settings, recomputations and layouts that are not tried."""
        from ilp_planner.spaces.megatron.membership import left_out

        return left_out(self.problem, plan)

    def check_kind(self, plan: GroupPlan) -> Iterator[Violation]:
        """The plan is one training job that Megatron-LM can run."""
        return check_megatron(self.problem, plan)

    def check_settings(self, plan: GroupPlan) -> Iterator[Violation]:
        """Settings are this runtime's."""
        return iter(())

    def search(self, search: GroupSearch) -> Stop:
        """Work until proof, gap or time."""
        from ilp_planner.spaces.megatron.search import run_megatron

        return run_megatron(search)

    def prove(self, search: GroupSearch, claims: list[float]) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.spaces.megatron.search import MegatronSearch, parts_of

        engine = MegatronSearch(parts_of(search), goon=lambda: True)
        for number, claimed in enumerate(claims):
            yield engine.prove(number, claimed)

    def rank(self, search: GroupSearch, top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""
        from ilp_planner.spaces.megatron.search import rank_megatron

        return rank_megatron(search, top)

    def last_problem(self, search: GroupSearch, plan: GroupPlan) -> LastProblem | None:
        """Return the cuts of the plan's variant up to the plan; None for stages chosen one by
        one."""
        from ilp_planner.spaces.megatron.search import last_of_variant

        return last_of_variant(search, plan)

    def anneal(self, search: GroupSearch) -> bool:
        """Anneal over degrees, virtual stages and recomputation."""
        from ilp_planner.spaces.megatron.hunt import anneal_megatron

        anneal_megatron(search)
        return True

    def hunt(self, search: GroupSearch) -> None:
        """Look through the variants with the least bounds."""
        from ilp_planner.spaces.megatron.hunt import hunt_megatron

        hunt_megatron(search)

    def explain(self) -> str:
        """Return one line for a problem that is proved infeasible."""
        from ilp_planner.spaces.megatron.least_memory import more

        return super().explain() + more(self.problem)
