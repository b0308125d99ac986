"""One column of one layer kind as a function of tensor-parallel degree, samples, sequence, width.

The prior times the residual of the rows, made to agree with all constraints: measured rows are
returned as they are; nothing is negative; more samples or longer ones never take less.

Residuals of the rows over the prior, interpolated between neighbours.

A Gaussian process with the kernel exp(-|distance|), a product over the dimensions in octaves
(Ornstein-Uhlenbeck): in one dimension it joins neighbouring rows by nearly straight lines, and
outside them the last residual fades slowly, over `REACH` octaves, towards the prior (Rasmussen and
Williams 2006, Gaussian Processes for Machine Learning, section 4.2.1 and appendix B.2). A row far
off the others is believed less, so that one bad measurement does not spoil its neighbours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.profiler.predict.features import HIDDEN, MICRO_BATCH, SEQUENCE, TIMES, TP, Quantity
from ilp_planner.profiler.predict.roofline import Prior, fit_prior, refit_without

if TYPE_CHECKING:
    from ilp_planner.base.numerics import Floats


# ---- residual ------------------------------------------------------------------------------------


REACH = 8.0  # octaves
NUGGET = 1e-3  # variance of a row's own noise, of the residuals' variance
ODD = 3.0  # typical residuals: a row that is further off is odd
LEAST_SPREAD = 0.01


def trust(residuals: Floats) -> Floats:
    """Return each row's own noise, float64 [n], as a share of the residuals' variance."""
    off = np.abs(residuals)
    spread = max(1.4826 * float(np.median(off)), LEAST_SPREAD)
    return np.asarray(NUGGET * np.maximum(1.0, off / (ODD * spread)) ** 4)


def solve_residuals(points: Floats, residuals: Floats) -> Floats:
    """Return the weight of every row, float64 [n], for `residual_at`."""
    kernel = _kernel(points, points)
    kernel[np.diag_indices_from(kernel)] += trust(residuals)
    return np.asarray(np.linalg.solve(kernel, residuals))


def residual_at(points: Floats, weights: Floats, asked: Floats) -> Floats:
    """Return the residual at other points, float64 [m]."""
    return np.asarray(_kernel(asked, points) @ weights)


def _kernel(left: Floats, rows: Floats) -> Floats:
    """Return how much two points have in common, float64 [m, n].

    Where the rows never vary they tell nothing, and what they say of the prior holds as it is.
    """
    apart = np.zeros((len(left), len(rows)))
    for dimension in np.flatnonzero((rows != rows[0]).any(axis=0)):
        apart += np.abs(np.subtract.outer(np.log2(left[:, dimension]), np.log2(rows[:, dimension])))
    return np.asarray(np.exp(-apart / REACH))


# ---- law -----------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats

    Work = Callable[[Floats], Floats]

DOUBLINGS = {MICRO_BATCH: (6, 10), SEQUENCE: (5, 8)}  # nodes below and above the rows
FLAT = 1e-11  # of the value: rise per octave where the prior has none
NOISE = 0.02  # relative: rows that fall by no more do not contradict each other
SMALL = 1e-3  # of the largest value: what a residual of bytes is relative to, at least


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """A column's values at n rows, and everything fitted on them.

    points: float64 [n, 4], in the order of `features.DIMENSIONS`, no two alike. values: float64
    [n]. work: a function of points that returns FLOP and traffic, float64 [m, 2]; None without.
    """

    quantity: Quantity
    points: Floats
    values: Floats
    prior: Prior
    weights: Floats
    scale: float
    work: Work | None = None
    _surfaces: dict[tuple[float, float, bool], _Surface] = field(default_factory=dict, repr=False)

    def at(self, points: Floats) -> Floats:
        """Return the values at other points, float64 [m]."""
        if self.quantity is Quantity.COUNT:
            return self._nearest(points)
        found = np.empty(len(points))
        # Where all rows and points have one sequence, a surface along it would be for nothing.
        sequences = self.points[:, SEQUENCE]
        line = bool(
            (sequences == sequences[0]).all() and (points[:, SEQUENCE] == sequences[0]).all()
        )
        groups: dict[tuple[float, float, bool], list[int]] = {}
        for place, point in enumerate(points):
            groups.setdefault((point[TP], point[HIDDEN], line), []).append(place)
        for key, places in groups.items():
            if key not in self._surfaces:
                self._surfaces[key] = _surface(self, *key)
            found[places] = self._surfaces[key].at(points[places])
        return found

    def without(self, row: int) -> Law:
        """Return the law as it would be without one of the rows."""
        kept = np.arange(self.values.size) != row
        prior = refit_without(self.prior, self.points, self.values, self._work(self.points), row)
        points, values = self.points[kept], self.values[kept]
        return _with_residuals(self.quantity, points, values, prior, self.work)

    def smooth(self, points: Floats) -> Floats:
        """Return prior and residual alone, whether or not the values rise, float64 [m]."""
        prior = self.prior.at(points, self._work(points))
        extra = residual_at(self.points, self.weights, points)
        if self.quantity in TIMES:
            return np.asarray(prior * np.exp(extra))
        return np.asarray(np.maximum(prior + extra * (prior + self.scale), 0.0))

    def of_prior(self, points: Floats) -> Floats:
        """Return the prior, float64 [m]."""
        return self.prior.at(points, self._work(points))

    def _work(self, points: Floats) -> Floats | None:
        return None if self.work is None else self.work(points)

    def _nearest(self, points: Floats) -> Floats:
        """Return the nearest row's value; with and without tensor parallelism are far apart."""
        logs = np.log2(self.points)
        logs[:, TP] += 100.0 * (self.points[:, TP] > 1)
        asked = np.log2(points)
        asked[:, TP] += 100.0 * (points[:, TP] > 1)
        apart = np.abs(asked[:, None, :] - logs[None, :, :]).sum(axis=2)
        return np.asarray(self.values[apart.argmin(axis=1)])


