"""From a problem of layers on device groups to a plan with a proof.

A plan space falls into parts. Each part is bounded by prices on devices (`bounds/resource_prices`) on a
small outline of its stage graph; what that leaves open below the incumbent is a stage graph, which labels
(`bounds/resource_paths`) or an integer program solve. A part's bound only rises, so an interrupt loses
nothing.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

from ilp_planner.bounds.resource_paths import search_resource_paths
from ilp_planner.bounds.resource_prices import SPLITS, PricedGraph
from ilp_planner.errors import PlannerError, SolverError
from ilp_planner.mixed.evaluate import GroupEvaluation, evaluate_groups
from ilp_planner.mixed.space import NEVER
from ilp_planner.mixed.spaces import parts_of
from ilp_planner.result import GroupResult, Status, Stop, relative_gap
from ilp_planner.solvers import registry
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.bounds.resource_prices import Interval
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.space import OpenGraph, SpacePart
    from ilp_planner.plan import GroupPlan

WIDTHS = (100, 1_000, 10_000, 100_000, 2**62)  # labels per node, until nothing is left open
PROVED = 1e-9  # a relative gap that is rounding
CLAIM_ROUNDING = 1e-9  # relative: the same times added in another order
SKETCH_SPLITS = 6
SKETCH_WIDTH = 20
OUTLINE_SPLITS = 8
LABELS = ("auto", "dp")
CERTIFICATE_VERSION = 1


def solve_groups(
    problem: GroupProblem,
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Callable[[float, float], None] | None = None,
) -> GroupResult:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed.
    solver: `auto` or `dp` (labels; `auto` gives to CP-SAT what they leave open), `cp-sat`, `milp`, `pulp`.
    progress: called with (incumbent seconds, bound seconds) as they improve.

    Raises
    ------
    UsageError: an unknown solver.
    SolverError: the evaluator refutes what the search believes.
    """
    search = GroupSearch(problem, limits or Limits(), solver, progress)
    try:
        stop = search.run()
    except KeyboardInterrupt:
        stop = Stop.USER
    return search.result(stop)


@dataclasses.dataclass(kw_only=True, eq=False)
class PartState:
    """What is known of one part. bound: seconds, constant included; source: what proved it."""

    part: SpacePart
    bound: float = 0.0
    source: str = ""
    promise: float = 0.0  # seconds, no proof: the order in which to look

    def raise_bound(self, bound: float, source: str) -> None:
        """Take a bound, if it is higher."""
        if bound > self.bound:
            self.bound, self.source = bound, source

    def record(self) -> dict[str, Any]:
        """Return what a certificate keeps."""
        bound = None if self.bound >= NEVER else self.bound
        return {"part": self.part.name, "bound_s": bound, "by": self.source}


class _OutOfTimeError(Exception):
    """The time limit has passed."""


