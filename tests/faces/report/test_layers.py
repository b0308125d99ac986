"""Operators told in layers."""

from ilp_planner.faces.report.stages import describe_layers
from ilp_planner.specs.chain_layers import find_layers
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.t5 import T5
from tests.examples import for_each

GPT = Gpt(layers=3, hidden=64, heads=2, sequence=16, vocab=64).operators
T5_CHAIN = T5(
    layers=2, hidden=64, heads=2, kv_channels=32, encoder_sequence=16, decoder_sequence=8, vocab=64
).operators


@for_each(
    ("start", "stop", "text"),
    [
        (0, 1, "-"),
        (0, 14, "1"),
        (0, 42, "1-3"),
        (0, 20, "1, part of 2"),
        (20, 42, "part of 2, 3"),
        (15, 16, "part of 2"),
        (5, 30, "part of 1, 2, part of 3"),
    ],
)
def test_describes_a_range(start: int, stop: int, text: str) -> None:
    assert describe_layers(find_layers(GPT), start, stop) == text


def test_describes_both_sides_of_t5() -> None:
    layers = find_layers(T5_CHAIN)
    assert describe_layers(layers, 0, len(T5_CHAIN)) == "enc 1-2, dec 1-2"
    assert describe_layers(layers, 20, 31) == "part of enc 2, part of dec 1"
