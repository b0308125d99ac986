"""The search of one set of nodes, up to a cutoff, as often as there is time for it."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.errors import InfeasibleError, ProfileError, SpecError
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.optimize.result import (
    CERTIFICATE_VERSION,
    EVERY_PART,
    OnNodes,
    Result,
    Status,
    Stop,
    relative_gap,
)
from ilp_planner.optimize.search.preference import prefer_plain
from ilp_planner.optimize.search.start import Known
from ilp_planner.spaces.objectives.node_sets import describe_set
from ilp_planner.spaces.objectives.objective import Point
from ilp_planner.spaces.registry import build_problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.spaces.objectives.node_sets import NodeSet


class SetSearch:
    """Bounds and the best plan on a set of nodes.

    bound: seconds, NEVER if none fits; source: of its proof. seconds: of the best plan found, inf
    without one. records: of its parts, as certificates have them. looked: whether it had a turn.
    """

    def __init__(self, whole: Problem[Any], nodes: NodeSet) -> None:
        self.whole, self.nodes = whole, nodes
        self.bound, self.source = whole.space.work_bound(whole, nodes.nodes), "arithmetic"
        self.seconds = math.inf
        self.found: SearchState | None = None  # which found the best plan
        self.records: list[dict[str, Any]] = []
        self.looked = False
        self._reason: object = ""  # its text may take long to find
        self._problem: Problem[Any] | None = None

    @property
    def reason(self) -> str:
        """Why there is no plan."""
        return str(self._reason)

    @property
    def point(self) -> Point:
        """The best plan found."""
        return Point(self.seconds, self.nodes.hourly)

    @property
    def least(self) -> Point:
        """The bound on plans on the nodes."""
        return Point(self.bound, self.nodes.hourly)

    def problem(self) -> Problem[Any] | None:
        """Return the problem of these nodes alone; None if the space has no plan on them."""
        if self._problem is None and self.bound < NEVER:
            try:
                self._problem = problem_on(self.whole, self.nodes.nodes)
            except (InfeasibleError, ProfileError, SpecError) as error:  # nothing to plan there
                self.bound, self.source, self._reason = NEVER, "enumeration", error
        return self._problem

    def take(self, result: Result) -> None:
        """Take the result of a whole search of these nodes."""
        self.looked = True
        if result.fastest is not None:
            self.seconds = result.fastest.objective
        else:
            self.seconds = min(self.seconds, result.objective)
        bound = NEVER if result.bound == math.inf else result.bound
        if bound > self.bound:
            self.bound, self.source = bound, result.bound_source
        self._reason = result.reason
        self.records = list(result.certificate.get("parts", ()))

    def work(self, task: Task, cutoff: float, *, closing: bool = False) -> None:
        """Look for plans that take less than `cutoff` seconds, until there are none or the time is
        up. A Ctrl-C keeps the results so far.

        closing: the cutoff is that of a good plan on other nodes, which is hardly beaten.

        Raises
        ------
        KeyboardInterrupt: by the user.
        """
        self.looked = True
        problem = self.problem()
        if problem is None:
            return
        search = problem.space.begin(problem, task)
        search.objective = cutoff  # plans that take as long are of no interest
        if self.found is not None and self.seconds <= cutoff:
            search.plan, search.evaluation = self.found.plan, self.found.evaluation
            search.objective = self.seconds
        search.closing = closing
        try:
            if self.records and not self._is_whole(self.records):
                search.take_bounds([_known(record) for record in self.records])
            problem.space.search(search)
        except OutOfTimeError:
            pass
        finally:
            search.end()
            self._learn(search, cutoff)
        if self.bound >= NEVER and len(self.nodes.nodes) == self.whole.cluster.node_count:
            self._reason = problem.space.explain(search)

    def alone(self) -> SetSearch:
        """Return a search of the same set that leaves this one as it is."""
        one = copy.copy(self)
        one.records = [*self.records]
        return one

    def learn(self, bound: float, source: str, records: list[dict[str, Any]]) -> None:
        """Take the bounds of another search of this set."""
        self.looked = True
        if bound > self.bound:
            self.bound, self.source = bound, source
        self.records = records

    def _learn(self, search: SearchState, cutoff: float) -> None:
        """Take the results of a search, also of an interrupted one."""
        if search.plan is not None and search.objective <= self.seconds:
            self.seconds, self.found = search.objective, search
        known = search.bound
        if known < NEVER:  # a search says nothing of what is above its cutoff
            known = min(known, cutoff, self.seconds)
        if known > self.bound:
            self.bound = known
            parts = search.proved_parts()
            lowest = min(parts, key=lambda part: part.bound, default=None)
            self.source = "" if lowest is None else lowest.source
        self._keep([part.record() for part in search.proved_parts()])

    def _keep(self, records: list[dict[str, Any]]) -> None:
        """Take the records of parts, each with the better bound. A search that ended before its
        parts were listed says nothing of them."""
        before = {record[self._key]: record for record in self.records}
        unlisted = self._is_whole(self.records)
        if self.records and self._is_whole(records) and not unlisted:
            return
        if unlisted or len(records) >= len(self.records):
            self.records = [
                max(record, before.get(record[self._key], record), key=lambda r: _known(r).bound)
                for record in records
            ]

    @property
    def _key(self) -> str:
        return self.whole.space.part_key

    def _is_whole(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether records are the one that stands for all parts."""
        return [record[self._key] for record in records] == [EVERY_PART]

    def known(self) -> OnNodes:
        """Return the results so far."""
        return OnNodes(
            name=describe_set(self.whole.cluster, self.nodes.nodes),
            counts=self.nodes.counts,
            nodes=self.nodes.nodes,
            hourly=self.nodes.hourly,
            bound=math.inf if self.bound >= NEVER else self.bound,
            seconds=self.seconds,
            plan=None if self.found is None else self.found.plan,
            parts=self._parts(),
        )

    def _parts(self) -> tuple[dict[str, Any], ...]:
        """Return the certificate's record of the parts: for parts that are derived again from their
        bounds alone, the least bound of all."""
        if not self.records or self.whole.space.proof_keys:
            return tuple(self.records)
        bound = None if self.bound >= NEVER else self.bound
        return ({self._key: EVERY_PART, "bound_s": bound, "by": self.source},)

    def prefer_plain(self, deadline: Deadline) -> None:
        """Put the plainest of the plans that take hardly longer in place of the best one."""
        if self.found is not None:
            self.found.deadline = deadline
            prefer_plain(self.found)
            self.seconds = self.found.objective

    def result(self, stop: Stop, wall: float) -> Result:
        """Return the best plan and its bound, as a search of these nodes alone would."""
        assert self.found is not None
        search = self.found
        bound = min(self.bound, search.objective)
        proved = relative_gap(search.objective, bound) <= PROVED
        bound = search.objective if proved else bound
        return Result(
            plan=search.plan,
            evaluation=search.evaluation,
            status=Status.OPTIMAL if proved else Status.FEASIBLE,
            stopped_by=stop,
            objective=search.objective,
            bound=bound,
            bound_source=self.source if bound > 0 else "",
            wall=wall,
            solver=search.solver,
            seed=search.limits.seed,
            certificate={
                "version": CERTIFICATE_VERSION,
                "bound_s": bound,
                "parts": self.records,
            },
            notes=tuple(search.notes),
            among=search.problem.space.describe(search.problem),
            fastest=search.fastest and search.fastest.beside(self.bound),
            prefer_plain=search.limits.prefer_plain if search.problem.space.graded else math.nan,
        )


def problem_on(whole: Problem[Any], nodes: tuple[int, ...]) -> Problem[Any]:
    """Return the problem on some of the nodes that plans of a problem may use; the same one if they
    are all.

    Raises
    ------
    InfeasibleError: the space has no plan on them, memory aside.
    """
    assert whole.files is not None
    if len(nodes) == whole.cluster.node_count and whole.files.possible:
        return whole
    request = whole.request or whole.files.request
    return build_problem(whole.files.on_nodes(request, nodes))


def _known(record: Mapping[str, Any]) -> Known:
    """Return the bound of a part that its record says."""
    bound = record["bound_s"]
    return Known(NEVER if bound is None else float(bound), str(record["by"]))
