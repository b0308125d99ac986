"""Time against bytes of one kind of message: monotone and positive, for any rows are like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from ilp_planner.base.numerics import Floats


# Of the first row's time, the least that a message of no bytes takes: rows that grow in proportion
# leave no latency, but there always is some.
LEAST_LATENCY = 0.1
REACHES = np.array([2.0, 4.0])  # from an end to the rows that its slope is taken over
STEP = 4.0  # in size: how finely it is told apart how far beyond the rows a size is
ROWS_LEFT_OUT = 64  # at most, when a curve is tested against its own rows
SHAPE = 2 / 3  # how far others say how the time rises between two rows; the rest is straight


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Piecewise linear in bytes, non-decreasing, positive.

    sizes: bytes, float64 [N >= 1], ascending and distinct. times: seconds, float64 [N].
    latency: seconds of a message of no bytes. slope: seconds per byte beyond the last row.
    """

    sizes: Floats
    times: Floats
    latency: float
    slope: float

    def __call__(self, sizes: ArrayLike) -> Floats:
        """Return seconds, float64 of the same shape as sizes (bytes)."""
        wanted = np.asarray(sizes, dtype=np.float64)
        inside = np.interp(wanted, np.append(0.0, self.sizes), np.append(self.latency, self.times))
        beyond = np.maximum(wanted - self.sizes[-1], 0.0)
        return np.asarray(inside + self.slope * beyond, np.float64)

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest size that was measured, bytes."""
        return float(self.sizes[0]), float(self.sizes[-1])


def curve_of(
    sizes: ArrayLike, times: ArrayLike, siblings: Iterable[Curve] = (), alike: Sequence[Curve] = ()
) -> Curve:
    """Return the curve through rows, of any order, noisy or repeated.

    Between the cleaned rows it is linear in bytes, as a latency and a bandwidth make it; the
    logarithm would bend what is straight. Below them it runs to the latency that the rows up to
    twice and four times the first point to; above them it goes on with the slope since a half and a
    quarter of the last one, averaged, and with the siblings', because one noisy row turns a slope.

    sizes: bytes, positive, N >= 1. times: seconds, positive, [N].
    siblings: curves of the same collective in other runs, for the last slope.
    alike: curves that should be the same, of other numbers: where they have rows between two of
        these, they say how the time rises in between.
    """
    x, y = _distinct(np.asarray(sizes, np.float64), np.asarray(times, np.float64))
    y = monotone(y)
    latency, slope = _latency(x, y), _last_slope(x, y, siblings)
    return Curve(*_shaped(x, y, alike), latency, slope)


def monotone(times: Floats) -> Floats:
    """Return the non-decreasing times that differ least in the sum of |log ratio|.

    Pool-adjacent-violators with medians: the L1 isotonic regression. A single row that is far off
    moves nothing, unlike with means.
    """
    blocks: list[list[float]] = []
    middles: list[float] = []
    for value in np.log(times).tolist():
        block, middle = [value], value
        while middles and middles[-1] > middle:
            block = sorted(blocks.pop() + block)
            middles.pop()
            middle = _middle(block)
        blocks.append(block)
        middles.append(middle)
    return np.asarray(np.exp(np.repeat(middles, [len(block) for block in blocks])), np.float64)


def _middle(ordered: list[float]) -> float:
    """Return the median of a few values in order, to the last bit like NumPy, which takes fifty
    times as long for them."""
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


def left_out_error(sizes: ArrayLike, times: ArrayLike, alike: Sequence[Curve] = ()) -> float | None:
    """Return the mean relative error of each row predicted from the others, the ends excepted.

    None with fewer than three rows.
    """
    x, y = _distinct(np.asarray(sizes, np.float64), np.asarray(times, np.float64))
    if len(x) < 3:
        return None
    step = -(-(len(x) - 2) // ROWS_LEFT_OUT)
    errors = []
    for place in range(1, len(x) - 1, step):
        curve = curve_of(np.delete(x, place), np.delete(y, place), alike=alike)
        errors.append(abs(float(curve(x[place])) / y[place] - 1))
    return float(np.mean(errors))


def end_error(sizes: ArrayLike, times: ArrayLike, steps: int) -> float | None:
    """Return the mean relative error beyond an end, in so many steps of STEP times the size.

    From so much fewer of the rows the others are predicted; half of them at least are used. That
    leaves messages of another kind the further it goes, so all distances up to it count alike.

    steps: above 0: beyond the upper end; below 0: beyond the lower one.

    None with fewer than four rows.
    """
    x, y = _distinct(np.asarray(sizes, np.float64), np.asarray(times, np.float64))
    if len(x) < 4:
        return None
    found = []
    for reach in STEP ** np.arange(1.0, abs(steps) + 1):
        if steps > 0:
            used = x <= max(x[-1] / reach, x[len(x) // 2 - 1])
        else:
            used = x >= min(x[0] * reach, x[-(len(x) // 2)])
        if used.all():
            used[-1 if steps > 0 else 0] = False
        curve = curve_of(x[used], y[used])
        found.append(float(np.mean(np.abs(curve(x[~used]) / y[~used] - 1))))
    return float(np.mean(found))


def _distinct(sizes: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Return ascending distinct sizes, and the median time of each."""
    order = np.lexsort((times, sizes))
    sizes, times = sizes[order], times[order]
    distinct, first = np.unique(sizes, return_index=True)
    if len(distinct) == len(sizes):
        return sizes, times
    return distinct, np.array([float(np.median(part)) for part in np.split(times, first[1:])])


def _shaped(x: Floats, y: Floats, alike: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Return the rows with additional ones between them from the curves of others."""
    more = np.setdiff1d(np.concatenate([x[:0], *(curve.sizes for curve in alike)]), x)
    more = more[(more > x[0]) & (more < x[-1])]
    if not more.size:
        return x, y
    after = np.searchsorted(x, more)
    low, high = x[after - 1], x[after]
    straight = (more - low) / (high - low)
    shares = []
    for curve in alike:
        least, most = curve(low), curve(high)
        rise = most - least
        shares.append(
            np.where(rise > 0, (curve(more) - least) / np.where(rise > 0, rise, 1), straight)
        )
    share = np.clip(SHAPE * np.mean(shares, axis=0) + (1 - SHAPE) * straight, 0.0, 1.0)
    order = np.argsort(np.append(x, more))
    times = y[after - 1] + (y[after] - y[after - 1]) * share
    return np.append(x, more)[order], np.append(y, times)[order]


def _latency(x: Floats, y: Floats) -> float:
    if len(x) == 1:
        return float(y[0])
    further = np.clip(np.searchsorted(x, x[0] * REACHES), 1, len(x) - 1)
    slopes = (y[further] - y[0]) / (x[further] - x[0])
    towards = float(np.median(y[0] - slopes * x[0]))
    return float(np.clip(towards, LEAST_LATENCY * y[0], y[0]))


def _last_slope(x: Floats, y: Floats, siblings: Iterable[Curve]) -> float:
    """Return the slope beyond the last row, seconds per byte."""
    if len(x) == 1:
        return float(y[0] / x[0])
    before = np.clip(np.searchsorted(x, x[-1] / REACHES, side="right") - 1, 0, len(x) - 2)
    own = float(np.mean((y[-1] - y[before]) / (x[-1] - x[before])))
    # One that ends far below knows only its own latency.
    others = [s.slope for s in siblings if s.sizes[-1] >= x[-1] / 2]
    return own if not others else (own + float(np.median([own, *others]))) / 2
