"""Plans of points that are done, for points beside them to start from."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.optimize.search.start import Start

MOST = 512  # plans that are kept: a hundred kilobytes each
REACH = 3  # steps along an axis within which a point is a neighbour


class Neighbours:
    """The plans of the points that were done last."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.starts: OrderedDict[int, Start] = OrderedDict()

    def keep(self, number: int, start: Start | None) -> None:
        """Keep the plan of a point."""
        if start is not None:
            self.starts[number] = start
            while len(self.starts) > MOST:
                self.starts.popitem(last=False)

    def of(self, number: int) -> Start | None:
        """Return the plan of the nearest point that differs in one value; None if none is near."""
        return next((self.starts[n] for n in self._near(number) if n in self.starts), None)

    def _near(self, number: int) -> Iterator[int]:
        """Yield the numbers of the points along each axis, the nearest first; of equally near ones,
        along the axis that is varied first."""
        places, stride = self.sweep.places(number), 1
        lines = []
        for axis, place in zip(reversed(self.sweep.axes), reversed(places), strict=True):
            lines.append((len(axis), place, stride))
            stride *= len(axis)
        for steps in range(1, REACH + 1):
            for length, place, stride in lines:
                for way in (-steps, steps):
                    if 0 <= place + way < length:
                        yield number + way * stride
