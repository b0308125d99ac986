"""A sweep as a picture: lines over the varied field, or the front of two objectives."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import write_bytes
from ilp_planner.faces.sweeps.axes import GPUS
from ilp_planner.faces.sweeps.table import column_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ilp_planner.faces.sweeps.journal import Row
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.table import Wish

LABELS = {
    "step_s": "seconds per step",
    "days": "days of training",
    "price_per_hour": "price per hour",
    "price": "price of the training",
    "tokens_per_s": "tokens/s",
    GPUS: "GPUs",
}
SIZE = (8.0, 5.0)  # inches
MOST_LINES = 12  # that a legend names
WIDE = 8.0  # ratio of the ends of an axis from which on it is logarithmic
FORMATS = (".png", ".svg")


class Line(NamedTuple):
    """Points that differ in one value alone. name: of their common values."""

    name: str
    x: list[float]
    y: list[float]


def check_plot(file: Path, sweep: Sweep, wish: Wish) -> None:
    """Refuse a picture that cannot be drawn: of another format, or of nothing that is a number.

    Raises
    ------
    UsageError: one line with a repair.
    """
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"plot: found {file.name!r}, expected a name that ends in {' or '.join(FORMATS)}, as "
            f"{file.stem}.png"
        )
    if len(wish.columns) == 1:
        along_of(sweep)


def write_plot(file: Path, sweep: Sweep, rows: Sequence[Row], wish: Wish) -> None:
    """Write the picture of a sweep.

    Raises
    ------
    OutputError: the system refuses. UsageError: nothing that is varied is a number.
    """
    buffer = io.BytesIO()
    figure = plotted(sweep, rows, wish)
    figure.savefig(buffer, dpi=150, format=file.suffix[1:].lower())
    write_bytes(file, buffer.getvalue())


def plotted(sweep: Sweep, rows: Sequence[Row], wish: Wish) -> Figure:
    """Return the picture as matplotlib has it: of one objective, a line over the first field that
    is varied and is a number, for each combination of the others; of two, a point for each row with
    the front through the best.

    Raises
    ------
    UsageError: nothing that is varied is a number.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    columns = list(wish.columns.values())
    if len(columns) == 1:
        along = along_of(sweep)
        _draw_lines(axes, lines_of(sweep, rows, along, columns[0]))
        columns = [along, *columns]
    else:
        _draw_front(axes, rows, columns)
    axes.set_xlabel(LABELS.get(columns[0], columns[0]), parse_math=False)
    axes.set_ylabel(LABELS.get(columns[1], columns[1]), parse_math=False)
    for axis, set_scale, column in (
        (axes.xaxis, axes.set_xscale, columns[0]),
        (axes.yaxis, axes.set_yscale, columns[1]),
    ):
        values = [value for row in rows if (value := _number(row.get(column))) > 0]
        if values and max(values) >= WIDE * min(values):
            set_scale("log")
            axis.set_minor_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure


def along_of(sweep: Sweep) -> str:
    """Return the column of the first field with several values, all of them numbers.

    Raises
    ------
    UsageError: there is none.
    """
    for field, axis in zip(sweep.fields, sweep.axes, strict=True):
        numbers = field.name == GPUS or all(
            isinstance(part, range) or not math.isnan(_number(part)) for part in axis.parts
        )
        if len(axis) > 1 and numbers:
            return column_of(field.name)
    raise UsageError(
        "plot: found no field with several numbers, expected one, as in "
        "`vary=global_batch=256,512`, or `objective=time,price`"
    )


def lines_of(sweep: Sweep, rows: Sequence[Row], along: str, column: str) -> list[Line]:
    """Return the lines of a column over another; points without a plan are in none."""
    varied = [
        column_of(field.name)
        for field, axis in zip(sweep.fields, sweep.axes, strict=True)
        if len(axis) > 1
    ]
    # Of the GPUs of an axis, their kind is a name as well.
    others = [name for name in varied if name != along]
    if along == GPUS and len({row.get("gpu") for row in rows}) > 1:
        others.append("gpu")
    found: dict[str, Line] = {}
    for row in rows:
        y = _number(row.get(column))
        if math.isnan(y):
            continue
        name = ", ".join(_called(other, row) for other in others)
        line = found.setdefault(name, Line(name, [], []))
        line.x.append(_number(row.get(along)))
        line.y.append(y)
    return list(found.values())


def _called(column: str, row: Mapping[str, object]) -> str:
    return str(row[column]) if column == "gpu" else f"{column} {row[column]}"


def _draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    for line in lines:
        points = sorted(zip(line.x, line.y, strict=True))
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=line.name)
    if 1 < len(lines) <= MOST_LINES:
        legend = axes.legend(fontsize=8, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _draw_front(axes: Axes, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Draw all rows as points, and a line through the front with the GPUs."""
    first, second = columns
    found = [(_number(row.get(first)), _number(row.get(second)), row) for row in rows]
    known = [(x, y, row) for x, y, row in found if not math.isnan(x + y)]
    rest = [(x, y) for x, y, row in known if not row["pareto"]]
    best = sorted((x, y, f"{row['gpus']}") for x, y, row in known if row["pareto"])
    if rest:
        x, y = zip(*rest, strict=True)
        axes.plot(x, y, "o", markersize=4, color="#9aa3ad", label="other points")
    if best:
        x, y, names = zip(*best, strict=True)
        axes.plot(x, y, marker="o", color="#3b7dd8", label="Pareto front, with GPUs")
        for place in zip(x, y, names, strict=True):
            axes.annotate(
                place[2], place[:2], xytext=(4, 4), textcoords="offset points", fontsize=8
            )
        axes.legend(fontsize=8, frameon=False)


def _number(value: object) -> float:
    """Return a number, or a text that says one; nan for anything else."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan
