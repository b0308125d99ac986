"""Common code of backends: a clock, a search to tell, and an answer for every end."""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import SolverError, interruptible
from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.result import Status, Stop, relative_gap
from ilp_planner.optimize.solvers.arc_reduction import Reduced, path_leasts, reduced
from ilp_planner.optimize.solvers.base import GraphSolution, Limits, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.graph import StageGraph


# ---- a first path of a graph ---------------------------------------------------------------------
# Shortest paths under ceilings, with multipliers on scarce devices.


INCUMBENT_TRIES = 16
PRICE_STEPS = 12
"""Times that device prices are adjusted, per choice of ceilings, to make a shortest path fit."""
FIRST_STEPS = 60
"""As often when nothing has fitted yet.

Measured on two instances of 14000 and 16000 arcs over three types of 16 devices: 12 steps find no
path in one of them, 40 find one (2.4 % above the best path known, whose own gap is open).
"""


def shortest_path(
    graph: StageGraph, weight: NDArray[np.float64], allowed: NDArray[np.bool_]
) -> tuple[int, ...]:
    """Return the path of least total weight over the allowed arcs; () without one."""
    order = np.argsort(graph.start, kind="stable")
    order = order[allowed[order]]
    total = [math.inf] * graph.nodes
    into = [-1] * graph.nodes
    for source in graph.sources:
        total[source] = 0.0
    for arc, tail, head, part in zip(
        order.tolist(),
        graph.tail[order].tolist(),
        graph.head[order].tolist(),
        weight[order].tolist(),
        strict=True,
    ):
        if total[tail] + part < total[head]:
            total[head] = total[tail] + part
            into[head] = arc
    path = []
    node = graph.sink
    while into[node] >= 0:
        path.append(into[node])
        node = int(graph.tail[path[-1]])
    return tuple(reversed(path))


