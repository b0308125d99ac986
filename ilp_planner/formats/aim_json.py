"""The objective of a search over sets of nodes and its proof, as JSON: sets by their nodes of each
kind."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ilp_planner.optimize.result import Aim

AIM_KEYS = ("name", "max_price_per_hour", "devices", "bound", "gap", "sets")
SET_KEYS = ("counts", "price_per_hour", "bound_s", "covered", "parts")


def encode_aim(aim: Aim) -> dict[str, Any]:
    """Return its content for a file. bound, gap: of the plan that the file is of."""
    return {
        "name": aim.objective,
        "max_price_per_hour": aim.max_hourly if math.isfinite(aim.max_hourly) else None,
        "devices": dict(aim.devices),
        "bound": aim.best[0].bound,
        "gap": aim.best[0].gap,
        "sets": [
            {
                "counts": list(one.counts),
                "price_per_hour": None if math.isnan(one.hourly) else one.hourly,
                "bound_s": one.bound if math.isfinite(one.bound) else None,
                "covered": one.covered,
                "parts": list(one.parts),
            }
            for one in aim.sets
        ],
    }
