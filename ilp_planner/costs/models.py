"""Cost models of operators by name: time and memory of a stage, by our formulas or a system's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.parts import part
from ilp_planner.costs.native import NativeCosts

if TYPE_CHECKING:
    from ilp_planner.costs.chain import ChainCosts

COST_MODELS = ("aceso", "native")


def costs_named(name: str) -> type[ChainCosts]:
    """Return one of `COST_MODELS`."""
    if name == "native":
        return NativeCosts
    found: type[ChainCosts] = part(f"peers.{name}.costs:COSTS")
    return found
