"""The state of a search for a plan of layers: bounds of every part, and the best plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.bounds.resource_prices import SPLITS, Interval, PricedGraph
from ilp_planner.optimize.search.climb import FIRST_REACH
from ilp_planner.optimize.search.parts import OpenGraph, Part, SpacePart
from ilp_planner.optimize.search.state import SearchState, Unlisted
from ilp_planner.optimize.solvers import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.start import Known
    from ilp_planner.optimize.search.state import Proved
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.plan import GroupPlan

EFFORT = 1e8  # comparisons of labels in a second
OUTLINE_SPLITS = 8
LABELS = ("auto", "dp")


AnyPart = TypeVar("AnyPart", bound=Part)


@dataclass(kw_only=True, eq=False)
class PartState(Generic[AnyPart]):
    """The bounds of one part. bound: seconds, constant included; source: of its proof."""

    part: AnyPart
    bound: float = 0.0
    source: str = ""
    steps: int = 0  # of WIDTHS
    climbs: int = 0  # times that there was nothing up to where it was looked
    boxed: bool = False  # labels alone left too much open
    reach: float = FIRST_REACH
    done: bool = False

    def raise_bound(self, bound: float, source: str) -> None:
        """Take a bound, if it is higher."""
        if bound > self.bound:
            self.bound, self.source = bound, source

    def learn(self, known: PartState[Any]) -> None:
        """Take all that is known of the part by a later state of it."""
        self.raise_bound(known.bound, known.source)
        self.steps, self.climbs, self.boxed = known.steps, known.climbs, known.boxed
        self.reach, self.done = known.reach, known.done

    def record(self) -> dict[str, Any]:
        """Return the record for a certificate."""
        bound = None if self.bound >= NEVER else self.bound
        return {"part": self.part.name, "bound_s": bound, "by": self.source}


NOTHING_KNOWN = Unlisted()


class PartSearch(SearchState, Generic[AnyPart]):
    """State of one solve of a space in parts.

    parts: returns them; asked once, when something is to be known of a part. whole: bounds on all
    plans from before.
    """

    def __init__(
        self,
        problem: Problem[Any],
        parts: Callable[[], Sequence[AnyPart]],
        task: Task,
        whole: Unlisted = NOTHING_KNOWN,
    ) -> None:
        if task.solver not in LABELS:
            registry.get(task.solver)
        super().__init__(problem, task)
        self.parts, self.whole = parts, whole

    @cached_property
    def states(self) -> list[PartState[AnyPart]]:
        """The bounds of every part.

        Raises
        ------
        OutOfTimeError: the time was up before all of them were listed.
        """
        known = self.whole
        return [PartState(part=p, bound=known.bound, source=known.source) for p in self.parts()]

    @property
    def listed(self) -> bool:
        """Whether the parts are listed."""
        return "states" in self.__dict__

    def proved_parts(self) -> Sequence[Proved]:
        """Return the bounds of every part, or of all plans."""
        return self.states if self.listed else (self.whole,)

    def take_bounds(self, known: Sequence[Known | None]) -> int:
        """Take bounds of the parts that were proved before; return of how many."""
        for state, one in zip(self.states, known, strict=True):
            if one is not None:
                state.raise_bound(one.bound, one.by)
        return sum(one is not None for one in known)

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less."""
        if not self.listed:
            return self.whole.bound
        return min((state.bound for state in self.states), default=NEVER)

    @property
    def effort(self) -> float:
        """Comparisons of labels that there is time for."""
        return self.deadline.effort(EFFORT)

    def closed(self, state: PartState[AnyPart]) -> bool:
        """Tell whether a part cannot hold anything better, or cannot be searched further."""
        return state.done or state.bound >= min(self.objective, NEVER) * (1 - PROVED)

    def accept(self, plan: GroupPlan, state: PartState[AnyPart] | None = None) -> None:
        """Judge a plan; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        bound = max(self.bound, 0.0 if state is None else state.bound)
        self.keep(plan, evaluate(self.problem, plan), bound)


def narrowed(
    opened: OpenGraph, cutoff: float, goon: Callable[[], bool], splits: int = SPLITS
) -> tuple[OpenGraph, list[Interval]]:
    """Return the graph of the arcs that multipliers on devices leave open below the cutoff, and the
    intervals that the slowest one may be in."""
    priced = PricedGraph(opened.graph)
    intervals = priced.sweep(cutoff, splits, goon)
    return opened.only(priced.open_arcs(intervals, cutoff)), intervals


AnyGraphPart = TypeVar("AnyGraphPart", bound=SpacePart)


class GroupSearch(PartSearch[AnyGraphPart]):
    """State of one solve of a space with stage graphs as parts."""

    def __init__(self, problem: Problem[Any], parts: Sequence[AnyGraphPart], task: Task) -> None:
        super().__init__(problem, lambda: parts, task)
        for state in self.states:
            state.part.check_time = self.check_time

    def forget_closed(self) -> None:
        """Free the tables of closed parts, but for that of the best plan."""
        for state in self.states:
            if self.may_forget(state):
                state.part.forget()

    def may_forget(self, state: PartState[AnyGraphPart]) -> bool:
        """Tell whether the tables of a part are of no use any more."""
        return self.closed(state) and not (self.plan and state.part.holds(self.plan))

    def outline(self, state: PartState[AnyGraphPart], guess: float) -> NDArray[np.int64] | None:
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
        choices = np.unique(outline.choice[priced.open_arcs(intervals, cutoff)])
        if not choices.size:  # every plan has a stage that is closed in every interval
            state.raise_bound(min(cutoff + part.constant, NEVER), "prices")
            self.report()
        return choices

    def bounded(
        self, state: PartState[AnyGraphPart], priced: PricedGraph, cutoff: float, splits: int
    ) -> list[Interval]:
        """Bound a part by multipliers; return the residual problem below the cutoff (without the
        constant)."""
        intervals = priced.sweep(cutoff, splits, self.goon)
        bound = intervals[0].bound if intervals else min(cutoff, NEVER)
        state.raise_bound(min(bound + state.part.constant, NEVER), "prices")
        self.report()
        return intervals

    def take(self, state: PartState[AnyGraphPart], choices: Sequence[int]) -> None:
        """Judge the plan of stage candidates of a part; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        plan = state.part.plan(choices)
        if plan is not None:
            self.accept(plan, state)
