"""Machines that runs allow reproduce the runs; hidden constants are among what they leave open."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.analysis.tune.tune import ERROR, REACH, Calibrated
from ilp_planner.specs.machine import Machine, with_constants
from tests.analysis.calibration.machines import DEFAULT, h100
from tests.examples import examples

MOVED = ("sustained", "streaming", "links", "host_backward")


def plans(seed: int, count: int) -> list[Callable[[Machine], float]]:
    """Return predictions that hang on constants as those of jobs do: work over rates, and time of
    the host."""
    works = np.random.default_rng(seed).uniform(0.1, 1.0, (count, 4))

    def plan(work: np.ndarray) -> Callable[[Machine], float]:
        return lambda m: float(
            work[0] / m.sustained
            + work[1] / m.streaming
            + work[2] / m.links
            + 100 * work[3] * m.host_backward
        )

    return [plan(work) for work in works]


def hidden(seed: int) -> Machine:
    """Return a machine with other constants than are assumed."""
    draws = np.random.default_rng(seed)
    return with_constants(DEFAULT, {name: float(draws.uniform(*FREE[name][:2])) for name in MOVED})


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.9, 1.1))
@examples(15)
def test_allowed_machines_reproduce_the_runs(seed: int, count: int, factor: float) -> None:
    tried, rival = plans(seed, count), plans(seed + 1, 1)[0]
    truth = hidden(seed)
    seconds = tuple(factor * plan(truth) for plan in tried)
    noise = (0.01,) * count
    found = Calibrated(h100(), lambda m: [plan(m) for plan in tried], seconds, noise)
    drawn = [found.middle, *found.drawn(5), found.favouring(rival)]
    assert found.error >= ERROR
    reach = REACH * math.hypot(found.error, 0.01) * (1 + 1e-6)
    for (machine, own), (plan, measured) in product(drawn, zip(tried, seconds, strict=True)):
        assert abs(math.log(measured / (own * plan(machine)))) <= reach
        assert all(FREE[n].low <= getattr(machine, n) <= FREE[n].high for n in MOVED)
    ahead, middle = drawn[-1], drawn[0]
    assert ahead.factor * rival(ahead.machine) <= middle.factor * rival(middle.machine)
    again = Calibrated(h100(), lambda m: [plan(m) for plan in tried], seconds, noise)
    assert [*again.drawn(5), again.favouring(rival)] == drawn[1:]


def test_many_runs_leave_little_open() -> None:
    truth, every = hidden(3), plans(3, 16)
    spreads = []
    for count in (1, 15):
        tried, rest = every[:count], every[15]
        seconds = tuple(plan(truth) for plan in tried)
        found = Calibrated(
            h100(), lambda m, tried=tried: [plan(m) for plan in tried], seconds, (0.005,) * count
        )
        drawn = [one.factor * rest(one.machine) / rest(truth) for one in found.drawn(12)]
        spreads.append(max(abs(math.log(each)) for each in drawn))
    assert spreads[1] < 0.1 < spreads[0]


def test_runs_that_no_constants_explain_widen_the_error() -> None:
    one = plans(1, 1)[0]
    found = Calibrated(h100(), lambda m: [one(m), one(m)], (1.0, 1.5), (0.0, 0.0))
    assert math.log(1.5) / 2 <= REACH * found.error < math.log(1.5)
    assert found.allowed(found.middle.machine) == found.middle
