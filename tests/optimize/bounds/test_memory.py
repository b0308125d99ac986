"""Why nothing fits: the number is the least of all pipelines, and what needs it is named."""

from dataclasses import replace

import pytest

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.profiles.table import MIB, RowKey
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.memory import _fullest_stage, explain_infeasible
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from tests.examples import for_each
from tests.tiny import least_memory, make_problem, make_profile, make_row, with_limit

NAMES = ("enc-1st-layernorm", "enc-MLP-gelu", "enc-MLP-GEMM-2")


def problem_of(
    *activations: float,
    weights: tuple[float, ...] = (1.0, 1.0, 1.0),
    limit: float,
    devices: int = 1,
    micro_batches: tuple[int, ...] = (1,),
    group_sizes: tuple[int, ...] | None = None,
) -> Problem:
    """Return a problem of operators that keep so many MiB, have weights of so many, of which states
    take eight times as much, and receive 1 MiB; two micro-batches of one sample."""
    names = NAMES[: len(activations)]
    rows = {
        RowKey(operator=name, micro_batch=size, tp=1, split=0): make_row(
            activations=kept * size, weights=own
        )
        for name, kept, own in zip(names, activations, weights, strict=False)
        for size in micro_batches
    }
    return make_problem(
        names,
        "gpt",
        make_profile(rows),
        cost_model="native",
        limit=limit * MIB,
        micro_batches=micro_batches,
        global_batch=2,
        devices=devices,
        group_sizes=group_sizes,
    )


def explained(problem: Problem) -> str:
    return explain_infeasible(
        problem, [OperatorPart(problem, size) for size in problem.micro_batch_sizes]
    )


def test_states_alone_are_blamed_where_they_are_enough() -> None:
    problem = problem_of(1.0, 1.0, weights=(3.0, 5.0), limit=30)
    assert explained(problem) == (
        "nothing fits: operator 1 (enc-MLP-gelu) with its optimiser states alone needs at least "
        "40.00 MiB per device, 10.00 MiB more than the limit of 30.00 MiB"
    )


def test_an_operator_is_blamed_that_needs_too_much_alone() -> None:
    """8 MiB of states, and 1 + 20 MiB of one micro-batch."""
    assert explained(problem_of(20.0, limit=20)) == (
        "nothing fits: operator 0 (enc-1st-layernorm) needs at least 29.00 MiB per device, "
        "9.00 MiB more than the limit of 20.00 MiB"
    )


def test_a_stage_is_blamed_that_cannot_be_cut() -> None:
    """One device: 16 MiB of states, and of one micro-batch 1 + 9 MiB at the least, as the other 12
    can be computed again."""
    assert explained(problem_of(12.0, 9.0, limit=20)) == (
        "nothing fits: the stage of operators 0 (enc-1st-layernorm) to 1 (enc-MLP-gelu) needs at "
        "least 26.00 MiB per device, 6.00 MiB more than the limit of 20.00 MiB"
    )


def test_the_fullest_stage_of_the_leanest_pipeline_is_blamed() -> None:
    """Two devices: the first stage holds two micro-batches, 8 + 2 * 21 MiB, the second one."""
    problem = problem_of(20.0, 5.0, limit=20, devices=2, group_sizes=(1,))
    assert explained(problem) == (
        "nothing fits: operator 0 (enc-1st-layernorm) needs at least 50.00 MiB per device, "
        "30.00 MiB more than the limit of 20.00 MiB"
    )
    other = problem_of(5.0, 45.0, limit=20, devices=2, group_sizes=(1,))
    assert explained(other) == (
        "nothing fits: operator 1 (enc-MLP-gelu) needs at least 54.00 MiB per device, 34.00 MiB "
        "more than the limit of 20.00 MiB"
    )


def test_the_micro_batch_is_blamed_that_needs_least() -> None:
    """Two samples keep twice as much."""
    problem = problem_of(20.0, limit=20, micro_batches=(1, 2))
    assert "needs at least 29.00 MiB" in explained(problem)
    only = problem_of(20.0, limit=20, micro_batches=(2,))
    assert "needs at least 49.00 MiB" in explained(only)


