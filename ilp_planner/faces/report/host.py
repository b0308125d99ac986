"""The offloaded parts of a job in the host's memory, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.units import format_percent

if TYPE_CHECKING:
    from ilp_planner.specs.training import Settings


def describe_offload(settings: Settings) -> str:
    """Return `on the host: 50.00 % of the states, activations of core_attn`; empty for nothing."""
    found = []
    if share := settings.optimizer.offload:
        found.append(f"{format_percent(share)} of the states")
    if layers := settings.offload.layers:
        found.append(f"activations of the first {layers} layers")
    if modules := settings.offload.modules:
        found.append(f"activations of {' '.join(modules)}")
    return f"on the host: {', '.join(found)}" if found else ""
