"""Notes on a launch line that the models of memory and communication leave out."""

import pytest

from ilp_planner.formats.megatron.arguments import read_arguments
from ilp_planner.formats.megatron.notes import unmodelled

LINE = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --bf16 "
    "--vocab-size 100 --max-position-embeddings 32768"
)


def notes(more: str) -> tuple[str, ...]:
    return unmodelled(read_arguments(f"{LINE} {more}", 8))


@pytest.mark.parametrize(
    ("length", "saved"), [(8192, ""), (16384, "256.00 MiB"), (32768, "1.00 GiB")]
)
def test_a_mask_that_nobody_reads(length: int, saved: str) -> None:
    found = notes(f"--seq-length {length}")
    assert len(found) == bool(saved)
    assert all(f"would save {saved}" in note for note in found)
    assert not notes(f"--seq-length {length} --no-create-attention-mask-in-dataloader")


def test_what_is_not_counted() -> None:
    (found,) = notes("--seq-length 64 --fp8-format hybrid")
    assert found.startswith("--fp8-format: not counted: 8-bit products")
