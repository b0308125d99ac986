"""The cost of failures to a training run: checkpoints, lost work, restarts, nodes that are away.

Failures come at random, `gpus / mtbf` in an hour. A checkpoint is written every `t` seconds and
takes `c`. A failure loses half of `t` and a restart. To first order an hour of training takes

    1 + c / t + (failures per second) * (t / 2 + restart)

hours of wall clock. It is least with `t = sqrt(2 c / failures per second)` (Young 1974, "A first
order approximation to the optimum checkpoint interval"; Daly 2006). Nodes that take `repair` to
come back are away in a number that is Poisson-distributed (M/G/infinity); a job stands still while
more of them are away than there are spares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ilp_planner.base.units import HOUR

# GPU-hours: 419 unexpected interruptions of 16,384 H100 in 54 days (Llama 3, arXiv 2407.21783,
# section 3.3.4).
MTBF = 16_384 * 54 * 24 / 419
MINUTE = 60.0
STILL = 0.01  # of the time that a job may stand still for want of nodes, where spares are chosen
MOST_SPARES = 10_000


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Failures and what is done about them.

    mtbf: GPU-hours between two that stop the job; inf: none do. restart: seconds until it trains
    again. save: seconds that a checkpoint stops training. every: seconds between two checkpoints;
    None: the best. repair: seconds until a node is back; 0: it is replaced within a restart.
    spares: idle nodes that take over; None: as many as keep the job from standing still for more
    than 1 % of the time.
    """

    mtbf: float = MTBF
    restart: float = 15 * MINUTE
    save: float = MINUTE
    every: float | None = None
    repair: float = 0.0
    spares: int | None = None

    def rate(self, gpus: int) -> float:
        """Return failures per second."""
        return gpus / (self.mtbf * HOUR)

    def interval(self, gpus: int) -> float:
        """Return seconds between two checkpoints; inf if none are needed."""
        if self.every is not None:
            return self.every
        rate = self.rate(gpus)
        return math.sqrt(2 * self.save / rate) if rate else math.inf

    def away(self, gpus: int) -> float:
        """Return how many nodes are away on average."""
        return self.rate(gpus) * self.repair

    def idle(self, gpus: int) -> int:
        """Return how many nodes are kept as spares for so many GPUs."""
        return _idle(self, gpus)

    def factor(self, gpus: int) -> float:
        """Return hours of wall clock for an hour of training on so many GPUs."""
        return _factor(self, gpus)


@lru_cache(maxsize=2**17)  # a search asks for every number of nodes, again and again
def _idle(failures: Failures, gpus: int) -> int:
    if failures.spares is not None:
        return failures.spares
    mean, count = failures.away(gpus), 0
    while count < MOST_SPARES and more_than(count, mean) > STILL:
        count += 1
    return count


@lru_cache(maxsize=2**17)
def _factor(failures: Failures, gpus: int) -> float:
    rate, interval = failures.rate(gpus), failures.interval(gpus)
    if not rate and failures.every is None:
        return 1.0
    lost = rate * (interval / 2 + failures.restart)
    still = more_than(failures.idle(gpus), failures.away(gpus))
    return math.inf if still >= 1 else (1 + failures.save / interval + lost) / (1 - still)


def more_than(count: int, mean: float) -> float:
    """Return the probability that a Poisson-distributed number of this mean is above `count`."""
    if mean <= 0:
        return 0.0
    within = math.fsum(
        math.exp(number * math.log(mean) - mean - math.lgamma(number + 1))
        for number in range(count + 1)
    )
    return max(0.0, 1.0 - within)
