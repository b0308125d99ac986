"""How replicas of different speed share the samples of a micro-batch."""

from __future__ import annotations

import heapq
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
    samples never take less time: where a table says otherwise, its running maximum counts.

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
    shares = [1] * len(kinds)
    # Every kind's replicas rise together, so ties go to the earlier kind, then to the smaller
    # share.
    queue = [(float(rising[kind][2]), kind, 1, i) for i, kind in enumerate(kinds) if samples > 1]
    heapq.heapify(queue)
    for _ in range(samples - len(kinds)):
        _, kind, share, i = heapq.heappop(queue)
        shares[i] = share + 1
        if share + 2 <= samples:
            heapq.heappush(queue, (float(rising[kind][share + 2]), kind, share + 1, i))
    return tuple(
        share
        for kind in used
        for share in sorted((s for s, k in zip(shares, kinds, strict=True) if k == kind))[::-1]
    )
