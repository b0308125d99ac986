"""A micro-batch size for a first plan: a climb among the sizes that are tried."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.inputs.problem import Problem

MUCH = 0.05  # relative: of a step of the climb


def climbed(
    problem: Problem[Any], sizes: Sequence[int], seconds: Callable[[int], float]
) -> int | None:
    """Return the micro-batch size with the fastest first plan near the most promising one; None if
    no size has a plan.

    The climb begins at the root of the number of devices, or of samples if they are fewer: stages
    are then as many as their devices. Smaller micro-batches spend more on messages between stages,
    larger ones on gradients, so that neighbours are looked at while they are much better.

    Parameters
    ----------
    sizes: samples over all replicas, ascending. seconds: of the first plan with a size, inf for
        none; asked once for each size.
    """
    square = math.log(min(problem.cluster.device_count, problem.global_batch)) / 2
    distance = [(round(abs(math.log(size) - square), 9), -size) for size in sizes]
    asked: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in asked:
            asked[place] = seconds(sizes[place]) if 0 <= place < len(sizes) else math.inf
        return asked[place]

    for start in sorted(range(len(sizes)), key=distance.__getitem__):
        if at(start) < math.inf:
            break
    else:
        return None
    for step in (-1, 1):
        while at(start + step) < at(start) * (1 - MUCH):
            start += step
    return sizes[min((start - 1, start, start + 1), key=at)]
