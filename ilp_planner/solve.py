"""The one verb: from a problem to a plan with a proof.

Outer enumeration over the micro-batch size, best bound first. Each part is bounded without memory,
then by the bounds
of its stages; what these leave open is a stage graph. The cheapest path of that graph is a bound.
Its stages are
solved exactly and put back, until the cheapest path is made of exact stages: then it is the
optimum of its part.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING

from ilp_planner.errors import PlannerError, SolverError, interruptible
from ilp_planner.evaluate import Evaluation, evaluate
from ilp_planner.result import Result, Status, Stop, relative_gap
from ilp_planner.solvers import registry
from ilp_planner.solvers.base import Limits
from ilp_planner.solvers.chain_dp import ChainDP
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.bounds.part import Part
    from ilp_planner.graph import StageGraph
    from ilp_planner.plan import Plan
    from ilp_planner.problem import Problem
    from ilp_planner.solvers.base import GraphSolution

NEVER = 1e30  # seconds: stands for `no plan at all` in bounds
FIRST_SLACK = (
    0.02  # how far above the bound plans are looked for first; doubled when there are none
)
DOUBTFUL_SLACK = 0.3  # from here on, first see whether anything fits at all
LAST_SLACK = 8.0
LOCATE_FACTOR = 2.0
LOCATE_LAST = 16.0
CLAIM_ROUNDING = 1e-7  # relative: the search adds times on a fixed grid
PROVED = 1e-9  # a relative gap that is rounding
MOST_LABELS = 30_000_000  # of the DP, about a GB; beyond, `auto` turns to CP-SAT
CERTIFICATE_VERSION = 1


def solve(
    problem: Problem,
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Callable[[float, float], None] | None = None,
) -> Result:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed.
    solver: `auto`, or the name of the backend that solves the stage graphs (`dp`, `cp-sat`,
    `milp`, `pulp`); `gradient` and `anneal` are heuristics, whose plan the bound of `auto` is put
    beside (`heuristic`).
    progress: called with (incumbent seconds, bound seconds) as they improve.

    Raises
    ------
    UsageError: an unknown solver.
    SolverError: the evaluator refutes what the search believes.
    """
    limits = limits or Limits()
    if registry.is_heuristic(solver):
        from ilp_planner.heuristic import solve_by_heuristic

        return solve_by_heuristic(problem, limits, solver, progress)
    return Search(problem, limits, solver, progress).outcome()


class _OutOfTimeError(Exception):
    """The time limit has passed."""


