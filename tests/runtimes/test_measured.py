"""What ranks of small jobs hold and send, measured on gloo, is what `ilp_planner.job` says."""

import math
from collections import Counter
from importlib.util import find_spec

import pytest

from ilp_planner.job.memory import rank_memory
from tests.rank_groups import pp_rank_of
from tests.runtimes.gloo_cases import ALONE, EXACT, PIPELINES, TITAN, UNEVEN, WHOLE_LOGITS
from tests.runtimes.predictions import STATES, check_messages, check_states, few, predicted
from tests.runtimes.processes import Measured, Messages, measured

MISSING = [name for name in ("torch", "tyro", "torchtitan") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")


WORKER = "tests.runtimes.fully_sharded"
FAST = ["reshard", "keep, two micro-batches", "tensor parallel, reshard"]
LONGER = [name for name in EXACT if name not in FAST]


# Cases of a test are measured together: the processes take longer to start than a case does.
@pytest.mark.parametrize("names", [FAST, pytest.param(LONGER, marks=pytest.mark.slow)])
def test_states_and_messages_are_to_the_byte(names: list[str]) -> None:
    for name, found in measured(WORKER, names).items():
        check_states(EXACT[name], found)
        for rank, held in enumerate(found):
            wanted = predicted(EXACT[name], rank)
            check_messages(held, wanted)
            check_that_messages_are_seen(held, wanted)


def check_that_messages_are_seen(held: Measured, wanted: Messages) -> None:
    """Guard the guard: messages are larger than those that are left out, and none is missed."""
    assert min(size for _, _, size in wanted) > few(held)
    largest = max(wanted, key=lambda message: message[2])
    for other in (wanted + Counter([largest]), wanted - Counter([largest])):
        with pytest.raises(AssertionError):
            check_messages(held, other)


# ---- named differences: docs/benchmarks/measured.md says them ------------------------------------


def norms_alone(held: Measured) -> Messages:
    """Return four sums of each norm's gradient: one for its norm, three in Adam's step."""
    norms = [shape[0] for shape in held.shapes if len(shape) == 1]
    return Counter({("all_reduce", (0, 1), 4 * size): 4 * norms.count(size) for size in norms})


@pytest.mark.slow
def test_tensor_parallelism_alone() -> None:
    """Without FSDP nothing sums the norms' gradients before each use, and the embedding's is
    whole. Loss on whole logits gathers them, in place of three sums for each token."""
    for name, found in measured(WORKER, ALONE).items():
        job = ALONE[name]
        check_states(job, found, ("parameters", "optimizer"))
        tokens = job.micro_batch * job.model.sequence
        others = job.model.vocab * job.model.hidden // 2 * 4
        for rank, held in enumerate(found):
            assert held.gradients == rank_memory(job, 0).terms["gradients"] + others
            wanted = predicted(job, rank)
            norms = sum(shape[0] for shape in held.shapes if len(shape) == 1)
            del wanted["all_reduce", (0, 1), norms * 4]
            if job in WHOLE_LOGITS:
                assert wanted.pop(("all_reduce", (0, 1), tokens * 4)) == 3 * job.micro_batches
                logits = tokens * job.model.vocab * 4
                wanted["all_gather", (0, 1), logits] = job.micro_batches
            check_messages(held, wanted + norms_alone(held))


@pytest.mark.slow
def test_uneven_shards_are_padded() -> None:
    """`fully_shard` divides rows: the first ranks hold the larger part of each tensor, and messages
    have equal parts for all. The prediction is the mean of what ranks hold."""
    job = TITAN["uneven"]
    found, terms = measured(WORKER, ["uneven"])["uneven"], rank_memory(job, 0).terms
    assert job.model == UNEVEN
    for name in STATES:
        held = [getattr(one, name) for one in found]
        assert sum(held) == terms[name] * job.dp
        assert max(held) > terms[name]
    shapes = found[0].shapes
    most = sum(math.ceil(shape[0] / job.dp) * math.prod(shape[1:]) for shape in shapes)
    assert found[0].parameters == 4 * most
    for rank, held in enumerate(found):
        wanted = predicted(job, rank)
        numbers = [Counter(kind for kind, *_ in m.elements()) for m in (wanted, held.messages)]
        assert numbers[1] - numbers[0] == {"all_reduce": 1}  # of the gradient's norm
        assert not numbers[0] - numbers[1]
        for kind, width, times in (("all_gather", 2, 2), ("reduce_scatter", 4, 1)):
            sent = sum(n * s for (k, _, s), n in held.messages.items() if k == kind)
            said = sum(n * s for (k, _, s), n in wanted.items() if k == kind)
            assert sent == times * width * job.dp * most
            assert said == times * width * sum(map(math.prod, shapes))


# ---- pipelines ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_stages_of_a_pipeline() -> None:
    for name, found in measured(WORKER, PIPELINES).items():
        job = PIPELINES[name]
        for rank, held in enumerate(found):
            check_messages(held, predicted(job, rank))
        if name != "virtual stages":
            check_states(job, found)
            continue
        # A named difference: whole stages are gathered ahead of their turn, at most three of them.
        check_states(job, found, ("gradients", "optimizer"))
        for rank, held in enumerate(found):
            memory = rank_memory(job, pp_rank_of(job, rank))
            whole = held.parameters - memory.terms["parameters"]
            assert 0 < whole <= memory.parameters * job.settings.width
