"""Short lists of small problems: what they claim is judged again, plan by plan."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import ilp_planner as ilp
from ilp_planner.analysis.calibration.calibrate import on_machine
from ilp_planner.analysis.calibration.free import FITTED, FREE, spread_of
from ilp_planner.analysis.shortlist.shortlist import (
    NOMINAL,
    REACH,
    Scenario,
    cluster_in,
    scenarios_of,
    seconds_in,
    time_for_plan,
    value_of,
)
from ilp_planner.base.deadline import Deadline
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.api.result import Result
from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.machine import CONSTANTS, USUAL, with_constants
from ilp_planner.specs.time_errors import plain_error
from tests.examples import thinned
from tests.megatron_cases import small_cluster, small_model
from tests.small import make_problem

SECONDS = 100.0
NEAR = 2e-6  # relative: regrets are whole millionths
GPUS = ("A100-80GB", "H100-80GB", "B200", "MI300X")


def problem(**asked: object) -> ilp.Problem:
    return ilp.problem(
        "llama3-8b", gpus="16xA100-40GB", space="megatron", global_batch=16, recompute="none",
        sharding="optimizer", cp=1, **{"tp": "1,2", "virtual_stages": "1,2", **asked},
    )  # fmt: skip


@cache
def listed(plain: float = 0.0) -> Result:
    return ilp.solve(problem(), prefer_plain=plain, seconds=SECONDS, shortlist=3)


@pytest.mark.slow
def test_the_first_plan_is_that_of_the_solve() -> None:
    for plain in thinned((0.0, 0.02), 2):
        result, alone = listed(plain), ilp.solve(problem(), prefer_plain=plain, seconds=SECONDS)
        assert alone.shortlist is None
        assert result.shortlist is not None
        assert result.shortlist.plans[0].plan == result.plan == alone.plan
        assert result.objective == alone.objective
        assert result.shortlist.plans[0].wins == ()


@pytest.mark.slow
def test_plans_are_legal_and_take_what_is_said() -> None:
    result = listed()
    assert result.shortlist is not None
    assert len(result.shortlist.plans) == 2
    for one in result.shortlist.plans:
        judged = evaluate(result.problem, one.plan)
        assert judged.legal
        assert one.seconds == judged.iteration_time
        assert seconds_in(result.problem, one.plan) == pytest.approx(one.seconds, rel=1e-12)
        assert one.seconds >= result.bound * (1 - 1e-9)


def test_regrets_are_those_of_the_listed_plans() -> None:
    """Against the listed plans alone, nobody loses more than is said against all candidates."""
    result = listed()
    found = result.shortlist
    assert found is not None
    times = []
    for scenario in scenarios_of(result.problem.cluster):
        there = replace(result.problem, cluster=cluster_in(result.problem.cluster, scenario))
        times.append([seconds_in(there, one.plan) for one in found.plans])
    for number in range(len(found.plans)):
        lost = max(row[number] / min(row) - 1 for row in times)
        assert lost <= found.plans[number].worst + NEAR
    assert max(row[0] / min(row) - 1 for row in times) == pytest.approx(found.worst[0], abs=NEAR)
    assert all(a > b for a, b in zip(found.worst, found.worst[1:], strict=False))
    assert 1 < found.searched <= found.scenarios


def test_conditions_are_true() -> None:
    """At the value that is said a plan is the best of the list, and half way there it is not."""
    result = listed()
    assert result.shortlist is not None
    first, second = result.shortlist.plans
    assert second.wins
    cluster = result.problem.cluster
    (device,) = cluster.device_types.values()
    for together in second.wins:
        for share, wins in ((1.0, True), (0.5, False)):
            values = {one.name: one.assumed + share * (one.value - one.assumed) for one in together}
            machine = with_constants(device.machine, values)
            there = replace(result.problem, cluster=on_machine(cluster, machine))
            assert (seconds_in(there, second.plan) < seconds_in(there, first.plan)) == wins


@pytest.mark.slow
def test_less_plain_plans_count_as_slower() -> None:
    result = listed(0.02)
    assert result.shortlist is not None
    own = tuple(result.problem.space.plainness(result.problem, result.found).values())
    for one in result.shortlist.plans:
        grades = tuple(result.problem.space.plainness(result.problem, one.plan).values())
        assert one.less_plain == (grades > own)


def test_without_time_for_scenarios_the_plan_is_listed_alone() -> None:
    result = ilp.solve(problem(), seconds=0.01, shortlist=3)
    if result.plan is not None:
        assert result.shortlist is not None
        assert result.shortlist.plans[0].plan == result.plan
    else:
        assert result.shortlist is None


def test_scenarios_have_a_part_of_the_time() -> None:
    whole = Deadline(100.0)
    assert time_for_plan(whole, 1) is whole
    assert time_for_plan(whole, 2).left < 50.0
    steady = Deadline(100.0, steady=True)
    assert time_for_plan(steady, 2) is steady


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"top": 3}, "top=3"),
        ({"solver": "anneal"}, "solver=anneal"),
        ({"objective": "price"}, "objective"),
        ({"shortlist": 0}, "shortlist"),
    ],
)
def test_what_contradicts_it_is_refused(said: dict[str, object], why: str) -> None:
    with pytest.raises(ilp.UsageError, match=why):
        ilp.solve(problem(), **{"shortlist": 3, "seconds": SECONDS, **said})


def test_times_without_constants_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ilp.UsageError, match="no training runtime"):
        ilp.solve(make_problem(tmp_path), shortlist=2)
    roofline = ilp.problem(small_model(), small_cluster(), global_batch=8, space="megatron")
    with pytest.raises(ilp.UsageError, match="kernels are not known"):
        ilp.solve(roofline, shortlist=2)


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
