"""Plans of hybrids, of all of the model or of a part: no legal one takes less than its bound."""

from itertools import product

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import ADAPTED, FORWARD_ONLY, PASSED
from tests.examples import thinned
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


@pytest.mark.few(1)
@pytest.mark.parametrize(("memory", "kind"), [*thinned(product((1.6, 9.0), sorted(HYBRIDS)), 2)])
def test_no_plan_is_faster_than_the_bound(memory, kind):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20


TUNED = {
    "Mamba": {"lora": "8", "lora_targets": "linear_qkv,in_proj", "freeze": "layers:2"},
    "Mamba and experts": {"lora": "8", "lora_targets": "linear_fc1,linear_fc2"},
    "delta nets and experts": {"freeze": "embedding,delta,layers:0-1"},
}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", sorted(HYBRIDS))
def test_no_plan_of_a_part_is_faster_than_the_bound(kind):
    assert assert_none_is_faster(problem_of(kind, 9.0, TUNED[kind]), seed=3, count=60) >= 20


def test_nothing_is_below_the_lowest_trained_layer_of_a_hybrid():
    """Of the pattern `M-*M--M*`, with adapters of attention alone."""
    problem = problem_of("Mamba", 9.0, {"lora": "8", "lora_targets": "linear_qkv"})
    plan = solve(problem).plan
    assert plan is not None
    model = problem.costs.model
    job = TrainingJob(model=model, micro_batch=1, global_batch=1, settings=plan.settings)
    states = [job.kind(number).state for number in job.layer_kinds]
    assert states == [FORWARD_ONLY, FORWARD_ONLY, ADAPTED, PASSED, PASSED, PASSED, PASSED, ADAPTED]
    kinds = [job.kind(number).kind for number in job.layer_kinds]
    assert kinds == list(model.layer_kinds)


def test_a_product_that_no_layer_has_is_refused():
    with pytest.raises(InfeasibleError, match="no plan of small on 4 devices has it"):
        solve(problem_of("Mamba", 9.0, {"lora": "8", "lora_targets": "linear_q_proj"}))
