"""Measuring on the terminal: a bar with the time that is left, a summary, and a table of links."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import progress
from rich.table import Column

from ilp_planner.base.units import format_bytes, format_seconds
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.faces.report.console import open_console
from ilp_planner.faces.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.faces.report.tables import Lines
    from ilp_planner.profiler.measure.wish import Summary


# ---- models --------------------------------------------------------------------------------------


NAMED = 4  # rows that a line lists
DESCRIPTION, BAR = 46, 14  # columns of a terminal of 80


@contextmanager
def share_bar() -> Iterator[Callable[[float, str], None]]:
    """Show a bar on stderr, none if that is no terminal; yield a callback for the finished share of
    the work, from 0 to 1, and the next step."""
    console = open_console(stderr=True)
    if not console.is_terminal:
        yield lambda share, what: None
        return
    description = Column(no_wrap=True, overflow="ellipsis", max_width=DESCRIPTION)
    columns = (
        progress.TextColumn("{task.description}", markup=False, table_column=description),
        progress.BarColumn(bar_width=BAR),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
    )
    # Shards differ by orders of magnitude: all of them say how fast it goes.
    period = 24 * 3600.0
    with progress.Progress(
        *columns, console=console, transient=True, speed_estimate_period=period
    ) as bar:
        task = bar.add_task("warming up", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)


def sweep_summary(summary: Summary, path: str) -> Lines:
    """Return how measuring went, in a few lines."""
    counts = [f"{summary.measured} rows"]
    if summary.there:
        counts.append(f"{summary.there} were there before")
    lines = [("measured", ", ".join(counts))]
    for name, rows in (("out of memory", summary.exhausted), ("failed", summary.failed)):
        if rows:
            more = f"; {len(rows) - NAMED} more" if len(rows) > NAMED else ""
            lines.append((name, f"{len(rows)} rows: {'; '.join(rows[:NAMED])}{more}"))
    lines.append(("table", path))
    return lines


# ---- links ---------------------------------------------------------------------------------------


KEYS = ["record", "device", "name", "group_size", "hosts", "stride", "groups"]
GB = 1e9


def links_table(table: Measurements) -> Table:
    """Return a row per operation and kind of groups: the time of its smallest message, and the rate
    of its largest.

    groups: how many do it at once. The rate is that of the whole tensor: its bytes over the
    seconds. Narrow enough for any terminal.
    """
    shown = Table(
        "operation", "ranks", "groups", "hosts", "stride", "smallest", "largest", "GB/s",
        left=("operation",),
    )  # fmt: skip
    rows = table.of(Record.COLLECTIVE, Record.POINT_TO_POINT)
    for key, series in rows.groupby(KEYS, sort=False, dropna=False):
        _, _, name, group_size, hosts, stride, groups = key
        series = series.sort_values("bytes")
        least, most = series.iloc[0], series.iloc[-1]
        rate = most["bytes"] / most["time_s"] / GB if most["time_s"] > 0 else float("nan")
        counts = [f"{n:.0f}" if n == n else "-" for n in (group_size, groups, hosts, stride)]
        shown.add(
            str(name), *counts, format_seconds(least["time_s"]), format_bytes(most["bytes"]),
            f"{rate:.4g}",
        )  # fmt: skip
    return shown
