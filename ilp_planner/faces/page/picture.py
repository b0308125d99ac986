"""A plan as a picture, PNG or SVG: its iteration in time, its memory, and the terms of its
seconds; its iteration as data of the page."""

from __future__ import annotations

import io
import math
import zlib
from base64 import b64encode
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.analysis.fullest import fullest_replica
from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import check_writable, write_bytes
from ilp_planner.base.units import format_percent, number_ranges
from ilp_planner.faces.report.tables import GIB, exact_seconds
from ilp_planner.schedule.engine import delays
from ilp_planner.schedule.orders import KINDS, NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec
    from numpy.typing import NDArray

    from ilp_planner.analysis.simulated import Simulated
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.faces.page.view import View
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.schedule.engine import StageTimes, Timeline


# ---- long rows of numbers as short text ----------------------------------------------------------
# A script on the page decodes it.


def packed(*columns: NDArray[np.integer]) -> str:
    """Return columns of whole numbers, one after the other, as 32-bit integers that are deflated
    (RFC 1950) and written in base64.

    Browsers undo both without a library (`DecompressionStream`). Repetition, as of the
    micro-batches of a pipeline, is counted by the compression instead of listed.

    Raises
    ------
    ValueError: a number has more than 32 bits.
    """
    values = np.concatenate(columns).astype(np.int64)
    limits = np.iinfo(np.int32)
    if values.size and not limits.min <= values.min() <= values.max() <= limits.max:
        raise ValueError("packed numbers need at most 32 bits")
    return b64encode(zlib.compress(values.astype("<i4").tobytes(), level=9)).decode("ascii")


# ---- one iteration as the script of the page draws it --------------------------------------------
# The operations of every pipeline rank in time.


TICKS = 2**26  # of an iteration: an operation of a millionth of it can still be zoomed into
SHOWN = 4  # micro-batches beside the fill, and beside the drain
MOST_SHOWN = 0.6  # of an iteration in windows; it is drawn whole where they would show more
MOST_OPERATIONS = 1_000_000  # that a page draws


def timeline_data(found: Simulated, sends: Sends) -> dict[str, Any]:
    """Return the script's data of an iteration, ready for JSON.

    Times are ticks, `ticks` of them a second; the page draws until `opens` at first. Operations are
    in the order in which each rank runs them, operations of rank r from `starts[r]` on; `packed`
    has three columns for them: stage and kind (4 x stage + kind), micro-batch, and ticks since the
    operation before of the rank ended. The first two are differences to the operation before.
    `durations` says how long each stage and kind takes.
    """
    timeline = found.timeline
    orders, ops = timeline.orders, timeline.orders.operations
    whole = max(found.seconds, timeline.seconds)
    scale = TICKS / whole if whole else 1.0
    codes = 4 * ops.stages.astype(np.int64) + ops.kinds
    start = np.rint(timeline.start * scale).astype(np.int64)
    known, first = np.unique(codes, return_index=True)
    lasting = np.rint((timeline.end - timeline.start)[first] * scale).astype(np.int64)
    duration = lasting[np.searchsorted(known, codes)]
    gaps = np.diff(start, prepend=0) - np.concatenate([[0], duration[:-1]])
    gaps[ops.starts[:-1]] = start[ops.starts[:-1]]
    shape = orders.shape
    return {
        "ticks": scale,
        "whole": round(whole * scale),
        "opens": round(windows(timeline, whole)[0][1] * scale),
        "ends": np.rint(timeline.finish * scale).astype(np.int64).tolist(),
        "pipeline": round(timeline.seconds * scale),
        "ranks": shape.ranks,
        "stages": shape.stages,
        "microBatches": shape.micro_batches,
        "starts": ops.starts.tolist(),
        "kinds": list(NAMES),
        "letters": KINDS,
        "durations": dict(zip(known.tolist(), lasting.tolist(), strict=True)),
        "packed": packed(np.diff(codes, prepend=0), np.diff(ops.micro_batches, prepend=0), gaps),
        "sends": sends._asdict(),
    }


