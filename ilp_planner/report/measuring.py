"""A bar on the terminal while a model is measured, with the time that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import progress
from rich.table import Column

from ilp_planner.report.console import open_console
from ilp_planner.report.tables import summary as lines_of

if TYPE_CHECKING:
    from types import TracebackType

    from rich.text import Text

    from ilp_planner.measure.wish import Summary

NAMED = 4  # rows that a line lists
DESCRIPTION, BAR = 46, 14  # columns of a terminal of 80


class ShareBar:
    """Context manager that shows a bar on stderr; silent when that is no terminal.

    Called with the share of the work that is done, from 0 to 1, and what comes next.
    """

    def __init__(self) -> None:
        console = open_console(stderr=True)
        self.bar: progress.Progress | None = None
        if console.is_terminal:
            self.bar = progress.Progress(
                progress.TextColumn(
                    "{task.description}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", max_width=DESCRIPTION),
                ),
                progress.BarColumn(bar_width=BAR),
                progress.TaskProgressColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("left"),
                console=console,
                transient=True,
                # Shards differ by orders of magnitude: all of them say how fast it goes.
                speed_estimate_period=24 * 3600.0,
            )

    def __call__(self, share: float, what: str) -> None:
        """Show both."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=share, description=what)

    def __enter__(self) -> ShareBar:
        if self.bar is not None:
            self.bar.add_task("warming up", total=1.0)
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


def sweep_summary(summary: Summary, path: str) -> Text:
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
    return lines_of(lines)
