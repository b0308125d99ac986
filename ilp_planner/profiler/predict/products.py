"""Times of unmeasured matrix products, from measured ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.table import Prediction, Provenance
from ilp_planner.profiler.predict.curve import Curve, curve_of, left_out_error

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas

    from ilp_planner.base.numerics import Floats

    Growth = Callable[[Floats], Floats]
    """Time of more FLOP than in the last row, over that of the last row."""
    Law = Callable[[Curve], Growth]

FEWEST = 4  # rows that tell the error of going beyond them
EDGES = 8.0  # of FLOP: edges of twice the length
SPANS = (2.0, EDGES / 2, EDGES)  # how far beyond rows the laws are tested, of FLOP
APART = 1.01  # of FLOP: rows that show how the rate rises
LEAST_ERROR = 0.02  # what no law is believed to be better than


class ProductPredictor:
    """Predicts the time of a matrix product from its FLOP.

    Linear between rows, as by a rate and a launch; below the first towards the launch alone. Beyond
    the last as two laws go on, of matrices that are about square: a roofline of all rows (launch,
    FLOP, and edges, growing as FLOP^(2/3)), and the limit rate of the last rows. Each counts by how
    well it goes on from fewer of the rows, as forecasts are combined by Bates and Granger (1969,
    Operational Research Quarterly 20).
    """

    def __init__(self, table: Measurements) -> None:
        """Read the rows of products.

        Raises
        ------
        ProfileError: the table has none.
        """
        self.source = table.source
        self.rows = product_rows(table)
        if self.rows.empty:
            raise ProfileError(
                f"{table.source}: no rows of record 'matmul' to predict from, expected some that "
                "were measured"
            )

    def predict(self, flop: float, *, device: str = "", dtype: str = "") -> Prediction:
        """Return seconds of one product.
        flop: at least 0. device, dtype: of the rows; '' if the table has one.

        Raises
        ------
        ProfileError: unknown rows, or those of several device types or number types.
        """
        rows = self._chosen(device, dtype)
        sizes, times = rows["flop"].to_numpy(np.float64), rows["time_s"].to_numpy(np.float64)
        there = sizes == flop
        if there.any():
            value = float(np.median(times[there]))
            own = bool((rows["provenance"][there] == Provenance.MEASURED).all())
            source = Provenance.MEASURED if own else Provenance.INTERPOLATED
            error = 0.0 if own else left_out_error(sizes, times)
            basis = "the row itself" if own else "a row that was not measured itself"
            return Prediction(value=value, provenance=source, error=error, basis=basis)
        value = float(product_seconds(sizes, times, np.array([flop]))[0])
        count = "1 row" if sizes.size == 1 else f"{sizes.size} rows"
        if sizes.min() < flop < sizes.max():
            source, error = Provenance.INTERPOLATED, left_out_error(sizes, times)
            basis = f"linear in FLOP between {count}"
        else:
            source, error = Provenance.EXTRAPOLATED, beyond_error(sizes, times, flop)
            above = flop > sizes.max()
            basis = f"roofline and rate above {count}" if above else f"launch below {count}"
        return Prediction(value=value, provenance=source, error=error, basis=basis)

    def _chosen(self, device: str, dtype: str) -> pandas.DataFrame:
        rows = self.rows
        for name, asked in (("device", device), ("dtype", dtype)):
            known = list(dict.fromkeys(rows[name]))
            if asked and asked not in known:
                raise ProfileError(
                    f"{self.source}: no rows of record 'matmul' with {name} {asked!r}, expected "
                    f"{', '.join(map(repr, known))}"
                )
            if not asked and len(known) > 1:
                raise ProfileError(
                    f"{self.source}: rows of record 'matmul' of several values of {name}, expected "
                    f"one to be asked for: {', '.join(known)}"
                )
            rows = rows[rows[name] == (asked or known[0])]
        return rows


def product_rows(table: Measurements) -> pandas.DataFrame:
    """Return the rows of products that are no predictions."""
    rows = table.of(Record.MATMUL)
    rows = rows[(rows["provenance"] == Provenance.MEASURED) | rows["error"].isna()]
    return rows[(rows["flop"] > 0) & (rows["time_s"] > 0)]


def product_seconds(sizes: Floats, times: Floats, asked: Floats) -> Floats:
    """Return seconds of products, float64 [m]. sizes: FLOP of the rows, positive, float64 [n].
    times: their seconds. asked: FLOP, float64 [m]."""
    curve = curve_of(sizes, times)
    last = curve.sizes[-1]
    found = curve(np.minimum(asked, last))
    above = asked > last
    if above.any():
        tested = [_tests(curve, law) for law in LAWS]
        weights = 1 / (np.array(tested) + LEAST_ERROR) ** 2
        growth = [np.log(law(curve)(asked[above])) for law in LAWS]
        found[above] *= np.exp(np.average(growth, axis=0, weights=weights))
    return np.asarray(found)


def _tests(curve: Curve, law: Law) -> float:
    """Return the mean error of a law, by its logarithm, that goes on from fewer of the rows."""
    sizes, times = curve.sizes, curve.times
    errors = []
    for span in SPANS if sizes.size >= FEWEST else ():
        count = max(int(np.searchsorted(sizes, sizes[-1] / span, side="right")), sizes.size // 2)
        count = min(count, sizes.size - 1)
        found = law(curve_of(sizes[:count], times[:count]))(sizes[count:])
        errors.append(float(np.mean(np.abs(np.log(found * times[count - 1] / times[count:])))))
    return float(np.mean(errors)) if errors else 0.0


def _roofline(curve: Curve) -> Growth:
    """Return launch + a FLOP^(2/3) + b FLOP, fitted with the least relative residuals."""
    from scipy.optimize import nnls

    def terms(flop: Floats) -> Floats:
        # In units of the last row, so that the columns are of one size.
        share = flop / curve.sizes[-1]
        return np.stack([share, share ** (2 / 3), np.ones_like(share)], axis=1)

    design = terms(curve.sizes) / curve.times[:, None]
    if len(design) == 1:
        return lambda flop: terms(flop)[:, 0]
    coefficients, _ = nnls(design, np.ones(len(design)))
    return lambda flop: np.asarray(terms(flop) @ coefficients / coefficients.sum())


def _rate(curve: Curve) -> Growth:
    """Return the time by a rate that approaches a limit with longer edges.

    The gap to the limit, in the logarithm, is assumed to go with the inverse of the edge, as a loss
    at the edges (half-performance length of Hockney and Jesshope 1981, Parallel Computers): as much
    again as the rate rose since edges of half the length.
    """
    last = curve.sizes[-1]
    since = max(last / EDGES, curve.sizes[0])
    if last < APART * since:
        return lambda flop: np.asarray(flop / last)
    rise = math.log(last / since * float(curve(since)) / curve.times[-1])
    lacks = min(max(rise, 0.0), math.log(last / since)) / ((last / since) ** (1 / 3) - 1)
    return lambda flop: np.asarray(
        flop / last * np.exp(lacks * (np.cbrt(last / flop) - 1)), np.float64
    )


LAWS: tuple[Law, ...] = (_roofline, _rate)


def beyond_error(sizes: Floats, times: Floats, flop: float) -> float | None:
    """Return the mean relative error of going as far beyond the rows; None if too few tell it.

    The rows as far below the last one (above the first one) predict the others; half of them at
    least.
    """
    order = np.argsort(sizes)
    sizes, times = sizes[order], times[order]
    if sizes.size < FEWEST:
        return None
    half = sizes.size // 2
    if flop > sizes[-1]:
        used = sizes <= max(sizes[-1] ** 2 / flop, sizes[half - 1])
        used[-1] = False
    else:
        used = sizes >= min(sizes[0] ** 2 / max(flop, 1.0), sizes[-half])
        used[0] = False
    found = product_seconds(sizes[used], times[used], sizes[~used])
    return float(np.mean(np.abs(found / times[~used] - 1)))
