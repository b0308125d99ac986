"""A bar on the terminal while something is measured, with the time that is left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Context manager that shows a bar; silent without one.

    Called with how much is done, of `total`, and what comes next.
    """

    def __init__(self, bar: Progress | None, what: str, total: float) -> None:
        self.bar = bar
        if bar is not None:
            bar.add_task(what, total=total)

    def __call__(self, done: float, what: str) -> None:
        """Show both."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, description=what)

    def __enter__(self) -> Bar:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def rows_bar(total: int, *, shown: bool = True) -> Bar:
    """Return a bar of so many rows on stderr, silent when that is no terminal.

    Parameters
    ----------
    shown: whether this process is the one to show it.
    """
    if not (shown and sys.stderr.isatty()):
        return Bar(None, "", total)
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    return Bar(bar, "measuring", total)
