"""A bar on the terminal while something is measured, with the time that is left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress


class MeasuringBar:
    """Context manager that shows a bar on stderr; silent when that is no terminal.

    Parameters
    ----------
    total: how many rows there will be. shown: whether this process is the one to show it.
    """

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self.total = total
        self.shown = shown
        self.bar: Progress | None = None

    def __enter__(self) -> MeasuringBar:
        if self.shown and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.bar.add_task("measuring", total=self.total)
            self.bar.start()
        return self

    def show(self, done: int, what: str) -> None:
        """Say how many rows are done, and which is next."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, description=what)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
