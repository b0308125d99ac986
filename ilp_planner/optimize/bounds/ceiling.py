"""The slowest possible pipeline: a bound above this proves infeasibility."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.operators import StageTables

ROUNDING = 1e-6  # relative: far more than the error of any sum of times
LEAST = 1e-9  # seconds: a pipeline of no time at all stays below this


def slowest_pipeline(tables: Sequence[StageTables], max_stages: int) -> float:
    """Return seconds that the stages of every pipeline together stay below.

    Each operator is charged its slowest option, recomputed and after the slowest change of layout;
    and the slowest `max_stages` ones its cost of receiving and of sending, each by itself.
    """
    if not tables:
        return 0.0
    inside = np.max([_slowest_inside(group) for group in tables], axis=0)
    ends = np.max([_slowest_ends(group) for group in tables], axis=0)
    total = float(inside.sum() + np.sort(ends, axis=1)[:, -max_stages:].sum())
    return max(total * (1 + ROUNDING), LEAST)


def _slowest_inside(tables: StageTables) -> NDArray[np.float64]:
    """Return the most seconds that each operator adds to its stage ([n])."""
    work = np.where(tables.allowed, tables.compute + tables.recompute, 0.0).max(axis=1)
    change = np.where(np.isfinite(tables.reshard), tables.reshard, 0.0).max(axis=(1, 2), initial=0)
    slowest: NDArray[np.float64] = work[tables.kind]
    slowest[1:] += change[tables.pair[1:]]
    return slowest


def _slowest_ends(tables: StageTables) -> NDArray[np.float64]:
    """Return the most seconds that a stage pays to begin at, and to end with, each operator
    ([2, n])."""
    allowed = tables.allowed
    enter = np.where(allowed, tables.enter, 0.0).max(axis=(0, 2))
    leave = np.where(allowed[..., None] & np.isfinite(tables.leave), tables.leave, 0.0)
    return np.asarray(np.stack((enter, leave.max(axis=(0, 2, 3))))[:, tables.kind])
