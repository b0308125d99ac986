"""A plan as a picture, PNG or SVG: its iteration in time, its memory, and where the seconds go."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.errors import UsageError
from ilp_planner.files import check_writable, write_bytes
from ilp_planner.page.memory import part_names
from ilp_planner.report.tables import GIB, exact_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ilp_planner.page.view import View
    from ilp_planner.simulation.engine import Timeline

FORMATS = (".png", ".svg")
KIND_COLOURS = ("#3b7dd8", "#e08a1e", "#e08a1e", "#5f9f4a")  # forward, backward, its two parts
IDLE = "#eceef2"
PART_COLOURS = (
    "#3b7dd8", "#e08a1e", "#4f9a52", "#c2528b", "#7d63c6", "#23969e",
    "#b5912a", "#d0594b", "#6f7d8f", "#8a9a2b", "#a46a3f", "#5a6fd6",
    "#35b0d6", "#e58fb1", "#2f6b57", "#b9a3e8",
)  # fmt: skip
COLUMNS = 1600  # moments of an iteration that are drawn: what is shorter is not seen
WIDTH, ROW, BAR = 10.0, 0.22, 0.26  # inches: of a picture, and of a rank's row


def check_picture(file: Path) -> None:
    """Refuse the name of a picture of another format.

    Raises
    ------
    UsageError: its end is none of `FORMATS`.
    """
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"png: found {file.name!r}, expected a name that ends in {' or '.join(FORMATS)}, as "
            f"{file.stem}.png"
        )


def write_picture(file: Path, views: Sequence[View]) -> None:
    """Write a picture of plans, one below the other.

    Raises
    ------
    OutputError: the system refuses. UsageError: the format is not known.
    """
    check_picture(file)
    check_writable(file)
    buffer = io.BytesIO()
    picture(views).savefig(buffer, dpi=150, format=file.suffix[1:].lower())
    write_bytes(file, buffer.getvalue())


def picture(views: Sequence[View]) -> Figure:
    """Return a picture of plans as matplotlib has it: three rows for each."""
    from matplotlib.figure import Figure

    heights = [height for view in views for height in _heights(view)]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)
    parts = part_names(tuple(bar for view in views for bar in view.memory))
    for n, view in enumerate(views):
        iteration, memory, terms = axes[3 * n : 3 * n + 3, 0]
        title = f"{view.name}: {view.model} on {view.cluster}. {view.headline.text}"
        iteration.set_title(title, loc="left", fontsize=10, parse_math=False, wrap=True)
        draw_iteration(view, iteration)
        draw_memory(view, memory, parts)
        draw_terms(view, terms)
    return figure


def _heights(view: View) -> tuple[float, float, float]:
    ranks = view.simulated.timeline.orders.shape.ranks if view.simulated else 1
    return 1.2 + ROW * min(ranks, 64), 1.3 + BAR * len(view.memory), 1.2


def draw_iteration(view: View, axes: Axes) -> None:
    """Draw what every rank runs, and when: one sample in each of `COLUMNS` moments."""
    if view.simulated is None:
        _say(axes, f"no timeline: {view.missing['timeline']}")
        return
    timeline, seconds = view.simulated.timeline, view.simulated.seconds
    image = sampled(timeline, max(seconds, timeline.seconds))
    ranks = len(image)
    extent = (0.0, seconds, ranks - 0.5, -0.5)
    axes.imshow(image, aspect="auto", extent=extent, interpolation="nearest")
    axes.set_ylabel("pipeline rank")
    axes.set_yticks(sorted({0, ranks - 1, *range(0, ranks, max(1, ranks // 8))}))
    axes.set_xlabel("seconds of an iteration; blue forward, orange backward, grey bubble")


def sampled(timeline: Timeline, seconds: float) -> Any:
    """Return the colour of every rank at `COLUMNS` moments, uint8 [ranks, COLUMNS, 3]."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in (*KIND_COLOURS, IDLE)])
    orders, ops = timeline.orders, timeline.orders.operations
    moments = (np.arange(COLUMNS) + 0.5) * seconds / COLUMNS
    found = np.full((orders.shape.ranks, COLUMNS), len(KIND_COLOURS))
    for rank in range(orders.shape.ranks):
        here = slice(ops.starts[rank], ops.starts[rank + 1])
        place = np.searchsorted(timeline.start[here], moments, side="right") - 1
        running = (place >= 0) & (moments < timeline.end[here][place])
        found[rank, running] = ops.kinds[here][place[running]]
    return (255 * colours[found]).astype(np.uint8)


def draw_memory(view: View, axes: Axes, parts: Sequence[str]) -> None:
    """Draw what the fullest device of every rank holds, what it may, and what the card has.

    parts: the names of what any device of the picture holds, in the order of their colours.
    """
    if not view.memory:
        _say(axes, f"no memory: {view.missing['memory']}")
        return
    rows = np.arange(len(view.memory))
    left = np.zeros(len(rows))
    for n, name in enumerate(parts):
        sizes = np.array([dict(bar.parts).get(name, 0.0) for bar in view.memory]) / GIB
        if not sizes.any():
            continue
        colour = PART_COLOURS[n % len(PART_COLOURS)]
        axes.barh(rows, sizes, 0.7, left=left, color=colour, label=name)
        left += sizes
    for line, style in (("limit", "solid"), ("card", "dotted")):
        at = [getattr(bar, line) / GIB for bar in view.memory]
        axes.vlines(at, rows - 0.45, rows + 0.45, colors="black", linestyles=style)
    axes.set_yticks(rows, [bar.ranks for bar in view.memory])
    axes.invert_yaxis()
    axes.set_ylabel("pipeline rank")
    axes.set_xlabel("GiB of the fullest device; solid: what plans may use, dotted: the card")
    axes.legend(fontsize=7, ncols=4, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)


def draw_terms(view: View, axes: Axes) -> None:
    """Draw the seconds of an iteration by name, one after the other."""
    if not view.terms:
        _say(axes, "no times: the plan has no price")
        return
    left = 0.0
    for n, (name, seconds) in enumerate(view.terms.items()):
        label = f"{name} {exact_seconds(seconds)}"
        colour = PART_COLOURS[n % len(PART_COLOURS)]
        axes.barh([0], [seconds], 0.6, left=left, color=colour, label=label)
        left += seconds
    axes.set_yticks([])
    axes.set_xlabel("seconds of an iteration by where they go")
    axes.legend(fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)


def _say(axes: Axes, text: str) -> None:
    axes.axis("off")
    axes.text(0, 0.5, text, transform=axes.transAxes, fontsize=9, parse_math=False, wrap=True)
