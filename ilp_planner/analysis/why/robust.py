"""How wrong times may be, for a plan to stay as good as it is said to be."""

from __future__ import annotations

import math


def guarantee(ratio: float, error: float) -> float:
    """Return how many times what the best plan truly takes a plan takes at most.

    Where every plan truly takes between 1 - d and 1 + d times what the cost model says, the plan
    takes at most 1 + d times its own seconds, and no other one less than 1 - d times the bound:
    (1 + gap) (1 + d) / (1 - d), with 1 + gap the ratio of its seconds to the bound.

    Parameters
    ----------
    ratio: of the plan's seconds to a bound on those of all plans. error: d, relative; inf where
        there is no guarantee, from 1 on.
    """
    return ratio * (1 + error) / (1 - error) if error < 1 else math.inf


def survived(ratio: float, within: float) -> float:
    """Return the largest relative error of all times with which a plan is within so much of the
    best, by `guarantee`; 0 where it need not be even if all times are true.

    Parameters
    ----------
    ratio: as in `guarantee`. within: relative, as 0.05.
    """
    room = (1 + within) / ratio if ratio > 0 else 0.0
    return max(0.0, (room - 1) / (room + 1))


def turned(before: float, after: float) -> float:
    """Return the least relative error of both times, in seconds, with which the slower of two plans
    may be the faster one."""
    low, high = sorted((before, after))
    return (high - low) / (high + low)
