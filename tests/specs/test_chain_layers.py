"""Which operators repeat."""

from itertools import pairwise

from ilp_planner.specs.chain_layers import find_layers, segments
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from tests.examples import for_each

GPT = Gpt(layers=3, hidden=64, heads=2, sequence=16, vocab=64).operators
T5_CHAIN = T5(
    layers=2, hidden=64, heads=2, kv_channels=32, encoder_sequence=16, decoder_sequence=8, vocab=64
).operators
RESNET = WideResNet(blocks=(2, 1), in_channels=8, width_factor=2).operators


def test_layers_cover_what_repeats() -> None:
    layers = find_layers(GPT)
    assert [(x.start, x.stop, x.number) for x in layers] == [(1, 14, 1), (14, 27, 2), (27, 40, 3)]


def test_encoder_and_decoder_are_counted_apart() -> None:
    layers = find_layers(T5_CHAIN)
    assert [(x.side, x.number, x.stop - x.start) for x in layers] == [
        ("enc", 1, 13),
        ("enc", 2, 13),
        ("dec", 1, 21),
        ("dec", 2, 21),
    ]
    assert T5_CHAIN[layers[1].stop] == "enc-final-layernorm"


def test_blocks_of_a_resnet() -> None:
    layers = find_layers(RESNET)
    assert [(x.start, x.stop) for x in layers] == [(4, 12), (12, 20), (20, 28)]
    assert [x.number for x in layers] == [1, 2, 3]


def names(operators: tuple[str, ...]) -> list[str]:
    return [segment.name for segment in segments(operators)]


@for_each(
    ("model", "names"),
    [
        (
            T5(
                layers=1,
                hidden=8,
                heads=2,
                kv_channels=4,
                encoder_sequence=8,
                decoder_sequence=4,
                vocab=16,
            ),
            ["embedding", "enc 1", "decoder-embedding", "dec 1", "head"],
        ),
        (Gpt(layers=1, hidden=8, heads=2, sequence=8, vocab=16), ["embedding", "layer 1", "head"]),
        (WideResNet(blocks=(1,), in_channels=2, width_factor=1), ["stem", "block 1", "head"]),
    ],
)
def test_a_single_layer_ends_where_it_ends(model, names) -> None:
    """There is no other to be as long as."""
    assert [part.name for part in segments(model.operators)] == names


def test_segments_are_the_layers_and_what_is_around_them() -> None:
    assert names(GPT) == ["embedding", "layer 1", "layer 2", "layer 3", "head"]
    assert names(RESNET) == ["stem", "block 1", "block 2", "block 3", "head"]
    assert names(T5_CHAIN) == [
        "embedding",
        "enc 1",
        "enc 2",
        "decoder-embedding",
        "dec 1",
        "dec 2",
        "head",
    ]


@for_each("operators", [GPT, T5_CHAIN, RESNET, ("only", "these")])
def test_segments_cover_the_chain_once(operators: tuple[str, ...]) -> None:
    parts = segments(operators)
    assert parts[0].start == 0
    assert parts[-1].stop == len(operators)
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert all(part.start < part.stop for part in parts)
