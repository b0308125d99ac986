"""The state of a search for a plan of layers: what is known of every part, and the best plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.bounds.resource_prices import PricedGraph
from ilp_planner.group_evaluate import GroupEvaluation, evaluate_groups
from ilp_planner.numerics import NEVER, PROVED
from ilp_planner.plan import GroupPlan
from ilp_planner.result import GroupResult, Ranked, Status, Stop
from ilp_planner.search.climb import FIRST_REACH
from ilp_planner.search.state import SearchState
from ilp_planner.solvers import registry
from ilp_planner.spaces.registry import space_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.bounds.resource_prices import Interval
    from ilp_planner.deadline import Deadline
    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.search.confirm import LastProblem
    from ilp_planner.search.parts import SpacePart
    from ilp_planner.solvers.base import Limits, Progress

EFFORT = 1e8  # comparisons of labels in a second
OUTLINE_SPLITS = 8
LABELS = ("auto", "dp")


@dataclass(kw_only=True, eq=False)
class PartState:
    """What is known of one part. bound: seconds, constant included; source: what proved it."""

    part: SpacePart
    bound: float = 0.0
    source: str = ""
    promise: float = 0.0  # seconds, no proof: the order in which to look
    steps: int = 0  # of WIDTHS
    climbs: int = 0  # times that there was nothing up to where it was looked
    boxed: bool = False  # labels alone left too much open
    reach: float = FIRST_REACH
    done: bool = False

    def raise_bound(self, bound: float, source: str) -> None:
        """Take a bound, if it is higher."""
        if bound > self.bound:
            self.bound, self.source = bound, source

    def record(self) -> dict[str, Any]:
        """Return what a certificate keeps."""
        bound = None if self.bound >= NEVER else self.bound
        return {"part": self.part.name, "bound_s": bound, "by": self.source}


class GroupSearch(SearchState[GroupPlan, GroupEvaluation]):
    """State of one solve."""

    def __init__(
        self,
        problem: GroupProblem,
        limits: Limits,
        solver: str,
        progress: Progress | None,
        deadline: Deadline | None = None,
    ) -> None:
        if solver not in LABELS:
            registry.get(solver)
        super().__init__(limits, solver, progress, problem.notes, deadline)
        self.problem = problem
        self.space = space_of(problem)
        self.states = [PartState(part=part) for part in self.space.parts()]
        self.notes += self.space.left_out([state.part for state in self.states])

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less."""
        return min((state.bound for state in self.states), default=NEVER)

    @property
    def effort(self) -> float:
        """Comparisons of labels that there is time for."""
        return self.deadline.effort(EFFORT)

    def closed(self, state: PartState) -> bool:
        """Tell whether a part cannot hold anything better, or cannot be searched further."""
        return state.done or state.bound >= min(self.objective, NEVER) * (1 - PROVED)

    def outline(self, state: PartState, guess: float) -> NDArray[np.int64] | None:
        """Bound a part by its outline; return the stage candidates of plans below `guess` seconds,
        None for all that there are."""
        part = state.part
        cutoff = min(guess - part.constant, NEVER)
        outline = part.outline(cutoff)
        if outline is None:
            return None
        priced = PricedGraph(outline.graph)
        intervals = self.bounded(state, priced, cutoff, OUTLINE_SPLITS)
        if not intervals:
            return outline.choice[:0]
        return np.unique(outline.choice[priced.open_arcs(intervals, cutoff)])

    def bounded(
        self, state: PartState, priced: PricedGraph, cutoff: float, splits: int
    ) -> list[Interval]:
        """Bound a part by prices; return what is open below the cutoff (without the constant)."""
        intervals = priced.sweep(cutoff, splits, self.goon)
        bound = intervals[0].bound if intervals else min(cutoff, NEVER)
        state.raise_bound(min(bound + state.part.constant, NEVER), "prices")
        self.report()
        return intervals

    def take(self, state: PartState, choices: Sequence[int]) -> None:
        """Judge the plan of stage candidates of a part; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        plan = state.part.plan(choices)
        if plan is not None:
            self.accept(plan, state)

    def accept(self, plan: GroupPlan, state: PartState | None = None) -> None:
        """Judge a plan; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        bound = max(self.bound, 0.0 if state is None else state.bound)
        self.keep(plan, evaluate_groups(self.problem, plan), bound)

    def last_problem(self, plan: GroupPlan) -> LastProblem | None:
        """Return what is open of the part that holds the plan, up to the plan."""
        return self.space.last_problem(self, plan)

    def result(self, stop: Stop, ranking: tuple[Ranked, ...] = ()) -> GroupResult:
        """Put together what is known."""
        known = self.conclusion(stop, self.states)
        if known["status"] is Status.OPTIMAL:
            known["stopped_by"] = Stop.PROOF
        if known["status"] is Status.INFEASIBLE:
            known["reason"] = self.space.explain()
        return GroupResult(**known, among=self.space.describe(), ranking=ranking)
