"""Micro-batches of documents of like lengths, as samplers make them.

Documents are drawn at random into groups, each group is sorted by length, the longest first, and
micro-batches are taken one after the other (`trainer_pt_utils.py: get_length_grouped_indices` of
transformers). A round is a micro-batch of each replica. The Trainer's groups have 50 times the
documents of a replica's step (`LengthGroupedSampler`), those of ms-swift 50 times those of a round
(`megatron/trainers/batch_sampler.py`), or less where there are fewer than four groups of them.

A document is longer than n tokens with probability p, so that of a group of M documents J ~ B(M, p)
are, and the one at place s is if J > s: means over places follow from the distribution of J alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

MOST_BATCHES, LEAST_GROUPS = 50, 4  # of a group; of a data set, if it has enough documents
POINTS = 256  # probabilities at which means are computed, at most; others lie between two
SPREAD = 12.0  # standard deviations of J that count


class Sampler(NamedTuple):
    """How documents get into micro-batches.

    micro_batch: documents of one. micro_batches: of a replica in a step. dp: replicas. documents:
    of the data set. by_trainer: Hugging Face's Trainer samples, else ms-swift.
    """

    micro_batch: int
    micro_batches: int
    dp: int
    documents: int
    by_trainer: bool

    @property
    def batches(self) -> int:
        """Micro-batches of a group."""
        each = self.micro_batches if self.by_trainer else self.dp
        times = self.documents // (each * self.micro_batch * LEAST_GROUPS)
        return each * max(1, min(times, MOST_BATCHES))


def expected(
    histogram: tuple[tuple[int, int], ...], value: Callable[[int], float], sampler: Sampler
) -> float:
    """Return the mean over rounds of the value of the longest document of a round.

    Parameters
    ----------
    histogram: different lengths, ascending, and the documents of each.
    value: of a length; a longer one has no less.
    """
    import numpy as np

    counts = np.array([count for _, count in histogram], np.float64)
    above = 1 - np.cumsum(counts)[:-1] / counts.sum()  # of each length but the last, are longer
    values = np.array([value(length) for length, _ in histogram])
    return float(values[0] + np.diff(values) @ _share(above, sampler))


def _share(above: NDArray[np.float64], sampler: Sampler) -> NDArray[np.float64]:
    """Return the share of rounds whose longest document is longer, for probabilities that a
    document is."""
    import numpy as np

    known = _known(sampler._replace(documents=0), sampler.batches)
    points = np.linspace(0.0, 1.0, len(known))
    # Close to 0 the share rises as steeply as the longest of many documents.
    found: NDArray[np.float64] = np.interp(np.sqrt(above), points, np.array(known))
    return found


@lru_cache(maxsize=1024)
def _known(sampler: Sampler, batches: int) -> tuple[float, ...]:
    """Return these shares for the squares of evenly spaced numbers from 0 to 1. sampler: without
    documents."""
    import numpy as np

    each, dp = sampler.micro_batch, sampler.dp
    step = math.gcd(dp, batches)  # rounds begin at each multiple of it equally often
    inside = max(0, (batches - dp) // step + 1) if batches >= dp else 0
    found = [0.0]
    for root in np.linspace(0.0, 1.0, POINTS)[1:]:
        counts, chances = _longer(batches * each, float(root) ** 2)
        places = np.minimum(-(-counts // (step * each)), inside)
        share = float(chances @ places)
        # A round that reaches into further groups has their longest documents.
        none = float(chances @ (counts == 0))
        for begin in range(inside * step, batches, step):
            own = float(chances[counts <= begin * each].sum())
            share += 1 - own * none ** ((begin + dp - 1) // batches)
        found.append(min(1.0, share * step / batches))
    return tuple(found)


def _longer(documents: int, chance: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many of so many documents may be longer, and the probability of each."""
    import numpy as np

    if chance >= 1:
        return np.array([documents]), np.ones(1)
    mean = documents * chance
    wide = SPREAD * math.sqrt(mean * (1 - chance)) + SPREAD
    counts = np.arange(max(0, int(mean - wide)), min(documents, int(mean + wide)) + 1)
    steps = np.log((documents - counts[:-1]) / (counts[:-1] + 1.0)) + math.log(
        chance / (1 - chance)
    )
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    chances = np.exp(logs - logs.max())
    return counts, chances / chances.sum()
