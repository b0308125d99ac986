"""Plans of hybrids: no legal one takes less than its bound, and all train all of the model."""

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from tests.megatron_cases import GIB, small_cluster
from tests.random_problems import HYBRIDS
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster


def problem_of(kind, memory, asked=None):
    base, changes = HYBRIDS[kind]
    return runtime_problem(
        "megatron",
        base,
        cluster=small_cluster(2, 2),
        global_batch=8,
        memory_limit=int(memory * GIB),
        constraints=constraints_of(asked or {}),
        changes={**changes, "layers": 8, "vocab": 2000, "sequence": 512},
    )


@pytest.mark.parametrize("kind", sorted(HYBRIDS))
@pytest.mark.parametrize("memory", [1.6, 9.0])
def test_no_plan_is_faster_than_the_bound(kind, memory):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20


@pytest.mark.parametrize(
    "asked", [{"lora": "8", "lora_targets": "linear_proj"}, {"freeze": "layers:0-1"}]
)
def test_no_plan_trains_a_part_of_a_hybrid(asked):
    with pytest.raises(InfeasibleError, match="no plan of small on 4 devices has it"):
        solve(problem_of("Mamba", 9.0, asked))


def test_without_adapters_where_both_are_allowed():
    found = solve(problem_of("Mamba and experts", 9.0, {"lora": "0,8"})).plan
    assert found is not None
    assert not found.settings.tuning
