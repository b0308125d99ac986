"""Short lists of small problems: what they claim is judged again, plan by plan."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import ilp_planner as ilp
from ilp_planner.analysis.calibration.calibrate import on_machine
from ilp_planner.analysis.shortlist.scenarios import cluster_in, scenarios_of
from ilp_planner.analysis.shortlist.shortlist import seconds_in, time_for_plan
from ilp_planner.base.deadline import Deadline
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.api.result import Result
from ilp_planner.specs.machine import with_constants
from tests.megatron_cases import small_cluster, small_model
from tests.small import make_problem

SECONDS = 100.0
NEAR = 2e-6  # relative: regrets are whole millionths


def problem(**asked: object) -> ilp.Problem:
    return ilp.problem(
        "llama3-8b", gpus="16xA100-40GB", space="megatron", global_batch=16, recompute="none",
        sharding="optimizer", cp=1, **{"tp": "1,2", "virtual_stages": "1,2", **asked},
    )  # fmt: skip


@cache
def listed(plain: float = 0.0) -> Result:
    return ilp.solve(problem(), prefer_plain=plain, seconds=SECONDS, shortlist=3)


def test_the_first_plan_is_that_of_the_solve() -> None:
    for plain in (0.0, 0.02):
        result, alone = listed(plain), ilp.solve(problem(), prefer_plain=plain, seconds=SECONDS)
        assert alone.shortlist is None
        assert result.shortlist is not None
        assert result.shortlist.plans[0].plan == result.plan == alone.plan
        assert result.objective == alone.objective
        assert result.shortlist.plans[0].wins == ()


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
