"""What was asked for and decides nothing is said in the result."""

from collections.abc import Mapping
from typing import Any

import pytest

from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.specs.pipeline_layout import FIRST
from tests.examples import for_each, often
from tests.megatron_cases import small_cluster
from tests.runtime_cases import runtime_problem

DIFFER = "layers of small differ: all virtual stages but the first and the last have equally many"
IDLE = "no plan that is tried has anything that it decides"
INTERLEAVED = [name for name in RUNTIMES if name != "deepspeed"]


def remarks(space: str, model: str, said: Mapping[str, object], **options: Any) -> list[str]:
    """Return what a result says to be without effect."""
    problem = runtime_problem(space, model, constraints=constraints_of(said), **options)
    return [note for note in solve(problem).notes if ": without effect, " in note]


@pytest.mark.slow
@pytest.mark.parametrize("space", often(INTERLEAVED, "megatron", "torchtitan"))
@pytest.mark.parametrize(
    ("model", "said", "why"),
    [
        ("latent", {}, DIFFER),
        ("dense", {"layout": "even"}, "`layout=even` says which layers every virtual stage has"),
        ("dense", {"virtual_stages": 1}, "no plan that is tried has virtual stages"),
        ("dense", {"pp": 1}, "no plan that is tried has virtual stages"),
        ("dense", {}, ""),
        ("grouped", {"virtual_stages": 2}, ""),
    ],
)
def test_remainders(space: str, model: str, said: dict[str, object], why: str) -> None:
    notes = remarks(space, model, {**said, "remainder": "alone,last"})
    assert notes == [f"remainder last,alone: without effect, {why}"] * bool(why)


@pytest.mark.few(1)
@pytest.mark.parametrize(("pp", "silent"), [(1, True), (2, False)])
def test_any_layout(pp: int, silent: bool) -> None:
    why = "layout any: without effect, no plan that is tried has virtual stages"
    assert remarks("megatron", "dense", {"layout": "any", "pp": pp}) == [why] * silent


@pytest.mark.slow
@for_each(
    ("model", "name", "value", "silent"),
    [
        ("dense", "expert_overlap", "on", True),
        ("experts", "expert_overlap", "on", False),
        ("dense", "expert_overlap", "off", False),
        ("dense", "dispatcher", "flex", True),
        ("dense", "fused_permute", "on", True),
        ("experts", "fused_permute", "on", False),
        ("dense", "tensor_overlap", "on", False),
        ("latent", "tensor_overlap", "on", True),  # Megatron-LM turns it off
        ("dense", "cp_comm", "a2a", False),
        ("dense", "gradients", "bf16", False),
    ],
)
def test_choices(model: str, name: str, value: str, silent: bool) -> None:
    notes = remarks("megatron", model, {name: value}, cluster=small_cluster(1, 2))
    text = f"{name.replace('_', ' ')} {value}: without effect, {IDLE}"
    assert notes == [text] * silent


def test_a_saved_plan_is_judged_without_it() -> None:
    """Files of before say `remainder=first`, whatever the model: notes are of searches alone."""
    problem = runtime_problem(
        "megatron", "latent", constraints=constraints_of({"remainder": FIRST})
    )
    assert not any("without effect" in note for note in problem.notes)
