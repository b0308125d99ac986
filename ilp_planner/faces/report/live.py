"""One line on the terminal while a search works: incumbent, bound, gap, elapsed."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from ilp_planner.faces.report.console import open_console
from ilp_planner.faces.report.tables import describe_gap, exact_seconds
from ilp_planner.optimize.result import relative_gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Progress:
    """Context manager that shows the line on stderr; silent when that is no terminal.

    Called with (incumbent, bound), both in seconds or in the objective's unit, whenever either
    improves.
    """

    def __init__(self, unit: str = "s") -> None:
        """Begin with nothing found. unit: of the objective: seconds, or empty for a price."""
        self.say = exact_seconds if unit == "s" else "{:.4g}".format
        self.incumbent = math.inf
        self.bound = 0.0
        self.begun = time.monotonic()
        console = open_console(stderr=True)
        shown = console.is_terminal or console.is_jupyter
        self.live = Live(self, console=console, transient=True) if shown else None

    def __call__(self, incumbent: float, bound: float) -> None:
        """Take note of both."""
        self.incumbent = incumbent
        self.bound = bound

    def __rich__(self) -> Text:
        return Text(self.line(time.monotonic() - self.begun), no_wrap=True, overflow="ellipsis")

    def line(self, elapsed: float) -> str:
        """Return the line. elapsed: seconds."""
        found = math.isfinite(self.incumbent)
        return (
            f"incumbent {self.say(self.incumbent) if found else 'none'}"
            f"  bound {self.say(self.bound) if self.bound > 0 else 'none'}"
            f"  gap {describe_gap(relative_gap(self.incumbent, self.bound)) if found else '-'}"
            f"  elapsed {elapsed:.0f} s"
        )

    def __enter__(self) -> Progress:
        self.begun = time.monotonic()
        if self.live is not None:
            self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            # The terminal may have been closed: what was found is not lost.
            with contextlib.suppress(OSError):
                self.live.stop()


@contextlib.contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a text on stderr, in place of the one before; silent when that is
    no terminal."""
    console = open_console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update
