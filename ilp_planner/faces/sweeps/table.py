"""The table of a sweep: the result of every point, and its price.

The Pareto front of rows in all objectives.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError, shown
from ilp_planner.base.files import write_bytes
from ilp_planner.base.limits import FIGURE
from ilp_planner.faces.report.rates import price_of_tokens, run_of
from ilp_planner.faces.sweeps.axes import GPUS
from ilp_planner.faces.sweeps.journal import NO_PLAN, RATES
from ilp_planner.specs.prices import PriceList

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pandas as pd

    from ilp_planner.faces.sweeps.journal import Row
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.formats.json_fields import Fields


# ---- pareto --------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from collections.abc import Sequence

    Pair = tuple[float, float]


def pareto_front(values: Sequence[Pair]) -> list[bool]:
    """Tell of every pair whether it is on the front: none is at most as large in both numbers, and
    smaller in one.

    Parameters
    ----------
    values: the smaller the better; a pair with nan is on no front. For one objective alone, the
        second numbers are all equal.
    """
    known = {pair for pair in values if not any(map(math.isnan, pair))}
    front: set[Pair] = set()
    least = math.inf
    for pair in sorted(known):
        if pair[1] < least:
            front.add(pair)
            least = pair[1]
    return [pair in front for pair in values]


# ---- table ---------------------------------------------------------------------------------------


FORMATS = (".csv", ".parquet")
TIME, PRICE = "time", "price"
# What the journal says of a point, in the order of the columns.
FOUND = (
    "status", "step_s", "expected_error", "expected_low_s", "expected_high_s", "expected_basis",
    "bound_s", "gap", *RATES, "gpus_used",
    "peak_memory_bytes", "verdict",
    "tp", "pp", "cp", "ep", "dp", "virtual_stages", "micro_batch_size", "micro_batches", "layout",
    "plan",
)  # fmt: skip
COSTS = ("price_per_hour", "price_per_1e9_tokens", "days", "price")
LAST = ("stopped_by", "wall_s", "reason")
WHOLE = (
    "gpus", "gpus_used", "tp", "pp", "cp", "ep", "dp", "virtual_stages", "micro_batch_size",
    "micro_batches",
)  # fmt: skip
TEXTS = ("gpu", "status", "expected_basis", "verdict", "layout", "plan", "stopped_by", "reason")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Wishes for a table besides the results.

    objectives: time, price or both; the front is marked. tokens: of a training run, 0 if nothing is
    said. prices: of devices; others have the price of their cluster.
    """

    objectives: tuple[str, ...] = (TIME,)
    tokens: float = 0.0
    prices: PriceList = field(default_factory=lambda: PriceList({}))

    @property
    def columns(self) -> dict[str, str]:
        """The columns that say the objectives: of a run of so many tokens if given, of one step and
        one hour otherwise."""
        of_run = {TIME: "days", PRICE: "price"}
        of_step = {TIME: "step_s", PRICE: "price_per_hour"}
        return {name: (of_run if self.tokens else of_step)[name] for name in self.objectives}


