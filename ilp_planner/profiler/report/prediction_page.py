"""The accuracy of a table's predictions of its own rows, as one self-contained HTML page.

Charts of how well a table predicts its own rows, as SVG text to put into a page.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.profiler.predict.assessment import (
    MEMORY_COLUMNS,
    TIME_COLUMNS,
    dropped_rows,
    errors_of,
    score,
)
from ilp_planner.profiler.predict.crossvalidation import Protocol
from ilp_planner.profiler.report.prediction import KINDS, describe_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.measurements import Measurements, Record
    from ilp_planner.profiler.predict.answers import Answer
    from ilp_planner.profiler.predict.assessment import Judged


# ---- prediction plots ----------------------------------------------------------------------------


COLORS = {Protocol.BETWEEN: "#2a6fb0", Protocol.EDGE: "#4c9a5b", Protocol.BEYOND: "#d2762b"}
MOST_MARKS = 1500  # beyond it marks are drawn as one picture: a page should open at once
LEAST_ERROR = 1e-4
SIZE = (4.6, 3.6)  # inches
MICRO = 1e6


def scatter_svg(judged: Sequence[Judged]) -> str:
    """Return predicted against measured seconds, each row predicted from the others."""
    figure, axes = _figure()
    limits = []
    for order, (protocol, measured, predicted) in enumerate(_pairs(judged)):
        limits += [measured.min(), measured.max(), predicted.min(), predicted.max()]
        axes.plot(
            measured * MICRO,
            predicted * MICRO,
            "o",
            color=COLORS[protocol],
            label=protocol.value,
            markersize=3,
            alpha=0.55,
            markeredgewidth=0,
            zorder=3 - 0.1 * order,
            rasterized=measured.size > MOST_MARKS,
        )
    span = np.array([min(limits), max(limits)]) * MICRO * np.array([0.8, 1.25])
    axes.plot(span, span, color="#444444", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=span, ylim=span)
    axes.set(xlabel="measured (us)", ylabel="predicted (us)")
    _legend(axes)
    return _svg(figure)


def distribution_svg(judged: Sequence[Judged]) -> str:
    """Return the share of rows with an error of at most so much."""
    figure, axes = _figure()
    for protocol, measured, predicted in _pairs(judged):
        errors = np.sort(np.maximum(np.abs(predicted / measured - 1), LEAST_ERROR))
        share = np.arange(1, errors.size + 1) / errors.size
        axes.step(
            100 * errors, 100 * share, where="post", color=COLORS[protocol], label=protocol.value
        )
    axes.set(xscale="log", ylim=(0, 101))
    axes.set(xlabel="error, at most (%)", ylabel="rows (%)")
    axes.xaxis.set_major_formatter("{x:g}")
    _legend(axes)
    return _svg(figure)


def by_size_svg(judged: Sequence[Judged]) -> str:
    """Return the errors by how long the row takes: median and 90th percentile of each octave."""
    figure, axes = _figure()
    for protocol, measured, predicted in _pairs(judged):
        errors = 100 * np.abs(predicted / measured - 1)
        bins = np.floor(np.log2(measured))
        places, middles, highs = [], [], []
        for one in np.unique(bins):
            places.append(2.0 ** (one + 0.5) * MICRO)
            middles.append(float(np.median(errors[bins == one])))
            highs.append(float(np.percentile(errors[bins == one], 90)))
        axes.plot(places, middles, "o-", color=COLORS[protocol], label=protocol.value, markersize=3)
        axes.plot(places, highs, ":", color=COLORS[protocol])
    axes.set(xscale="log")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="measured (us)", ylabel="error (%): median, 90th percentile (dotted)")
    _legend(axes)
    return _svg(figure)


def _pairs(
    judged: Sequence[Judged],
) -> Iterator[tuple[Protocol, NDArray[np.float64], NDArray[np.float64]]]:
    """Yield measured and predicted seconds of each protocol that has some."""
    for protocol in Protocol:
        mine = [j for j in judged if j.protocol is protocol]
        measured = np.concatenate([*(j.measured for j in mine), np.empty(0)])
        if measured.size:
            yield protocol, measured, np.concatenate([j.predicted for j in mine])


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _legend(axes: Any) -> None:
    axes.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=7, borderpad=0,
        columnspacing=1.0, handlelength=1.5,
    )  # fmt: skip


def _svg(figure: Any) -> str:
    """Return the chart without the header of a file; the same input makes the same text."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ilp-plan", "font.size": 9}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, dpi=150)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    # Several charts share a page: names that nothing refers to would be there more than once.
    used = set(re.findall(r"#([\w.-]+)", svg))
    return re.sub(r' id="([\w.-]+)"', lambda m: m[0] if m[1] in used else "", svg)


