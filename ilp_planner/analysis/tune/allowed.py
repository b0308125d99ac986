"""The constants of a machine that measured runs still allow.

Calibrated constants are the middle. Around them constants are drawn as widely as the runs leave
them open, and those that contradict a run are ruled out. Beside its constants a machine has a
factor by which all steps take longer than predicted: runs of one job on one machine share much of
what predictions lack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.analysis.calibration.free import FELT, FREE, PULL, fit, moved, spread_of
from ilp_planner.specs.machine import with_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine

    Predict = Callable[[Machine], Sequence[float]]

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
