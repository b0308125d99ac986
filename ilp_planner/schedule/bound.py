"""A lower bound for all synchronous schedules, zero-bubble and V-shaped ones included.

Micro-batches enter at the first stage and gradients leave there. Let f be the time of the first
micro-batch to the first stage of rank r, through all stages before, and b the time of the last
gradient from there back to the first stage. Then no iteration takes less than

    f + forward and input-gradient work of r + b     the last input gradient of r's first stage
                                                     comes after all of its forward and input
                                                     gradients of all its stages
    f + all work of r                                weight gradients may come last

and none less than one micro-batch takes to the last stage and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.schedule.engine import StageTimes

EPSILON = 2.0**-53  # relative: of one rounding


def least_seconds(
    times: StageTimes, place: NDArray[np.integer], micro_batches: int, *, split: bool
) -> float:
    """Return a lower bound on the seconds of every schedule, safe under rounding.

    Parameters
    ----------
    place: integers [ranks, virtual], the stages of each rank (`orders.places`). split: whether the
        schedule may run some backward passes in two parts.
    """
    rank_of = np.empty(place.size, np.int64)
    rank_of[place] = np.arange(len(place))[:, None]
    crosses = rank_of[1:] != rank_of[:-1]
    back = np.minimum(times.backward, times.input) if split else times.backward
    whole = np.minimum(times.backward, times.input + times.weight) if split else times.backward
    before = _sums(times.forward, np.where(crosses, times.send_forward, 0.0))
    after = _sums(back, np.where(crosses, times.send_backward, 0.0))
    first = place.min(axis=1)
    moving = micro_batches * (times.forward + back)[place].sum(axis=1)
    all_work = micro_batches * (times.forward + whole)[place].sum(axis=1)
    ranks = before[first] + np.maximum(moving + after[first], all_work)
    through = before[-1] + times.forward[-1] + back[-1] + after[-1]
    steps = 3 * micro_batches * place.shape[1] + 4 * place.size  # of a sum, each of which rounds
    least = max(float(ranks.max()), float(through))
    return float(least * (1 - 2 * steps * EPSILON))


def _sums(passes: NDArray[np.float64], sends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds of all stages before each one, and of the messages between."""
    return np.concatenate([[0.0], np.cumsum(passes[:-1] + sends)])