def windows(timeline: Timeline, seconds: float) -> list[tuple[float, float]]:
    """Return the first and last second of the parts of an iteration that are drawn at first.

    All of it, or, if that is much more, the fill with `SHOWN` micro-batches, and as many with the
    drain and the end. seconds: of the whole iteration.
    """
    begin, end = opening(timeline), closing(timeline)
    if begin + (seconds - end) > MOST_SHOWN * seconds:
        return [(0.0, seconds)]
    return [(0.0, begin), (end, seconds)]


def opening(timeline: Timeline) -> float:
    """Return when the rank that begins last has ended its first `SHOWN` micro-batches."""
    ops = timeline.orders.operations
    rank = int(np.argmax(timeline.start[ops.starts[:-1]]))
    here = slice(ops.starts[rank], ops.starts[rank + 1])
    return float(timeline.end[here][ops.micro_batches[here] < SHOWN].max())


def closing(timeline: Timeline) -> float:
    """Return when the rank that ends first begins its last `SHOWN` micro-batches."""
    ops, count = timeline.orders.operations, timeline.orders.shape.micro_batches
    rank = int(np.argmin(timeline.end[ops.starts[1:] - 1]))
    here = slice(ops.starts[rank], ops.starts[rank + 1])
    return float(timeline.start[here][ops.micro_batches[here] >= count - SHOWN].min())


class Sends(NamedTuple):
    """Messages between pipeline ranks, seconds summed over all. travelling: that they are on their
    way. hidden: in which the rank that waits for one computes."""

    travelling: float
    hidden: float


def sends_of(timeline: Timeline, times: StageTimes) -> Sends:
    """Return how long messages between ranks travel, and how much of it ranks compute meanwhile.

    A message travels from the end of the operation that made it, or from when the rank that needs
    it asks for it if both ends wait. Of that, the rank waits from the end of its operation before
    until it begins the next one, and computes in the rest.
    """
    orders = timeline.orders
    here = np.flatnonzero(orders.remote)
    delay = delays(orders, times)[here]
    free = _free(timeline)[here]
    waited = timeline.start[here] - np.maximum(free, timeline.end[orders.needs[here]])
    exposed = np.minimum(delay, np.maximum(0.0, waited))
    return Sends(float(delay.sum()), float((delay - exposed).sum()))


def _free(timeline: Timeline) -> NDArray[np.float64]:
    """Return when each operation's rank has ended the one before, float64 [n]."""
    free = np.concatenate([[0.0], timeline.end[:-1]])
    free[timeline.orders.operations.starts[:-1]] = 0.0
    return free


# ---- picture -------------------------------------------------------------------------------------


FORMATS = (".png", ".svg")
KIND_COLOURS = ("#3b7dd8", "#e08a1e", "#e08a1e", "#5f9f4a")  # forward, backward, its two parts
IDLE = "#eceef2"
PART_COLOURS = (
    "#3b7dd8", "#e08a1e", "#4f9a52", "#c2528b", "#7d63c6", "#23969e",
    "#b5912a", "#d0594b", "#6f7d8f", "#8a9a2b", "#a46a3f", "#5a6fd6",
    "#35b0d6", "#e58fb1", "#2f6b57", "#b9a3e8",
)  # fmt: skip
COLUMNS = 1600  # moments of a window that are drawn: what is shorter is not seen
PALE = 0.3  # share of white in the colours of odd micro-batches
MOST_NUMBERED = 16  # ranks whose operations have the numbers of their micro-batches
NUMBER = 0.09  # inches of a digit
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
    rows = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    parts = part_names(tuple(bar for view in views for bar in view.memory))
    for n, view in enumerate(views):
        draw_iteration(view, figure, rows[3 * n])
        draw_memory(view, figure.add_subplot(rows[3 * n + 1]), parts)
        draw_terms(view, figure.add_subplot(rows[3 * n + 2]))
    return figure