class Search:
    """State of one solve. Every bound in it is valid at any moment, so that an interrupt loses
    nothing."""

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        solver: str,
        progress: Callable[[float, float], None] | None,
    ) -> None:
        self.problem = problem
        self.limits = limits
        self.solver = solver
        self.backend = ChainDP(MOST_LABELS) if solver == "auto" else registry.get(solver)
        self.progress = progress
        self.started = time.monotonic()
        self.parts: list[Part] = []
        self.plan: Plan | None = None
        self.evaluation: Evaluation | None = None
        self.objective = math.inf
        self.notes = list(problem.notes)
        self.reason = ""

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less. 0 until every part has been looked at."""
        if len(self.parts) < len(self.problem.micro_batches):
            return 0.0
        return min(part.bound for part in self.parts)

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

    def outcome(self) -> Result:
        """Search, and put together what is known however the search ends."""
        try:
            with interruptible():
                stop = self.run()
        except KeyboardInterrupt:
            stop = Stop.USER
        return self.result(stop)

    def run(self) -> Stop:
        """Work until proof, gap or time."""
        from ilp_planner.bounds.part import Part

        try:
            for micro_batch in self.problem.micro_batches:
                self.check_time()
                part = Part(self.problem, micro_batch, self.limits.workers)
                part.bound_by_work()
                self.parts.append(part)
            return self.work() if self.locate() else Stop.PROOF
        except _OutOfTimeError:
            return Stop.TIME

    def work(self) -> Stop:
        """Look for plans a little above the bound, and prove that there are none below."""
        slack = FIRST_SLACK
        while self.bound < NEVER:
            # never far above the bound, however poor the incumbent: little is left open
            guess = self.bound * (1 + slack) if slack < LAST_SLACK else NEVER
            self.search_below(guess)
            if self.gap_reached() or guess >= self.objective:
                break
            if self.plan is None:
                if slack > DOUBTFUL_SLACK and self.nothing_fits():
                    break
                slack *= 2
        proved = relative_gap(self.objective, self.bound) <= PROVED
        return (
            Stop.GAP if self.plan is not None and not proved and self.limits.gap > 0 else Stop.PROOF
        )

    def locate(self) -> bool:
        """Bound every part roughly, with memory, until one of them seems to hold a plan.

        Returns False when nothing fits.
        """
        factor = LOCATE_FACTOR
        while self.bound < NEVER:
            guess = self.bound * factor if factor < LOCATE_LAST else NEVER
            for part in sorted(self.parts, key=lambda p: p.bound):
                if part.bound < guess:
                    self.check_time()
                    part.bound_by_stages(guess, coarse=True)
                    self.report()
            if self.bound < guess:
                return True
            factor *= LOCATE_FACTOR
            if factor >= LOCATE_LAST and self.nothing_fits():
                return False
        return not self.nothing_fits()

    def search_below(self, guess: float) -> None:
        """Close every part up to `guess` seconds, or up to the incumbent once there is one."""
        for part in sorted(self.parts, key=lambda p: p.bound):
            part.closed = False
            if part.bound < min(guess, self.objective):
                self.check_time()
                part.bound_by_stages(min(guess, self.objective))
                self.report()
        while not self.gap_reached():
            cutoff = min(guess, self.objective)
            left = [p for p in self.parts if not p.closed and p.bound < cutoff * (1 - PROVED)]
            if not left:
                return
            self.refine(min(left, key=lambda p: p.bound), cutoff)

    def refine(self, part: Part, cutoff: float) -> None:
        """Work on one part until it is closed, another one has the least bound, or a better plan
        is found."""
        others = min((p.bound for p in self.parts if p is not part and not p.closed), default=NEVER)
        graph = part.expand(cutoff).graph
        path: tuple[int, ...] = ()
        while True:
            self.check_time()
            solution = self.cheapest(graph, path)
            part.raise_bound(min(solution.bound, cutoff), solution.solver)
            self.report()
            path = solution.path
            if not path or solution.objective >= cutoff:
                part.closed = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
                return
            self.check_time()
            learned = part.refine(path, self.seconds_left)
            better = self.take(part, path)
            if not learned:  # the cheapest path is as fast as its bounds say
                part.closed = solution.status is Status.OPTIMAL
            better |= self.take(part, part.best_known_path(self.objective))
            if better or part.closed or self.gap_reached() or part.bound > others:
                return

    def cheapest(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return the cheapest path of a graph.

        `auto` gives to CP-SAT what the DP leaves open; a backend that fails is replaced by the DP.
        """
        limits = dataclasses.replace(self.limits, seconds=max(self.seconds_left, 0.0), gap=0.0)
        try:
            solution = self.backend.solve(graph, limits, hint=tuple(hint))
            if self.solver == "auto" and solution.status is Status.UNKNOWN:
                self.backend = registry.get("cp-sat")
                solution = self.backend.solve(graph, limits, hint=tuple(hint))
        except (PlannerError, RuntimeError, ValueError, OSError, ImportError) as error:
            if self.backend.name == "dp":
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.notes.append(f"{self.backend.name} failed ({reason}); chain DP alone went on")
            self.backend = registry.get("dp")
            solution = self.backend.solve(graph, limits, hint=tuple(hint))
        if solution.stopped_by is Stop.USER:
            raise KeyboardInterrupt
        return solution

    def take(self, part: Part, path: Sequence[int]) -> bool:
        """Judge the plan along a path, and keep it when it is better than the incumbent."""
        claim = part.known_time(path)
        if not claim < min(self.objective, NEVER):
            return False
        plan = part.plan(path)
        evaluation = evaluate(self.problem, plan)
        if not evaluation.legal:
            raise SolverError(f"the search believes in an illegal plan: {evaluation.violations[0]}")
        found = evaluation.iteration_time
        if abs(found - claim) > CLAIM_ROUNDING * found:
            raise SolverError(f"the search claims {claim!r} s for a plan that takes {found!r} s")
        if found < self.bound * (1 - CLAIM_ROUNDING):
            raise SolverError(
                f"a plan of {found!r} s is below the proved bound of {self.bound!r} s"
            )
        if found >= self.objective:
            return False
        self.plan, self.evaluation, self.objective = plan, evaluation, found
        self.report()
        return True

    def nothing_fits(self) -> bool:
        """Tell whether memory alone rules out every plan, and remember why."""
        from ilp_planner.bounds.memory import explain_infeasible

        if not self.reason:
            self.reason = explain_infeasible(self.problem, self.parts)
        if not self.reason:
            return False
        for part in self.parts:
            part.raise_bound(NEVER, "memory")
        return True

    def report(self) -> None:
        """Tell whoever listens."""
        if self.progress is not None:
            self.progress(self.objective, min(self.bound, self.objective))

    # ---- the outcome ----------------------------------------------------------------------------

    def result(self, stop: Stop) -> Result:
        """Put together what is known."""
        if self.plan is None and self.bound >= NEVER and not self.nothing_fits():
            self.reason = (
                "nothing fits: in every pipeline some stage needs more than the limit of "
                f"{format_bytes(self.problem.memory_limit)} (stages searched exactly)"
            )
        bound = min(self.bound, self.objective)
        if self.plan is not None:
            proved = relative_gap(self.objective, bound) <= PROVED
            status = Status.OPTIMAL if proved else Status.FEASIBLE
            bound = self.objective if proved else bound
        else:
            status = Status.INFEASIBLE if self.bound >= NEVER else Status.UNKNOWN
            bound = math.inf if self.bound >= NEVER else bound
        lowest = min(self.parts, key=lambda p: p.bound, default=None)
        return Result(
            plan=self.plan,
            status=status,
            stopped_by=stop,
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
                "parts": [part.record() for part in self.parts],
            },
            notes=tuple(self.notes),
            reason=self.reason if status is Status.INFEASIBLE else "",
        )
