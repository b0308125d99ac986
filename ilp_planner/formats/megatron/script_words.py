"""The words of a launch in a script, where values that no number depends on may stay unknown."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.unknowns import Unknown, known
from ilp_planner.formats.megatron.earlier import is_free, likeness
from ilp_planner.formats.megatron.flags import Flag, flags
from ilp_planner.formats.megatron.launcher import own_options, program_place
from ilp_planner.formats.megatron.launchers import Open

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.formats.launch_scripts.evaluation import Reading
    from ilp_planner.formats.launch_scripts.flow import Command


@dataclass(slots=True)
class LaunchWords:
    """One launch of a script, to be read.

    remarks: on what was left open. dropped: variables that nobody set, read as no arguments.
    left_open: arguments whose number is not known, and that no number depends on, word for word.
    """

    reading: Reading
    command: Command
    where: str
    remarks: list[str] = field(default_factory=list)
    dropped: list[Unknown] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)

    def words(self) -> list[str]:
        """Return the words with nothing unknown in them, but for what stands before the program.

        Raises
        ------
        SpecError: a number depends on what only running the script would tell; how to supply it.
        """
        shown = [self.reading.unknowns.shown(word) for word in self.command.words]
        program = program_place(shown)
        if program is None:
            return self._arguments(self.command.words)
        before, words = self.command.words[:program], self.command.words[program + 1 :]
        own, after = own_options(shown[program], words)
        return [*before, *own, shown[program], *self._arguments(after)]

    def find_open(self, option: str, value: str) -> Open | None:
        """Return what only running the script would tell of a launcher's number."""
        unknown = self.reading.unknowns.first(value)
        if unknown is None:
            return None
        shown = self.reading.unknowns.shown(value)
        found, fix = self._said(unknown, option)
        where = f"{self.where}line {unknown.line}: "
        return Open(f"{option} {shown}".strip(), found, f"--set {fix}", where)

    def more(self, word: str) -> list[str]:
        """Return the words of a launch of another system that a word is: none if nobody set it.

        Raises
        ------
        SpecError: it may be any.
        """
        return [word] if self.reading.unknowns.alone(word) is None else self._more(word)

    def _arguments(self, words: Sequence[str]) -> list[str]:
        kept: list[str] = []
        flag, taken, last = None, 0, ""
        for word in words:
            name, equals, inside = word.partition("=")
            if word.startswith("--") and known(name):
                flag, taken, last = likeness(name[2:]), int(bool(equals)), name
                value = self._value(inside, flag, name) if equals else ""
                if known(inside) or flag is None or flag.kind == "str":
                    kept.append(f"{name}={value}" if equals else name)
                else:
                    self.left_open += [name, value]
                continue
            takes = flag is not None and (flag.most is None or taken < flag.most)
            if flag is not None and flag.most is None and taken and self._goes_on(word):
                takes = False  # after a value of several, it may be further arguments
            if known(word) or takes or (flag is None and last and not taken):
                kept.append(self._value(word, flag, last))
                if not known(word) and flag is not None and flag.kind != "str":
                    del kept[-2 - taken :]
                    self.left_open += [last, self.reading.unknowns.shown(word)]
                taken += 1
                continue
            kept += self._more(word)
        return kept

    def _goes_on(self, word: str) -> bool:
        """Tell whether a word is nothing in bash, or may be arguments rather than a value."""
        unknown = self.reading.unknowns.alone(word)
        if unknown is None:
            return False
        return unknown.empty or any(text.lstrip().startswith("-") for text in unknown.options)

    def _value(self, word: str, flag: Flag | None, name: str) -> str:
        """Return a value, known or one that nothing depends on."""
        unknown = self.reading.unknowns.first(word)
        if unknown is None:
            return word
        if flag is None or is_free(flag):
            return self.reading.unknowns.shown(word)
        raise self._needed(unknown, name)

    def _more(self, word: str) -> list[str]:
        """Return what a word that may be further arguments stands for."""
        unknown = self.reading.unknowns.first(word)
        if unknown is None or self.reading.unknowns.alone(word) is None:
            raise self._needed(unknown, "") if unknown else SpecError(word)
        if unknown.empty:
            self.dropped.append(unknown)
            return []
        options = [self._split(option) for option in unknown.options]
        if options and all(words is not None and _all_free(words) for words in options):
            extra = " or ".join(shlex.join(words) for words in options if words)
            self.remarks.append(
                f"line {unknown.line}: {extra}: left open, as {unknown.why} is; no number depends "
                "on it"
            )
            return []
        raise self._needed(unknown, "")

    def _split(self, text: str) -> list[str] | None:
        try:
            return shlex.split(self.reading.unknowns.shown(text))
        except ValueError:
            return None

    def _needed(self, unknown: Unknown, flag: str) -> SpecError:
        """Return what a number needs, and how to supply it."""
        found, fix = self._said(unknown, flag)
        return SpecError(f"{self.where}line {unknown.line}: {found}: --set {fix}")

    def _said(self, unknown: Unknown, flag: str) -> tuple[str, str]:
        """Return what was found and expected of a value that is not known, and what `--set` would
        say it."""
        use = f" (in the value of {flag})" if flag else " (among the arguments)"
        options = [text for text in map(self._split, unknown.options) if text]
        value = options[0][0] if flag and options and len(options[0]) == 1 else "VALUE"
        fix = shlex.quote(f"{unknown.key}={value}")
        name = unknown.text.lstrip("$")
        if unknown.unset and name.isdecimal():
            found = f"{unknown.text} is not set{use}: expected argument {name} of the script"
        elif unknown.unset:
            found = f"variable {unknown.key} is not set{use}: expected its value"
        elif unknown.text.startswith("<"):
            found = f"found {unknown.text}{use}, expected a value in its place"
        elif len(unknown.options) > 1 and all(map(known, unknown.options)):
            either = " or ".join(text.strip() or "nothing" for text in unknown.options[:3])
            found = f"{unknown.text} is {either}{use}, as {unknown.why} decides, expected one"
        elif unknown.why and "only running" not in unknown.why:
            found = f"{unknown.text} is not known{use}: {unknown.why}; expected its value"
        else:
            found = (
                f"found {unknown.text}{use}, which only running the script would tell, expected a "
                "value"
            )
        return found, fix


def _all_free(words: Sequence[str]) -> bool:
    """Whether no number depends on any of these arguments."""
    named = [flags().get(word[2:].partition("=")[0]) for word in words if word.startswith("--")]
    begins = not words or words[0].startswith("--")
    return begins and all(flag is not None and is_free(flag) for flag in named)
