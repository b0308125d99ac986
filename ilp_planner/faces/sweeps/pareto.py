"""The Pareto front of rows in all objectives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Pair = tuple[float, float]


def pareto_front(values: Sequence[Pair]) -> list[bool]:
    """Tell of every pair whether it is on the front: none is at most as large in both numbers, and
    smaller in one.

    Parameters
    ----------
    values: the smaller the better; a pair with nan is on no front. For one objective alone, the
        second numbers are all equal.
    """
    known = {pair for pair in values if not any(map(math.isnan, pair))}
    front: set[Pair] = set()
    least = math.inf
    for pair in sorted(known):
        if pair[1] < least:
            front.add(pair)
            least = pair[1]
    return [pair in front for pair in values]