def _heights(view: View) -> tuple[float, float, float]:
    ranks = view.simulated.timeline.orders.shape.ranks if view.simulated else 1
    iteration = 1.3 + ROW * min(ranks, 64)
    return iteration, 1.3 + BAR * len(view.memory), 0.6 + BAR * max(1, len(view.terms))


def draw_iteration(view: View, figure: Figure, place: SubplotSpec) -> None:
    """Draw the operations of every rank in time: all of a short iteration, and of a long one its
    begin and its end, on one scale with a break between them."""
    title = f"{view.name}: {view.model} on {view.cluster}\n{view.headline.text}"
    said: dict[str, Any] = {"loc": "left", "fontsize": 10, "parse_math": False, "wrap": True}
    if view.simulated is None:
        axes = figure.add_subplot(place)
        axes.set_title(title, **said)
        _say(axes, f"no timeline: {view.missing['timeline']}")
        return
    timeline = view.simulated.timeline
    spans = windows(timeline, max(view.simulated.seconds, timeline.seconds))
    widths = [end - begin for begin, end in spans]
    parts = place.subgridspec(1, len(spans), width_ratios=widths, wspace=0.02)
    every = [figure.add_subplot(parts[n]) for n in range(len(spans))]
    for axes, span in zip(every, spans, strict=True):
        _draw_window(timeline, axes, span, share=(span[1] - span[0]) / sum(widths))
    ranks, count = timeline.orders.shape.ranks, timeline.orders.shape.micro_batches
    every[0].set_title(title, **said)
    if ranks > 2:
        every[0].set_ylabel("pipeline rank")
    every[0].set_yticks(sorted({0, ranks - 1, *range(0, ranks, max(1, ranks // 8))}))
    legend = "seconds; blue forward, orange backward, grey idle"
    if len(every) > 1:
        _draw_break(*every)
        legend += f"; of {count} micro-batches, the first and the last ones"
    every[0].set_xlabel(legend, loc="left")


def _draw_window(timeline: Timeline, axes: Axes, span: tuple[float, float], share: float) -> None:
    """Draw the operations of all ranks in a span of seconds. share: of the width of the picture."""
    image = sampled(timeline, *span)
    ranks = len(image)
    extent = (*span, ranks - 0.5, -0.5)
    axes.imshow(image, aspect="auto", extent=extent, interpolation="nearest")
    axes.set_yticks([])
    if ranks > MOST_NUMBERED:
        return
    ops, least = timeline.orders.operations, (span[1] - span[0]) * NUMBER / (WIDTH * share)
    for rank in range(ranks):
        for i in range(ops.starts[rank], ops.starts[rank + 1]):
            begin, end = max(timeline.start[i], span[0]), min(timeline.end[i], span[1])
            number = str(ops.micro_batches[i])
            if end - begin > least * len(number):
                middle = (begin + end) / 2
                axes.text(middle, rank, number, ha="center", va="center", fontsize=6, color="w")


def _draw_break(left: Axes, right: Axes) -> None:
    """Mark that time is left out between two axes."""
    left.spines["right"].set_visible(False)
    right.spines["left"].set_visible(False)
    mark: dict[str, Any] = {
        "marker": [(-0.6, -1), (0.6, 1)],
        "markersize": 9,
        "linestyle": "none",
        "color": "k",
    }
    for axes, x in ((left, 1), (right, 0)):
        axes.plot([x, x], [0, 1], transform=axes.transAxes, clip_on=False, **mark)


def sampled(timeline: Timeline, begin: float, end: float) -> Any:
    """Return the colour of every rank at `COLUMNS` moments, uint8 [ranks, COLUMNS, 3].

    Operations of odd micro-batches are paler, so that neighbours can be told apart.
    """
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in (*KIND_COLOURS, IDLE)])
    orders, ops = timeline.orders, timeline.orders.operations
    moments = begin + (np.arange(COLUMNS) + 0.5) * (end - begin) / COLUMNS
    found = np.full((orders.shape.ranks, COLUMNS), len(KIND_COLOURS))
    pale = np.zeros((orders.shape.ranks, COLUMNS, 1))
    for rank in range(orders.shape.ranks):
        here = slice(ops.starts[rank], ops.starts[rank + 1])
        place = np.searchsorted(timeline.start[here], moments, side="right") - 1
        running = (place >= 0) & (moments < timeline.end[here][place])
        found[rank, running] = ops.kinds[here][place[running]]
        pale[rank, running, 0] = PALE * (ops.micro_batches[here][place[running]] % 2)
    return (255 * (colours[found] * (1 - pale) + pale)).astype(np.uint8)


def draw_memory(view: View, axes: Axes, parts: Sequence[str]) -> None:
    """Draw the memory of the fullest device of every rank, its limit, and the card's.

    parts: the names of all parts in the picture, in the order of their colours.
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
    """Draw the seconds of an iteration by term, the largest first."""
    if not view.terms:
        _say(axes, "no times: the plan has no price")
        return
    terms = sorted(view.terms.items(), key=lambda term: -term[1])
    whole, rows = sum(view.terms.values()), np.arange(len(terms))
    axes.barh(rows, [seconds for _, seconds in terms], 0.7, color=PART_COLOURS[0])
    for row, (_, seconds) in enumerate(terms):
        text = f" {exact_seconds(seconds)}, {format_percent(seconds / whole)}"
        axes.text(seconds, row, text, va="center", fontsize=7)
    axes.set_yticks(rows, [name for name, _ in terms], fontsize=8)
    axes.set_xlim(0, 1.2 * terms[0][1])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of an iteration by where they go")


def _say(axes: Axes, text: str) -> None:
    axes.axis("off")
    axes.text(0, 0.5, text, transform=axes.transAxes, fontsize=9, parse_math=False, wrap=True)


WHOLE = "memory"  # of what the cost model does not split


class RankBar(NamedTuple):
    """The fullest device of pipeline ranks that are alike, bytes.

    ranks: `0`, or `1-6`. parts: by name; they add up to `used`. limit: for plans. card: real memory
    of the device. device: its type.
    """

    ranks: str
    parts: tuple[tuple[str, float], ...]
    used: float
    limit: float
    card: float
    device: str

    @property
    def scale(self) -> float:
        """Bytes that the whole width of a drawing needs."""
        return max(self.used, self.limit, self.card)


def memory_bars(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[RankBar, ...]:
    """Return a bar for all neighbouring pipeline ranks that hold the same; none if the plan has no
    price, or its cost model counts no memory."""
    bars = list(_bars(problem, plan, evaluation))
    return tuple(
        bar._replace(ranks=number_ranges(rank for rank, _ in run))
        for bar, run in (
            (bar, list(run)) for bar, run in groupby(enumerate(bars), key=lambda pair: pair[1])
        )
    )


def _bars(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Iterator[RankBar]:
    # The first virtual stage of a rank has the memory of all.
    for stage, cost in zip(plan.stages[: plan.ranks], evaluation.stages, strict=False):
        if not cost.memory_terms and not any(cost.memory):
            return
        used, name = fullest_replica(problem, stage, cost)
        parts = tuple((part, size) for part, size in cost.memory_terms.items() if size > 0)
        if not math.isclose(sum(size for _, size in parts), used, rel_tol=1e-6):
            parts = ((WHOLE, used),)  # parts are of another replica than the fullest
        device = problem.cluster.device_types[name]
        yield RankBar(
            ranks="",
            parts=parts,
            used=used,
            limit=problem.memory_limits[name],
            card=float(device.memory),
            device=device.type,
        )


def part_names(bars: tuple[RankBar, ...]) -> tuple[str, ...]:
    """Return the names of all parts, in their order."""
    return tuple(dict.fromkeys(name for bar in bars for name, _ in bar.parts))
