"""What following a script ends with, and what leaves functions, loops and shells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.formats.launch_scripts.scope import Scope
    from ilp_planner.formats.launch_scripts.state import State
    from ilp_planner.formats.launch_scripts.unknowns import Unknowns


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that the script would run.

    environment: exported so far and set before it. doubt: a test that only running would decide
    and that the command depends on, and its line.
    """

    words: tuple[str, ...]
    line: int
    environment: Mapping[str, str]
    doubt: tuple[str, int] | None = None


@dataclass(slots=True, kw_only=True)
class Reading:
    """A script that was followed. remarks: on what was not read. ended: what ends it before its
    last line, and the line of that; None: nothing does."""

    unknowns: Unknowns
    scope: Scope
    commands: list[Command] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    ended: tuple[str, int] | None = None

    @property
    def empty(self) -> Mapping[str, int]:
        """Return the variables that nobody set and that were taken as empty, with their lines."""
        return self.scope.empty


class Leave(Exception):  # noqa: N818 - it is no error
    """A function (`return`), a loop (`break`, `continue`) or a shell (`exit`) is left; `dead`: all
    ways that only running would choose from have ended.

    why: what ends it, for people, and the line of that.
    """

    def __init__(
        self,
        kind: str,
        *,
        levels: int = 1,
        status: int | None = 0,
        why: tuple[str, int] = ("", 0),
    ) -> None:
        super().__init__(kind)
        self.kind, self.levels, self.status, self.why = kind, levels, status, why


@dataclass(slots=True)
class Frame:
    """A function or a loop that is followed. ends: states in which it was left on a way of several.
    again: those in which a loop went on with its next round."""

    kind: str
    ends: list[State] = field(default_factory=list)
    again: list[State] = field(default_factory=list)


@dataclass(slots=True)
class Output:
    """What commands have printed, as far as that is known."""

    parts: list[str] = field(default_factory=list)
    known: bool = True

    def copy(self) -> Output:
        """Return one of its own."""
        return Output(list(self.parts), self.known)
