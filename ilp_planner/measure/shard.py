"""The kinds of parts that a chain has, and runs of them; degrees that divide a model."""

from __future__ import annotations

from dataclasses import dataclass

from ilp_planner.errors import UsageError

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
