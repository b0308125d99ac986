"""What a plan space answers for itself: its parts and rules, how it is searched, ranked and proved.

The drivers (`solve`, `certificate`, `ranking`, `heuristic`, `evaluate`, `infeasible`) ask it and
name none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ilp_planner.coverage import check_tried
from ilp_planner.evaluate import Violation
from ilp_planner.numerics import ROUNDING
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.costs.groups import PlanCost
    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.result import Ranked, Stop
    from ilp_planner.search.confirm import LastProblem
    from ilp_planner.search.group_search import GroupSearch
    from ilp_planner.search.parts import SpacePart


class Space(ABC):
    """The plan space of a problem. idles: devices may be in no stage."""

    idles: ClassVar[bool] = False

    def __init__(self, problem: GroupProblem) -> None:
        self.problem = problem

    # ---- what it is -----------------------------------------------------------------------------

    @abstractmethod
    def parts(self) -> list[SpacePart]:
        """Return the parts of the space."""

    def left_out(self, parts: Sequence[SpacePart]) -> list[str]:
        """Return a line for the user where the parts do not hold every group of devices."""
        return []

    # ---- which plans its proofs are about -------------------------------------------------------

    @abstractmethod
    def describe(self) -> str:
        """Return which plans the proofs are about, as in `among plans with ...`."""

    @abstractmethod
    def exclusions(self, plan: GroupPlan) -> Iterator[str]:
        """Yield why a legal plan, with a number of micro-batches that is tried, is in no part; also
        where that is not certain: a plan that is wrongly inside makes a wrong proof."""

    def outside(self, plan: GroupPlan) -> str | None:
        """Return the first reason why a legal plan is none that proofs are about; None where it is
        one, and never takes less than the bound."""
        untried = check_tried("micro-batches", plan.micro_batches, self.problem.micro_batches)
        return untried or next(self.exclusions(plan), None)

    def tried(self) -> str:
        """Return the numbers of micro-batches, as the beginning of `describe`."""
        return f"plans with {', '.join(map(str, self.problem.micro_batches))} micro-batches"

    # ---- its rules ------------------------------------------------------------------------------

    def check_kind(self, plan: GroupPlan) -> Iterator[Violation]:
        """The plan is of the kind that the space has; asked of plans that can be priced."""
        return iter(())

    def check_settings(self, plan: GroupPlan) -> Iterator[Violation]:
        """A plan has settings of a runtime only where there is one."""
        if plan.settings is not None or plan.virtual > 1:
            limit = "none, in a space without a runtime"
            yield Violation("settings", "plan", "settings of a runtime", limit)

    def check_samples(self, plan: GroupPlan) -> Iterator[Violation]:
        """The replicas of a stage share its samples as the space has it: anyhow."""
        return iter(())

    def check_memory(self, plan: GroupPlan, cost: PlanCost) -> Iterator[Violation]:
        """Every device of every stage holds what it must."""
        problem = self.problem
        for s, (stage, found) in enumerate(zip(plan.stages, cost.stages, strict=True)):
            for replica, used in zip(stage.replicas, found.memory, strict=True):
                types = {problem.cluster.type_of[d] for d in replica.devices}
                least = min(problem.memory_limits[name] for name in types)
                if used > least * (1 + ROUNDING):
                    where = f"stage {s}, device {replica.devices[0]}"
                    expected = f"at most {format_bytes(least)}"
                    yield Violation("memory", where, format_bytes(used), expected)
                    break

    # ---- how it is searched ---------------------------------------------------------------------

    @abstractmethod
    def search(self, search: GroupSearch) -> Stop:
        """Work until proof, gap or time."""

    @abstractmethod
    def prove(self, search: GroupSearch, claims: list[float]) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""

    @abstractmethod
    def rank(self, search: GroupSearch, top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""

    @abstractmethod
    def last_problem(self, search: GroupSearch, plan: GroupPlan) -> LastProblem | None:
        """Return what is open of the part that holds a legal plan, up to the plan; None where no
        integer program of it is small enough, or there is none."""

    def anneal(self, search: GroupSearch) -> bool:
        """Anneal over what decides the graphs of the space; tell whether there is such a thing."""
        return False

    @abstractmethod
    def hunt(self, search: GroupSearch) -> None:
        """Look for a good plan by the heuristic that was asked for."""

    # ---- why there is nothing -------------------------------------------------------------------

    def explain(self) -> str:
        """Return one line for a problem that is proved infeasible."""
        limits = ", ".join(
            f"{name} {format_bytes(limit)}" for name, limit in self.problem.memory_limits.items()
        )
        return f"in every plan some device would need more memory than it has ({limits})"
