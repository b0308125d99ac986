"""The history of a search: bound and best plan from moment to moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.optimize.result import Moment

if TYPE_CHECKING:
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.solvers.base import Progress

MOST = 256  # moments that are kept: more than a picture of them shows


class Recorder:
    """Keeps when the best plan or the bound of a search improved, and tells whoever listens.

    told: called with (objective, bound), both in seconds, as the recorder is; None: nobody listens.
    deadline: times count from its beginning.
    """

    def __init__(self, told: Progress | None, deadline: Deadline) -> None:
        self.told, self.deadline = told, deadline
        self.moments: list[Moment] = []

    def __call__(self, objective: float, bound: float) -> None:
        """Take note of both, in seconds."""
        self.keep(objective, bound)
        if self.told is not None:
            self.told(objective, bound)

    def keep(self, objective: float, bound: float) -> None:
        """Record both, in seconds, if one of them has changed."""
        if self.moments and self.moments[-1][1:] == (objective, bound):
            return
        if len(self.moments) == MOST:  # every other one, and always the first plan's
            del self.moments[1::2]
        self.moments.append(Moment(self.deadline.elapsed, objective, bound))