def fit_law(points: Floats, values: Floats, quantity: Quantity, work: Work | None = None) -> Law:
    """Fit a column to its rows.

    points: float64 [n, 4], n >= 1, no two alike. values: float64 [n], positive for times, else at
        least 0. work: what returns FLOP and traffic of points; without it, dimensions alone count.
    """
    prior = fit_prior(points, values, quantity, None if work is None else work(points))
    return _with_residuals(quantity, points, values, prior, work)


def _with_residuals(
    quantity: Quantity, points: Floats, values: Floats, prior: Prior, work: Work | None
) -> Law:
    known = prior.at(points, None if work is None else work(points))
    scale = SMALL * float(values.max())
    if quantity in TIMES:
        residuals = np.log(values / known)
    else:
        residuals = (values - known) / np.maximum(known + scale, np.finfo(float).tiny)
    return Law(
        quantity=quantity,
        points=points,
        values=values,
        prior=prior,
        weights=solve_residuals(points, residuals),
        scale=scale,
        work=work,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Surface:
    """A law at one degree and width: values on a grid of samples and sequences that never fall.

    Between nodes it is bilinear in the prior, so a law that is affine in samples and in a function
    of the sequence is met exactly, and values that rise at nodes rise between them.
    """

    samples: Floats
    sequences: Floats
    along_samples: Floats
    along_sequences: Floats
    values: Floats
    law: Law
    rows: dict[tuple[float, float], float]

    def at(self, points: Floats) -> Floats:
        """Return the values at points of this degree and width, float64 [m]."""
        inside = points.copy()
        inside[:, MICRO_BATCH] = np.clip(points[:, MICRO_BATCH], self.samples[0], self.samples[-1])
        inside[:, SEQUENCE] = np.clip(points[:, SEQUENCE], self.sequences[0], self.sequences[-1])
        i, u = _place(self.along_samples, _along(self.law, inside, MICRO_BATCH))
        j, v = _place(self.along_sequences, _along(self.law, inside, SEQUENCE))
        grid = self.values
        low = grid[i, j] * (1 - v) + grid[i, j + 1] * v
        high = grid[i + 1, j] * (1 - v) + grid[i + 1, j + 1] * v
        found = np.asarray(low * (1 - u) + high * u)
        if (inside != points).any():
            above = self.law.of_prior(points)
            under = self.law.of_prior(inside)
            found = found * np.where(under > 0, np.maximum(above / np.maximum(under, 1e-300), 1), 1)
        for place, point in enumerate(points):
            found[place] = self.rows.get((point[MICRO_BATCH], point[SEQUENCE]), found[place])
        return found


def _surface(law: Law, tp: float, hidden: float, line: bool) -> _Surface:
    samples = _nodes(law.points[:, MICRO_BATCH], MICRO_BATCH)
    if line:
        sequences = law.points[0, SEQUENCE] * np.array([1.0, 2.0])
    else:
        sequences = _nodes(law.points[:, SEQUENCE], SEQUENCE)
    grid = np.empty((samples.size, sequences.size, 4))
    grid[:, :, TP], grid[:, :, HIDDEN] = tp, hidden
    grid[:, :, MICRO_BATCH], grid[:, :, SEQUENCE] = samples[:, None], sequences[None, :]
    values = law.smooth(grid.reshape(-1, 4)).reshape(grid.shape[:2])
    here = (law.points[:, TP] == tp) & (law.points[:, HIDDEN] == hidden)
    rows = {
        (float(point[MICRO_BATCH]), float(point[SEQUENCE])): float(value)
        for point, value in zip(law.points[here], law.values[here], strict=True)
    }
    return _Surface(
        samples=samples,
        sequences=sequences,
        along_samples=_along(law, grid[:, 0], MICRO_BATCH),
        along_sequences=_along(law, grid[0], SEQUENCE),
        values=_rising(values, samples, sequences, _agreeing(law, here, rows)),
        law=law,
        rows=rows,
    )


def _agreeing(
    law: Law, here: NDArray[np.bool_], rows: dict[tuple[float, float], float]
) -> dict[tuple[float, float], float]:
    """Return the rows of one degree and width that rise with samples and sequence.

    Of two rows that contradict each other, more samples in less time, the one further off from all
    rows together is left out: nothing follows it.
    """
    if all(_agree(a, b) for a, b in itertools.combinations(rows.items(), 2)):
        return rows
    smooth = law.smooth(law.points[here])
    scale = max(law.scale, np.finfo(float).tiny)
    off = {
        key: abs(float(np.log((value + scale) / (found + scale))))
        for (key, value), found in zip(rows.items(), smooth, strict=True)
    }
    kept = dict(rows)
    for key in sorted(rows, key=lambda one: -off[one]):
        others = [(other, value) for other, value in kept.items() if other != key]
        if not all(_agree((key, kept[key]), other) for other in others):
            del kept[key]
    return kept


def _agree(
    left: tuple[tuple[float, float], float], right: tuple[tuple[float, float], float]
) -> bool:
    """Tell whether the row that needs no less takes no less, up to noise."""
    (one, first), (other, second) = left, right
    if one[0] <= other[0] and one[1] <= other[1]:
        return first <= second * (1 + NOISE)
    if other[0] <= one[0] and other[1] <= one[1]:
        return second <= first * (1 + NOISE)
    return True


def _rising(
    values: Floats, samples: Floats, sequences: Floats, rows: dict[tuple[float, float], float]
) -> Floats:
    """Return values that never fall along either axis and pass through the rows if these rise.

    Other points come between the rows before and after them. If still something falls, it is half
    way (geometrically) between the least rising values above and the greatest below.
    """
    before = np.zeros_like(values)
    after = np.full_like(values, np.inf)
    for (sample, sequence), value in rows.items():
        i = int(np.searchsorted(samples, sample))
        j = int(np.searchsorted(sequences, sequence))
        before[i, j] = after[i, j] = value
    before = np.maximum.accumulate(np.maximum.accumulate(before, axis=0), axis=1)
    after = _least_after(after)
    crossed = before > after
    middle = np.sqrt(before * np.where(crossed, after, 1.0))
    bounded = np.clip(values, np.where(crossed, 0.0, before), np.where(crossed, np.inf, after))
    bounded = np.where(crossed, middle, bounded)
    upper = np.maximum.accumulate(np.maximum.accumulate(bounded, axis=0), axis=1)
    return np.asarray(np.sqrt(upper) * np.sqrt(_least_after(bounded)))


def _least_after(values: Floats) -> Floats:
    turned = values[::-1, ::-1]
    found = np.minimum.accumulate(np.minimum.accumulate(turned, axis=0), axis=1)
    return np.asarray(found[::-1, ::-1])


def _nodes(values: Floats, dimension: int) -> Floats:
    """Return the rows' own values, and doublings and halvings of the outermost; two at least."""
    known = np.unique(values)
    down, up = DOUBLINGS[dimension]
    below = known[0] / 2.0 ** np.arange(down, 0, -1)
    above = known[-1] * 2.0 ** np.arange(1, up + 1)
    return np.concatenate([below[below >= 1], known, above])


def _along(law: Law, points: Floats, dimension: int) -> Floats:
    """Return the places of points along one axis: the prior there, the other dimension held
    fixed."""
    held = points.copy()
    if dimension == MICRO_BATCH:
        held[:, SEQUENCE] = np.median(law.points[:, SEQUENCE])
    else:
        held[:, MICRO_BATCH] = np.median(law.points[:, MICRO_BATCH])
    along = law.of_prior(held)
    return np.asarray(along + FLAT * float(law.values.max()) * np.log2(held[:, dimension]))


def _place(along: Floats, asked: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the interval of every point, and how far along it the point is, from 0 to 1."""
    low = np.clip(np.searchsorted(along, asked, side="right") - 1, 0, along.size - 2)
    width = along[low + 1] - along[low]
    share = np.where(width > 0, (asked - along[low]) / np.where(width > 0, width, 1.0), 0.0)
    return low, np.clip(share, 0.0, 1.0)
