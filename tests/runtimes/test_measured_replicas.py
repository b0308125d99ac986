"""What replicas hold and send under Megatron-Core and DeepSpeed, measured on gloo, is predicted."""

from __future__ import annotations

import functools
import math
from collections import Counter
from importlib.util import find_spec

import pytest

from tests.runtimes.gloo_cases import MEGATRON, ZERO
from tests.runtimes.predictions import check_messages, check_states, predicted
from tests.runtimes.processes import Measured, measured

pytestmark = pytest.mark.slow


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")


@functools.cache
def with_megatron() -> dict[str, list[Measured]]:
    return measured("tests.runtimes.distributed_optimizer", MEGATRON)


@functools.cache
def with_deepspeed() -> dict[str, list[Measured]]:
    return measured("tests.runtimes.zero_stages", ZERO)


@needs("torch", "megatron")
@pytest.mark.parametrize("name", MEGATRON)
def test_megatron(name: str) -> None:
    """Buffers of Megatron are padded to 128 parameters, which those of the cases are multiples
    of."""
    job, found = MEGATRON[name], with_megatron()[name]
    check_states(job, found)
    for rank, held in enumerate(found):
        check_messages(held, predicted(job, rank))


@needs("torch", "tyro", "torchtitan", "deepspeed")
@pytest.mark.parametrize("name", ZERO)
def test_deepspeed_holds_its_states(name: str) -> None:
    check_states(ZERO[name], with_deepspeed()[name])


@needs("torch", "tyro", "torchtitan", "deepspeed")
@pytest.mark.parametrize("name", ZERO)
def test_deepspeed_sends_otherwise(name: str) -> None:
    """Named differences: gradients are all-reduced where the prediction reduces and scatters them
    (ZeRO 1 and 2), and every tensor is gathered alone (ZeRO 3)."""
    job = ZERO[name]
    whole = tuple(range(job.dp))
    for rank, held in enumerate(with_deepspeed()[name]):
        wanted = predicted(job, rank)
        (scattered,) = [message for message in wanted if message[0] == "reduce_scatter"]
        (gathered,) = [message for message in wanted if message[0] == "all_gather"]
        if job.settings.optimizer.sharding == "parameters":
            times = wanted.pop(gathered)
            wanted += Counter(
                {
                    ("all_gather", whole, 2 * size): times * count
                    for size, count in Counter(map(math.prod, held.shapes)).items()
                }
            )
            assert gathered[2] == 2 * sum(map(math.prod, held.shapes))
        else:
            wanted["all_reduce", whole, scattered[2]] = wanted.pop(scattered)
        check_messages(held, wanted)
