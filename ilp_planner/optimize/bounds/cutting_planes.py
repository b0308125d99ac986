"""The best Lagrange multipliers of shared devices, by cutting planes in a trust region that moves
and grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

ROUNDS = 30  # cutting planes for one slowest stage
HIGHEST = 1e4  # times the average price of a device: enough to price an impossible use out
CLOSE = 5e-4  # relative: how near to the model's promise prices are good enough
EDGE, WIDEN = 1e-6, 4.0  # relative: what is at the edge of a region, and how much that grows


class Plane(NamedTuple):
    """A path: its sum without multipliers, and what it uses of the devices of each type."""

    total: float
    use: NDArray[np.float64]


def always() -> bool:
    """Tell that there is time left."""
    return True


def best_prices(
    priced: Callable[[NDArray[np.float64]], tuple[float, float, NDArray[np.float64] | None]],
    capacity: NDArray[np.float64],
    enough: float,
    start: NDArray[np.float64] | None = None,
    close: float = 0.0,
    goon: Callable[[], bool] = always,
    planes: Sequence[Plane] = (),
) -> tuple[NDArray[np.float64], float]:
    """Return good multipliers and the bound that they prove; stop if that is `enough`.

    Parameters
    ----------
    priced: for multipliers, the least priced sum less the cost of all devices, the sum of its path
        without multipliers, and the devices that the path uses (None without a path).
    capacity: float64 [D], devices of each type.
    close: seconds, how near to the model's promise multipliers are good enough at any rate.
    goon: tells whether to look for better ones.
    planes: of paths that are known. Wrong ones cost multipliers that are less good, never a bound:
        that is what `priced` says.
    """
    types = capacity.size
    best = np.zeros(types) if start is None else start
    value, total, use = priced(best)
    if types == 0 or value >= min(enough, INFINITE):
        return best, value
    height = max(abs(value), total if use is not None else 0.0, 1e-9)
    reach = np.full(types, height / max(capacity.sum(), 1.0))
    most = HIGHEST * reach
    model = _Model(types, height, float(reach[0]))
    for known, taken in planes:
        model.add(known, taken - capacity)
    for _ in range(ROUNDS):
        if use is not None:
            model.add(total, use - capacity)
        point = model.highest(np.maximum(best - reach, 0.0), np.minimum(best + reach, most))
        if point is None:
            break
        promise, price = point
        if promise <= value + max(CLOSE * abs(value), close):
            # the model's highest point, or only the highest so near to the best prices
            edge = (np.abs(price - best) >= reach * (1 - EDGE)) & (price > 0) & (price < most)
            if not edge.any():
                break
            reach = np.where(edge, WIDEN * reach, reach)
            use = None
            continue
        found, total, use = priced(price)
        if found > value:
            # as far as the model promised: look further
            if found - value > 0.5 * (promise - value):
                reach = reach * 2.0
            best, value = price, found
        else:
            reach = reach * 0.4
        if value >= enough or not goon():
            break
    return best, value


class _Model:
    """The lower envelope of cutting planes over the multipliers: highest point within a box.

    height, price: a usual height and multiplier; the program is in these units, so that its
    tolerances fit.
    """

    def __init__(self, types: int, height: float, price: float) -> None:
        from ortools.linear_solver import pywraplp

        self.good = (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE)
        self.units = (height, price)
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.solver.SetTimeLimit(500)  # ms, a hundred times what it takes: it may cycle
        self.infinity = self.solver.infinity()
        self.prices = [self.solver.NumVar(0.0, 0.0, "") for _ in range(types)]
        self.height = self.solver.NumVar(-self.infinity, self.infinity, "")
        self.solver.Objective().SetCoefficient(self.height, 1.0)
        self.solver.Objective().SetMaximization()

    def add(self, constant: float, slope: NDArray[np.float64]) -> None:
        """Add the plane height <= constant + slope * multipliers."""
        height, unit = self.units
        row = self.solver.Constraint(-self.infinity, constant / height)
        row.SetCoefficient(self.height, 1.0)
        for price, gain in zip(self.prices, (slope * (unit / height)).tolist(), strict=True):
            row.SetCoefficient(price, -gain)

    def highest(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]] | None:
        """Return the highest point with multipliers from `low` to `high`, its height first; None
        when the program fails."""
        height, unit = self.units
        for price, least, most in zip(
            self.prices, (low / unit).tolist(), (high / unit).tolist(), strict=True
        ):
            price.SetBounds(least, most)
        if self.solver.Solve() not in self.good:
            return None
        found = np.array([p.solution_value() for p in self.prices]) * unit
        return self.height.solution_value() * height, np.clip(found, low, high)
