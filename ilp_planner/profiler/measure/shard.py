"""The kinds of parts that a chain has, and runs of them; degrees that divide a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError

if TYPE_CHECKING:
    from ilp_planner.specs.decoder import Decoder

EMBEDDING, HEAD = "embedding", "head"
STEM, BETWEEN = "stem", "decoder-embedding"  # of a Wide ResNet; of a T5, between its sides
ENCODER, DECODER = "enc", "dec"  # layers of an encoder-decoder
AROUND = (EMBEDDING, STEM, BETWEEN, HEAD)  # what is around layers, and never recomputed
DENSE, EXPERTS = "layer", "layer with experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive layers of a kind along the chain; the embedding is layer 0, the head the last."""

    kind: str
    first: int
    last: int

    @property
    def layers(self) -> str:
        """Return the range as a table writes it."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


def check_degree(tp: int, parts: int) -> None:
    """Refuse a tensor-parallel degree that does not divide a model's parts."""
    if parts % tp:
        possible = ", ".join(str(t) for t in range(1, min(parts, 64) + 1) if parts % t == 0)
        raise UsageError(f"tp: found {tp}, expected a divisor of {parts}: {possible}")


def check_spread(decoder: Decoder, *, tp: int, cp: int, ep: int, etp: int) -> None:
    """Refuse degrees that do not divide a decoder's tokens and experts. etp: 0 for tp."""
    if cp > 1 and decoder.sequence % (2 * cp):
        raise UsageError(
            f"cp: found {cp}, expected half of a divisor of the {decoder.sequence} tokens of a "
            "sample: a rank has two parts of it"
        )
    if decoder.experts is None:
        if ep > 1 or etp:
            name, found = ("ep", ep) if ep > 1 else ("etp", etp)
            raise UsageError(f"{name}: found {found}, expected none: the model has no experts")
        return
    count = decoder.experts.count
    if count % ep:
        possible = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
        raise UsageError(f"ep: found {ep}, expected a divisor of {count} experts: {possible}")
    if etp not in (0, 1, tp):
        raise UsageError(f"etp: found {etp}, expected 1 or tp, {tp}")
