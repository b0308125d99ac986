"""Times of matrix products that were not measured, from those that were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.errors import ProfileError
from ilp_planner.profiles.measurements import Record
from ilp_planner.profiles.predict.curve import curve_of, left_out_error
from ilp_planner.profiles.predict.prediction import Prediction
from ilp_planner.profiles.table import Provenance

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas
    from numpy.typing import NDArray

    from ilp_planner.profiles.measurements import Measurements
    from ilp_planner.profiles.predict.curve import Curve

FEWEST = 4  # rows that tell the error of going beyond them


class ProductPredictor:
    """Predicts the time of a matrix product from its FLOP.

    Linear between rows, which a rate and a launch make it. Beyond the last row as a roofline of all
    rows goes on: launch, FLOP, and the edges of the matrices, which grow as FLOP^(2/3) where these
    are about square. Below the first towards the launch alone.
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

        Parameters
        ----------
        flop: at least 0. device, dtype: of the rows; '' where the table has one.

        Raises
        ------
        ProfileError: no such rows, or those of several device types or number types.
        """
        rows = self._chosen(device, dtype)
        sizes, times = rows["flop"].to_numpy(np.float64), rows["time_s"].to_numpy(np.float64)
        there = sizes == flop
        if there.any():
            own = bool((rows["provenance"][there] == Provenance.MEASURED).all())
            return Prediction(
                value=float(np.median(times[there])),
                provenance=Provenance.MEASURED if own else Provenance.INTERPOLATED,
                error=0.0 if own else left_out_error(sizes, times),
                basis="the row itself" if own else "a row that was not measured itself",
            )
        value = float(product_seconds(sizes, times, np.array([flop]))[0])
        count = "1 row" if sizes.size == 1 else f"{sizes.size} rows"
        if sizes.min() < flop < sizes.max():
            return Prediction(
                value=value,
                provenance=Provenance.INTERPOLATED,
                error=left_out_error(sizes, times),
                basis=f"linear in FLOP between {count}",
            )
        above = flop > sizes.max()
        return Prediction(
            value=value,
            provenance=Provenance.EXTRAPOLATED,
            error=beyond_error(sizes, times, flop),
            basis=f"roofline above {count}" if above else f"launch below {count}",
        )

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


def product_seconds(
    sizes: NDArray[np.float64], times: NDArray[np.float64], asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return seconds of products, float64 [m].

    Parameters
    ----------
    sizes: FLOP of the rows, positive, float64 [n]. times: their seconds. asked: FLOP, float64 [m].
    """
    curve = curve_of(sizes, times)
    last = curve.sizes[-1:]
    law = _roofline(curve)
    return np.asarray(curve(np.minimum(asked, last)) * law(np.maximum(asked, last)) / law(last))


def _roofline(curve: Curve) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return launch + a FLOP^(2/3) + b FLOP, fitted with the least relative residuals."""
    from scipy.optimize import nnls

    def terms(flop: NDArray[np.float64]) -> NDArray[np.float64]:
        # In units of the last row, so that the columns are of one size.
        share = flop / curve.sizes[-1]
        return np.stack([share, share ** (2 / 3), np.ones_like(share)], axis=1)

    design = terms(curve.sizes) / curve.times[:, None]
    if len(design) == 1:
        return lambda flop: terms(flop)[:, 0]
    coefficients, _ = nnls(design, np.ones(len(design)))
    return lambda flop: np.asarray(terms(flop) @ coefficients)


def beyond_error(
    sizes: NDArray[np.float64], times: NDArray[np.float64], flop: float
) -> float | None:
    """Return the mean relative error of going as far beyond the rows; None where too few tell it.

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
