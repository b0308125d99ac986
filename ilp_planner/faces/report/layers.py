"""The layers of an operator range, for people who think in layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.chain_layers import Layer


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
