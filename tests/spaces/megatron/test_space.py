"""What the spaces of training jobs say their proofs are about."""

from __future__ import annotations

import pytest

from ilp_planner.inputs.constraints import constraints_of
from tests.megatron_cases import small_cluster
from tests.runtime_cases import runtime_problem

EVERY = "none, core_attn, mlp, layernorm, layernorm mlp, uniform 1 or block of any number of layers"
EVEN = (
    ", spread evenly over its virtual stages, the first or the last ones with one more, the ends "
    "alone or not, or, where layers differ, as many in each but the first and the last"
)
DIVIDED = (
    ", with interleaved-zb, zb-v or dualpipe-v also as many in all of these, or on all ranks but "
    "that of the output"
)
ANYHOW = ", spread anyhow over its virtual stages"


@pytest.mark.parametrize(
    ("space", "asked", "again", "spread"),
    [
        ("megatron", {}, EVERY, EVEN),
        ("megatron", {"recompute": "none"}, "none", EVEN),
        ("megatron", {"recompute": "block"}, "block of any number of layers", EVEN),
        ("megatron", {"layout": "even"}, EVERY, ", as the layout says"),
        ("torchtitan", {}, "none, operators or uniform 1", EVEN + DIVIDED),
        ("torchtitan", {"schedule": "1f1b"}, "none, operators or uniform 1", EVEN),
        ("torchtitan", {"remainder": "alone"}, "none, operators or uniform 1", EVEN),
        ("torchtitan", {"layout": "even"}, "none, operators or uniform 1", ", as the layout says"),
        ("megatron", {"layout": "any"}, EVERY, ANYHOW),
        ("torchtitan", {"layout": "any"}, "none, operators or uniform 1", ANYHOW + DIVIDED),
        ("deepspeed", {"layout": "any"}, "none, uniform 1 or uniform 3", ""),
        ("deepspeed", {}, "none, uniform 1 or uniform 3", ""),
    ],
)
def test_what_is_tried_of_recomputation_and_layouts_is_said(
    space: str, asked: dict[str, str], again: str, spread: str
) -> None:
    problem = runtime_problem(space, cluster=small_cluster(1, 2), constraints=constraints_of(asked))
    said = problem.space.describe(problem)
    named = "".join(f", {name} {value}," for name, value in asked.items())
    assert said.startswith(f"plans with 1, 2, 4 micro-batches{named} of the planner's settings, ")
    assert said.endswith(
        f"; recomputation {again}; a rank's layers, the embedding and the output layer with their "
        f"neighbours{spread}"
    )


def test_what_is_tried_of_sharding_and_of_context_parallelism_is_said() -> None:
    problem = runtime_problem("megatron", cluster=small_cluster(1, 2))
    said = problem.space.describe(problem)
    assert ", optimizer or parameters sharded, cp at most 8 by p2p or a2a, " in said
