"""The fastest plan on any set of nodes: nodes that slow a plan down are left out of it.

One set is searched as if there were no other nodes: all nodes, or, if nodes differ, the set with
the best first plan. All other sets are then closed: by arithmetic, or by a search for a better
plan. A set with a faster plan takes the first one's place.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, LackingError, UsageError, interruptible
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.base.resident import uncollected
from ilp_planner.base.team import Team
from ilp_planner.optimize.result import (
    ON_NODES,
    Aim,
    Best,
    Moment,
    Result,
    Status,
    Stop,
    relative_gap,
)
from ilp_planner.optimize.search.start import NOTE, Start
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.base import Limits, Progress, Task
from ilp_planner.spaces.objectives.node_sets import describe_covered, is_whole, kinds_of, node_sets
from ilp_planner.spaces.objectives.objective import TIME
from ilp_planner.spaces.objectives.on_nodes import SetSearch
from ilp_planner.spaces.objectives.search import Chosen, asked_devices
from ilp_planner.spaces.registry import build_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.objectives.node_sets import NodeSet

ALWAYS, EQUAL = 64, 16  # sets that are closed however long that takes; of equal nodes
SHARE = 0.25  # of the time that the plan took, for closing sets where there are more of them
LOOK = 0.5  # seconds in which a first plan is looked for on each set of whole kinds of nodes
LOOKS = 0.2  # of the time there is, for all these looks
LOOKED = 16  # sets of whole kinds that are looked at; of more, all nodes come first
AT_ONCE = 8  # sets that are closed with one cutoff
MANY = 2  # sets for each process, with which each is closed by one of them
ONE_BY_ONE = ("auto", "dp")  # solvers that a process uses alone
TRYING = 5.0  # seconds of looking for nodes on which what is asked for is possible


class Closed(NamedTuple):
    """What a search of a set has found, as `SetSearch` has it. better: there is a plan below the
    cutoff, whose search is wanted."""

    bound: float
    source: str
    records: list[dict[str, Any]]
    looked: bool
    better: bool


def solve_on_any_nodes(
    problem: Problem[Any],
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | None = None,
    top: int = 1,
    deadline: Deadline | None = None,
    start: Start | None = None,
    all_devices: bool = False,
) -> Chosen:
    """Find the fastest plan on any set of nodes, and a bound on all of them; return it with the
    problem of its nodes.

    Parameters
    ----------
    all_devices: leave no node out. The others: as `solve` takes them.

    Raises
    ------
    As `solve` does.
    """
    limits = limits or Limits()
    deadline = deadline or limits.deadline()
    task = Task(limits, solver, progress, deadline)
    if all_devices and problem.files is not None and problem.files.refused is not None:
        raise problem.files.refused
    sets = () if all_devices or why_all(problem, solver) else node_sets(problem.cluster)
    if len(sets) < 2:
        return Chosen(problem, _solved(problem, task, top, start))
    with uncollected():
        return AnyNodes(problem, sets, task, top, start).run()


def why_all(problem: Problem[Any], solver: str) -> str:
    """Return why no node is left out; empty: any may be."""
    if problem.space.idles or not problem.space.leaves_out:
        return "the space says itself which devices plans use"
    if registry.is_heuristic(solver):
        return "a heuristic has no bound for other nodes"
    if problem.constraints.keep:
        return "stages are kept on nodes of their own"
    files = problem.files
    if files is None or _named_one_by_one(files):
        return "the nodes are no cluster's"
    return ""


def _solved(problem: Problem[Any], task: Task, top: int, start: Start | None) -> Result:
    """Search the nodes of a problem alone."""
    from ilp_planner.optimize.solve import solve

    return solve(
        problem, limits=task.limits, solver=task.solver, progress=task.progress, top=top,
        start=start, deadline=task.deadline,
    )  # fmt: skip


def build_for_any_nodes(files: InputFiles) -> Problem[Any]:
    """Build the problem of a request with plans that may leave nodes out: all nodes together may be
    more than any plan can use, and some may lack a precision.

    Raises
    ------
    As `build_problem` does; if no set of nodes is possible, the error for all nodes.
    """
    try:
        return build_problem(files)
    except LackingError as error:
        if _named_one_by_one(files) or files.request.constraints.keep:
            raise
        cluster = files.cluster_file()
        types = [cluster.device_types[name].type for name in cluster.node_types]
        able = [node for node, name in enumerate(types) if name not in error.devices]
        if len(able) in (0, len(types)):
            raise
        problem = build_for_any_nodes(files.on_nodes(files.request, able))
        note = f"{', '.join(error.devices)}: left out ({error})"
        assert problem.files is not None
        problem.files.refused = error
        return replace(problem, notes=(*problem.notes, note))
    except InfeasibleError:
        problem = build_problem(files.unchecked())
        if why_all(problem, "auto"):
            raise
        sets = sorted(node_sets(problem.cluster), key=lambda one: -len(one.nodes))
        deadline = Deadline(TRYING)
        for nodes in sets:
            if not deadline.goon():
                raise
            if SetSearch(problem, nodes).problem() is not None:
                return problem
        raise


def _named_one_by_one(files: InputFiles) -> bool:
    """Tell whether the nodes come from a hostfile; none of these is left out."""
    return "hostfile" in files.request.files or "metis_cluster" in files.objects


def _stop_of(error: BaseException) -> Stop:
    """Return the name of an error that ends a search."""
    return Stop.MEMORY if isinstance(error, MemoryError) else Stop.USER


class AnyNodes:
    """State of one search.

    sets: all of them, the one with the least arithmetic bound first. whole: that of all nodes.
    told: the parts used of the saved plan, for any set of the best plan.
    """

    def __init__(
        self,
        problem: Problem[Any],
        sets: Sequence[NodeSet],
        task: Task,
        top: int,
        start: Start | None,
    ) -> None:
        self.problem, self.task, self.top, self.start = problem, task, top, start
        self.told: tuple[str, ...] = ()
        assert task.deadline is not None
        self.deadline = task.deadline
        every = [SetSearch(problem, nodes) for nodes in sets]
        self.sets = sorted(every, key=lambda one: (one.bound, -len(one.nodes.nodes)))
        self.whole = max(self.sets, key=lambda one: len(one.nodes.nodes))
        self.kinds = kinds_of(problem.cluster)

    def run(self) -> Chosen:
        """Work until every set is closed or the time is up.

        Raises
        ------
        InfeasibleError: no set of nodes has a plan. Others as `solve` does.
        """
        try:
            with interruptible():
                main, start = self.first()
        except (KeyboardInterrupt, MemoryError) as error:
            return self.interrupted(error)
        while True:
            problem = main.problem()
            if problem is None:
                raise InfeasibleError(main.reason)
            begun = self.deadline.elapsed
            result = _solved(problem, self.task, self.top, start)
            main.take(result)
            if start is not None and start is self.start:
                self.told = tuple(note for note in result.notes if note.startswith(NOTE))
            if result.stopped_by in (Stop.USER, Stop.MEMORY):
                if result.plan is None and self.best.found is not None:
                    return self.ended(self.best, result.stopped_by)
                break
            try:
                with interruptible():
                    self.close(main, self.deadline.elapsed - begun)
            except (KeyboardInterrupt, MemoryError) as error:
                if self.best is not main:
                    return self.interrupted(error)
                stop = _stop_of(error)
                return self.chosen(main, problem, replace(result, stopped_by=stop))
            best = self.best
            if not best.seconds < main.seconds * (1 - PROVED):
                break
            main, start = best, self.start_at(best)
        return self.chosen(main, problem, result)

    # ---- where the search begins ----------------------------------------------------------------

    def first(self) -> tuple[SetSearch, Start | None]:
        """Return the set that is searched first, and the start of its search.

        That is the set of a saved plan; else all nodes, or, if nodes differ, the kinds of nodes
        with the best first plan.
        """
        saved = self.of_start()
        if saved is not None and saved.problem() is not None:
            return saved, self.start
        looks = [one for one in self.sets if is_whole(self.kinds, one.nodes.counts)]
        if 1 < len(looks) <= LOOKED and not self.deadline.steady:
            moment = min(LOOK, LOOKS * self.deadline.left / len(looks))
            deadline = self.deadline.within(LOOKS * self.deadline.left)
            for one in looks:
                if one.bound < self.cutoff and deadline.goon():
                    self.search(one, deadline.within(moment), self.cutoff)
        if self.cutoff < math.inf:
            return self.best, self.start_at(self.best)
        possible = (one for one in (self.whole, *self.sets) if one.problem() is not None)
        return next(possible, self.whole), self.start

    def of_start(self) -> SetSearch | None:
        """Return the set of the plan that the search starts from; None if it is not known."""
        if self.start is None:
            return None
        request, files = self.start.request, self.problem.files
        assert files is not None
        try:
            left = () if request is None else files.nodes_left(request)
        except UsageError:  # nodes that are not here
            left = ()
        counts = tuple(sum(node in left for node in kind) for kind in self.kinds)
        return next((one for one in self.sets if one.nodes.counts == counts), self.whole)

    def start_at(self, one: SetSearch) -> Start:
        """Return the plan of a set with its proof, as the start of a search."""
        assert one.found is not None
        assert one.found.plan is not None
        problem = one.found.problem
        return Start(
            name="",
            plan=one.found.plan,
            space=problem.space.name,
            seconds=one.seconds,
            request=problem.request,
            certificate={"parts": one.records},
        )

    # ---- the other sets -------------------------------------------------------------------------

    def close(self, main: SetSearch, spent: float) -> None:
        """Search the other sets for faster plans, the most promising first.

        Parameters
        ----------
        spent: seconds that the search of the main set took.
        """
        cutoff = self.cutoff
        left = [one for one in self.sets if one is not main and not self.closed(one, cutoff)]
        deadline = self.deadline
        most = ALWAYS if len(self.kinds) > 1 else EQUAL
        if len(self.sets) > most and not deadline.steady:
            deadline = deadline.within(SHARE * spent)
        workers = self.task.limits.workers
        apart = self.task.solver in ONE_BY_ONE and len(left) > MANY * workers > MANY
        begun = time.monotonic() - spent
        with Team(partial(self.look, deadline), workers, heavy=True, begun=begun) as team:
            # The first set takes by far the longest, and is searched by all processes.
            for first in (0, *range(1, len(left), AT_ONCE)):
                several = left[first : first + AT_ONCE] if first else left[:1]
                some = [one for one in several if not self.closed(one, cutoff)]
                numbers = [self.sets.index(one) for one in some] if apart and first else []
                found = team.ask([(number, (number, cutoff)) for number in numbers])
                for one, known in zip_longest(some, found):
                    if known is not None and known.looked:
                        one.learn(known.bound, known.source, known.records)
                    if (known is None or known.better) and deadline.goon():
                        self.search(one, deadline, cutoff, closing=cutoff < math.inf)
                if not deadline.goon():
                    return
                cutoff = self.cutoff

    def look(self, deadline: Deadline, asked: tuple[int, float]) -> Closed:
        """Search a set by its number, up to a cutoff in seconds. The set itself stays as it is."""
        number, cutoff = asked
        one = self.sets[number].alone()
        if deadline.goon():
            self.search(one, deadline, cutoff, closing=cutoff < math.inf, workers=1)
        return Closed(one.bound, one.source, one.records, one.looked, one.seconds < cutoff)

    @property
    def best(self) -> SetSearch:
        """The set with the fastest plan found."""
        return min(self.sets, key=lambda one: one.seconds)

    @property
    def cutoff(self) -> float:
        """Seconds of the fastest plan found."""
        return self.best.seconds

    def closed(self, one: SetSearch, cutoff: float) -> bool:
        """Tell whether a set has nothing that takes less than so many seconds, but for the gap."""
        gap = max(self.task.limits.gap, PROVED)
        return one.bound >= min(cutoff, NEVER) * (1 - gap)

    def search(
        self,
        one: SetSearch,
        deadline: Deadline,
        cutoff: float,
        *,
        closing: bool = False,
        workers: int | None = None,
    ) -> None:
        """Look for plans of a set that take less than `cutoff` seconds; None: as many workers as
        the search has."""
        limits = self.task.limits
        limits = replace(limits, seconds=math.inf, workers=workers or limits.workers)
        one.work(Task(limits, self.task.solver, None, deadline), cutoff, closing=closing)

    def interrupted(self, error: BaseException) -> Chosen:
        """Return the best plan that a search had when it was interrupted, or ran out of memory.

        Raises
        ------
        BaseException: the one that ended it, if it had none.
        """
        if self.best.found is None:
            raise error
        return self.ended(self.best, _stop_of(error))

    def ended(self, best: SetSearch, stop: Stop) -> Chosen:
        """Return the plan that the search of a set has found so far."""
        assert best.found is not None
        result = best.result(stop, self.deadline.elapsed)
        return self.chosen(best, best.found.problem, result)

    # ---- what comes of it -----------------------------------------------------------------------

    def chosen(self, main: SetSearch, problem: Problem[Any], result: Result) -> Chosen:
        """Return the result of the main set, with the bounds of the others.

        A set is covered if it is closed, or if its bound is no lower than that of the main set. The
        bound is about the plans of all sets that are covered.
        """
        least, cutoff = min(main.bound, main.seconds) * (1 - PROVED), self.cutoff
        sets = tuple(
            replace(
                one.known(),
                covered=one is main or one.bound >= least or self.closed(one, cutoff),
            )
            for one in sorted(self.sets, key=lambda one: one.nodes.counts)
        )
        bound = min([result.bound, *(one.bound for one in sets if one.covered)])
        status, stop = result.status, result.stopped_by
        every = all(one.covered for one in sets)
        if result.plan is None and not every:
            status, bound = Status.UNKNOWN, min(one.bound for one in sets)
        elif status is Status.OPTIMAL and relative_gap(result.objective, bound) > PROVED:
            status = Status.FEASIBLE  # a gap that is allowed was left
        if stop is Stop.PROOF and not every and not self.deadline.goon():
            stop = Stop.TIME
        fastest = result.fastest and result.fastest.beside(bound)
        best = result.objective if fastest is None else fastest.objective
        open_gap = relative_gap(best, bound) > PROVED
        if stop is Stop.PROOF and open_gap and result.plan is not None:
            stop = Stop.GAP
        # A plan that is not listed may be one of another set.
        others = min([math.inf, *(one.bound for one in self.sets if one is not main)])
        ranking = tuple(replace(one, bound=min(one.bound, others)) for one in result.ranking)
        on = describe_covered(self.problem.cluster, sets)
        history = [moment._replace(bound=min(moment.bound, bound)) for moment in result.history]
        if history and history[-1].bound != bound:
            history.append(Moment(self.deadline.elapsed, result.objective, bound))
        result = replace(
            result,
            status=status,
            stopped_by=stop,
            bound=bound,
            ranking=ranking,
            fastest=fastest,
            confirmed_by="" if open_gap else result.confirmed_by,
            certificate={
                **result.certificate,
                "bound_s": bound if math.isfinite(bound) else None,
            },
            history=tuple(history),
            notes=tuple(dict.fromkeys((*result.notes, *self.told))),
            among=f"{result.among}{ON_NODES}{on}",
            wall=self.deadline.elapsed,
        )
        if result.plan is None:
            return Chosen(problem, result)
        aim = Aim(
            objective=TIME.name,
            figure=TIME.figures[0],
            max_hourly=math.inf,
            devices=asked_devices(self.problem),
            best=(
                Best(
                    on=replace(main.known(), seconds=result.objective, plan=result.plan),
                    value=result.objective,
                    bound=bound,
                ),
            ),
            sets=sets,
            complete=True,
            on=on,
        )
        return Chosen(problem, replace(result, aim=aim))