# ---- prediction page -----------------------------------------------------------------------------


WORST = 20  # rows
MOST_SERIES = 400  # rows of a table of series
MOST_ANSWERS = 200
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em; } h2 { font-size: 1.15em; margin-top: 2em; }
p, ul { max-width: 46em; } .quiet { color: #666; }
table { border-collapse: collapse; font-size: 13px; margin: 0.6em 0; }
th, td { padding: 3px 12px 3px 0; text-align: right; border-bottom: 1px solid #eee;
  vertical-align: top; }
th { border-bottom: 1px solid #999; font-weight: 600; }
td.text, th.text { text-align: left; }
figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top; }
figcaption { font-size: 13px; color: #444; max-width: 330px; }
figure svg { width: 330px; height: auto; }
details { margin: 0.6em 0; } summary { cursor: pointer; }
"""
METHOD = (
    "Rows are left out and predicted from the others of their series. <b>Between rows</b>: one row "
    "that others surround. <b>At the edge of rows</b>: one that they do not surround, such as the "
    "corner of a grid. <b>One step beyond rows</b>: all rows with the largest, or the least, value "
    "of a dimension, which is the error of going one step further than was measured; of going "
    "further still, more. Errors are relative, without their sign."
)


def prediction_page(
    table: Measurements, judged: Sequence[Judged], answers: Sequence[Answer] = ()
) -> str:
    """Return the page.

    Parameters
    ----------
    judged: all series of the table. answers: of the questions, to show as well.
    """
    times = [j for j in judged if j.column in TIME_COLUMNS]
    parts = [
        f"<h1>Predictions from {escape(table.source)}</h1>",
        f'<p class="quiet">{len(table.frame)} rows, {len({(j.kind, j.label) for j in judged})} '
        "series that have two rows or more</p>",
        _machine(table),
        _answers(answers),
    ]
    if times:
        parts += ["<h2>How far predictions are off</h2>", f"<p>{METHOD}</p>", _summary(judged)]
        parts += _charts(times)
        parts += [_worst(times), _series(times)]
    else:
        parts.append("<p>No series has two rows: no row can be predicted from others.</p>")
    parts.append(_dropped(table))
    title = escape(f"Predictions from {table.source}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _machine(table: Measurements) -> str:
    rows = [(key, str(value)) for key, value in table.machine.items()]
    if not rows:
        return '<p class="quiet">The table does not say what it was measured on.</p>'
    return "<h2>Measured on</h2>" + _table(("", ""), rows, text=2)


def _answers(answers: Sequence[Answer]) -> str:
    if not answers:
        return ""
    heads = ("what", "where", "provenance", "basis", "time", "expected error")
    rows = [
        (
            answer.what,
            answer.where,
            answer.time.provenance.value,
            answer.time.basis,
            format_seconds(answer.time.value),
            describe_error(answer),
        )
        for answer in answers[:MOST_ANSWERS]
    ]
    return "<h2>Asked for</h2>" + _table(heads, rows, text=4, of=len(answers))


def _summary(judged: Sequence[Judged]) -> str:
    heads = ("of", "what", "predicted", "values", "mean", "median", "90 % within")
    rows = []
    for kind, name in KINDS.items():
        mine = [j for j in judged if j.kind is kind]
        for what, columns in (("time", TIME_COLUMNS), ("memory", MEMORY_COLUMNS)):
            for protocol in Protocol:
                found = score(errors_of(mine, protocol, columns))
                if found.rows:
                    off = map(format_percent, (found.mean, found.median, found.high))
                    rows.append((name, what, protocol.value, str(found.rows), *off))
    return _table(heads, rows, text=3)


def _charts(judged: Sequence[Judged]) -> list[str]:
    found = []
    for name, kinds in _kinds(judged):
        title = f"<h2>{escape(name[0].upper() + name[1:])}</h2>"
        drawn = [
            (scatter_svg(kinds), "Predicted against measured time; on the line, both agree."),
            (distribution_svg(kinds), "Share of rows whose error is at most so much."),
            (by_size_svg(kinds), "Error by how long a row takes."),
        ]
        figures = (f"<figure>{svg}<figcaption>{text}</figcaption></figure>" for svg, text in drawn)
        found.append(title + "".join(figures))
    return found


def _worst(judged: Sequence[Judged]) -> str:
    every = [
        (abs(float(error)), j, place)
        for j in judged
        for place, error in enumerate(j.errors)
        if np.isfinite(error)
    ]
    every.sort(key=lambda one: -one[0])
    heads = ("series", "row", "column", "predicted from", "measured", "predicted", "error")
    rows = [
        (
            _label(j),
            j.rows[place],
            j.column,
            j.protocol.value,
            format_seconds(float(j.measured[place])),
            format_seconds(float(j.predicted[place])),
            f"{100 * float(j.errors[place]):+.1f} %",
        )
        for _, j, place in every[:WORST]
    ]
    return (
        "<h2>The rows that are furthest off</h2><p>Where others agree with each other and not with "
        "a row, it is worth measuring again.</p>" + _table(heads, rows, text=4)
    )


def _series(judged: Sequence[Judged]) -> str:
    """Return a table for every kind: one row for each series and column."""
    parts = ["<h2>Series by series</h2>"]
    heads = (
        "series", "column", "shortest", "longest", "between: mean", "edge: mean", "beyond: mean",
        "furthest off",
    )  # fmt: skip
    for name, kind in _kinds(judged):
        mine: dict[tuple[str, str], list[Judged]] = {}
        for j in kind:
            mine.setdefault((_label(j), j.column), []).append(j)
        rows = []
        for (label, column), parts_of in list(mine.items())[:MOST_SERIES]:
            worst = max(parts_of, key=lambda j: float(np.abs(j.errors).max()))
            place = int(np.abs(worst.errors).argmax())
            rows.append(
                (
                    label,
                    column,
                    format_seconds(min(float(j.measured.min()) for j in parts_of)),
                    format_seconds(max(float(j.measured.max()) for j in parts_of)),
                    *(
                        format_percent(score(errors_of(parts_of, protocol)).mean)
                        for protocol in Protocol
                    ),
                    f"{worst.rows[place]} ({format_percent(abs(float(worst.errors[place])))})",
                )
            )
        parts.append(
            f"<details open><summary>{escape(name)}, {len(mine)}</summary>"
            f"{_table(heads, rows, text=2, of=len(mine))}</details>"
        )
    return "".join(parts)


def _dropped(table: Measurements) -> str:
    lines = [*dropped_rows(table), *table.notes]
    if not lines:
        return "<h2>Left out</h2><p>Nothing: all rows count.</p>"
    return "<h2>Left out</h2><ul>" + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>"


def _kinds(judged: Sequence[Judged]) -> list[tuple[str, list[Judged]]]:
    """Return the kinds of rows that there are, by name."""
    by_kind: dict[Record, list[Judged]] = {}
    for j in judged:
        by_kind.setdefault(j.kind, []).append(j)
    return [(KINDS[kind], by_kind[kind]) for kind in KINDS if kind in by_kind]


def _label(j: Judged) -> str:
    return f"{j.label}, {j.device}" if j.device else j.label


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, text: int, of: int = 0) -> str:
    """Return a table with `text` columns of text first. of: rows that there are, 0 for these."""

    def cells(values: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="text">{escape(value)}</{tag}>'
            if place < text
            else f"<{tag}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    head = f"<tr>{cells(heads, 'th')}</tr>\n" if any(heads) else ""
    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    rest = f'<p class="quiet">{of - len(rows)} more</p>' if of > len(rows) else ""
    return f"<table>\n{head}{body}\n</table>{rest}"
