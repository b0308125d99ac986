"""Incumbent and bound over the time of a search, as points of a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.units import format_seconds
from ilp_planner.faces.report.tables import exact_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.optimize.result import Moment

WIDTH, HEIGHT = 600, 200  # of the picture, in its own units


class Curve(NamedTuple):
    """Two lines of steps as SVG's points, and the values at the edges of the picture.

    incumbent, bound: empty if there was none. first, last: iteration times at the lower and the
    upper edge. end: seconds of the search at the right edge, all for people.
    """

    incumbent: str
    bound: str
    low: str
    high: str
    end: str
    width: int = WIDTH
    height: int = HEIGHT


def curve_of(history: Sequence[Moment]) -> Curve | None:
    """Return the picture of a search; None if nothing was saved of it."""
    known = [value for moment in history for value in moment[1:] if 0 < value < math.inf]
    if not known:
        return None
    low, high = min(known), max(known)
    end = history[-1].after

    def steps(values: Iterable[float]) -> str:
        found: list[str] = []
        before: float | None = None
        for moment, value in zip(history, values, strict=True):
            if not 0 < value < math.inf:
                continue
            x = WIDTH * (moment.after / end if end else 1.0)
            y = HEIGHT * ((high - value) / (high - low) if high > low else 0.5)
            if before is not None:
                found.append(f"{x:.1f},{before:.1f}")
            found.append(f"{x:.1f},{y:.1f}")
            before = y
        if before is not None:
            found.append(f"{WIDTH},{before:.1f}")
        return " ".join(found)

    return Curve(
        incumbent=steps(moment.objective for moment in history),
        bound=steps(moment.bound for moment in history),
        low=exact_seconds(low),
        high=exact_seconds(high),
        end=format_seconds(end),
    )
