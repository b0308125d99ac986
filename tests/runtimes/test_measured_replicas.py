"""What replicas hold and send under Megatron-Core and DeepSpeed, measured on gloo, is predicted."""

import math
from collections import Counter
from importlib.util import find_spec

import pytest

from ilp_planner.specs.training import TrainingJob
from tests.runtimes.gloo_cases import MEGATRON, ZERO
from tests.runtimes.predictions import check_messages, check_states, predicted
from tests.runtimes.processes import Measured, Messages, measured

pytestmark = pytest.mark.slow


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")


@needs("torch", "megatron")
def test_megatron() -> None:
    """Buffers of Megatron are padded to 128 parameters, which those of the cases are multiples
    of."""
    for name, found in measured("tests.runtimes.distributed_optimizer", MEGATRON).items():
        check_states(MEGATRON[name], found)
        for rank, held in enumerate(found):
            check_messages(held, predicted(MEGATRON[name], rank))


@needs("torch", "tyro", "torchtitan", "deepspeed")
def test_deepspeed() -> None:
    """Named differences: gradients are all-reduced where the prediction reduces and scatters them
    (ZeRO 1 and 2), and every tensor is gathered alone (ZeRO 3)."""
    for name, found in measured("tests.runtimes.zero_stages", ZERO).items():
        check_states(ZERO[name], found)
        for rank, held in enumerate(found):
            check_messages(held, as_deepspeed_sends(ZERO[name], held, predicted(ZERO[name], rank)))


def as_deepspeed_sends(job: TrainingJob, held: Measured, wanted: Messages) -> Messages:
    whole = tuple(range(job.dp))
    (scattered,) = [message for message in wanted if message[0] == "reduce_scatter"]
    (gathered,) = [message for message in wanted if message[0] == "all_gather"]
    if job.settings.optimizer.sharding != "parameters":
        times = wanted.pop(scattered)
        return wanted + Counter({("all_reduce", whole, scattered[2]): times})
    assert gathered[2] == 2 * sum(map(math.prod, held.shapes))
    times = wanted.pop(gathered)
    sizes = Counter(map(math.prod, held.shapes))
    return wanted + Counter({("all_gather", whole, 2 * n): times * k for n, k in sizes.items()})
