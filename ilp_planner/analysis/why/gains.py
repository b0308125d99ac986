"""The gain of relaxing a limit, as a proved range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.numerics import ROUNDING

if TYPE_CHECKING:
    from ilp_planner.analysis.why.relaxations import Relaxation
    from ilp_planner.analysis.why.resolve import Found


class Known(NamedTuple):
    """The proved range of the fastest plan of a problem, in seconds: at least `bound` and at most
    `best`."""

    bound: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a relaxation, in seconds for the samples of before.

    The fastest plan of before takes at least `before.bound` and at most `before.best`, that of the
    relaxed problem `after` likewise; so the gain lies between `least` and `most`.
    """

    relaxation: Relaxation
    found: Found
    before: Known

    @property
    def after(self) -> Known:
        """The range of the relaxed problem; plans of before may count, too."""
        scale = self.relaxation.scale
        bound, best = scale * self.found.bound, scale * self.found.best
        if self.relaxation.wider:
            bound, best = min(bound, self.before.bound), min(best, self.before.best)
        return Known(bound, best)

    @property
    def known(self) -> bool:
        """Whether there is anything to say."""
        return not self.found.failure

    @property
    def least(self) -> float:
        """Seconds that are gained at least; below 0 if more may be lost than gained, -inf if no
        plan was found."""
        gain = self.before.bound - self.after.best
        return max(0.0, gain) if self.relaxation.wider else gain

    @property
    def most(self) -> float:
        """Seconds that are gained at most; inf if nothing of the plans of before is known."""
        if math.isinf(self.after.bound):
            return -math.inf  # no plan is left
        return max(self.least, self.before.best - self.after.bound)

    @property
    def bounded(self) -> bool:
        """Whether anything is proved of how much is gained at most: both bounds are there."""
        return self.known and self.after.bound > 0 and math.isfinite(self.before.best)

    @property
    def none(self) -> bool:
        """Whether it is proved that nothing is gained, but for rounding."""
        return self.known and self.most <= ROUNDING * self.before.best
