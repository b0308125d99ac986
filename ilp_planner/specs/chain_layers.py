"""The layers of a chain of operators: repeated ones, and the operators around them."""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST = ("1st-layernorm", "-conv1")  # how the name of a layer's first operator ends
LAST = ("post-MLP-dropout", "-relu")  # and that of its last


@dataclass(frozen=True, slots=True)
class Layer:
    """Operators [start, stop). side: `enc`, `dec` or `block`; number: from 1 on each side."""

    side: str
    number: int
    start: int
    stop: int


def find_layers(operators: Sequence[str]) -> tuple[Layer, ...]:
    """Return the repeated layers of a chain, in order; others are in none."""
    starts = [i for i, name in enumerate(operators) if name.endswith(FIRST)]
    layers: list[Layer] = []
    for place, start in enumerate(starts):
        side = operators[start].split("-")[0]
        following = starts[place + 1] if place + 1 < len(starts) else len(operators)
        before = layers[-1] if layers and layers[-1].side == side else None
        # Layers of a side are equally long: the last one ends before what follows it.
        ends = (i + 1 for i in range(start, following) if operators[i].endswith(LAST))
        length = before.stop - before.start if before else next(ends, following) - start
        stop = min(start + length, following)
        layers.append(Layer(side, before.number + 1 if before else 1, start, stop))
    return tuple(layers)


@dataclass(frozen=True, slots=True)
class Segment:
    """Operators [start, stop), to be placed as a whole."""

    name: str
    start: int
    stop: int


def segments(operators: Sequence[str]) -> tuple[Segment, ...]:
    """Return the whole chain in layers.

    Segments are the operators before the first repeated layer (`embedding` or `stem`), each
    repeated layer, the operators between two sides, and the last ones (`head`). A GPT of n
    transformer layers has n + 2, as Metis counts.
    """
    layers = find_layers(operators)
    several = len({layer.side for layer in layers}) > 1
    found: list[Segment] = []
    done = 0

    def fill(stop: int, name: str) -> None:
        if stop > done:
            found.append(Segment(name, done, stop))

    for layer in layers:
        first = "embedding" if operators[0].endswith("embedding") else "stem"
        fill(layer.start, operators[layer.start - 1] if done else first)
        kind = layer.side if several or layer.side == "block" else "layer"
        found.append(Segment(f"{kind} {layer.number}", layer.start, layer.stop))
        done = layer.stop
    fill(len(operators), "head" if done else "model")
    return tuple(found)
