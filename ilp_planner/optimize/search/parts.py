"""The search's view of a plan space: its parts, each a family of stage graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ilp_planner.base.deadline import no_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.context import Context
    from ilp_planner.optimize.bounds.group_chain import GroupChain
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.search.group_search import GroupSearch, PartState
    from ilp_planner.plan import GroupPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The fastest plan found, None without one. bound: lower bound in seconds of packed placements
    of the same groups, inf if there is none."""

    plan: GroupPlan | None
    bound: float


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenGraph:
    """A stage graph, and the costs of its arcs beyond their best case.

    choice: int64 [arcs], number of each arc's stage candidate in its part: the same in all its
    graphs.
    seated: the context that gives every group its devices, one after the other (`seating`): every
    path is a plan, at about its true time; None if `context` has that already.
    """

    graph: StageGraph
    choice: NDArray[np.int64]
    context: Context | None = None
    seated: Context | None = None

    def only(self, arcs: NDArray[np.int64]) -> OpenGraph:
        """Return the graph of some of the arcs."""
        return OpenGraph(
            graph=self.graph.only(arcs),
            choice=self.choice[arcs],
            context=None if self.context is None else self.context.only(arcs),
            seated=None if self.seated is None else self.seated.only(arcs),
        )


class Part(Protocol):
    """One part of a plan space."""

    @property
    def name(self) -> str:
        """Its name in certificates."""

    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a legal plan of the space is of this part."""


class SpacePart(ABC):
    """A part in stage graphs: all its plans have the same number of micro-batches. Unless it says
    otherwise its graph is small, and plans have one placement, at the graph's own times.

    constant: seconds that every plan of it takes besides its path. boxable: it has a `chain`.
    check_time: called between the steps of long work; raises if the time is up.
    """

    name: str
    micro_batches: int
    constant: float
    boxable = False
    check_time: Callable[[], None] = staticmethod(no_limit)

    @abstractmethod
    def holds(self, plan: GroupPlan) -> bool:
        """Tell whether a legal plan of the space is of this part."""

    def forget(self) -> None:  # noqa: B027 - small graphs stay
        """Free the tables of a part that is searched no more; asked again, it makes them anew."""

    @abstractmethod
    def graph(self, cutoff: float, choices: NDArray[np.int64] | None) -> OpenGraph:
        """Return the graph of all plans below `cutoff` seconds (without the constant) that use only
        these candidates, all of them when None."""

    @abstractmethod
    def explicit(self, opened: OpenGraph) -> OpenGraph | None:
        """Return an open graph as one without context, for solvers that know of none; None if that
        would be too large."""

    @abstractmethod
    def plan(self, choices: Sequence[int]) -> GroupPlan | None:
        """Return the plan of stage candidates in a row; None if it cannot be placed."""

    @abstractmethod
    def family(self, choice: int) -> Hashable:
        """Return the choices of a stage candidate besides its first and last layer."""

    def chain(self, cutoff: float) -> GroupChain | None:
        """Return the stage candidates below `cutoff` seconds in the order that searches in boxes
        need; None if there is none."""
        return None

    def sketch(self) -> OpenGraph | None:
        """Return the graph of some of the part's plans, to look for a first good one in; None if
        that does not help."""
        return None

    def outline(self, cutoff: float) -> OpenGraph | None:
        """Return a small graph, to bound the part and to find relevant candidates: every plan below
        `cutoff` seconds (without the constant) has a path in it that costs no more. None if `graph`
        is small already."""
        return None

    def unplaced(self, cutoff: float) -> OpenGraph | None:
        """Return the graph of all plans that the best links allow below `cutoff` seconds (without
        the constant), also of candidates that others dominate there. None if there is nothing to
        place."""
        return None

    def placed(self, choices: Sequence[int]) -> Placed:
        """Return the best placement found of stage candidates in a row, and a bound on all of them
        (without the constant)."""
        return Placed(plan=None, bound=0.0)

    def at_least(self, choices: Sequence[int]) -> float:
        """Return a quick lower bound in seconds (without the constant) of placements of stage
        candidates in a row."""
        return 0.0

    def seat(self, choices: Sequence[int]) -> GroupPlan | None:
        """Return the plan of a path of a seated graph; None if none is seated."""
        return None

    def improve(  # noqa: B027 - nothing, where placing costs nothing
        self, search: GroupSearch[Any], state: PartState[Any], choices: Sequence[int]
    ) -> None:
        """Look for better plans like these candidates in a row, if placing them took much longer
        than the path."""


class FixedGraph(SpacePart):
    """Common code of parts with one small stage graph: candidates are its arcs."""

    @property
    @abstractmethod
    def stage_graph(self) -> StageGraph:
        """The whole graph."""

    def graph(self, cutoff: float, choices: NDArray[np.int64] | None) -> OpenGraph:
        """Return the whole graph, or some of its arcs."""
        whole = self.stage_graph
        if choices is None:
            return OpenGraph(graph=whole, choice=np.arange(whole.arcs))
        return OpenGraph(graph=whole.only(choices), choice=choices)

    def explicit(self, opened: OpenGraph) -> OpenGraph | None:
        """Return the graph as it is."""
        return opened
