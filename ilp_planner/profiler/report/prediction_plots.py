"""Charts of how well a table predicts its own rows, as SVG text to put into a page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.profiler.predict.crossvalidation import Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ilp_planner.profiler.predict.assessment import Judged

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
