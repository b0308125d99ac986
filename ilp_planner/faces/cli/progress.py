"""A bar on the terminal while something is measured, with the time that is left."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def measuring_bar(total: int, *, shown: bool = True) -> Iterator[Callable[[int, str], None]]:
    """Show a bar on stderr, none if that is no terminal; yield a callback for the number of
    finished rows, and the next one.

    total: how many rows there will be. shown: whether this process is the one to show it.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda done, what: None
        return
    from rich import progress

    from ilp_planner.base.plain_console import PlainConsole

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=PlainConsole(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=what)