class GroupSearch:
    """State of one solve."""

    def __init__(
        self,
        problem: GroupProblem,
        limits: Limits,
        solver: str,
        progress: Callable[[float, float], None] | None,
    ) -> None:
        if solver not in LABELS:
            registry.get(solver)
        self.problem = problem
        self.limits = limits
        self.solver = solver
        self.progress = progress
        self.started = time.monotonic()
        self.states = [PartState(part=part) for part in parts_of(problem)]
        self.plan: GroupPlan | None = None
        self.evaluation: GroupEvaluation | None = None
        self.objective = math.inf
        self.notes = list(problem.notes)

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less."""
        return min((state.bound for state in self.states), default=NEVER)

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit."""
        return self.limits.seconds - (time.monotonic() - self.started)

    def check_time(self) -> None:
        """Stop here when the time is up."""
        if self.seconds_left <= 0:
            raise _OutOfTimeError

    def gap_reached(self) -> bool:
        """Tell whether the plan is good enough."""
        return relative_gap(self.objective, self.bound) <= max(self.limits.gap, PROVED)

    # ---- the search -----------------------------------------------------------------------------

    def run(self) -> Stop:
        """Work until proof, gap or time."""
        try:
            for state in self.states:
                self.check_time()
                self.sketch(state)
            for state in sorted(self.states, key=lambda s: s.promise):
                self.check_time()
                if not self.gap_reached():
                    self.close(state)
        except _OutOfTimeError:
            return Stop.TIME
        proved = relative_gap(self.objective, self.bound) <= PROVED
        if proved or self.plan is None:
            return Stop.PROOF
        return Stop.GAP

    def sketch(self, state: PartState) -> None:
        """Look for a first good plan in a part, and guess what its best plan takes."""
        part = state.part
        state.promise = NEVER
        opened = part.sketch()
        if not opened.graph.arcs:
            return
        cutoff = self.objective - part.constant
        intervals = PricedGraph(opened.graph).sweep(cutoff, SKETCH_SPLITS, self.goon)
        if not intervals:
            return
        state.promise = intervals[0].bound + part.constant
        found = search_resource_paths(
            opened.graph,
            opened.context,
            cutoff=cutoff,
            width=SKETCH_WIDTH,
            intervals=intervals,
        )
        if found.path:
            self.take(state, opened.choice[list(found.path)].tolist())

    def goon(self) -> bool:
        """Tell whether there is time left."""
        return self.seconds_left > 0

    def close(self, state: PartState) -> None:
        """Raise the bound of a part to the incumbent, or find what is better."""
        part = state.part
        cutoff = self.objective - part.constant
        outline = part.outline(cutoff)
        choices = None
        if outline is not None:
            self.check_time()
            intervals = self.bounded(state, PricedGraph(outline.graph), cutoff, OUTLINE_SPLITS)
            if not intervals:
                return
            priced = PricedGraph(outline.graph)
            choices = outline.choice[priced.open_arcs(intervals, cutoff)]
        self.check_time()
        self.search(state, part.graph(cutoff, choices))

    def bounded(
        self, state: PartState, priced: PricedGraph, cutoff: float, splits: int
    ) -> list[Interval]:
        """Bound a part by prices; return what is open below the cutoff (without the constant)."""
        intervals = priced.sweep(cutoff, splits, self.goon)
        bound = intervals[0].bound if intervals else min(cutoff, NEVER)
        state.raise_bound(min(bound + state.part.constant, NEVER), "prices")
        self.report()
        return intervals

    def search(self, state: PartState, opened: OpenGraph) -> None:
        """Solve a stage graph, wider and wider, until its bound meets the incumbent."""
        constant = state.part.constant
        for width in WIDTHS:
            cutoff = min(self.objective - constant, NEVER)
            self.check_time()
            priced = PricedGraph(opened.graph)
            intervals = self.bounded(state, priced, cutoff, SPLITS)
            if not intervals:
                return
            opened = opened.only(priced.open_arcs(intervals, cutoff))
            if self.solver not in LABELS and self.backend(state, opened):
                return
            found = search_resource_paths(
                opened.graph,
                opened.context,
                cutoff=cutoff,
                width=width,
                intervals=intervals,
            )
            state.raise_bound(min(min(found.bound, cutoff) + constant, NEVER), "dp")
            self.report()
            if found.path:
                self.take(state, opened.choice[list(found.path)].tolist())
            if found.exact or self.gap_reached():
                return
            if state.bound >= self.objective * (1 - PROVED):
                return

    def backend(self, state: PartState, opened: OpenGraph) -> bool:
        """Let an integer program solve what is open; tell whether it did. Labels take over if not."""
        constant = state.part.constant
        explicit = state.part.explicit(opened)
        if explicit is None:
            self.notes.append(f"{state.part.name}: too much is open for {self.solver}, dp went on")
            return False
        limits = dataclasses.replace(self.limits, seconds=max(self.seconds_left, 0.0), gap=0.0)
        try:
            solution = registry.get(self.solver).solve(explicit.graph, limits)
        except (PlannerError, RuntimeError, ValueError, OSError, ImportError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.notes.append(f"{self.solver} failed ({reason}); dp went on")
            self.solver = "dp"
            return False
        cutoff = min(self.objective - constant, NEVER)
        state.raise_bound(min(min(solution.bound, cutoff) + constant, NEVER), solution.solver)
        self.report()
        if solution.path:
            self.take(state, explicit.choice[list(solution.path)].tolist())
        if solution.stopped_by is Stop.USER:
            raise KeyboardInterrupt
        return True

    def take(self, state: PartState, choices: Sequence[int]) -> None:
        """Judge the plan of stage candidates of a part; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        plan = state.part.plan(choices)
        if plan is None:
            return
        evaluation = evaluate_groups(self.problem, plan)
        if not evaluation.legal:
            raise SolverError(f"the search believes in an illegal plan: {evaluation.violations[0]}")
        found = evaluation.iteration_time
        if found < self.bound * (1 - CLAIM_ROUNDING) or found < state.bound * (1 - CLAIM_ROUNDING):
            raise SolverError(
                f"a plan of {found!r} s is below the proved bound of {state.bound!r} s"
            )
        if found < self.objective:
            self.plan, self.evaluation, self.objective = plan, evaluation, found
            self.report()

    def report(self) -> None:
        """Tell whoever listens."""
        if self.progress is not None:
            self.progress(self.objective, min(self.bound, self.objective))

    # ---- the outcome ----------------------------------------------------------------------------

    def result(self, stop: Stop) -> GroupResult:
        """Put together what is known."""
        bound = min(self.bound, self.objective)
        proved = False
        if self.plan is not None:
            proved = relative_gap(self.objective, bound) <= PROVED
            status = Status.OPTIMAL if proved else Status.FEASIBLE
            bound = self.objective if proved else bound
        else:
            status = Status.INFEASIBLE if self.bound >= NEVER else Status.UNKNOWN
            bound = math.inf if self.bound >= NEVER else bound
        lowest = min(self.states, key=lambda s: s.bound, default=None)
        return GroupResult(
            plan=self.plan,
            status=status,
            stopped_by=Stop.PROOF if proved else stop,
            objective=self.objective,
            bound=bound,
            bound_source=lowest.source if lowest is not None and self.bound > 0 else "",
            wall=time.monotonic() - self.started,
            solver=self.solver,
            seed=self.limits.seed,
            evaluation=self.evaluation,
            certificate={
                "version": CERTIFICATE_VERSION,
                "bound_s": bound if math.isfinite(bound) else None,
                "parts": [state.record() for state in self.states],
            },
            notes=tuple(self.notes),
        )
