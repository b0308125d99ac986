"""The words of a launch in a script, where values that no number depends on may stay unknown."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ilp_planner.errors import SpecError
from ilp_planner.formats.megatron.dependence import is_free
from ilp_planner.formats.megatron.flags import Flag, flags
from ilp_planner.launch_scripts.unknowns import Unknown, known
from ilp_planner.limits import as_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.launch_scripts.flow import Command, Reading

# Options of launchers that say how many ranks there are.
NODES = ("nnodes", "nodes", "N")
EACH = ("nproc-per-node", "ntasks-per-node", "npernode", "gpus-per-node")
ALL = ("ntasks", "n", "np")
MAX_NODE = 8  # devices of a node, where nothing says


@dataclass(slots=True)
class LaunchWords:
    """One launch of a script, to be read.

    world: ranks as the command line of ilp-plan says them; None: it does not. remarks: on what was
    left open. dropped: variables that nobody set, read as no arguments. left_open: arguments whose
    number is not known, and that no number depends on, word for word.
    """

    reading: Reading
    command: Command
    where: str
    world: int | None = None
    remarks: list[str] = field(default_factory=list)
    dropped: list[Unknown] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)

    def words(self) -> list[str]:
        """Return the words with nothing unknown in them.

        Raises
        ------
        SpecError: a number depends on what only running the script would tell; how to supply it.
        """
        words = self.command.words
        program = program_place(words, self.reading)
        before, after = list(words[: program + 1]), words[program + 1 :]
        return [*self._launcher(before), *self._arguments(after)]

    def _launcher(self, words: list[str]) -> list[str]:
        """Return what stands before Megatron's arguments; counts as the world size has them."""
        found = _counts(words)
        for place, name, value in found:
            unknown = self.reading.unknowns.first(value)
            if unknown is None:
                continue
            if self.world is None:
                raise self._needed(unknown, f"--{name}" if len(name) > 1 else f"-{name}", size=True)
            others = [
                as_whole(text)
                for _, other, text in found
                if text.isdecimal() and as_whole(text) and (other in NODES) is not (name in NODES)
            ]
            other = others[0] if others else 0
            if name in ALL:
                number = self.world
            elif name in NODES:
                number = max(1, self.world // (other or min(MAX_NODE, self.world)))
            else:
                number = max(1, self.world // other) if other else min(MAX_NODE, self.world)
            words[place] = words[place].replace(value, str(number))
        return [self.reading.unknowns.shown(word) for word in words]

    def _arguments(self, words: Sequence[str]) -> list[str]:
        kept: list[str] = []
        flag, taken, last = None, 0, ""
        for word in words:
            name, equals, inside = word.partition("=")
            if word.startswith("--") and known(name):
                flag, taken, last = flags().get(name[2:]), int(bool(equals)), name
                value = self._value(inside, flag, name) if equals else ""
                if known(inside) or flag is None or flag.kind == "str":
                    kept.append(f"{name}={value}" if equals else name)
                else:
                    self.left_open += [name, value]
                continue
            takes = flag is not None and (flag.most is None or taken < flag.most)
            if known(word) or takes or (flag is None and last and not taken):
                kept.append(self._value(word, flag, last))
                if not known(word) and flag is not None and flag.kind != "str":
                    del kept[-2 - taken :]
                    self.left_open += [last, self.reading.unknowns.shown(word)]
                taken += 1
                continue
            kept += self._more(word)
        return kept

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

    def _needed(self, unknown: Unknown, flag: str, *, size: bool = False) -> SpecError:
        """Return what a number needs, and how to supply it."""
        use = f" (in the value of {flag})" if flag else " (among the arguments)"
        options = [text for text in map(self._split, unknown.options) if text]
        value = options[0][0] if flag and options and len(options[0]) == 1 else "VALUE"
        fix = f"--set {shlex.quote(f'{unknown.key}={value}')}"
        fix += " or --world-size N" if size else ""
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
        return SpecError(f"{self.where}line {unknown.line}: {found}: {fix}")


def program_place(words: Sequence[str], reading: Reading) -> int:
    """Return the place of the program among the words of a launch; -1: there is none."""
    return next(
        (
            k
            for k, word in enumerate(words)
            if PurePosixPath(reading.unknowns.shown(word)).suffix == ".py"
        ),
        -1,
    )


def _counts(words: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return (place, option, value) of the options that say how many ranks there are."""
    found = []
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in (*NODES, *EACH, *ALL):
            continue
        if equals:
            found.append((place, name, value))
        elif place + 1 < len(words):
            found.append((place + 1, name, words[place + 1]))
    return found


def _all_free(words: Sequence[str]) -> bool:
    """Whether no number depends on any of these arguments."""
    named = [flags().get(word[2:].partition("=")[0]) for word in words if word.startswith("--")]
    begins = not words or words[0].startswith("--")
    return begins and all(flag is not None and is_free(flag) for flag in named)
