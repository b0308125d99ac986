"""Sharing of a micro-batch's samples among replicas of different speed."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def share_samples(
    times: Sequence[NDArray[np.float64]], replicas: Sequence[int], samples: int
) -> tuple[int, ...] | None:
    """Share whole samples, at least one per replica, so that the slowest replica is least.

    Giving every further sample to the replica that is then the fastest is optimal, because more
    samples never take less time: the running maximum of a table counts.

    Parameters
    ----------
    times: per kind of replica, seconds of 0, 1, ... `samples` samples.
    replicas: how many there are of each kind.
    samples: to share.

    Returns
    -------
    Samples of each replica, kind by kind, the larger shares first; None when there are fewer
    samples than replicas.
    """
    kinds = [kind for kind, count in enumerate(replicas) for _ in range(count)]
    if not kinds or samples < len(kinds):
        return None
    rising = [np.maximum.accumulate(seconds) for seconds in times]
    used = [kind for kind, count in enumerate(replicas) if count]
    if len(used) == 1:
        each, left = divmod(samples, len(kinds))
        return tuple(each + (i < left) for i in range(len(kinds)))
    # Seconds of every further sample of a replica of each kind, in the order of its samples.
    further = [rising[kind][2 : samples + 1] for kind in used]
    counts = [replicas[kind] for kind in used]
    missing = samples - len(kinds)
    if not missing:
        return (1,) * len(kinds)
    last = _least_ceiling(further, counts, missing)
    given = [int(np.searchsorted(seconds, last, side="left")) for seconds in further]
    missing -= sum(count * more for count, more in zip(counts, given, strict=True))
    shares: list[int] = []
    # Ties go to the earlier kind, then to the replica with the smaller share.
    for seconds, count, more in zip(further, counts, given, strict=True):
        equal = int(np.searchsorted(seconds, last, side="right")) - more
        ties = min(missing, count * equal)
        missing -= ties
        shares += [1 + more + ties // count + (i < ties % count) for i in range(count)]
    return tuple(shares)


def _least_ceiling(
    further: Sequence[NDArray[np.float64]], counts: Sequence[int], missing: int
) -> float:
    """Return the least seconds that suffice for the replicas to take that many samples more."""

    def enough(ceiling: float) -> bool:
        taken = (
            count * np.searchsorted(seconds, ceiling, side="right")
            for seconds, count in zip(further, counts, strict=True)
        )
        return int(sum(taken)) >= missing

    least = np.inf
    for seconds in further:
        # one kind alone could take all of them, were it slow enough
        least = min(least, float(seconds[bisect_left(seconds, True, key=enough)]))
    return least