def check_output(path: Path) -> None:
    """Refuse a table of another format, or one that needs a package that is not there.

    Raises
    ------
    UsageError: one line with a repair.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"output: found {path.name!r}, expected a name that ends in {' or '.join(FORMATS)}, as "
            f"{path.stem}.csv"
        )
    if path.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise UsageError(
            f"output: found {path.name!r} without pyarrow, expected it installed: pip install "
            f"'ilp-planner[parquet]'; {path.stem}.csv needs nothing"
        )


def check_row(row: Fields) -> None:
    """Refuse a row of a journal with a value that no sweep writes.

    Raises
    ------
    PlanError: one line with the file, the line, the key, the found and the expected value.
    """
    values = row.inside("values")
    for key in values.values:
        values.text(key)
    row.text("gpu")
    row.whole("gpus", least=1)
    for key, value in row.values.items():
        if value is None or key in ("values", "billed"):
            continue
        if key in WHOLE:
            row.whole(key)
        elif key in TEXTS:
            row.text(key)
        elif key in FOUND or key in LAST:
            row.number(key, least=-FIGURE)
    if row.text("status") not in NO_PLAN or row.values.get("step_s") is not None:
        if row.number("step_s") == 0:
            raise row.error("step_s", "seconds above 0")
        row.number("peak_memory_bytes")
        row.whole("virtual_stages", least=1)
        for key in ("tp", "pp", "cp", "ep", "dp"):
            if key not in row.values:
                raise row.error(key, "what the plan has")
    for number, each in enumerate(row.listed("billed") if "billed" in row.values else ()):
        kinds: tuple[Any, ...] = (str, int, (int, float, NoneType), (int, float, NoneType))
        right = isinstance(each, list) and len(each) == len(kinds)
        if not right or not all(map(isinstance, each, kinds)):
            expected = "a type, how many, a price and a spot price"
            raise row.error(f"billed[{number}]", expected, shown(each))


def rows_of(sweep: Sweep, rows: Iterable[Row], wish: Wish) -> list[Row]:
    """Return the rows of a sweep in the order of its points, with prices and the front.

    Parameters
    ----------
    rows: of a journal, perhaps with points outside of the sweep.
    """
    numbered = [(sweep.number_of(row["values"]), row) for row in rows]
    kept = sorted((n, i) for i, (n, _) in enumerate(numbered) if n is not None)
    found = [_with_costs(numbered[i][1], wish) for _, i in kept]
    columns = list(wish.columns.values())
    pairs = [tuple(_number(row[name]) for name in columns) for row in found]
    front = pareto_front([(pair[0], pair[1] if len(pair) > 1 else 0.0) for pair in pairs])
    return [row | {"pareto": best} for row, best in zip(found, front, strict=True)]


def columns_of(sweep: Sweep) -> list[str]:
    """Return the columns of a sweep's table: fields, GPUs, results, costs."""
    varied = [column_of(field.name) for field in sweep.fields if field.name != GPUS]
    return ["gpus", "gpu", *varied, *FOUND, *COSTS, "pareto", *LAST]


def column_of(field: str) -> str:
    """Return the column of the values of a field: its name, unless that is a result's."""
    return f"asked_{field}" if field in (*FOUND, *COSTS, *LAST, "gpu") else field


def _with_costs(row: Row, wish: Wish) -> Row:
    """Return a row with the price of its devices, and its values as columns."""
    values = {column_of(name): text for name, text in row["values"].items() if name != GPUS}
    billed = row.get("billed") or ()
    each = [(count, wish.prices.price_of(name, *prices)) for name, count, *prices in billed]
    hourly = sum(count * price for count, price in each if price is not None) if each else None
    if any(price is None for _, price in each):
        hourly = None
    tokens = row.get("tokens_per_s")
    run = run_of(wish.tokens, tokens, hourly) if wish.tokens and tokens else None
    costs = {
        "price_per_hour": hourly,
        "price_per_1e9_tokens": price_of_tokens(hourly, tokens) if hourly and tokens else None,
        "days": None if run is None else run.days,
        "price": None if run is None else run.price,
    }
    return dict.fromkeys((*FOUND, *LAST)) | values | row | costs


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def frame_of(sweep: Sweep, rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as a table; unknown values are missing."""
    import pandas as pd

    frame = pd.DataFrame(list(rows), columns=columns_of(sweep))
    for name in frame.columns:
        if name in WHOLE:
            frame[name] = frame[name].astype("Int64")
        elif name in TEXTS:
            frame[name] = frame[name].astype("string")
        elif name in (*FOUND, *COSTS, *LAST):
            frame[name] = frame[name].astype("Float64")
        elif name != "pareto":
            frame[name] = _typed(frame[name])
    return frame


def _typed(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values of a field as numbers if all of them are."""
    import pandas as pd

    try:
        return pd.to_numeric(column)
    except (ValueError, TypeError):
        return column.astype("string")


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as CSV or Parquet; a kill at any moment leaves the old one or the new one.

    Raises
    ------
    OutputError: the system refuses.
    """
    buffer = io.BytesIO()
    if path.suffix.lower() == ".parquet":
        frame.to_parquet(buffer, index=False, engine="pyarrow")
    else:
        frame.to_csv(buffer, index=False)
    write_bytes(path, buffer.getvalue())
