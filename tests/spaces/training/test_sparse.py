"""Plans of models with sparse attention: no legal one takes less than its bound."""

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.specs.decoder import SparseAttention
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


SHARES = {"sparse": SparseAttention(heads=8, head=64, top_k=128, every=2, offset=1)}


def test_no_plan_of_shared_keys_is_faster_than_the_bound():
    """Of one stage, as all plans are that are searched."""
    problem = problem_of("sparse", **SHARES)
    assert assert_none_is_faster(problem, seed=7, count=60) >= 20
    assert len(solve(problem).plan.stages) == 1


def test_pipelines_of_shared_keys_are_refused_by_name():
    with pytest.raises(InfeasibleError, match="found pp 2, expected 1: stages that begin with a l"):
        solve(problem_of("sparse", asked={"pp": "2"}, **SHARES))


def test_keys_are_gathered_where_tokens_are_divided():
    problem = problem_of("sparse", asked={"cp": "2"})
    assert solve(problem).plan.settings.cp_comm == "all_gather"
    with pytest.raises(InfeasibleError, match="keys that an indexer chooses are gathered"):
        solve(problem_of("sparse", asked={"cp": "2", "cp_comm": "p2p"}))
