"""Plans of models with another head than over the vocabulary."""

import pytest

from ilp_planner.job.decoder import output_module
from ilp_planner.specs.training import TrainingJob
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster


def problem_of(outputs, memory):
    return runtime_problem(
        "megatron",
        "grouped",
        cluster=small_cluster(2, 2),
        global_batch=8,
        memory_limit=int(memory * GIB),
        changes={"outputs": outputs, "tied": False, "layers": 6, "vocab": 2000, "sequence": 512},
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [1.6, 9.0])
def test_no_plan_is_faster_than_the_bound(memory):
    assert assert_none_is_faster(problem_of(3, memory), seed=7, count=40) >= 10


def test_a_head_has_its_outputs_and_keeps_no_logits_of_words():
    headed, plain = (problem_of(outputs, 9.0).costs.model for outputs in (3, 0))
    found, whole = (
        output_module(TrainingJob(model=model, micro_batch=1, global_batch=4))
        for model in (headed, plain)
    )
    assert headed.parameters["output"].split == 3 * headed.hidden
    assert found.parameters < whole.parameters
    assert found.activations < whole.activations
    with pytest.raises(ValueError, match="outputs must be 0 with tied embeddings"):
        type(headed)(layers=2, hidden=64, heads=4, sequence=64, vocab=64, outputs=2, tied=True)
