"""Inputs that do not go together are refused in one line; what is left out is noted."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.costs.profiles.table import Profile, RowKey
from ilp_planner.inputs.problem import Problem
from ilp_planner.spaces.operators.build import OperatorSpace, build_problem, stage_devices
from tests.examples import examples
from tests.tiny import make_cluster, make_model, make_profile, make_row


def profile_of(
    names: Sequence[str] = ("a",), micro_batch_sizes: Sequence[int] = (1, 2, 4)
) -> Profile:
    return make_profile(
        {
            RowKey(operator=name, micro_batch=m, tp=1, split=0): make_row()
            for name in names
            for m in micro_batch_sizes
        }
    )


def build(
    operators: Sequence[str] = ("a", "a", "a"), profile: Profile | None = None, **options: Any
) -> Problem:
    """Build a problem on two nodes of two devices of 1 GiB."""
    options.setdefault("global_batch", 8)
    model, cluster = make_model(operators, "resnet"), make_cluster(2, 2)
    return build_problem(model, cluster, profile or profile_of(), **options)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown cost model": (
        {"cost_model": "amp"},
        UsageError,
        "cost_model: expected one of aceso, native, found 'amp'",
    ),
    "no samples": (
        {"global_batch": 0},
        SpecError,
        "global batch size: must be at least 1, found 0",
    ),
    "negative batch": (
        {"global_batch": -8},
        SpecError,
        "global batch size: must be at least 1, found -8",
    ),
    "no memory": ({"memory_limit": 0}, SpecError, "memory limit: must be positive, found 0 bytes"),
    "negative memory": (
        {"memory_limit": -5e9},
        SpecError,
        "memory limit: must be positive, found -5000000000 bytes",
    ),
    "no stages": ({"max_stages": 0}, UsageError, "max_stages: must be at least 1, found 0"),
    "operators without rows": (
        {"operators": ("a", "b", "a", "c", "b")},
        ProfileError,
        "tiny: operator 'b' of tiny has no row (2 operators without any)",
    ),
    "a micro-batch of nothing": (
        {"micro_batch_sizes": (2, 0)},
        SpecError,
        "micro-batch size: must be at least 1, found 0",
    ),
    "no profiled micro-batch": (
        {"micro_batch_sizes": (3, 5)},
        ProfileError,
        "tiny: no rows for micro-batch 3, 5, expected one of 1, 2, 4, 8, 16",
    ),
    "batch that is not divisible": (
        {"global_batch": 7, "micro_batch_sizes": (2, 4)},
        SpecError,
        "global batch size: 7 is not divisible by micro-batch 2, 4; 8 would be",
    ),
    "batch below the micro-batch": (
        {"global_batch": 1, "micro_batch_sizes": (4,)},
        SpecError,
        "global batch size: 1 is not divisible by micro-batch 4; 4 would be",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_planned_is_refused_in_one_line(name: str) -> None:
    options, error, message = REFUSED[name]
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        build(**options)


def test_the_cost_models_are_offered_by_name() -> None:
    assert build(cost_model="aceso").costs.name == "aceso"
    assert build(cost_model="native").costs.name == "native"
    assert build().costs.name == "native"


@examples(25)
@given(st.integers(1, 100), st.sets(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3))
def test_the_batch_that_is_offered_is_divisible(batch: int, sizes: set[int]) -> None:
    profile = profile_of(micro_batch_sizes=(1, 2, 3, 4, 8))
    try:
        problem = build(profile=profile, global_batch=batch, micro_batch_sizes=tuple(sizes))
    except SpecError as error:
        found = re.search(r"; (\d+) would be$", str(error))
        assert found is not None
        assert all(batch % m for m in sizes)
        problem = build(profile=profile, global_batch=int(found[1]), micro_batch_sizes=tuple(sizes))
    assert problem.micro_batches == tuple(sorted(problem.micro_batches))
    assert set(problem.micro_batch_sizes) == {m for m in sizes if problem.global_batch % m == 0}
    assert problem.micro_batch_sizes
    for size, count in zip(problem.micro_batch_sizes, problem.micro_batches[::-1], strict=True):
        assert size * count == problem.global_batch


def test_micro_batches_that_are_not_profiled_are_left_out_with_a_note() -> None:
    problem = build(micro_batch_sizes=(2, 7, 3))
    assert (problem.micro_batch_sizes, problem.micro_batches) == ((2,), (4,))
    assert problem.notes == (
        "micro-batch 7, 3: not of profiled samples (1, 2, 4, 8, 16 are), left out",
    )


def test_micro_batches_that_do_not_divide_are_left_out_with_a_note() -> None:
    problem = build(global_batch=6)
    assert (problem.micro_batch_sizes, problem.micro_batches) == ((1, 2), (3, 6))
    assert problem.notes == ("micro-batch 4: does not divide 6, left out",)


def test_notes_of_the_profile_come_first() -> None:
    profile = replace(profile_of(), notes=("something is odd",))
    problem = build(profile=profile, global_batch=6, micro_batch_sizes=(1, 4, 7))
    assert problem.notes == (
        "something is odd",
        "micro-batch 7: not of profiled samples (1, 2, 4, 8, 16 are), left out",
        "micro-batch 4: does not divide 6, left out",
    )


def test_nothing_left_out_means_no_notes() -> None:
    assert build(micro_batch_sizes=(4, 2, 4)).micro_batch_sizes == (2, 4)
    assert build(micro_batch_sizes=(4, 2, 4)).notes == ()


def test_defaults_come_from_the_inputs() -> None:
    problem = build()
    assert problem.memory_limits == {"gpu": 2.0**30}
    assert problem.memory_limit == 2.0**30
    assert problem.max_stages == 3  # operators; there are four devices
    assert problem.space == OperatorSpace(group_sizes=(1, 2, 4))
    assert problem.max_tp == 2
    assert problem.micro_batch_sizes == (
        1,
        2,
        4,
        8,
    )  # of replicas of up to 4, no more than the batch
    assert problem.micro_batches == (1, 2, 4, 8)


def test_stages_span_nodes_under_costs_that_say_what_that_takes() -> None:
    assert build(cost_model="aceso").space == OperatorSpace(group_sizes=(1, 2))
    assert build(cost_model="aceso").micro_batch_sizes == (1, 2, 4)
    assert build(max_stage_nodes=1).space == OperatorSpace(group_sizes=(1, 2))
    assert build(max_stage_nodes=2).space == build().space


@pytest.mark.parametrize(
    ("nodes", "devices", "inside", "whole"),
    [(1, 8, (1, 2, 4, 8), ()), (4, 8, (1, 2, 4, 8), (16, 32)), (3, 6, (1, 2, 4), (12,))],
)
def test_a_stage_has_a_part_of_a_node_or_2_4_8_whole_ones(
    nodes: int, devices: int, inside: tuple[int, ...], whole: tuple[int, ...]
) -> None:
    cluster = make_cluster(nodes, devices)
    assert stage_devices(cluster, nodes) == (*inside, *whole)
    assert stage_devices(cluster, 1) == inside
    assert stage_devices(cluster, 2) == (*inside, *whole[:1])


def test_no_more_stages_than_devices_or_operators() -> None:
    assert build(max_stages=2).max_stages == 2
    assert build(max_stages=100).max_stages == 3
    assert build(operators=("a",) * 9).max_stages == 4


def test_a_memory_limit_above_the_device_is_taken_as_given() -> None:
    assert build(memory_limit=2**34).memory_limit == 2.0**34
