"""The search for a plan of operators, and its proof.

Outer enumeration over the micro-batch size, best bound first. Each part is bounded without memory,
then by the bounds of its stages; the residual problem is a stage graph. The shortest path of that
graph is a bound. Its stages are solved exactly and put back, until the shortest path is made of
exact stages: then it is the optimum of its part. A heuristic's search proves nothing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ilp_planner.base.errors import PlannerError, SolverError
from ilp_planner.base.numerics import CLAIM_ROUNDING, NEVER, PROVED
from ilp_planner.base.units import format_bytes
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import Status, Stop, relative_gap
from ilp_planner.optimize.search.state import SearchState, Unlisted
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.chain_dp import ChainDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.costs.operators import OperatorTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.bounds.operator_part import OperatorPart
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.search.state import Proved
    from ilp_planner.optimize.solvers.base import GraphSolution, Task
    from ilp_planner.plan import OperatorPlan
    from ilp_planner.spaces.operators.first_plans import FirstPlan, Improver


# ---- exact search --------------------------------------------------------------------------------


FIRST_SLACK = 0.02
"""How far above the bound plans are looked for first; doubled when there are none."""
DOUBTFUL_SLACK = 0.3  # from here on, first see whether anything fits at all
LAST_SLACK = 8.0
IMPROVING = 0.4  # seconds: of the first plans, before anything is proved
FOLLOWING = 0.2  # seconds for a plan along one path
AGAIN = 2.0  # times what had passed: a row of groups is looked at again
SHARE = 0.2  # of the time that has passed: improving plans may take as long
WORTH = 1e-3  # relative: what may be gained, at least, where a plan along a path is looked for
LOCATE_FACTOR = 2.0
LOCATE_LAST = 16.0
MOST_LABELS = 30_000_000  # of the DP, about a GB; beyond, `auto` turns to CP-SAT


class Followed(NamedTuple):
    """When plans with a row of groups were looked for, in seconds, and the best one so far."""

    after: float
    plan: FirstPlan | None


class OperatorSearch(SearchState):
    """State of one solve."""

    rounding = CLAIM_ROUNDING

    problem: Problem[OperatorTables]

    def __init__(self, problem: Problem[OperatorTables], task: Task) -> None:
        super().__init__(problem, task)
        auto = self.solver == "auto"
        self.backend = ChainDP(MOST_LABELS) if auto else registry.get(self.solver)
        self.first = self.backend
        self.parts: list[OperatorPart] = []
        self.reason = ""
        self.improvers: dict[int, Improver] = {}
        self.followed: dict[tuple[int, tuple[int, ...]], Followed] = {}  # by sizes of groups

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less. 0 until every part has been looked at."""
        if len(self.parts) < len(self.problem.micro_batches):
            return 0.0
        return min(part.bound for part in self.parts)

    def proved_parts(self) -> Sequence[Proved]:
        """Return a part per size of micro-batch; nothing is known of all plans before there are all
        of them."""
        if len(self.parts) < len(self.problem.micro_batches):
            return (Unlisted(key=self.problem.space.part_key),)
        return self.parts

    # ---- the search -----------------------------------------------------------------------------

    def run(self) -> Stop:
        """Work until proof, gap or time."""
        self.begin()
        if self.closing and self.gap_reached():
            return Stop.PROOF
        return self.work() if self.locate() else Stop.PROOF

    def begin(self) -> None:
        """Find a plan and bound every part by its work, at any time: the best one of a few
        promising parts is judged before others are bounded. Then look for better ones for a
        moment."""
        from ilp_planner.spaces.climb import climbed
        from ilp_planner.spaces.operators.first_plans import PROMISING, first_plan

        plans: dict[int, FirstPlan | None] = {}

        def seconds(size: int) -> float:
            plans[size] = plan = first_plan(self.add_part(size))
            return math.inf if plan is None else plan.seconds

        sizes = self.problem.micro_batch_sizes
        best = None if self.closing else climbed(self.problem, sizes, seconds)
        first = None if best is None else plans[best]
        if first is not None:
            self.judge(first.plan(), first.seconds)
        for size in sizes:
            if size not in plans:
                self.add_part(size)
        self.parts.sort(key=lambda part: part.micro_batch)
        self.report()
        for part in () if self.closing else self.parts:
            self.check_time()
            if part.micro_batch not in plans:
                plans[part.micro_batch] = first_plan(part)
        found = [plan for plan in plans.values() if plan is not None]
        found.sort(key=lambda plan: (plan.seconds, plan.part.micro_batch))
        deadline = self.while_improving(IMPROVING)
        for plan in found:
            if plan.seconds < found[0].seconds * PROMISING:
                self.judge(plan.plan(), plan.seconds)
        for plan in found:
            if plan.seconds < found[0].seconds * PROMISING and deadline.goon():
                improver = self.improver(plan.part)
                improver.deadline = deadline
                better = improver.improved(plan)
                self.judge(better.plan(), better.seconds)

    def add_part(self, size: int) -> OperatorPart:
        """Return a new part, bounded by its work."""
        from ilp_planner.optimize.bounds.operator_part import OperatorPart

        part = OperatorPart(self.problem, size, self.limits.workers, self.check_time)
        part.bound_by_work()
        self.parts.append(part)
        return part

    def work(self) -> Stop:
        """Look for plans a little above the bound, and prove that there are none below."""
        slack = FIRST_SLACK
        while self.bound < NEVER:
            # never far above the bound, however poor the incumbent: little is left open
            guess = self.bound * (1 + slack) if slack < LAST_SLACK else NEVER
            guess = self.objective if self.closing else guess
            self.search_below(guess)
            if self.gap_reached() or guess >= self.objective:
                break
            if self.plan is None and slack > DOUBTFUL_SLACK and self.nothing_fits():
                break
            if not self.objective < guess:  # there is nothing so near to the bound
                slack *= 2
        short = self.plan is not None and not self.proved()
        return Stop.GAP if short and self.limits.gap > 0 else Stop.PROOF

    def locate(self) -> bool:
        """Bound every part roughly, with memory, until one of them seems to hold a plan.

        Returns False when nothing fits.
        """
        factor = LOCATE_FACTOR
        while self.bound < NEVER:
            guess = self.bound * factor if factor < LOCATE_LAST else NEVER
            guess = self.objective if self.plan is not None or self.closing else guess
            for part in sorted(self.parts, key=lambda p: p.bound):
                if part.bound < guess:
                    self.check_time()
                    part.bound_by_stages(guess, coarse=True)
                    self.report()
            if self.bound < guess or self.plan is not None or self.closing:
                return self.bound < guess or not self.closing
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

    def refine(self, part: OperatorPart, cutoff: float) -> None:
        """Work on one part until it is closed, another one has the least bound, or a better plan
        is found; then its graph is freed."""
        self.refine_open(part, cutoff)
        part.fold()

    def refine_open(self, part: OperatorPart, cutoff: float) -> None:
        """Work on the graph of one part."""
        others = min((p.bound for p in self.parts if p is not part and not p.closed), default=NEVER)
        cutoff = min(cutoff, part.ceiling)
        graph = part.expand(cutoff).graph
        path: tuple[int, ...] = ()
        while True:
            self.check_time()
            solution = self.cheapest(graph, path)
            part.raise_bound(min(solution.bound, cutoff), solution.solver)
            path = solution.path
            if solution.stopped_by is Stop.USER:
                self.last_words(part, path)
            self.report()
            if not path or solution.objective >= cutoff:
                if path and not part.counted and solution.objective < self.objective:
                    self.follow(part, path)
                part.closed = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
                return
            self.check_time()
            learned = part.refine(path, self.deadline.left)
            better = self.take(part, path) or (part.counted and self.look_along(part, path))
            if not learned:  # the cheapest path is as fast as its bounds say
                if not part.counted:
                    part.count_stages()
                    part.bound_by_stages(cutoff)
                    return
                part.closed = solution.status is Status.OPTIMAL
            better |= part.counted and self.take(part, part.best_known_path(self.objective))
            if better or part.closed or self.gap_reached() or part.bound > others:
                return
            if part.stages.sharpen(self.limits.workers):
                graph, path = part.expand(cutoff).graph, ()

    def cheapest(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return the shortest path of a graph.

        `auto` gives the DP's residual problem to CP-SAT; a backend that fails is replaced by the
        DP.
        """
        try:
            solution = self.solved(graph, hint)
            if self.solver == "auto" and solution.status is Status.UNKNOWN and self.goon():
                self.backend = registry.get("cp-sat")
                solution = self.solved(graph, hint)
        except (PlannerError, RuntimeError, ValueError, OSError, ImportError) as error:
            if self.backend.name == "dp":
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.notes.append(f"{self.backend.name} failed ({reason}); chain DP alone went on")
            self.backend = registry.get("dp")
            solution = self.solved(graph, hint)
        return solution

    def solved(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return the backend's answer, in the time that is left."""
        return self.backend.solve(graph, self.exactly, hint=tuple(hint), deadline=self.deadline)

    def last_words(self, part: OperatorPart, path: tuple[int, ...]) -> NoReturn:
        """Keep the plan along the best path that an interrupted solver had.

        Raises
        ------
        KeyboardInterrupt: always.
        """
        if path:
            part.refine(path, 0.0)
            self.take(part, path)
        raise KeyboardInterrupt

    def take(self, part: OperatorPart, path: Sequence[int]) -> bool:
        """Judge the plan along a path, and keep it when it is better than the incumbent."""
        if not part.counted:
            return self.follow(part, path)
        claim = part.known_time(path)
        return claim < min(self.objective, NEVER) and self.judge(part.plan(path), claim)

    def look_along(self, part: OperatorPart, path: Sequence[int]) -> bool:
        """Look for a plan with the groups of a path with unsolved stages, if that is worth it: for
        each row of groups once, and again when twice the time has passed."""
        from ilp_planner.spaces.operators.first_plans import first_plan

        row = part.micro_batch, part.sizes(path)
        looked = self.followed.get(row)
        again = not self.deadline.steady  # else nothing may depend on the time
        if looked and not (again and self.deadline.elapsed >= AGAIN * looked.after):
            return False
        if part.bound > self.objective * (1 - WORTH):
            return False
        if looked is None and self.follow(part, path):
            self.followed[row] = Followed(self.deadline.elapsed, None)
            return True
        known = None if looked is None else looked.plan
        plan = known or first_plan(part, [row[1]])
        if plan is not None:
            improver = self.improver(part)
            improver.deadline = self.while_improving(FOLLOWING)
            plan = improver.improved(plan)
        self.followed[row] = Followed(self.deadline.elapsed, plan)
        return plan is not None and self.judge(plan.plan(), plan.seconds)

    def follow(self, part: OperatorPart, path: Sequence[int]) -> bool:
        """Run the stages of a path with as many micro-batches in flight as they have, make the plan
        better for a while, and judge it."""
        if len(path) > self.problem.max_stages:
            return False
        improver = self.improver(part)
        improver.deadline = self.while_improving(FOLLOWING)
        plan = improver.along(part.cuts(path), part.sizes(path))
        return plan.seconds < min(self.objective, NEVER) and self.judge(plan.plan(), plan.seconds)

    def while_improving(self, least: float) -> Deadline:
        """Return until when a plan may be improved: so many seconds, and more of a long search."""
        return self.deadline.moment(max(least, SHARE * self.deadline.elapsed))

    def improver(self, part: OperatorPart) -> Improver:
        """Return the improver of a part's plans, with a cache of its stages."""
        from ilp_planner.spaces.operators.first_plans import Improver

        return self.improvers.setdefault(part.micro_batch, Improver(part))

    def judge(self, plan: OperatorPlan, claim: float) -> bool:
        """Keep a plan that is said to take `claim` seconds when it is better than the incumbent."""
        if not claim < self.objective:
            return False
        evaluation = evaluate(self.problem, plan)
        found = evaluation.iteration_time
        if evaluation.legal and abs(found - claim) > CLAIM_ROUNDING * found:
            raise SolverError(f"the search claims {claim!r} s for a plan that takes {found!r} s")
        return self.keep(plan, evaluation, self.bound)

    def nothing_fits(self) -> bool:
        """Tell whether memory alone rules out every plan, and remember why."""
        from ilp_planner.optimize.bounds.memory import explain_infeasible

        if not self.reason:
            self.reason = explain_infeasible(self.problem, self.parts)
        if not self.reason:
            return False
        for part in self.parts:
            part.raise_bound(NEVER, "memory")
        return True

    def confirm(self) -> None:
        """Let CP-SAT solve the residual problem of the proof, if it was not at work already."""
        if self.backend is self.first:
            super().confirm()

    def explain(self) -> str:
        """Say why there is no plan."""
        if self.nothing_fits():
            return self.reason
        return (
            "nothing fits: in every pipeline some stage needs more than the limit of "
            f"{format_bytes(self.problem.memory_limit)} (stages searched exactly)"
        )


# ---- a heuristic's search ------------------------------------------------------------------------


SLACK = 0.1  # relative: how far above the bound to look for a first plan; doubled while none is
PATIENCE = 4  # rounds without a better plan
FEWER = 8  # of so many starts one, to go on from a path that is known


class OperatorHunt(OperatorSearch):
    """A search that looks for good plans and proves nothing.

    The stage graphs hold bounds of stages: the heuristic's path is decoded by solving its stages
    exactly, which raises them in the graph, until the heuristic finds nothing better there.
    """

    def work(self) -> Stop:
        """Look through the parts, a little above their bounds at first."""
        looked: dict[int, float] = {}
        slack = SLACK
        while self.plan is None and self.bound < NEVER:
            guess = self.bound * (1 + slack) if slack < LAST_SLACK else NEVER
            self.look_below(guess, looked)
            if guess >= NEVER:
                break
            slack *= 2
        self.look_below(self.objective, looked)
        proved = relative_gap(self.objective, self.bound) <= PROVED
        return Stop.PROOF if proved or self.bound >= NEVER else Stop.HEURISTIC

    def look_below(self, guess: float, looked: dict[int, float]) -> None:
        """Look through all parts that may have a plan below `guess` seconds.

        looked: seconds up to which parts were searched, by micro-batch.
        """
        for part in sorted(self.parts, key=lambda p: p.bound):
            cutoff = min(guess, self.objective, NEVER)
            if part.bound >= cutoff * (1 - PROVED) or self.gap_reached():
                continue
            if looked.get(part.micro_batch, 0.0) >= cutoff:
                continue
            self.check_time()
            looked[part.micro_batch] = cutoff
            part.bound_by_stages(cutoff)
            self.improve(part, cutoff)
            part.fold()

    def improve(self, part: OperatorPart, cutoff: float) -> None:
        """Look for plans of one part, until a few rounds have found nothing better."""
        graph = part.expand(cutoff).graph
        path: tuple[int, ...] = ()
        failed = 0
        while failed < PATIENCE:
            self.check_time()
            solution = self.cheapest(graph, path)
            path = solution.path
            if solution.stopped_by is Stop.USER:
                self.last_words(part, path)
            if not path or graph.path_time(path) >= min(cutoff, self.objective):
                return
            self.check_time()
            learned = part.refine(path, self.deadline.left)
            better = self.take(part, path)
            better |= self.take(part, part.best_known_path(self.objective))
            failed = 0 if better else failed + 1
            if not learned:
                return

    def cheapest(self, graph: StageGraph, hint: Sequence[int]) -> GraphSolution:
        """Return a good path of a graph; with a known one, after fewer starts."""
        starts = max(1, self.limits.starts // FEWER) if hint else self.limits.starts
        limits = dataclasses.replace(self.exactly, starts=starts)
        return self.backend.solve(graph, limits, hint=tuple(hint), deadline=self.deadline)
