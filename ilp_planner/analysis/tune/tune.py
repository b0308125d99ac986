"""One verb, `Tuner.answer`: the plan to run next, or the proof that none can be better.

A run of a plan says its seconds, or that it fails. The best run is proved to be within a gap of
every plan of a set if on every machine that the runs allow a search bounds all plans that were not
run. These machines are the calibrated one, some drawn as the runs leave constants open, and those
that favour the most promising plans. Where the last runs were faster than expected, bounds are
lowered by as much as that is unusual. Plans that failed are left out; after one that ran out of
memory, all that are predicted to need as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ilp_planner.analysis.tune.allowed import COUNT, ERROR, FACTOR, REACH, Allowed, Calibrated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine

GAP = 0.02  # relative: as near as times of equal runs are
LAST = 3  # runs by which surprises are judged
RIVALS = 3  # plans that machines favour before a proof
Plan = TypeVar("Plan")


class Ranking(NamedTuple, Generic[Plan]):
    """The fastest plans on a machine, in order, without those that are left out. plans: with lower
    bounds of their seconds and of all that follow. rest: seconds that no other plan undercuts; inf
    if there is none."""

    plans: tuple[tuple[Plan, float], ...]
    rest: float


class Plans(Protocol[Plan]):
    """A set of plans."""

    def seconds(self, plan: Plan, machine: Machine) -> float:
        """Return the predicted seconds of a step on a machine."""

    def ranking(self, machine: Machine, known: Sequence[Plan]) -> Ranking[Plan] | None:
        """Return the fastest plans on a machine, more than the known ones if there are more; None
        if there is no time to search."""

    def fits(self, plan: Plan) -> None:
        """Take note that a plan has the memory that it needs."""

    def fail(self, plan: Plan, *, memory: bool) -> None:
        """Leave out all plans that need as much memory as one that lacked it, if that was
        lacking."""


class Run(NamedTuple, Generic[Plan]):
    """A measured plan. noise: standard deviation of the logarithm of its seconds. expected: seconds
    that were, before it ran."""

    plan: Plan
    seconds: float
    noise: float
    expected: float


class Answer(NamedTuple, Generic[Plan]):
    """What runs say of all plans.

    best: the fastest run; None: none yet. bound: seconds that no plan undercuts that was not run,
    on any machine that the runs allow; inf: all were run, or failed. next: the most promising of
    these plans; None: there is none. expected: seconds of its step on the calibrated machine.
    machines: that were looked at. open: of these, those without a search. middle: the calibrated
    one. error: of a run that its constants do not explain, in log seconds.
    """

    best: Run[Plan] | None
    bound: float
    next: Plan | None
    expected: float
    machines: int
    open: int
    middle: Allowed
    error: float

    @property
    def gap(self) -> float:
        """Share of the best run's seconds that another plan might take less."""
        return math.inf if self.best is None else max(0.0, 1 - self.bound / self.best.seconds)