@for_each("activations", [(20.0,), (12.0, 9.0), (4.0, 9.0, 2.0)])
@for_each("devices", [1, 2, 3])
def test_nothing_is_blamed_where_a_pipeline_fits(
    activations: tuple[float, ...], devices: int
) -> None:
    """What is said to be needed is a bound: with one operator per stage nothing is below it."""
    problem = problem_of(*activations, limit=9, devices=devices, group_sizes=(1,))
    least = least_memory(problem)
    if devices > len(activations):
        assert "cannot be split" in explained(problem)
        return
    assert explained(with_limit(problem, least)) == ""
    below = explained(with_limit(problem, least * (1 - 1e-4)))
    assert below.startswith("nothing fits") or devices < len(activations)


def test_devices_that_cannot_be_split_are_blamed() -> None:
    problem = problem_of(1.0, 1.0, limit=1000, devices=3, group_sizes=(2,))
    assert explained(problem) == (
        "3 devices cannot be split into at most 2 stages of 2 devices with a profiled strategy"
    )


def test_states_that_just_fit_are_not_blamed() -> None:
    """Beside them there is the input and what the operator keeps."""
    assert explained(problem_of(1.0, weights=(5.0,), limit=40)) == (
        "nothing fits: operator 0 (enc-1st-layernorm) needs at least 42.00 MiB per device, 2.00 "
        "MiB more than the limit of 40.00 MiB"
    )


def test_of_operators_that_need_as_much_the_first_is_blamed() -> None:
    assert explained(problem_of(1.0, 1.0, weights=(5.0, 5.0), limit=30)).startswith(
        "nothing fits: operator 0 (enc-1st-layernorm) with its optimiser states alone"
    )


def profiled(*weights: dict[int, float], limit: float, devices: int = 2) -> Problem:
    """Return a problem of one stage of devices. weights: MiB of each operator by the degrees of
    tensor parallelism that it is profiled with."""
    rows = {
        RowKey(operator=name, micro_batch=size, tp=tp, split=0): make_row(weights=own)
        for name, by_degree in zip(NAMES, weights, strict=False)
        for size in (1, 2)
        for tp, own in by_degree.items()
    }
    return make_problem(
        NAMES[: len(weights)],
        "gpt",
        replace(make_profile(rows), tensor_degrees=(1, 2)),
        cost_model="native",
        limit=limit * MIB,
        micro_batches=(2,),
        global_batch=2,
        devices=devices,
        group_sizes=(devices,),
    )


@for_each(("degrees", "least"), [((1, 2), "20.00 MiB"), ((1,), "40.00 MiB"), ((2,), "20.00 MiB")])
def test_states_are_those_of_the_leanest_way_that_is_profiled(
    degrees: tuple[int, ...], least: str
) -> None:
    """On two devices tensor parallelism divides 5 MiB of weights, whose states are 8 times that."""
    problem = profiled({tp: 5.0 / tp for tp in degrees}, limit=15)
    assert explained(problem).startswith(
        "nothing fits: operator 0 (enc-1st-layernorm) with its optimiser states alone needs at "
        f"least {least} per device"
    )


def test_states_of_every_way_are_compared_before_operators_are() -> None:
    """24 MiB of the first operator, which is profiled whole, are more than 20 of half the second
    one, and less than the 40 of all of it."""
    assert explained(profiled({1: 3.0}, {1: 5.0, 2: 2.5}, limit=15)).startswith(
        "nothing fits: operator 0 (enc-1st-layernorm) with its optimiser states alone needs at "
        "least 24.00 MiB"
    )


def test_an_operator_without_a_profiled_way_is_not_one_of_too_little_memory() -> None:
    """On one device there is no tensor parallelism, which one of two operators needs."""
    assert explained(profiled({1: 1.0}, {2: 5.0}, limit=15, devices=1)) == (
        "1 devices cannot be split into at most 1 stages of 1 devices with a profiled strategy"
    )


def test_a_limit_that_is_what_is_needed_but_for_rounding_is_enough() -> None:
    problem = problem_of(12.0, 9.0, limit=9)
    needed, _ = _fullest_stage(problem, OperatorPart(problem, 1))
    assert needed == pytest.approx(26 * MIB)
    for limit in (needed, needed * (1 - ROUNDING / 2)):
        assert explained(with_limit(problem, limit)) == ""
