"""A page of one plan, or of several beside each other: one HTML file that fetches nothing.

Incumbent and bound over the time of a search, as points of a picture.
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.faces.page.picture import part_names
from ilp_planner.faces.report.lines import NANOSECOND
from ilp_planner.faces.report.tables import exact_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jinja2

    from ilp_planner.faces.page.view import View
    from ilp_planner.optimize.result import Moment


# ---- curve ---------------------------------------------------------------------------------------


WIDTH, HEIGHT = 600, 200  # of the picture, in its own units


class Curve(NamedTuple):
    """Two lines of steps as SVG's points, and the values at the edges of the picture.

    incumbent, bound: empty if there was none. first, last: iteration times at the lower and the
    upper edge. end: seconds of the search at the right edge, all for people.
    """

    incumbent: str
    bound: str
    low: str
    high: str
    end: str
    width: int = WIDTH
    height: int = HEIGHT


def curve_of(history: Sequence[Moment]) -> Curve | None:
    """Return the picture of a search; None if nothing was saved of it."""
    known = [value for moment in history for value in moment[1:] if 0 < value < math.inf]
    if not known:
        return None
    low, high = min(known), max(known)
    end = history[-1].after

    def steps(values: Iterable[float]) -> str:
        found: list[str] = []
        before: float | None = None
        for moment, value in zip(history, values, strict=True):
            if not 0 < value < math.inf:
                continue
            x = WIDTH * (moment.after / end if end else 1.0)
            y = HEIGHT * ((high - value) / (high - low) if high > low else 0.5)
            if before is not None:
                found.append(f"{x:.1f},{before:.1f}")
            found.append(f"{x:.1f},{y:.1f}")
            before = y
        if before is not None:
            found.append(f"{WIDTH},{before:.1f}")
        return " ".join(found)

    return Curve(
        incumbent=steps(moment.objective for moment in history),
        bound=steps(moment.bound for moment in history),
        low=exact_seconds(low),
        high=exact_seconds(high),
        end=format_seconds(end),
    )


# ---- render --------------------------------------------------------------------------------------


TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tools.js", "shares.js", "timeline.js", "devices.js", "page.js")
STYLE = "style.css"
GENERATOR = "ilp-plan show"
COLOURS = 16  # that the style has for parts of a bar


class Row(NamedTuple):
    """The texts of every plan of a page under one name. change: of the second plan to the first, or
    that they differ; empty if there is one plan, or nothing to say."""

    name: str
    cells: tuple[Any, ...]
    change: str = ""


def plan_page(views: Sequence[View], *, remarks: Sequence[str] = ()) -> str:
    """Return the page of plans, HTML.

    Parameters
    ----------
    remarks: on all of them together, as for plans of different problems.
    """
    script = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return _template("page.html").render(
        views=views,
        remarks=remarks,
        figures=figure_rows(views),
        terms=term_rows(views),
        lines=line_rows(views),
        parts=part_names(tuple(bar for view in views for bar in view.memory)),
        curves=[curve_of(view.history) for view in views],
        longest=max((sum(view.terms.values()) for view in views), default=0.0),
        generator=GENERATOR,
        style=(TEMPLATES / STYLE).read_text(encoding="utf-8"),
        script=script,
        digest=digest,
    )


def plan_summary(view: View, text: str) -> str:
    """Return the summary of a plan for a notebook: its verdict and figures, and `text` folded away.
    HTML without scripts, to stand inside of another page."""
    return _template("summary.html").render(view=view, text=text)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"seconds": exact_seconds, "size": format_bytes, "percent": format_percent}
    found.globals |= {"colours": COLOURS}
    return found


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


# ---- plans beside each other --------------------------------------------------------------------


def figure_rows(views: Sequence[View]) -> list[Row]:
    """Return the figures of all plans, with the change from the first to the second."""
    found = []
    for name in _names(view.figures for view in views):
        cells = tuple(next((f for f in v.figures if f.name == name), None) for v in views)
        values = [math.nan if cell is None else cell.value for cell in cells]
        found.append(Row(name, cells, _ratio(values)))
    return found


def _names(each: Iterable[Iterable[Any]]) -> Iterator[str]:
    return iter(dict.fromkeys(item.name for items in each for item in items))


def _ratio(values: Sequence[float]) -> str:
    """Return `+3.10 %`; nothing if there are not two numbers."""
    if len(values) != 2 or not all(0 < value < math.inf for value in values):
        return ""
    change = values[1] / values[0] - 1
    return f"+{format_percent(change)}" if change > 0 else format_percent(change)


def term_rows(views: Sequence[View]) -> list[Row]:
    """Return the seconds of an iteration by name, with the change from the first to the second."""
    found = []
    for name in dict.fromkeys(name for view in views for name in view.terms):
        cells = tuple(view.terms.get(name, 0.0) for view in views)
        more = cells[-1] - cells[0]
        change = f"{'+' if more > 0 else '-'}{exact_seconds(abs(more))}"
        change = change if abs(more) >= NANOSECOND else ""
        found.append(Row(name, cells, change))
    return found


def line_rows(views: Sequence[View]) -> list[Row]:
    """Return the lines of all plans: the nth line of a name beside the nth of that name."""
    each: list[dict[tuple[str, int], str]] = []
    for view in views:
        seen: Counter[str] = Counter()
        lines = {}
        for name, text in view.lines:
            lines[name, seen[name]] = text
            seen[name] += 1
        each.append(lines)
    found = []
    for key in dict.fromkeys(key for lines in each for key in lines):
        cells = tuple(lines.get(key, "") for lines in each)
        found.append(Row(key[0], cells, "differs" if len(set(cells)) > 1 else ""))
    return found
