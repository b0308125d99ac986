"""A layer-level problem: what is put together, and what is refused before any search."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ilp_planner
from ilp_planner.base.errors import PlannerError, ProfileError, SpecError, UsageError
from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.peers.metis.profile import MetisProfile
from ilp_planner.peers.metis.source import ModelSizes, check_model_layers
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.examples import for_each
from tests.metis_cases import synthetic_profile
from tests.mixed_cases import LAYERS, ROOM, SPEEDS, room, room_problem
from tests.problems import build_group_problem
from tests.small import write_specs

GIB = 2**30


def test_native_costs_of_a_metis_profile() -> None:
    problem = room_problem()
    assert problem.costs.name == "native"
    assert problem.space == GroupSpace()
    assert problem.micro_batches == (1, 2, 3, 4, 6, 8, 16)
    assert problem.memory_limits == {"T4": 15 * GIB, "A100": 80 * GIB}
    assert (problem.max_stages, problem.max_tp) == (6, 2)
    assert problem.profile_source == "metis:made-up"
    assert set(problem.costs.degrees()) == {"A100", "T4"}


def test_metis_costs_read_the_same_limits() -> None:
    problem = room_problem(cost_model="metis", space="metis", memory_limit=10.0 * GIB, max_tp=1)
    assert problem.costs.name == "metis"
    assert set(problem.memory_limits.values()) == {10.0 * GIB}
    assert problem.costs.limits == problem.memory_limits  # type: ignore[attr-defined]
    assert problem.max_tp == 1
    assert set(problem.costs.degrees().values()) == {(1,)}


def test_metis_costs_on_a_cluster_of_ours(tmp_path: Path) -> None:
    """Its types have names of their own, and say what the profile calls them."""
    (tmp_path / "room.toml").write_text(ROOM)
    cluster = read_cluster(tmp_path / "room.toml")
    profile = synthetic_profile(SPEEDS, LAYERS)
    sizes = ModelSizes(hidden=512, sequence=256, vocabulary=4000)
    problem = build_group_problem(
        cluster, profile, model="m", global_batch=8, cost_model="metis", sizes=sizes
    )
    assert dict(problem.costs.degrees()) == {"a100": (1, 2), "t4": (1, 2)}


def test_an_analytic_profile(tmp_path: Path) -> None:
    (tmp_path / "room.toml").write_text(ROOM)
    cluster, model = read_cluster(tmp_path / "room.toml"), read_model(write_specs(tmp_path)[0])
    profile = analytic_layers(model, cluster, [1, 2])
    problem = build_group_problem(cluster, profile, model=model.name, global_batch=4)
    assert problem.costs.chain == ("embedding", "layer 1", "layer 2", "head")
    assert problem.max_stages == 4


def test_a_limit_above_the_device_is_the_device() -> None:
    limits = room_problem(memory_limit=20.0 * GIB).memory_limits
    assert limits == {"T4": 15 * GIB, "A100": 20 * GIB}


def test_micro_batch_sizes_that_do_not_divide_are_left_out() -> None:
    problem = room_problem(micro_batch_sizes=(4, 3, 16), cost_model="metis")
    assert problem.micro_batches == (1, 4)
    assert "micro-batch 3: does not divide 16, left out" in problem.notes
    native = room_problem(micro_batch_sizes=(4, 3, 16))
    assert native.micro_batches == (1, 4, 6)  # five of 3 samples and one of a single one
    even = room_problem(micro_batch_sizes=(4, 3, 16), shares="even")
    assert even.micro_batches == (1, 4)


def test_degrees_beyond_the_profile_are_a_note() -> None:
    for options in ({}, {"cost_model": "metis"}):
        problem = room_problem(max_tp=8, **options)
        assert problem.max_tp == 2
        assert sum("left out" in note for note in problem.notes) == 1


@for_each("batch", [24, 30, 48, 96, 97])
def test_any_global_batch_has_micro_batches(batch: int) -> None:
    batches = room_problem(global_batch=batch, cost_model="metis").micro_batches
    assert batches == tuple(n for n in range(1, batch + 1) if batch % n == 0)
    assert set(batches) < set(room_problem(global_batch=batch).micro_batches)


def without(*names: str) -> MetisProfile:
    """Return the profile without some device types."""
    profile = synthetic_profile(SPEEDS, LAYERS)
    rows = {key: row for key, row in profile.rows.items() if key.device not in names}
    return replace(profile, rows=rows, constants=min(rows))


@for_each(
    ("options", "error", "words"),
    [
        ({"cost_model": "aceso"}, UsageError, ["`cost_model=aceso`", "whole layers", "native"]),
        ({"space": "all"}, UsageError, ["space", "groups, metis, amp", "all"]),
        ({"memory_rule": "none"}, UsageError, ["memory_rule", "device, metis", "none"]),
        ({"placement": "any"}, UsageError, ["placement", "default, free", "any"]),
        ({"space": "metis"}, UsageError, ["`space=metis`", "`cost_model=metis`", "native"]),
        ({"space": "amp"}, UsageError, ["`space=amp`", "`cost_model=amp`", "native"]),
        ({"cost_model": "amp", "space": "groups"}, UsageError, ["`space=amp`", "groups"]),
        ({"cost_model": "amp"}, UsageError, ["`profile=amp:FILE`", "metis:made-up"]),
        ({"memory_rule": "metis"}, UsageError, ["`memory_rule=metis`", "`space=metis`"]),
        ({"shares": "odd"}, UsageError, ["shares", "any, even", "odd"]),
        ({"shares": "even", "cost_model": "metis"}, UsageError, ["`shares=even`", "metis", "none"]),
        ({"shares": "even", "cost_model": "metis", "space": "metis"}, UsageError,
         ["`shares=even`", "`space=groups`", "found metis"]),
        ({"stage_tp": "two"}, UsageError, ["stage_tp", "one, mixed", "two"]),
        ({"stage_tp": "mixed", "cost_model": "metis"}, UsageError,
         ["`stage_tp=mixed`", "one degree", "native"]),
        ({"stage_tp": "mixed", "cost_model": "metis", "space": "metis"}, UsageError,
         ["`stage_tp=mixed`", "`space=groups`", "found metis"]),
        ({"seats": "any"}, UsageError, ["seats", "packed, spread", "any"]),
        ({"seats": "spread", "cost_model": "metis"}, UsageError,
         ["`seats=spread`", "packed stages", "native"]),
        ({"seats": "spread", "cost_model": "metis", "space": "metis"}, UsageError,
         ["`seats=spread`", "`space=groups`", "found metis"]),
        ({"placement": "free"}, UsageError, ["`placement=free`", "`space=amp`", "groups"]),
        ({"global_batch": 0}, SpecError, ["global batch size", "at least 1", "0"]),
        ({"memory_limit": 0.0}, SpecError, ["memory limit", "positive"]),
        ({"max_tp": 0}, ProfileError, ["tp up to 0"]),
        ({"micro_batch_sizes": (3, 5), "cost_model": "metis"}, SpecError,
         ["16", "micro-batch 3, 5", "15 would be"]),
        ({"micro_batch_sizes": (0,)}, SpecError, ["micro-batch size", "at least 1", "0"]),
        ({"cost_model": "metis", "space": "metis", "max_stages": 2}, UsageError,
         ["max_stages", "`space=metis`"]),
        ({"profile": without("T4")}, ProfileError, ["'T4'", "A100"]),
        ({"profile": without("T4"), "cost_model": "metis"}, ProfileError, ["'T4'", "A100"]),
        ({"sizes": ModelSizes(sequence=8)}, UsageError, ["hidden", "model"]),
        ({"sizes": ModelSizes(hidden=8)}, UsageError, ["sequence", "model"]),
        ({"sizes": ModelSizes(hidden=8, sequence=8), "cost_model": "metis"}, UsageError,
         ["vocabulary", "model"]),
    ],
)  # fmt: skip
def test_refuses_in_one_line(
    options: dict[str, Any], error: type[PlannerError], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        room_problem(**options)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_vocabulary_of_0_is_said_as_well() -> None:
    files = {"profile": Reference(name="analytic")}
    asked = Request(files=files, space="operators", vocabulary=0)
    with pytest.raises(UsageError, match=r"^vocabulary: found operators to plan"):
        build_problem(InputFiles(asked))


def test_an_unknown_device_type_is_one_line() -> None:
    nodes = tuple(node._replace(device="H100") for node in room().nodes)
    for cost_model in ("native", "metis"):
        with pytest.raises(ProfileError, match="'H100'"):
            room_problem(cluster=replace(room(), nodes=nodes), cost_model=cost_model)


def test_a_model_with_other_layers() -> None:
    profile = synthetic_profile(SPEEDS, LAYERS)
    check_model_layers(profile, LAYERS, "gpt.toml")
    with pytest.raises(ProfileError, match=r"profiled with 6 layers.* found 26 in gpt.toml"):
        check_model_layers(profile, 26, "gpt.toml")


@pytest.mark.parametrize(
    ("space", "model"),
    [
        ("megatron", "llama3.2-1b"),
        ("torchtitan", "llama3.2-1b"),
        ("deepspeed", "llama3.2-1b"),
        ("groups", "gpt3-350m"),
        ("operators", "gpt3-350m"),
    ],
)
def test_a_limit_is_at_most_the_devices_memory(space: str, model: str) -> None:
    plain, more, less = (
        ilp_planner.problem(model, "4xA100-40GB", space=space, global_batch=16, memory_limit=limit)
        for limit in (None, "900 GiB", "9 GiB")
    )
    memory = {name: kind.memory for name, kind in plain.cluster.device_types.items()}
    assert plain.memory_limits == more.memory_limits == memory
    assert {*less.memory_limits.values()} == {9 * GIB}
    notes = ([note for note in one.notes if "memory limit" in note] for one in (plain, more, less))
    assert [len(some) for some in notes] == [0, 1, 0]
