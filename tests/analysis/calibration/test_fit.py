"""Robust least squares around defaults."""

import pytest

from ilp_planner.analysis.calibration.free import FREE, HOST, fit
from ilp_planner.specs.machine import Machine


def test_one_wrong_run_moves_little() -> None:
    def predict(machine: Machine) -> list[float]:
        return [work / machine.sustained for work in (1.0, 2.0, 3.0, 4.0, 5.0)]

    right = [seconds / 0.8 for seconds in (1.0, 2.0, 3.0, 4.0, 5.0)]
    found = fit(Machine(), ["sustained"], predict, [*right[:4], 2 * right[4]])
    assert found.sustained == pytest.approx(0.8, abs=0.02)


def test_a_floor_is_looked_for_from_above() -> None:
    """From 0, where a floor is below everything, there would be no way up."""

    def predict(machine: Machine) -> list[float]:
        return [max(0.0008, machine.host_forward), 0.1 + max(0.05, machine.host_forward)]

    found = fit(Machine(), ["host_forward"], predict, [0.0015, 0.15])
    assert found.host_forward == pytest.approx(0.0015, rel=0.05)


def test_what_nothing_is_said_of_stays() -> None:
    found = fit(Machine(), ["sustained", "links"], lambda m: [1 / m.sustained], [1.25])
    assert found.links == pytest.approx(Machine().links)


def test_constants_and_ranges_are_of_a_machine() -> None:
    for name, free in FREE.items():
        assert free.low <= getattr(Machine(), name) <= free.high
        assert free.low <= HOST.get(name, free.low) <= free.high
