"""Plans of models with sparse attention: no legal one takes less than its bound."""

import pytest

from ilp_planner.inputs.constraints import constraints_of
from tests.megatron_cases import GIB, small_cluster
from tests.random_problems import SPARSE, hopper
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster


def problem_of(kind, memory=9.0, asked=None, **changes):
    base, own = SPARSE[kind]
    return runtime_problem(
        "megatron",
        base,
        cluster=hopper(small_cluster(2, 2)),
        global_batch=8,
        memory_limit=int(memory * GIB),
        constraints=constraints_of(asked or {}),
        changes={**own, "layers": 4, "vocab": 2000, "sequence": 512, **changes},
    )


@pytest.mark.parametrize("kind", sorted(SPARSE))
@pytest.mark.parametrize("memory", [2.4, 9.0])
def test_no_plan_is_faster_than_the_bound(kind, memory):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20
