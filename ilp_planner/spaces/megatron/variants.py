"""Schedules and recomputations of one choice of degrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.specs.training import Recompute

if TYPE_CHECKING:
    from ilp_planner.spaces.megatron.parts import MegatronPart

NOTHING = Recompute()
SELECTIVE = Recompute(granularity="selective")
FULL = Recompute(granularity="full", method="uniform", layers=1)


Family = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Variant:
    """virtual: stages per pipeline rank."""

    virtual: int
    recompute: Recompute

    @property
    def family(self) -> Family:
        """All but how many layers are computed again."""
        return self.virtual, self.recompute.granularity, self.recompute.method

    def __str__(self) -> str:
        again = self.recompute
        text = again.granularity
        if text == "full":
            text = f"{again.method} {again.layers}"
        return f"virtual {self.virtual}, recompute {text}"


def virtual_stages(part: MegatronPart) -> tuple[int, ...]:
    """Return the possible numbers of virtual stages per rank.

    The interleaved schedule takes micro-batches in groups of pp.
    """
    pp, layers = part.degrees.pp, part.costs.model.layers
    if pp == 1 or part.micro_batches % pp:
        return (1,)
    # the last virtual stage may have the output alone; where stages are chosen one by one, the
    # first one the embedding as well
    alone = 1 if part.alike else 2
    return tuple(range(1, max(1, (layers + alone) // pp) + 1))


def variants(part: MegatronPart) -> tuple[Variant, ...]:
    """Return all variants of a part."""
    pp, layers = part.degrees.pp, part.costs.model.layers
    found = []
    for virtual in virtual_stages(part):
        # Layers in a virtual stage, at most: the others of the rank have as many, the other
        # ranks one in each, but for the output's.
        most = layers - max(0, pp * virtual - 2)
        even = virtual > 1 and part.alike
        longest = 1 + -(-most // virtual) if even else most
        blocks = [
            Recompute(granularity="full", method="block", layers=k) for k in range(1, longest)
        ]
        found += [Variant(virtual, r) for r in (NOTHING, SELECTIVE, FULL, *blocks)]
    return tuple(found)
