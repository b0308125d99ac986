"""Spreads of constants, and the machines of scenarios."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.analysis.shortlist.scenarios import (
    NOMINAL,
    REACH,
    Scenario,
    cluster_in,
    scenarios_of,
    value_of,
)
from ilp_planner.analysis.shortlist.spread import FITTED, spread_of
from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.machine import CONSTANTS, USUAL
from ilp_planner.specs.time_errors import plain_error

GPUS = ("A100-80GB", "H100-80GB", "B200", "MI300X")


def cluster(gpu: str = "H100-80GB") -> ClusterSpec:
    return gpu_cluster(parse_gpus(f"16x{gpu}"))


def device(gpu: str = "H100-80GB") -> Device:
    spec = cluster(gpu)
    return spec.device_types[spec.type_names[0]]


def test_fitted_spreads_are_of_known_machines_and_constants() -> None:
    assert FITTED.keys() <= USUAL.keys()
    for known in FITTED.values():
        assert known.keys() <= FREE.keys()
        assert all(spread > 0 for spread in known.values())


@pytest.mark.parametrize("gpu", GPUS)
def test_what_no_run_says_has_the_scale_of_its_prior(gpu: str) -> None:
    assert spread_of(device(gpu), "network") == FREE["network"].scale
    assert spread_of(device("H100-80GB"), "sustained") == FITTED["H100"]["sustained"]
    assert spread_of(device("A100-80GB"), "sustained") == FREE["sustained"].scale


def test_calibrated_machines_leave_less_open() -> None:
    usual = device()
    half = plain_error("H100-80GB") / 2
    own = replace(usual, machine=replace(usual.machine, runs=12, error=half))
    worse = replace(usual, machine=replace(usual.machine, runs=12, error=1.0))
    assert spread_of(own, "network") == pytest.approx(spread_of(usual, "network") / 2)
    assert spread_of(worse, "network") == spread_of(usual, "network")


@pytest.mark.parametrize("gpu", GPUS)
def test_scenarios_move_constants_alone_and_no_further_than_they_may(gpu: str) -> None:
    spec, own = cluster(gpu), device(gpu)
    every = scenarios_of(spec)
    assert len(every) == len({tuple(one.moves.items()) for one in every})
    assert any(not one.single for one in every)
    for one in every:
        found = cluster_in(spec, one).device_types[spec.type_names[0]].machine
        changed = {n for n in CONSTANTS if getattr(found, n) != getattr(own.machine, n)}
        assert changed
        assert changed <= one.moves.keys()
        for name in changed:
            value, assumed = getattr(found, name), getattr(own.machine, name)
            assert abs(value - assumed) <= REACH * spread_of(own, name) * (1 + 1e-12)
            assert FREE[name].low <= value <= FREE[name].high
            assert (value > assumed) == (one.moves[name] > 0)


def test_the_nominal_scenario_changes_nothing() -> None:
    spec = cluster()
    assert cluster_in(spec, NOMINAL) == spec
    assert cluster_in(spec, Scenario({"network": 0.0})) == spec


def test_values_stop_at_their_limits() -> None:
    assert value_of(device(), "network", 100.0) == FREE["network"].high
    assert value_of(device(), "network", -100.0) == FREE["network"].low
