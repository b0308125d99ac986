"""The search over sets of nodes: for the cheapest plan, the fastest within a budget, or both.

Every plan uses some set of nodes, and has the price of that set. So the best plan is the fastest
one on some set, and

    min over plans of value(seconds, nodes) = min over sets of value(least seconds on the set, set)

for any value that grows with seconds. A set is searched by the search of its plan space, up to a
cutoff: the seconds above which no plan on it is better than the best one elsewhere. It is done with
when its bound has reached that, mostly long before its own optimum is known. Sets take turns: each
has a moment, then those that are not done longer ones, the most promising first.

The front of time and price has, for every budget per hour, the fastest plan within it, as the
epsilon-constraint method finds them (Haimes, Lasdon and Wismer 1971), as far as no other is also
cheaper per token.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, UsageError, interruptible
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.inputs.likeness import DEVICES
from ilp_planner.optimize.result import Aim, Best, Result, Status, Stop
from ilp_planner.optimize.search.preference import time_kept
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.base import Limits, Progress, Task
from ilp_planner.spaces.objectives.node_sets import describe_set, priced_sets
from ilp_planner.spaces.objectives.on_nodes import SetSearch

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.objectives.objective import Objective, Point

FIRST_MOMENT = 0.5  # seconds of a set's first turn
LONGER = 4.0  # times as long as the turn before
FOR_SHOWN = 0.5  # of the time left in a round, for the sets with the best plans


class Chosen(NamedTuple):
    """A result, and the problem of the nodes that its plan is on."""

    problem: Problem[Any]
    result: Result


def solve_on_sets(
    problem: Problem[Any],
    objective: Objective,
    *,
    max_hourly: float = math.inf,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
    deadline: Deadline | None = None,
) -> Chosen:
    """Find the best plan on any set of nodes, and a bound on all of them.

    Parameters
    ----------
    max_hourly: limit on the price of a plan's nodes per hour. limits, solver, progress, deadline:
        as `solve` takes them; progress is told the objective, for the front its seconds.

    Raises
    ------
    UsageError: a price that is not known, a heuristic, stages that are to be kept, or inputs that
        have no nodes to leave out.
    InfeasibleError: no plan is within the price per hour, with the cheapest one's; or no plan fits
        at all.
    """
    limits = limits or Limits()
    deadline = deadline or Deadline(limits.seconds)
    if not max_hourly > 0:
        raise UsageError(f"max_price_per_hour: found {max_hourly:g}, expected a number above 0")
    check_asked(problem, solver)
    search = SetsSearch(problem, objective, max_hourly, Task(limits, solver, progress, deadline))
    stop = search.run()
    return search.chosen(stop)


def check_asked(problem: Problem[Any], solver: str) -> None:
    """Refuse requests that exclude sets of nodes.

    Raises
    ------
    UsageError: with the option and a repair.
    """
    if registry.is_heuristic(solver):
        raise UsageError(
            f"solver: found {solver}, a heuristic, for sets of nodes, expected `solver=auto`"
        )
    if problem.constraints.keep:
        raise UsageError(
            "keep: found stages on nodes of their own, expected none where any nodes may be used"
        )
    files = problem.files
    named = () if files is None else files.request.files
    if files is None or "hostfile" in named or "metis_cluster" in files.objects:
        raise UsageError(
            "objective: found nodes that are no cluster's, expected a `cluster`, of which nodes "
            "can be left out"
        )


def asked_devices(problem: Problem[Any]) -> dict[str, str]:
    """Return the constraints on devices that a problem was built with, by name."""
    assert problem.files is not None
    texts = problem.files.request.constraints.texts
    return {name: texts[name] for name in DEVICES if name in texts}


class SetsSearch:
    """State of one search."""

    def __init__(
        self, problem: Problem[Any], objective: Objective, max_hourly: float, task: Task
    ) -> None:
        self.problem, self.objective, self.max_hourly, self.task = (
            problem, objective, max_hourly, task,
        )  # fmt: skip
        assert task.deadline is not None
        prefers = task.limits.prefer_plain > 0 and problem.space.graded
        self.end = task.deadline
        self.deadline = self.end.but(time_kept(self.end.left)) if prefers else self.end
        every = [SetSearch(problem, nodes) for nodes in priced_sets(problem.cluster)]
        within = max_hourly * (1 + PROVED)
        self.sets = [one for one in every if one.nodes.hourly <= within]
        self.dearer = [one for one in every if one.nodes.hourly > within]
        self.turns = [self.sets[place] for place in objective.turns(len(self.sets))]

    # ---- what is known --------------------------------------------------------------------------

    @property
    def single(self) -> bool:
        """A single figure is minimised, so that one plan is the best."""
        return len(self.objective.figures) == 1

    def found(self) -> list[Point]:
        """Return the plans that were found, one of each set."""
        return [one.point for one in self.sets if one.seconds < math.inf]

    def cutoff(self, one: SetSearch) -> float:
        """Return the cutoff in seconds for plans of a set."""
        return self.objective.cutoff(self.found(), one.nodes.hourly)

    def closed(self, one: SetSearch) -> bool:
        """Tell whether a set has nothing better than the best plan, but for the gap."""
        gap = max(self.task.limits.gap, PROVED)
        return one.bound >= self.cutoff(one) * (1 - gap)

    def report(self) -> None:
        """Tell whoever listens."""
        if self.task.progress is not None and (best := self.best()):
            first = self.bounded(best[0])
            self.task.progress(first.value, first.bound)

    # ---- the search -----------------------------------------------------------------------------

    def run(self) -> Stop:
        """Work until proof, gap or time."""
        try:
            with interruptible():
                return self._run()
        except KeyboardInterrupt:
            return Stop.USER

    def _run(self) -> Stop:
        steady = self.deadline.steady
        moment = FIRST_MOMENT
        while left := self.open_sets():
            # What is shown is as good as a search of its nodes alone: these have a long turn.
            shown = [one for one in self.best() if one in left]
            share = FOR_SHOWN * self.deadline.left / max(1, len(shown))
            for one in left:
                if self.closed(one):
                    continue
                if not self.deadline.goon():
                    return Stop.TIME
                own = max(moment, share) if one in shown else moment
                self.turn(one, self.deadline if steady else self.deadline.within(own))
            moment *= LONGER
        return Stop.GAP if self.task.limits.gap > 0 else Stop.PROOF

    def open_sets(self) -> list[SetSearch]:
        """Return the sets that are not done: unexamined ones in the order of `turns`, then sets
        with the best plans, then the others, the most promising first."""
        left = [one for one in self.turns if not self.closed(one)]
        new = [one for one in left if not one.looked]
        best = self.best()
        old = [one for one in left if one.looked]
        return new + sorted(
            old, key=lambda one: (one not in best, self.objective.values(one.least))
        )

    def turn(self, one: SetSearch, deadline: Deadline) -> None:
        """Search a set for a while."""
        limits = replace(self.task.limits, seconds=math.inf)
        one.work(Task(limits, self.task.solver, None, deadline), self.cutoff(one))
        self.report()

    # ---- what comes of it -----------------------------------------------------------------------

    def best(self) -> list[SetSearch]:
        """Return the sets with the best plans, the fastest first."""
        points = self.objective.best(self.found())
        return [next(one for one in self.sets if one.point == point) for point in points]

    def bounded(self, one: SetSearch) -> Best:
        """Return the plan of a set, with a bound on the first figure of all plans; of a front, of
        sets that cost no more per hour."""
        within = math.inf if self.single else one.nodes.hourly * (1 + PROVED)
        figure = self.objective.figures[0]
        bounds = [s.least for s in self.sets if s.nodes.hourly <= within]
        value = getattr(one.point, figure)
        least = min(getattr(bound, figure) for bound in bounds)
        return Best(on=one.known(), value=value, bound=min(least, value))

    def chosen(self, stop: Stop) -> Chosen:
        """Return the fastest of the best plans, or the cheapest.

        Raises
        ------
        InfeasibleError: there is none, and that is proved.
        """
        if not self.found():
            return self.without_plan(stop)
        # Of one figure, the bound is about all sets; a front may lack a plan of an open one.
        complete = self.single or all(map(self.closed, self.sets))
        best = self.best()
        for one in best:
            one.prefer_plain(self.end)
        # Of two that differ hardly, the plainer plan of one may be worse than that of the other.
        points = self.objective.best([one.point for one in best])
        best = [one for one in best if one.point in points]
        taken = best[0]
        assert taken.found is not None
        aim = Aim(
            objective=self.objective.name,
            figure=self.objective.figures[0],
            max_hourly=self.max_hourly,
            devices=asked_devices(self.problem),
            best=tuple(map(self.bounded, best)),
            sets=tuple(one.known() for one in self.sets),
            complete=complete,
        )
        result = taken.result(stop, self.deadline.elapsed)
        return Chosen(taken.found.problem, replace(result, aim=aim))

    def without_plan(self, stop: Stop) -> Chosen:
        """Return a result without a plan.

        Raises
        ------
        InfeasibleError: it is proved that there is none.
        """
        if all(one.bound >= NEVER for one in self.sets):
            raise InfeasibleError(self.why_none())
        bound = min(one.bound for one in self.sets)
        result = Result(
            plan=None,
            status=Status.UNKNOWN,
            stopped_by=stop,
            objective=math.inf,
            bound=bound,
            bound_source="",
            wall=self.deadline.elapsed,
            solver=self.task.solver,
            seed=self.task.limits.seed,
            among=self.problem.space.describe(self.problem),
        )
        return Chosen(self.problem, result)

    def why_none(self) -> str:
        """Return why no plan is within the budget: the price per hour of the cheapest plan, or a
        lower bound if there was no time to find it."""
        for one in self.dearer:
            one.bound = max(one.bound, 0.0)
            self.look_for_any(one)
            if one.seconds < math.inf or one.bound < NEVER:
                where = describe_set(self.problem.cluster, one.nodes.nodes)
                least = "" if one.seconds < math.inf else "more than what is below "
                return (
                    f"max_price_per_hour: found {self.max_hourly:g}, expected at least {least}"
                    f"{one.nodes.hourly:.10g}, the price per hour of the cheapest plan, on {where}"
                )
        last_first = reversed((*self.sets, *self.dearer))
        reason = next((one.reason for one in last_first if one.reason), "none fits")
        return f"no plan on any set of nodes: {reason}"

    def look_for_any(self, one: SetSearch) -> None:
        """Look for any plan of a set."""
        deadline = Deadline(self.deadline.left, lambda: one.seconds == math.inf)
        self.turn(one, deadline)
