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
from functools import cached_property, partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ilp_planner.analysis.calibration.free import FELT, FREE, PULL, fit, moved, spread_of
from ilp_planner.specs.machine import with_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine

    Predict = Callable[[Machine], Sequence[float]]
    from collections.abc import Sequence


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


# ---- The constants of a machine that measured runs still allow -----------------------------------
# Calibrated constants are the middle. Around them constants are drawn as widely as the runs leave
# them open, and those that contradict a run are ruled out. Beside its constants a machine has a
# factor by which all steps take longer than predicted: runs of one job on one machine share much of
# what predictions lack.

ERROR = 0.03  # standard deviation of a run from what calibrated constants say, in log seconds
FACTOR = 0.1  # of the factor of a machine from 1, in log seconds
REACH = 2.0  # standard deviations of a run beyond which it rules constants out
END = 1.28  # standard deviations to an end of what runs leave open: 80 % lie between both
COUNT = 12  # machines beside the calibrated one
EVALUATIONS, TOLERANCE = 15, 1e-3  # of a fit: less than runs tell
ROUNDING = 1e-9
SEED = 35
NAMES = tuple(FREE)


class Allowed(NamedTuple):
    """A machine that no run contradicts. factor: by which its steps take longer than predicted."""

    machine: Machine
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What runs on a machine say of its constants.

    device: with the constants before any run. predict: returns the seconds of the runs' plans on a
    machine. seconds: of their steps. noise: standard deviations of the logarithms by noise alone.
    """

    device: Device
    predict: Predict
    seconds: tuple[float, ...]
    noise: tuple[float, ...]

    @cached_property
    def middle(self) -> Allowed:
        """The calibrated machine."""
        found = self.allowed(self._fitted[0])
        assert found is not None
        return found

    @cached_property
    def error(self) -> float:
        """Standard deviation of a run that constants do not explain, in log seconds: more than
        `ERROR` where the best constants are farther off than `REACH` of it."""
        return self._fitted[1]

    def allowed(self, machine: Machine) -> Allowed | None:
        """Return a machine with the factor that fits the runs; None if a run contradicts it."""
        errors, spreads = self._errors(machine), np.hypot(self.error, self.noise)
        shift = self._shift(errors)
        if (np.abs(errors - shift) > REACH * spreads * (1 + ROUNDING)).any():
            return None
        return Allowed(machine, math.exp(shift))

    def drawn(self, count: int) -> list[Allowed]:
        """Draw machines, each as likely as any other by the runs."""
        draws = np.random.default_rng([SEED, len(self.seconds)])
        each = draws.standard_normal((count, len(NAMES) + 1))
        return [self._towards(np.linalg.solve(self._root.T, one)) for one in each]

    def favouring(self, rival: Callable[[Machine], float]) -> Allowed:
        """Return a machine on which a plan is as fast as the runs leave open, by slopes: the best
        one on the way. rival: returns the seconds of the plan."""
        slope = self._slopes(lambda machine: [rival(machine)])[0]
        way = np.linalg.solve(self._root, slope)
        way = -END * way / float(np.linalg.norm(way))
        end = np.asarray(np.linalg.solve(self._root.T, way), np.float64)
        every = [self.middle, *(self._towards(share * end) for share in (1.0, 0.5, 0.25))]
        return min(every, key=lambda one: one.factor * rival(one.machine))

    # ---- around the calibrated machine ----------------------------------------------------------

    def _errors(self, machine: Machine) -> Floats:
        """Return the logarithms of measured over predicted seconds."""
        found: Floats = np.log(self.seconds) - np.log(np.asarray(self.predict(machine)))
        return found

    def _shift(self, errors: Floats) -> float:
        """Return the most likely logarithm of the factor."""
        weights = np.hypot(ERROR, self.noise) ** -2.0
        return float((weights * errors).sum() / (weights.sum() + FACTOR**-2.0))

    @cached_property
    def _fitted(self) -> tuple[Machine, float]:
        spreads = np.hypot(ERROR, self.noise)

        def scaled(machine: Machine) -> list[float]:
            errors = self._errors(machine)
            found: Floats = np.array(self.seconds) / np.exp(errors - self._shift(errors))
            return list(found)

        usual = self.device.machine
        weights = (spreads.min() / spreads) ** 2
        machine = fit(
            usual,
            self._felt(usual),
            scaled,
            self.seconds,
            weights.tolist(),
            evaluations=EVALUATIONS,
            tolerance=TOLERANCE,
        )
        errors = self._errors(machine)
        worst = float(np.abs(errors - self._shift(errors)).max())
        return machine, max(ERROR, worst / REACH)

    def _felt(self, machine: Machine) -> list[str]:
        """Return the constants that the runs say something of."""
        here = self._errors(machine)
        apart = {n: np.abs(self._errors(_other(machine, n)) - here).max() for n in NAMES}
        return [name for name in NAMES if apart[name] > FELT]

    @cached_property
    def _scales(self) -> Floats:
        """Standard deviations of constants before any run, as `fit` takes them."""
        return np.array([PULL * spread_of(self.device, name) for name in NAMES])

    def _slopes(self, predict: Predict) -> Floats:
        """Return the changes of log seconds by a standard deviation of each constant, and of the
        factor: [plan, constant]."""
        machine = self._fitted[0]
        here = np.log(predict(machine))
        found = np.full((len(here), len(NAMES) + 1), FACTOR)
        for column, name in enumerate(NAMES):
            other = _other(machine, name)
            step = getattr(other, name) - getattr(machine, name)
            found[:, column] = (np.log(predict(other)) - here) / step * self._scales[column]
        return found

    @cached_property
    def _root(self) -> Floats:
        """The lower triangular root of the inverse covariance of constants and factor, by what is
        known before the runs and by the slopes of these."""
        slopes = self._slopes(self.predict) / np.hypot(self.error, self.noise)[:, None]
        root: Floats = np.linalg.cholesky(np.eye(len(NAMES) + 1) + slopes.T @ slopes)
        return root

    def _towards(self, way: Floats) -> Allowed:
        """Return the machine some way from the calibrated one; nearer where a run contradicts it,
        as slopes are not the same everywhere."""
        middle, usual = self._fitted[0], self.device.machine
        values = {}
        while True:
            for name, step in zip(NAMES, (way[:-1] * self._scales).tolist(), strict=True):
                known = getattr(usual, name)
                low, high = min(FREE[name].low, known), max(FREE[name].high, known)
                values[name] = min(high, max(low, getattr(middle, name) + step))
            found = self.allowed(with_constants(middle, values))
            if found is not None:
                return found
            way = way / 2


def _other(machine: Machine, name: str) -> Machine:
    """Return a machine with another usual value of a constant."""
    return with_constants(machine, {name: moved(name, getattr(machine, name))})
