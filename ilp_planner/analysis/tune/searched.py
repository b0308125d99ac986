"""The plans of a problem as a set to tune in: searched on every machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.calibration.calibrate import on_machine
from ilp_planner.analysis.shortlist.shortlist import NEAR, seconds_in
from ilp_planner.analysis.tune.tune import Ranking
from ilp_planner.base.deadline import Deadline
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.training.costs import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.machine import Machine

MORE = 2  # plans that a search lists beside the known ones
LESS = 1e-6  # relative: what plans need at least that need less memory than another one
SHARE = 0.25  # of the time that is left for one search, at most


@dataclass
class Searched:
    """The plans of a problem.

    seconds_each: of all searches between two runs. fitting: the most bytes that a plan needs which
    ran.
    """

    problem: Problem[Any]
    seconds_each: float
    fitting: float = 0.0
    deadline: Deadline = field(default_factory=lambda: Deadline(0.0))
    _problems: dict[Machine, Problem[Any]] = field(default_factory=dict)
    _times: dict[tuple[AnyPlan, Machine], float] = field(default_factory=dict)

    def begin(self) -> None:
        """Let the time of the searches begin."""
        self.deadline = Deadline(self.seconds_each)
        self._problems.clear()

    def seconds(self, plan: AnyPlan, machine: Machine) -> float:
        """Return the predicted seconds of a step on a machine."""
        key = plan, machine
        if key not in self._times:
            self._times[key] = seconds_in(self._on(machine), plan)
        return self._times[key]

    def ranking(self, machine: Machine, known: Sequence[AnyPlan]) -> Ranking[AnyPlan] | None:
        """Return the fastest plans on a machine, more than the known ones if there are more; None
        if there is no time to search."""
        if not self.deadline.goon():
            return None
        seconds = max(SHARE * self.deadline.left, 1.0)
        found = solve(
            self._on(machine),
            limits=Limits(seconds=seconds, gap=NEAR),
            top=len(known) + MORE,
            deadline=self.deadline.moment(seconds),
        )
        if found.status is Status.INFEASIBLE:
            return Ranking((), math.inf)
        if found.plan is None:
            return None
        last = found.ranking[-1]
        ended = last.bound >= last.evaluation.iteration_time
        all_listed = ended and len(found.ranking) < len(known) + MORE
        return Ranking(
            tuple((one.plan, one.bound) for one in found.ranking),
            math.inf if all_listed else last.bound,
        )

    def fits(self, plan: AnyPlan) -> None:
        """Take note that a plan has the memory that it needs."""
        self.fitting = max(self.fitting, self.needed(plan))

    def fail(self, plan: AnyPlan, *, memory: bool) -> None:
        """Leave out all plans that need as much memory as one that lacked it, unless others ran
        that need more."""
        needed = self.needed(plan)
        if memory and needed > self.fitting:
            limits = self.problem.memory_limits
            least = {name: min(limit, needed * (1 - LESS)) for name, limit in limits.items()}
            self.problem = replace(self.problem, memory_limits=least)
            self._problems.clear()

    def needed(self, plan: AnyPlan) -> float:
        """Return the bytes that a plan needs on its fullest device."""
        judged = evaluate(self.problem, plan)
        assert judged.cost is not None
        return max(max(stage.memory, default=0.0) for stage in judged.cost.stages)

    def _on(self, machine: Machine) -> Problem[Any]:
        """Return the problem with a machine's constants: nothing but times changes."""
        if machine not in self._problems:
            self._problems[machine] = replace(
                self.problem,
                cluster=on_machine(self.problem.cluster, machine),
                costs=replace(self.problem.costs, found=Found()),
                files=None,
                request=None,
            )
        return self._problems[machine]