@dataclass
class Tuner(Generic[Plan]):
    """A search for the fastest plan by runs of a few.

    device: with the constants before any run. gap: at which it ends. first: the plan to run first;
    None: the one predicted fastest.
    """

    plans: Plans[Plan]
    device: Device
    gap: float = GAP
    first: Plan | None = None
    runs: list[Run[Plan]] = field(default_factory=list)
    failed: list[Plan] = field(default_factory=list)

    def take(self, run: Run[Plan]) -> None:
        """Take a run that was measured."""
        self.runs.append(run)
        self.plans.fits(run.plan)

    def fail(self, plan: Plan, *, memory: bool) -> None:
        """Take a run that failed."""
        self.failed.append(plan)
        self.plans.fail(plan, memory=memory)

    @property
    def best(self) -> Run[Plan] | None:
        """The fastest run."""
        return min(self.runs, key=lambda run: run.seconds, default=None)

    @property
    def surprise(self) -> float:
        """By how much the last runs were faster than expected, in log seconds: root of the mean
        square. The first run may be off by what all plans share."""
        less = [max(0.0, math.log(run.expected / run.seconds)) for run in self.runs]
        less[0] = max(0.0, less[0] - REACH * FACTOR)
        last = less[-LAST:]
        return math.hypot(*last) / math.sqrt(len(last))

    @property
    def known(self) -> list[Plan]:
        """The plans that are not run again."""
        return [run.plan for run in self.runs] + self.failed

    def answer(self) -> Answer[Plan]:
        """Return what the runs say, and the plan to run next."""
        best = self.best
        if best is None:
            return self._before_runs()
        calibrated = Calibrated(
            self.device,
            lambda machine: [self.plans.seconds(run.plan, machine) for run in self.runs],
            tuple(run.seconds for run in self.runs),
            tuple(run.noise for run in self.runs),
        )
        machines = [calibrated.middle, *calibrated.drawn(COUNT)]
        found = _Looked(self, machines)
        for machine in machines:
            found.look(machine)
        # Where runs were faster than calibrated machines let expect, others may be as well.
        sure = math.exp(-REACH * max(0.0, self.surprise - ERROR))
        if found.bound * sure >= (1 - self.gap) * best.seconds:
            rivals = sorted(found.plans, key=lambda plan: -found.promise(plan, calibrated.error))
            for rival in rivals[:RIVALS]:
                found.look(calibrated.favouring(partial(self.plans.seconds, rival)))
        chosen = None
        if found.plans:
            chosen = max(found.plans, key=lambda plan: found.promise(plan, calibrated.error))
        return Answer(
            best=best,
            bound=found.bound * sure,
            next=chosen,
            expected=math.inf if chosen is None else found.seconds(chosen, calibrated.middle),
            machines=found.looked,
            open=found.open,
            middle=calibrated.middle,
            error=calibrated.error,
        )

    def _before_runs(self) -> Answer[Plan]:
        usual = Allowed(self.device.machine)
        found = _Looked(self, [usual])
        chosen = self.first
        if chosen is None or chosen in self.failed:
            found.look(usual)
            chosen = next(iter(found.plans), None)
        return Answer(
            best=None,
            bound=found.bound,
            next=chosen,
            expected=math.inf if chosen is None else found.seconds(chosen, usual),
            machines=1,
            open=found.open,
            middle=usual,
            error=ERROR,
        )


@dataclass
class _Looked(Generic[Plan]):
    """Machines that were searched. machines: those by which promises are judged. bound: seconds of
    all plans that were not run. plans: the fastest of these on some machine."""

    tuner: Tuner[Plan]
    machines: list[Allowed]
    bound: float = math.inf
    plans: list[Plan] = field(default_factory=list)
    looked: int = 0
    open: int = 0

    def look(self, machine: Allowed) -> None:
        """Search a machine for the fastest plan that was not run."""
        known = self.tuner.known
        self.looked += 1
        ranking = self.tuner.plans.ranking(machine.machine, known)
        if ranking is None:
            self.open, self.bound = self.open + 1, 0.0
            return
        own = next(((plan, least) for plan, least in ranking.plans if plan not in known), None)
        self.bound = min(self.bound, machine.factor * (ranking.rest if own is None else own[1]))
        if own is not None and own[0] not in self.plans:
            self.plans.append(own[0])

    def seconds(self, plan: Plan, machine: Allowed) -> float:
        """Return the seconds of a plan on a machine."""
        return machine.factor * self.tuner.plans.seconds(plan, machine.machine)

    def promise(self, plan: Plan, error: float) -> float:
        """Return the expected share by which a plan undercuts the best run.

        error: standard deviation of its run from what machines predict, in log seconds.
        """
        best, total = self.tuner.best, 0.0
        assert best is not None
        for machine in self.machines:
            less = math.log(best.seconds / self.seconds(plan, machine))
            z = less / error
            density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            total += less * (1 + math.erf(z / math.sqrt(2))) / 2 + error * density
        return total / len(self.machines)
