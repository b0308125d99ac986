"""The plans to try under the constants that data leave open, and the conditions of each.

Candidates are the plan of a solve, the fastest one beside it, and the plans that solves find in
scenarios of other constants. Where plainer plans are preferred, a plan that is less plain than the
solve's counts as if it took longer by the share that is given up for plainness, in every scenario.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.calibration.free import FELT, FREE, spread_of
from ilp_planner.analysis.shortlist.choice import MILLION, helpful, regrets_of
from ilp_planner.base.errors import UsageError, interruptible
from ilp_planner.costs.training.iteration import iteration_terms
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import Listed, Reached, Shortlist
from ilp_planner.optimize.search.preference import why_alone
from ilp_planner.optimize.search.start import Start
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.training.costs import Found
from ilp_planner.specs.machine import with_constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Result
    from ilp_planner.optimize.solvers.base import Limits
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.machine import Machine

KEPT = 0.6  # of a time limit for scenarios and conditions
SEARCHED = 12  # scenarios whose own best plan is searched for, at most
NEAR = 0.005  # relative: what a scenario's search may leave open
STEPS = 7  # halvings of the way to an end, to find where a plan begins to win
SAID = 2  # conditions of a plan
NEXT = 8  # of the best plans with the assumed constants


def check_shortlist(
    problem: Problem[Any], count: int, *, top: int, solver: str, objective: bool = False
) -> None:
    """Refuse a short list where nothing is known of the constants, or plans are asked for another
    way.

    Parameters
    ----------
    count: of plans. top: of the best plans to list. objective: sets of nodes are searched for
        another objective, or under a limit of price.

    Raises
    ------
    UsageError: with the reason.
    """
    if count <= 1:
        return
    types = problem.cluster.device_types
    why = ""
    if alone := why_alone(problem, top=top, solver=solver):
        why = alone
    elif problem.profile_source != "analytic":
        why = f"`profile={problem.profile_source}`, whose times no constants of machines change"
    elif unknown := [n for n in problem.cluster.type_names if types[n].kernels is None]:
        why = f"device {unknown[0]}, whose kernels are not known and whose constants change no time"
    elif objective:
        why = "an objective over sets of nodes"
    if why:
        raise UsageError(f"shortlist: found {count} with {why}, expected none")


def time_for_plan(deadline: Deadline, count: int) -> Deadline:
    """Return the end of the search for the plan itself, before its scenarios have their turn."""
    return deadline.but(KEPT * deadline.left) if count > 1 else deadline


def with_shortlist(
    problem: Problem[Any], result: Result, count: int, *, limits: Limits, deadline: Deadline
) -> Result:
    """Return a result with `count` plans to try. A Ctrl-C ends the search for more candidates."""
    if count <= 1 or result.plan is None:
        return result
    work = _Work(problem, result, limits, deadline)
    try:
        with interruptible():
            work.search()
    except (KeyboardInterrupt, MemoryError):
        pass
    return replace(result, shortlist=work.chosen(count))


@dataclass
class _Work:
    """Candidates and their times. problems: by scenario. priced: seconds by candidate and scenario.
    found: scenarios with a search of their own, or without need of one."""

    problem: Problem[Any]
    result: Result
    limits: Limits
    deadline: Deadline
    plans: list[AnyPlan] = field(default_factory=list)
    problems: dict[int, Problem[Any]] = field(default_factory=dict)
    priced: dict[tuple[int, int], float] = field(default_factory=dict)
    found: set[int] = field(default_factory=lambda: {0})

    def __post_init__(self) -> None:
        self.scenarios = [NOMINAL, *scenarios_of(self.problem.cluster)]
        assert self.result.plan is not None
        self.plans.append(self.result.plan)
        self.grades = [self._grades(self.result.plan)]
        if self.result.fastest is not None:
            self.take(self.result.fastest.plan)

    def _grades(self, plan: AnyPlan) -> tuple[int, ...]:
        return tuple(self.problem.space.plainness(self.problem, plan).values())

    def take(self, plan: AnyPlan | None) -> None:
        """Take a candidate, once."""
        if plan is not None and plan not in self.plans:
            self.plans.append(plan)
            self.grades.append(self._grades(plan))

    def less_plain(self, plan: int) -> bool:
        """Tell whether a plan counts as slower than it is."""
        return self.limits.prefer_plain > 0 and self.grades[plan] > self.grades[0]

    def problem_in(self, number: int) -> Problem[Any]:
        """Return the problem with the constants of a scenario."""
        if number not in self.problems:
            self.problems[number] = in_scenario(self.problem, self.scenarios[number])
        return self.problems[number]

    def time(self, plan: int, number: int) -> float:
        """Return the seconds of a candidate in a scenario, as they count."""
        if (plan, number) not in self.priced:
            self.priced[plan, number] = self.counted(plan, self.problem_in(number))
        return self.priced[plan, number]

    def counted(self, plan: int, problem: Problem[Any]) -> float:
        """Return the seconds of a candidate as they count."""
        share = self.limits.prefer_plain if self.less_plain(plan) else 0.0
        return seconds_in(problem, self.plans[plan]) * (1 + share)

    # ---- candidates -----------------------------------------------------------------------------

    def search(self) -> None:
        """Search scenarios for their own best plans: joint ones first, whose plans differ most,
        then each time the one that moves the candidates farthest apart."""
        left = {n for n in range(1, len(self.scenarios)) if not self._ruled_out(n)}
        for done in range(SEARCHED):
            if not (left and self.deadline.goon()):
                return
            number = max(left, key=lambda n: (not self.scenarios[n].single, self._apart(n), -n))
            left.remove(number)
            share = self.deadline.left / min(SEARCHED - done, len(left) + 1)
            self._solve(number, self.deadline.moment(share))
        if not self.limits.prefer_plain and self.deadline.goon():
            self._take_near()

    def _apart(self, number: int) -> float:
        """Return by how much more a scenario changes one candidate than another; of a single one,
        by how much it changes that."""
        changes = [
            math.log(self.time(plan, number) / self.time(plan, 0))
            for plan in range(len(self.plans))
        ]
        return max(changes) - min(changes) if len(changes) > 1 else abs(changes[0])

    def _take_near(self) -> None:
        """Take the next best plans with the assumed constants."""
        limits = replace(self.limits, seconds=self.deadline.left)
        found = solve(self.problem, limits=limits, top=NEXT, deadline=self.deadline)
        for entry in found.ranking:
            self.take(entry.plan)

    def _ruled_out(self, number: int) -> bool:
        """Tell whether a scenario that makes nothing faster leaves no room above the bound; then no
        search of it is needed."""
        scenario = self.scenarios[number]
        if not (scenario.single and self.time(0, number) > self.time(0, 0)):
            return False
        least = self.result.bound * (1 + self.limits.prefer_plain)
        if self.time(0, number) <= min(self.time(0, 0), least) * (1 + NEAR):
            self.found.add(number)
            return True
        return False

    def _solve(self, number: int, deadline: Deadline) -> None:
        """Search a scenario from the best candidate on."""
        problem = self.problem_in(number)
        best = min(range(len(self.plans)), key=lambda plan: self.time(plan, number))
        start = Start(name="", plan=self.plans[best], space=problem.space.name, ended=True)
        limits = replace(
            self.limits, seconds=deadline.left, gap=max(NEAR, self.limits.gap), require_gap=1.0
        )
        found = solve(problem, limits=limits, start=start, deadline=deadline)
        self.take(found.plan)
        if found.stopped_by not in ("time", "memory", "user"):
            self.found.add(number)

    # ---- choice ---------------------------------------------------------------------------------

    def chosen(self, count: int) -> Shortlist:
        """Choose the plans."""
        every = [
            number
            for number, scenario in enumerate(self.scenarios)
            if scenario is NOMINAL
            or any(
                abs(math.log(self.time(plan, number) / self.time(plan, 0))) > FELT
                for plan in range(len(self.plans))
            )
        ]
        regrets = regrets_of(
            [[self.time(plan, number) for number in every] for plan in range(len(self.plans))]
        )
        choices = helpful(regrets, count)  # a plan more that helps nowhere is none to try
        last = choices[-1]
        others = sorted((p for p in last.plans if p), key=lambda plan: self.time(plan, 0))
        listed = (0, *others)
        return Shortlist(
            plans=tuple(
                Listed(
                    plan=self.plans[plan],
                    evaluation=evaluate(self.problem, self.plans[plan]),
                    less_plain=self.less_plain(plan),
                    wins=self.wins(plan, listed) if plan else (),
                    worst=int(regrets[plan].max()) / MILLION,
                )
                for plan in listed
            ),
            worst=tuple(one.worst / MILLION for one in choices),
            mean=tuple(one.total / MILLION / len(every) for one in choices),
            asked=count,
            scenarios=len(every),
            searched=len(self.found & {*every}),
            candidates=len(self.plans),
            proved=last.proved,
        )

    # ---- conditions -----------------------------------------------------------------------------

    def wins(self, plan: int, listed: Sequence[int]) -> tuple[tuple[Reached, ...], ...]:
        """Return conditions under which a plan is the best of the listed ones."""
        rest = [other for other in listed if other != plan]

        def ahead(problem: Problem[Any]) -> bool:
            return self.counted(plan, problem) < min(self.counted(p, problem) for p in rest)

        found: list[tuple[float, tuple[Reached, ...]]] = []
        for number, scenario in enumerate(self.scenarios):
            if scenario.single and ahead(self.problem_in(number)):
                share, moves = self._nearest(scenario, ahead)
                found.append((share, self._reached(moves)))
        if found:
            return tuple(one for _, one in sorted(found, key=lambda each: each[0])[:SAID])
        for number, scenario in enumerate(self.scenarios):
            if len(scenario.moves) > 1 and ahead(self.problem_in(number)):
                return (self._reached(self._fewest(scenario, ahead)),)
        return ()

    def _nearest(self, scenario: Scenario, ahead: Any) -> tuple[float, dict[str, float]]:
        """Return the share of the way to a scenario from which on a plan is ahead, and the moves
        there."""
        low, high = 0.0, 1.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            moves = {name: middle * move for name, move in scenario.moves.items()}
            if ahead(in_scenario(self.problem, Scenario(moves))):
                high = middle
            else:
                low = middle
        return high, {name: high * move for name, move in scenario.moves.items()}

    def _fewest(self, scenario: Scenario, ahead: Any) -> dict[str, float]:
        """Return few moves of a scenario that put a plan ahead: moves are taken back one by one,
        the smallest first, as long as it stays ahead."""
        kept = dict(scenario.moves)
        for name in sorted(kept, key=lambda each: abs(kept[each])):
            less = {other: move for other, move in kept.items() if other != name}
            if less and ahead(in_scenario(self.problem, Scenario(less))):
                kept = less
        return kept

    def _reached(self, moves: dict[str, float]) -> tuple[Reached, ...]:
        """Return the values of constants after moves, of the first device type."""
        device = self.problem.cluster.device_types[self.problem.cluster.type_names[0]]
        return tuple(
            Reached(
                name=name,
                assumed=getattr(device.machine, name),
                value=value_of(device, name, move),
            )
            for name, move in moves.items()
        )


def in_scenario(problem: Problem[Any], scenario: Scenario) -> Problem[Any]:
    """Return a problem with the constants of a scenario: nothing but times changes."""
    if scenario is NOMINAL:
        return problem
    costs = replace(problem.costs, found=Found())
    cluster = cluster_in(problem.cluster, scenario)
    return replace(problem, cluster=cluster, costs=costs, files=None, request=None)


def seconds_in(problem: Problem[Any], plan: AnyPlan) -> float:
    """Return the seconds of an iteration of a plan that is legal with any constants."""
    ranks = problem.costs.ranks(plan, problem.cluster)
    return sum(iteration_terms(ranks, ranks.job).values())


# ---- scenarios -----------------------------------------------------------------------------------
# Machines whose constants lie elsewhere, within what data leave open.


REACH = 1.28  # standard deviations from the assumed value to an end: 80 % lie between both ends
JOINT = 6  # draws of all constants together
SEED = 33


@dataclass(frozen=True)
class Scenario:
    """A machine. moves: of constants, in standard deviations from the assumed values."""

    moves: Mapping[str, float]

    @property
    def single(self) -> bool:
        """Whether one constant alone lies elsewhere."""
        return len(self.moves) == 1


NOMINAL = Scenario({})


def scenarios_of(cluster: ClusterSpec) -> list[Scenario]:
    """Return each constant at its low and its high end, and a few draws of all together; ends that
    are the assumed value of every device are left out."""
    devices = [cluster.device_types[name] for name in cluster.type_names]
    every = [Scenario({name: end}) for name in FREE for end in (-REACH, REACH)]
    open_ones = [one for one in every if any(moved(d, one.moves) != d.machine for d in devices)]
    draws = random.Random(SEED)
    names = list(dict.fromkeys(name for one in open_ones for name in one.moves))
    joint = []
    for _ in range(JOINT if len(names) > 1 else 0):
        drawn = {name: min(REACH, max(-REACH, draws.gauss(0, 1))) for name in names}
        joint.append(Scenario(drawn))
    return [*open_ones, *joint]


def value_of(device: Device, name: str, move: float) -> float:
    """Return a constant of a device's machine that lies so many standard deviations away, as far as
    it may go."""
    free, assumed = FREE[name], getattr(device.machine, name)
    low, high = min(free.low, assumed), max(free.high, assumed)
    return float(min(high, max(low, assumed + move * spread_of(device, name))))


def moved(device: Device, moves: Mapping[str, float]) -> Machine:
    """Return the machine of a device in a scenario."""
    values = {name: value_of(device, name, move) for name, move in moves.items()}
    return with_constants(device.machine, values)


def cluster_in(cluster: ClusterSpec, scenario: Scenario) -> ClusterSpec:
    """Return a cluster with the constants of a scenario."""
    types = {
        name: replace(device, machine=moved(device, scenario.moves))
        for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)
