"""The prior of a prediction: a roofline with coefficients fitted on the rows themselves.

time = launch + work / rate + traffic / bandwidth, every coefficient at least 0, fitted by relative
non-negative least squares. Work and traffic are columns of the table, or the terms of a scaling law
(`features`). If it explains the rows much better, the launch is a floor under the rest instead of a
part of it: kernels that the host launches ahead of a busy device cost it nothing (the roofline of
Williams et al. 2009, with the host as a third roof).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.profiler.predict.features import (
    TERMS,
    TIMES,
    Quantity,
    distinct_terms,
    terms,
)

if TYPE_CHECKING:
    from ilp_planner.base.numerics import Floats

ROUNDS = 6  # of reweighting
BEND = 2.0  # typical residuals beyond which a row counts less (Huber's threshold)
LEAST_SPREAD = 0.01  # relative: what no timing is more exact than
FLOOR_GAIN = 0.8  # of the mean residual: what a floor must leave at most to be believed
FLOOR_QUANTILES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5)
FLOOR_EDGE = 1.05  # rows above so many floors are not host-bound
SPARSE = 1e-4  # weight of the sum of the terms, of that of a row
TINY = 1e-6  # of the least value: a prior is never 0 where a row is not
ZERO_WEIGHT = 1e-2  # of the largest value: what a row of 0 bytes counts as


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prior:
    """A fitted law.

    quantity: of the column. coefficients: float64 [(2 with work +) terms], at least 0. floor: least
    seconds, 0 without. least: the value never to go below. weights: float64 [n], how much each row
    counted. worked: FLOP and traffic are the first two terms.
    """

    quantity: Quantity
    coefficients: Floats
    floor: float
    least: float
    weights: Floats
    worked: bool

    def at(self, points: Floats, work: Floats | None = None) -> Floats:
        """Return the law's values, float64 [n]. work: float64 [n, 2], FLOP and bytes."""
        found = _design(points, self.quantity, work if self.worked else None) @ self.coefficients
        return np.asarray(np.maximum(found, max(self.floor, self.least)))


def fit_prior(
    points: Floats, values: Floats, quantity: Quantity, work: Floats | None = None
) -> Prior:
    """Fit the law to rows.

    points: float64 [n, 4]. values: float64 [n], positive for times, else at least 0.
    work: float64 [n, 2], FLOP and bytes of traffic of every row; without it, dimensions alone.
    """
    design = _design(points, quantity, work)
    timed = quantity in TIMES
    weights = np.ones(values.size)
    coefficients = _solve(design, values, weights)
    floor = 0.0
    if timed and values.size > 3:
        coefficients, weights = _robust(design, values)
        coefficients, weights, floor = _floored(design, quantity, values, coefficients, weights)
    least = TINY * float(values.min()) if timed else 0.0
    return Prior(
        quantity=quantity,
        coefficients=coefficients,
        floor=floor,
        least=least,
        weights=weights,
        worked=work is not None,
    )


def refit_without(
    prior: Prior, points: Floats, values: Floats, work: Floats | None, left_out: int
) -> Prior:
    """Fit the law again without one row, in the same form, the others counting as before."""
    kept = np.arange(values.size) != left_out
    design = _design(points, prior.quantity, work if prior.worked else None)[kept]
    weights, known = prior.weights[kept], values[kept]
    floor = prior.floor
    if floor:
        busy = known > FLOOR_EDGE * floor
        if busy.sum() < 2 or (~busy).sum() < 1:
            floor = 0.0
        else:
            floor = float(np.median(known[~busy]))
            design = _without_launch(design, prior.quantity)[busy]
            weights, known = weights[busy], known[busy]
    return Prior(
        quantity=prior.quantity,
        coefficients=_solve(design, known, weights),
        floor=floor,
        least=TINY * float(values[kept].min()) if prior.quantity in TIMES else 0.0,
        weights=prior.weights[kept],
        worked=prior.worked,
    )


def _design(points: Floats, quantity: Quantity, work: Floats | None) -> Floats:
    found = terms(points, quantity)
    # Of terms that the rows cannot tell apart the first counts: FLOP and traffic before the laws.
    return found if work is None else np.hstack([work, found])


def _solve(design: Floats, values: Floats, weights: Floats) -> Floats:
    """Return the coefficients that leave the least relative residuals."""
    from scipy.optimize import nnls

    size = np.maximum(values, ZERO_WEIGHT * float(values.max(initial=0.0)))
    coefficients = np.zeros(design.shape[1])
    if not size.any():
        return coefficients
    scaled = design / size[:, None] * weights[:, None]
    kept = distinct_terms(scaled)
    norms = np.sqrt((scaled[:, kept] ** 2).sum(axis=0))
    # Of laws that explain the rows alike, the one of fewest terms: a last row asks for a small sum.
    system = np.vstack([scaled[:, kept] / norms, np.full(kept.size, SPARSE)])
    found, _ = nnls(system, np.append(values / size * weights, 0.0))
    coefficients[kept] = found / norms
    return coefficients


def _robust(design: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Fit with rows that stand out counting less, as Huber's loss has it."""
    weights = np.ones(values.size)
    coefficients = _solve(design, values, weights)
    for _ in range(ROUNDS):
        off = np.abs(_log_residual(design @ coefficients, values))
        spread = max(1.4826 * float(np.median(off)), LEAST_SPREAD)
        now = np.sqrt(np.minimum(1.0, BEND * spread / np.maximum(off, 1e-12)))
        if np.allclose(now, weights, rtol=1e-3):
            break
        weights = now
        coefficients = _solve(design, values, weights)
    return coefficients, weights


def _floored(
    design: Floats, quantity: Quantity, values: Floats, coefficients: Floats, weights: Floats
) -> tuple[Floats, Floats, float]:
    """Return the fit with a floor if that explains the rows better, else the one given."""
    best = (coefficients, weights, 0.0)
    least = FLOOR_GAIN * float(np.mean(np.abs(_log_residual(design @ coefficients, values))))
    if least < LEAST_SPREAD * FLOOR_GAIN:
        return best
    bare = _without_launch(design, quantity)
    for level in np.unique(np.quantile(values, FLOOR_QUANTILES)):
        busy = values > FLOOR_EDGE * level
        if busy.sum() < 2 or (~busy).sum() < 2:
            continue
        floor = float(np.median(values[~busy]))
        found, counted = _robust(bare[busy], values[busy])
        off = np.abs(_log_residual(np.maximum(bare @ found, floor), values))
        if off.mean() < least:
            least = float(off.mean())
            all_weights = np.ones(values.size)
            all_weights[busy] = counted
            best = (found, all_weights, floor)
    return best


def _without_launch(design: Floats, quantity: Quantity) -> Floats:
    bare = design.copy()
    names = TERMS[quantity]
    bare[:, bare.shape[1] - len(names) + names.index("1")] = 0.0
    return bare


def _log_residual(found: Floats, values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(found, TINY * values.min()) / values))
