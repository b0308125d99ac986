"""Errors of times up to which a plan stays as good as claimed."""

from __future__ import annotations

import math


def guarantee(ratio: float, low: float, high: float) -> float:
    """Return an upper bound on the true time of a plan over that of the best plan.

    Where every plan truly takes between `low` and `high` times what the cost model says, the plan
    takes at most `high` times its own seconds, and no other one less than `low` times the bound:
    (1 + gap) high / low, with 1 + gap the ratio of its seconds to the bound.

    Parameters
    ----------
    ratio: of the plan's seconds to the bound. low, high: of true over predicted seconds; without a
        positive `low` there is no guarantee: inf.
    """
    return ratio * high / low if low > 0 else math.inf


def survived(ratio: float, within: float) -> float:
    """Return the largest relative error of all times that keeps a plan within so much of the best,
    by `guarantee` between 1 less it and 1 plus it; 0 if it need not be even if all times are true.

    Parameters
    ----------
    ratio: as in `guarantee`. within: relative, as 0.05.
    """
    room = (1 + within) / ratio if ratio > 0 else 0.0
    return max(0.0, (room - 1) / (room + 1))


def turned(before: float, after: float) -> float:
    """Return the least relative error of both times, in seconds, that can make the slower of two
    plans the faster one."""
    low, high = sorted((before, after))
    return (high - low) / (high + low)
