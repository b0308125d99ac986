"""The console of Rich that all that is printed goes through: no text on it steers the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ilp_planner.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment


class PlainConsole(Console):
    """A console on which no text steers the terminal; colours and controls of progress bars are
    Rich's own, and pass."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the parts of the output."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))
