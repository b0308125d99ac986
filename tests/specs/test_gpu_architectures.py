"""Features of architectures: what code that asks for a compute capability finds, on every row."""

import copy
import pickle

import pytest

from ilp_planner.specs.gpu_architectures import ARCHITECTURES, GpuArchitecture, first_with, oldest
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.gpus import Gpu, table
from ilp_planner.specs.machine import USUAL
from ilp_planner.specs.training import QUANTISED
from tests.examples import for_each

MIB = 2**20
ROWS = list(table().values())
NVIDIA = [row for row in ROWS if row.architecture.vendor == "NVIDIA"]
AMD = [row for row in ROWS if row.architecture.vendor == "AMD"]
EVERY = list(ARCHITECTURES.values())


@for_each("row", NVIDIA)
def test_nvidia_s_architectures_are_those_of_their_compute_capability(row: Gpu) -> None:
    """As the sources ask that the features name."""
    own, (major, minor) = row.architecture, row.capability
    assert own.bf16 == own.flash_attention == own.deep_ep == (major >= 8)
    assert own.own_attention == (major >= 9)
    assert own.own_attention_repeats == (major == 9)
    assert own.either_way == (10 <= major < 12)
    assert own.blas_workspace == (32 if major == 9 else 8.125) * MIB
    assert own.engine_workspace == (32 if major >= 9 else 4) * MIB
    assert ("mxfp8" in own.recipes) == (10 <= major < 12)
    assert ("nvfp4" in own.recipes) == (major >= 10)
    assert ("fp8-blockwise" in own.recipes) == (major >= 9)
    assert {"fp8-delayed", "fp8-current"} <= set(own.recipes)
    assert own.machine == {9: "H100", 10: "B200"}.get(major, "A100")
    assert (own.name == "Ada") == ((major, minor) == (8, 9))
    assert own.assumed == ""


@for_each("row", AMD)
def test_amd_s_architectures_say_what_they_are_taken_for(row: Gpu) -> None:
    own, like = row.architecture, ARCHITECTURES[row.architecture.taken_for]
    assert row.capability[0] == 9
    assert like.name == "Hopper"
    for name in ("own_attention", "own_attention_repeats", "either_way"):
        assert getattr(own, name) == getattr(like, name)
    assert f"{own.name} is taken for {like.name}" in own.assumed
    assert "fp8-blockwise" not in own.recipes


@for_each("row", ROWS)
def test_results_say_what_an_architecture_is_taken_for(row: Gpu) -> None:
    cluster = gpu_cluster(parse_gpus(f"{row.node}x{row.name}"))
    said = [note for note in cluster.notes if " is taken for " in note]
    assert said == [f"architecture of {row.name}: {row.architecture.assumed}"] * (row in AMD)


@for_each("one", EVERY)
def test_an_architecture_holds_together(one: GpuArchitecture) -> None:
    assert set(one.recipes) <= set(QUANTISED)
    assert list(one.recipes) == [recipe for recipe in QUANTISED if recipe in one.recipes]
    assert one.flash_attention or not one.own_attention
    assert one.own_attention or not one.own_attention_repeats
    assert one.machine in USUAL
    assert any(row.architecture == one for row in ROWS)
    for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert again == one
        assert hash(again) == hash(one)


def test_the_oldest_of_some_is_the_first_of_them() -> None:
    for i, one in enumerate(EVERY):
        assert all(oldest([other, one]) == one for other in EVERY[i:])
    majors = [
        row.capability[0] for row in sorted(NVIDIA, key=lambda r: EVERY.index(r.architecture))
    ]
    assert majors == sorted(majors)


@pytest.mark.parametrize(
    ("recipe", "vendor", "name"),
    [
        ("fp8-delayed", "NVIDIA", "Kepler"),
        ("fp8-blockwise", "NVIDIA", "Hopper"),
        ("mxfp8", "NVIDIA", "Blackwell"),
        ("mxfp8", "AMD", "CDNA 4"),
        ("fp8-blockwise", "AMD", None),
        ("nvfp4", "AMD", None),
    ],
)
def test_the_first_with_a_recipe(recipe: str, vendor: str, name: str | None) -> None:
    found = first_with(recipe, vendor)
    assert (found and found.name) == name
