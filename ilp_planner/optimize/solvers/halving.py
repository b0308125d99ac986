"""Successive halving: many starts, the poor half dropped after each rung, the rest gone on with.

Every rung costs about the same: half as many starts take twice as many steps. (Karnin, Koren and
Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013; Jamieson and Talwalkar,
"Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rung:
    """One round of the contest. starts: how many take part. steps: of each of them."""

    starts: int
    steps: int


def rungs(starts: int, steps: int, *, last: int = 1) -> tuple[Rung, ...]:
    """Return the rounds from `starts` starts of `steps` steps each down to `last` starts.

    Raises
    ------
    ValueError: there is nothing to start or no step to take.
    """
    if starts < 1 or steps < 1 or last < 1:
        raise ValueError(f"starts, steps and last must be >= 1, found {starts}, {steps} and {last}")
    found = [Rung(starts, steps)]
    while found[-1].starts > last:
        before = found[-1]
        found.append(Rung(max(last, (before.starts + 1) // 2), before.steps * 2))
    return tuple(found)


def best(members: NDArray[np.int64], scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the `count` members of least score, best first; of equal ones the first named."""
    return members[np.argsort(scores, kind="stable")[:count]]


def successive_halving(
    starts: int,
    advance: Callable[[NDArray[np.int64], int], NDArray[np.float64]],
    *,
    steps: int,
    last: int = 1,
    goon: Callable[[], bool] = lambda: True,
) -> NDArray[np.int64]:
    """Run the contest; return the numbers of starts in its last finished rung, best first.

    Parameters
    ----------
    advance: takes each of the given starts (0 .. starts - 1) so many steps further and returns
    a score of each, the lower the better (inf: nothing found yet).
    steps: of each start in the first rung.
    goon: asked before every rung but the first; the contest ends when it says no.
    """
    members = np.arange(starts, dtype=np.int64)
    for number, rung in enumerate(rungs(starts, steps, last=last)):
        if number and not goon():
            break
        members = members[: rung.starts]
        scores = np.asarray(advance(members, rung.steps), dtype=np.float64)
        if scores.shape != members.shape:
            raise ValueError(f"{members.size} scores expected, found {scores.size}")
        members = best(members, scores, members.size)
    return members