class _Fitting:
    """Shortest paths within the capacities, by a Lagrange multiplier per device type.

    Multipliers are kept from one set of allowed arcs to the next, as the sets are alike.
    """

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self.capacity = np.array(graph.capacity, dtype=np.int64)
        self.price = np.zeros(self.capacity.size)
        self.steps = FIRST_STEPS

    def path(self, allowed: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return a path over the allowed arcs within the capacities, empty when none was found."""
        graph = self.graph
        weight = graph.time + graph.extra
        if not self.capacity.size:
            return shortest_path(graph, weight, allowed)
        best: tuple[int, ...] = ()
        for step in range(self.steps):
            if best and step >= PRICE_STEPS:
                break
            path = shortest_path(graph, weight + graph.use @ self.price, allowed)
            if not path:
                return ()
            arcs = list(path)
            over = graph.use[arcs].sum(axis=0) - self.capacity
            if (over <= 0).all():
                if not best or graph.path_time(path) < graph.path_time(best):
                    best = path
                if not self.price.any():
                    break
            # One path's whole cost, spread over the devices that are too many or left over.
            size = float(weight[arcs].sum()) / (2 + step) / float((over * over).sum() or 1)
            self.price = np.maximum(0.0, self.price + size * over)
        self.steps = PRICE_STEPS
        return best


def incumbent(graph: StageGraph, tries: int = INCUMBENT_TRIES) -> tuple[int, ...]:
    """Return the best of a few shortest paths, under different ceilings on their arcs.

    Ceilings are put on the time, then on each peak under the best ceilings so far. If devices are
    limited, none of the paths may fit: empty then, as without any path.
    """
    fitting = _Fitting(graph)
    allowed = np.ones(graph.arcs, dtype=np.bool_)
    best = fitting.path(allowed)
    limited = [graph.time] if graph.weight > 0 else []
    for value in (*limited, *graph.peaks):
        if not allowed.any():
            break
        least = float(path_leasts(graph, graph.time, value).worst_to[graph.sink])
        most = float(value[list(best)].max() if best else value[allowed].max())
        kept = allowed
        for ceiling in np.linspace(least, most, tries, endpoint=False) if least < most else ():
            under = allowed & (value <= ceiling)
            path = fitting.path(under)
            if path and (not best or graph.path_time(path) < graph.path_time(best)):
                best, kept = path, under
        allowed = kept
    return best


# ---- the state of a search on a stage graph ------------------------------------------------------
# Best path, best bound, and possible claims.


MILP_TOLERANCE = 1e-6
"""Share by which the bound that a floating-point MILP solver claims is lowered.

A claim can exceed the optimum where a path's reduced costs are negative within the dual tolerance
(1e-7 for each variable that is not 0: the path's arcs, the bottleneck, 64 .. 128 units large, and
the peaks, which together with it are at most the objective; as much for each device left over in a
capacity row) and where a node is cut off for being less than the absolute gap (1e-6 .. 1e-5) better
than the incumbent. `solver_scale` makes the bottleneck at least 64 units, hence the objective at
least 64 for each micro-batch, so all this together stays below 1e-6 of it where a path's arcs and
the idle devices are at most 300 for each micro-batch. Errors of feasibility and integrality only
lower the claim.
"""


class Search:
    """Best path and bound so far for the whole graph; tells `progress` of each improvement.

    tolerance: relative gap at which a path is optimal, the resolution of the solver's arithmetic.
    """

    def __init__(
        self,
        graph: StageGraph,
        hint: Sequence[int] = (),
        progress: Progress | None = None,
        tolerance: float = PROVED,
    ) -> None:
        if len(hint) and not graph.is_path(hint):
            raise ValueError("hint must be a path of the graph from a source to the sink")
        self.graph, self.tolerance = graph, tolerance
        self.progress: Progress | None = None
        self.path: tuple[int, ...] = ()
        self.objective = math.inf
        self.bound = 0.0
        self.offer(hint)
        self.progress = progress

    def prepared(self, *, reduce: bool = True) -> Reduced:
        """Return the reduced graph, after looking for a path (`reduce`) to reduce it by."""
        if reduce:
            clean = reduced(self.graph)
            self.offer(clean.original(incumbent(clean.graph)))
            self.recheck()
        problem = reduced(self.graph, self.objective if reduce else math.inf)
        self.prove(problem.bound)
        return problem

    def update(self, path: Sequence[int], bound: float) -> None:
        """Take a path (empty for none) and a lower bound, seconds, if they are the best so far.

        Both are kept before `progress` is called, which may interrupt.
        """
        objective = self.graph.path_time(path) if len(path) else math.inf
        better = objective < self.objective or bound > self.bound
        if objective < self.objective:
            self.path, self.objective = tuple(int(arc) for arc in path), objective
        self.bound = max(self.bound, bound)
        if better and self.progress is not None:
            self.progress(self.objective, min(self.bound, self.objective))

    def offer(self, path: Sequence[int]) -> None:
        """Take a path of the graph if it is the best so far."""
        self.update(path, 0.0)

    def prove(self, bound: float) -> None:
        """Take a lower bound, seconds, if it is the best so far."""
        self.update((), bound)

    def none_fits(self) -> bool:
        """Take a solver's claim that no path is within the capacities; tell whether it can be true.

        It can not if a path is known, or if devices are not limited: graphs for solvers have paths.
        A claim of a floating-point solver is taken as well: the rows of flow and capacity, which
        alone can contradict each other, hold integers far above its tolerances.
        """
        if self.path or not self.graph.capacity:
            return False
        self.prove(math.inf)
        return True

    def recheck(self) -> None:
        """Try to prove by reduction alone that no path is shorter than the best by more than 1e-9.

        Often the best path leaves no arc that a shorter one could use: a proof without a solver's
        tolerances.
        """
        if self.path:
            self.prove(reduced(self.graph, self.objective * (1 - PROVED / 2)).bound)

    def closed(self, gap: float) -> bool:
        """Tell whether there is nothing left to do for a search that may stop at this gap."""
        return self.bound >= self.objective * (1 - max(gap, PROVED))

    def answer(self, solver: str, stopped: Stop, limits: Limits) -> GraphSolution:
        """Return the results so far; OPTIMAL within the tolerance.

        An interrupt by the user is always reported: the caller stops as well.

        Raises
        ------
        SolverError: the bound is above the cost of a path that the graph has.
        """
        if self.path and self.bound > self.objective * (1 + self.tolerance):
            raise SolverError(
                f"{solver}: claims a bound of {self.bound} s, refuted by a path of"
                f" {self.objective} s"
            )
        bound = min(self.bound, self.objective)
        gap = relative_gap(self.objective, bound)
        if not self.path:
            status = Status.INFEASIBLE if bound == math.inf else Status.UNKNOWN
            proved = bound == math.inf
        elif gap <= self.tolerance:
            status, proved = Status.OPTIMAL, True
        else:
            status, proved = Status.FEASIBLE, False
            # A solver that says "optimal" but is this far off stopped at its own tolerance.
            if stopped is Stop.PROOF or (stopped is Stop.TIME and gap <= limits.gap):
                stopped = Stop.GAP
        if proved and stopped is not Stop.USER:
            stopped = Stop.PROOF
        return GraphSolution(
            path=self.path,
            objective=self.objective,
            bound=bound,
            status=status,
            stopped_by=stopped,
            solver=solver,
        )


def printed_floor(text: str) -> float:
    """Return the least number that may have been rounded to the printed one (-inf for inf)."""
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # inf, nan
        return -math.inf
    return float(number - Decimal(1).scaleb(exponent))


# ---- backend -------------------------------------------------------------------------------------


class Backend(ABC):
    """A solver of stage graphs.

    proves: its answer is the optimum, if there is time; a heuristic's is a good path. needs: the
    package that must be installed, if any. tolerance: relative gap that it can resolve.
    """

    name: str
    proves = True
    needs = ""
    tolerance = PROVED

    def available(self) -> bool:
        """Tell whether its requirements are installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def solve(
        self,
        graph: StageGraph,
        limits: Limits,
        *,
        hint: tuple[int, ...] = (),
        progress: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> GraphSolution:
        """Solve the graph within the limits; an interrupt keeps the results so far.

        Parameters
        ----------
        hint: a path to start from (arc numbers). deadline: of a search that asks for this graph
            among others; its own, by the limits, without.

        Raises
        ------
        UsageError: a requirement is missing.
        SolverError: the solver fails, or the graph refutes its answer.
        """
        deadline = deadline or limits.deadline()
        search = Search(graph, hint, progress, self.tolerance)
        try:
            with interruptible():
                stopped = self.run(search, limits, deadline)
        except KeyboardInterrupt:
            stopped = Stop.USER
        return search.answer(self.name, stopped, limits)

    @abstractmethod
    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Tell the search of paths and bounds; return why it ended."""


class ArcFlow(Backend):
    """A backend that gives the arcs to a solver of integer programs.

    reduce: drop the arcs that cannot matter before solving; off, the solver sees the graph as it is
    (for comparison).
    """

    def __init__(self, *, reduce: bool = True) -> None:
        self.reduce = reduce

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Reduce the graph, solve the rest, and try to prove the answer by reduction alone."""
        problem = search.prepared(reduce=self.reduce)
        if not problem.graph.arcs or search.closed(limits.gap):
            return Stop.PROOF
        stopped = self.solve_reduced(problem, search, limits, deadline)
        if self.reduce:
            search.recheck()
        return stopped

    @abstractmethod
    def solve_reduced(
        self, problem: Reduced, search: Search, limits: Limits, deadline: Deadline
    ) -> Stop:
        """Solve a reduced graph that has arcs."""
