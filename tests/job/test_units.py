"""Whole parameters and gradients of FSDP's units, of made-up parts."""

from dataclasses import replace

import pytest

from ilp_planner.job.memory import gathered, left_gathered, whole_gradients
from ilp_planner.job.parts import KINDS, MemoryParts, Part, memory_parts
from ilp_planner.job.quantised import gathered_width
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings
from tests.training_jobs import job, settings

SIZES = {
    "layer": 100,
    "expert layer": 1000,
    "embedding": 300,
    "output": 310,
    "final norm": 3,
    "prediction layer": 150,
    "copied words": 290,
}


def parts(
    sharding: str, *, from_master: bool = False, pp: int = 4, virtual: int = 1, quantised: str = ""
) -> MemoryParts:
    optimizer = OptimizerSettings(sharding=sharding, from_master=from_master, gradient=4)
    case = job(
        pp=pp,
        layout=split_layout([8 // (pp * virtual)] * (pp * virtual)),
        settings=settings(optimizer=optimizer, kernels=Kernels(quantised=quantised)),
    )
    made = memory_parts(case)
    own = {kind: Part(parameters=SIZES[kind]) for kind in KINDS}
    return replace(made, parts=own)


def counted(**counts: int) -> dict[str, int]:
    return dict.fromkeys(KINDS, 0) | {name.replace("_", " "): n for name, n in counts.items()}


FIRST = counted(embedding=1, layer=2)
LAST = counted(layer=2, expert_layer=1, output=1, final_norm=1)


def test_layers_in_use_are_whole_and_what_is_none_stays_so() -> None:
    """Two bytes of two layers, the largest that there is twice."""
    zero = parts("parameters")
    assert gathered(zero, FIRST) == 2 * (2 * 100 + 300)
    assert gathered(zero, LAST) == 2 * (2 * 1000 + 310 + 3)
    assert gathered(zero, counted(layer=1, prediction_layer=1)) == 2 * 2 * 150
    assert gathered(zero, counted()) == 0
    for sharding in ("none", "optimizer", "gradients"):
        assert gathered(parts(sharding), LAST) == 0
    low = parts("parameters", quantised="mxfp8")
    assert gathered(low, FIRST) == gathered_width(low.job) * 2 * 100 + 2 * 300


def test_units_of_fully_shard_are_the_layer_in_use_and_the_next() -> None:
    """Which may be what is no layer, where that is larger."""
    own = parts("parameters", from_master=True, pp=1)
    assert gathered(own, FIRST) == 2 * (100 + 300)
    assert gathered(own, LAST) == 2 * (1000 + 1000)
    assert gathered(own, counted(layer=3)) == 2 * (100 + 100)


def test_virtual_stages_are_gathered_whole() -> None:
    own = parts("parameters", from_master=True, pp=2, virtual=2)
    assert gathered(own, LAST) == 2 * (2 * 100 + 1000 + 310 + 3)
    assert left_gathered(own, counted(layer=5, output=1)) == 0


def test_in_a_pipeline_a_backward_pass_leaves_parameters_gathered() -> None:
    """All but those of the two units that always are."""
    own = parts("parameters", from_master=True, pp=2)
    assert gathered(own, LAST) == 2 * 2000
    assert left_gathered(own, counted(layer=5, output=1)) == 2 * (500 + 310 - 410)
    assert left_gathered(own, counted(output=1)) == 0
    many = counted(layer=5, output=1)
    assert left_gathered(parts("parameters", from_master=True, pp=1), many) == 0
    assert left_gathered(parts("parameters"), many) == 0


@pytest.mark.parametrize("sharding", ["gradients", "parameters"])
def test_gradients_of_layers_in_use_are_whole(sharding: str) -> None:
    """In four bytes, with those of the output; at the end those of what is no layer."""
    zero = parts(sharding)
    assert whole_gradients(zero, LAST) == (4 * (2 * 1000 + 313), 4 * 313)
    assert whole_gradients(zero, FIRST) == (4 * 2 * 100, 4 * 300)
    own = parts(sharding, from_master=True, pp=1)
    assert whole_gradients(own, FIRST) == (4 * 400, 4 * 400)
    assert whole_gradients(parts("optimizer"), LAST) == (0, 0)
