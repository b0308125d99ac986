"""What all products take at the rates that no kernel exceeds is below what every part takes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ilp_planner
from ilp_planner.base.deadline import Deadline
from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.spaces.throughput import least_flops
from ilp_planner.spaces.training.bounds.work import sample_seconds
from tests.examples import examples, for_each
from tests.megatron_cases import small_cluster, small_model, small_problem
from tests.problems import build_megatron_problem
from tests.random_problems import small_problems


def least_of(problem: Problem[Any]) -> float:
    """Return the bound of all devices."""
    return problem.space.work_bound(problem, range(problem.cluster.node_count))


def assert_below_every_part(problem: Problem[Any], every: int = 1) -> None:
    """Every part takes longer than the bound, which is above 0: on devices of one type."""
    least = least_of(problem)
    assert least > 0
    for part in problem.space.parts(problem)[::every]:  # type: ignore[attr-defined]
        assert part.trivial_bound() >= least


@examples(5, more=20)
@given(data=st.data(), space=st.sampled_from(sorted(RUNTIMES)))
def test_no_part_takes_less(data: st.DataObject, space: str) -> None:
    problem = data.draw(small_problems(space))
    if len(problem.cluster.type_names) == 1:
        assert_below_every_part(problem)


@for_each(
    ("model", "gpus", "precision"),
    [
        ("deepseek-v3", "256xH100", None),
        ("llama3-8b", "16xB200", "mxfp8"),
        ("gpt-oss-20b", "16xH200", None),  # windows
        ("gpt3-13b", "16xA100-80GB", None),
    ],
)
def test_no_part_of_a_known_model_takes_less(model: str, gpus: str, precision: str | None) -> None:
    problem = ilp_planner.problem(
        model=model, gpus=gpus, precision=precision, global_batch=64, space="megatron"
    )
    assert_below_every_part(problem, every=37)


def test_a_search_without_time_has_this_bound() -> None:
    """And its certificate, where nothing else was looked at, is derived again."""
    problem = ilp_planner.problem(
        model="llama3-8b", gpus="16xH100", global_batch=64, space="megatron"
    )
    found = solve(problem, limits=Limits(seconds=100), deadline=Deadline(100, lambda: False))
    assert found.stopped_by is not Stop.PROOF
    assert found.bound == pytest.approx(least_of(problem))
    assert found.bound_source == "arithmetic"
    assert check_certificate(problem, found.certificate).holds


def test_half_the_devices_take_twice_as_long() -> None:
    problem = ilp_planner.problem(
        model="llama3-8b", gpus="16xH100", global_batch=64, space="megatron"
    )
    assert problem.space.work_bound(problem, [1]) == pytest.approx(2 * least_of(problem))


def test_of_several_types_a_sample_is_that_of_the_fastest_one() -> None:
    """Of all devices and of one: rounded down, and nothing where a type has no figure."""
    problem = small_problem(small_cluster(1, 2, slow=1))
    flops = least_flops(problem)
    types = problem.cluster.device_types
    rates = [rates_of(device).fastest("bf16") for device in types.values()]
    assert rates[0] > rates[1]
    for found, exact in (
        (sample_seconds(problem), flops / max(rates)),
        (least_of(problem), problem.global_batch * flops / (2 * sum(rates))),
    ):
        assert found == pytest.approx(exact, rel=1e-9)
        assert found < exact
    slower = replace(types["l4"], peak={"fp32": 1e13})
    cluster = replace(problem.cluster, device_types={**types, "l4": slower})
    unknown = replace(problem, cluster=cluster)
    assert sample_seconds(unknown) == least_of(unknown) == 0.0


def test_measured_layers_have_none() -> None:
    """Times of a profile may be anything."""
    cluster, model = small_cluster(1, 2), small_model()
    layers = analytic_layers(model, cluster, [1, 2])
    measured = replace(
        layers,
        source="metis:somewhere",
        time={key: seconds / 1000 for key, seconds in layers.time.items()},
    )
    estimated = build_megatron_problem(cluster, model, global_batch=4)
    assert_below_every_part(estimated)
    problem = build_megatron_problem(cluster, model, global_batch=4, profile=measured)
    assert least_of(problem) == 0.0
    assert solve(problem).objective < least_of(estimated)
