"""Why no plan exists: the layer that fits nowhere, and by how many bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from ilp_planner.mixed.problem import GroupProblem


def explain(problem: GroupProblem) -> str:
    """Return one line for a problem that is proved infeasible."""
    limits = ", ".join(
        f"{name} {format_bytes(limit)}" for name, limit in problem.memory_limits.items()
    )
    needs = problem.costs.least_memory() if hasattr(problem.costs, "least_memory") else None
    if needs is not None:
        layer, device, need = needs
        limit = problem.memory_limits[device]
        if need > limit:
            return (
                f"layer {layer} ({problem.costs.layers[layer]}) fits no device: it needs at least "
                f"{format_bytes(need)} on {device}, {format_bytes(need - limit)} more than the limit"
            )
    return f"in every plan some device would need more memory than it has ({limits})"
