"""Which layers an operator range holds, for people who think in layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = ("1st-layernorm", "-conv1")  # how the name of a layer's first operator ends


@dataclass(frozen=True, slots=True)
class Layer:
    """Operators [start, stop). side: `enc`, `dec` or `block`; number: from 1 on each side."""

    side: str
    number: int
    start: int
    stop: int


def find_layers(operators: Sequence[str]) -> tuple[Layer, ...]:
    """Return the repeated layers of a chain, in order; what belongs to none is in none."""
    starts = [i for i, name in enumerate(operators) if name.endswith(FIRST)]
    layers: list[Layer] = []
    for place, start in enumerate(starts):
        side = operators[start].split("-")[0]
        following = starts[place + 1] if place + 1 < len(starts) else len(operators)
        before = layers[-1] if layers and layers[-1].side == side else None
        # Layers of a side are equally long: the last one ends before what follows it.
        length = before.stop - before.start if before else following - start
        stop = min(start + length, following)
        layers.append(Layer(side, before.number + 1 if before else 1, start, stop))
    return tuple(layers)


def describe_layers(layers: Sequence[Layer], start: int, stop: int) -> str:
    """Return the layers of operators [start, stop): `1-6, part of 7`; `-` for none."""
    several = len({layer.side for layer in layers}) > 1
    words: list[str] = []
    whole: list[Layer] = []

    def flush() -> None:
        if whole:
            first, last = whole[0].number, whole[-1].number
            side = f"{whole[0].side} " if several else ""
            words.append(f"{side}{first}-{last}" if first < last else f"{side}{first}")
            whole.clear()

    for layer in layers:
        if layer.stop <= start or layer.start >= stop:
            continue
        if whole and whole[-1].side != layer.side:
            flush()
        if start <= layer.start and layer.stop <= stop:
            whole.append(layer)
        else:
            flush()
            side = f"{layer.side} " if several else ""
            words.append(f"part of {side}{layer.number}")
    flush()
    return ", ".join(words) or "-"
