"""Variables of a shell at one moment, and what is left of them where several branches meet."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.grammar import WORD, Budget
from ilp_planner.formats.launch_scripts.unknowns import LOST, Unknown, Unknowns, known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.formats.launch_scripts.grammar import Node

MOST_OPTIONS = 400  # characters of what a value may be
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Variables that a shell or a system sets in all cases, so that they are never taken as empty.
ALWAYS = (
    "PWD", "OLDPWD", "HOME", "USER", "LOGNAME", "HOSTNAME", "PATH", "SHELL", "UID", "EUID", "PPID",
    "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "BASHPID", "LINENO", "BASH", "BASH_SOURCE",
    "BASH_VERSION", "HOSTTYPE", "OSTYPE", "SHLVL", "TMPDIR", "LANG", "BASH_REMATCH", "PIPESTATUS",
    "OPTIND", "OPTARG", "REPLY", "0", "$", "!", "-", "?",
)  # fmt: skip
Value = str | tuple[str, ...]  # a text, or the entries of an array
Status = int | None  # how a command ends; None: only running would tell
Why = tuple[str, int]  # a test or a command as it is written, and its line


@dataclass(slots=True)
class State:
    """Variables, functions and arguments of a shell.

    exported: names that programs see. special: names whose later values are not followed. read:
    file that was read into the shell and whose content is unknown, with its line; what it sets is
    unknown. printed: in `$(..)`.
    """

    values: dict[str, Value] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    special: frozenset[str] = frozenset()
    functions: dict[str, Node] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    read: Why | None = None
    printed: str | None = None

    def copy(self) -> State:
        """Return a state of its own."""
        return replace(self, values=dict(self.values), functions=dict(self.functions))

    @property
    def size(self) -> int:
        """Return the cost of a copy."""
        return 8 * (len(self.values) + len(self.functions))

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that programs see."""
        found = ((name, self.values.get(name)) for name in sorted(self.exported))
        return {name: value for name, value in found if isinstance(value, str)}


class Scope:
    """The variables of a script while it is followed.

    supplied: values for what only running would tell, by name. used: those that were taken.
    overruled: those that the script sets itself, with the line. empty: variables that nobody set
    and that were taken as empty, with the line. locals: values that each running function puts
    back when it ends.
    """

    def __init__(self, source: str, state: State, supplied: Mapping[str, str]) -> None:
        self.state, self.supplied = state, supplied
        self.unknowns, self.budget = Unknowns(), Budget(source)
        self.used: set[str] = {name for name in supplied if name.isdecimal()}
        self.overruled: dict[str, int] = {}
        self.empty: dict[str, int] = {}
        self.locals: list[dict[str, Value | None]] = []
        self.status: Status = 0

    def lies_there(self, path: str, line: int) -> bool | None:
        """Tell whether there is a file; None: unknown."""
        return None

    @property
    def separators(self) -> str:
        """Return the characters that divide words."""
        value = self.state.values.get("IFS")
        return value if isinstance(value, str) and known(value) else " \t\n"

    def value(self, name: str, line: int) -> Value:
        """Return a value, special ones among them; a mark where there is none."""
        arguments = self.state.arguments
        if name == "#":
            return str(len(arguments))
        if name == "?" and self.status is not None:
            return str(self.status)
        if name.isdecimal() and 0 < as_whole(name) <= len(arguments):
            return arguments[as_whole(name) - 1]
        self.used.update({name} & self.supplied.keys())
        found = self.state.values.get(name)
        return self.unset_mark(name, line) if found is None else found

    def unset_mark(self, name: str, line: int) -> str:
        """Return the mark of a variable that the script does not set."""
        read, text = self.state.read, f"${{{name}}}" if "[" in name else f"${name}"
        if read and not name.isdecimal() and name not in ALWAYS:
            return self.mark(text, line, f"{read[0]}, which line {read[1]} reads, may set it", name)
        unset = name not in ALWAYS
        unknown = Unknown(text=text, key=name, line=line, unset=unset, empty=unset)
        return self.unknowns.mark(unknown)

    def mark(self, text: str, line: int, why: str, key: str = "") -> str:
        """Return the mark of what only running would tell, or what was supplied for it."""
        if text in self.supplied:
            self.used.add(text)
            return self.supplied[text]
        return self.unknowns.mark(Unknown(text=text, key=key or text, line=line, why=why))

    def element(self, name: str, index: str | None, place: int | None, line: int) -> str:
        """Return a value, or an entry of an array, which a single value is the first of.

        index: its place as it is written; None: of an array the first. place: None: unknown.
        """
        value = self.value(name, line)
        if index is None:
            return value if isinstance(value, str) else "".join(value[:1])
        words = (value,) if isinstance(value, str) else value
        marks = [mark for word in words if (mark := self.unknowns.alone(word))]
        inside = place is not None and -len(words) <= place < len(words)
        found = words[place] if place is not None and inside else ""
        if inside and (not marks or known(found) or isinstance(value, str)):
            return found
        if place is not None and all(mark.empty for mark in marks):
            return self.unset_mark(f"{name}[{index}]", line)
        return (
            self.unknowns.mark(marks[0])
            if marks
            else self.mark(f"${{{name}[{index}]}}", line, "", name)
        )

    def assign(self, name: str, value: Value, line: int) -> None:
        """Set a variable; what is not known of it is what was supplied, if anything was."""
        if name in self.state.special:
            value = self.mark(f"${name}", line, "its kind of variable is not followed", name)
        sure = all(map(known, [value] if isinstance(value, str) else value))
        if name in self.supplied and not sure:
            self.used.add(name)
            given = self.supplied[name]
            value = given if isinstance(value, str) else tuple(given.split())
        elif name in self.supplied and value != self.supplied[name]:
            self.overruled[name] = line
        alone = self.unknowns.alone(value) if isinstance(value, str) else None
        if alone and not IDENTIFIER.fullmatch(alone.key) and not alone.key.isdecimal():
            # Of `N=$(nproc)` it is N that can be supplied.
            value = self.unknowns.mark(
                replace(alone, key=name, line=line, unset=False, empty=False)
            )
        self.budget.spend(WORD + len(value) * (1 if isinstance(value, str) else WORD), line)
        self.state.values[name] = value

    def forget(self, name: str, line: int, why: str) -> None:
        """Make a variable unknown."""
        self.assign(
            name, self.unknowns.mark(Unknown(text=f"${name}", key=name, line=line, why=why)), line
        )

    def start(self, name: str, text: str) -> None:
        """Let a variable be empty that nobody has set and that its own value names."""
        named = re.search(rf"\$\{{?{name}\b", text)
        if named and name not in self.state.values and not self.state.read:
            self.state.values[name] = ""

    def set_entry(self, name: str, place: int | None, value: str, line: int) -> None:
        """Set an entry of an array. place: None: unknown."""
        old = self.state.values.get(name, ())
        words = [old] if isinstance(old, str) else list(old)
        alone = self.unknowns.alone("".join(words))
        if place is None or not -len(words) <= place <= len(words) or (alone and not alone.empty):
            self.forget(name, line, "the place of an entry is not known")
        else:
            words[place : place + 1 or None] = [value]
            self.assign(name, tuple(words), line)

    def make_local(self, name: str) -> None:
        """Give the function that runs a variable of its own."""
        if self.locals and name not in self.locals[-1]:
            self.locals[-1][name] = self.state.values.pop(name, None)

    def put_back(self) -> None:
        """Give back the variables that the function that ends has had of its own."""
        for name, value in self.locals.pop().items():
            self.state.values.pop(name, None)
            self.state.values |= {} if value is None else {name: value}

    def empty_unset(self, text: str) -> str:
        """Return a text in which variables that nobody set are empty, as bash has them."""
        return self.unknowns.as_empty(text, self.empty)

    def print(self, text: str) -> Status:
        """Keep what is printed in `$(..)`; return how that ends."""
        self.budget.spend(len(text))
        self.state.printed = None if self.state.printed is None else self.state.printed + text
        return None if text == LOST else 0

    def merge(self, states: Sequence[State], why: Why) -> None:
        """Go on with what is known where several branches meet, of which only running tells which
        was taken. why: what decides between them."""
        first, *others = states
        result = self.state = first.copy()
        for state in others:
            result.functions |= state.functions
            result.exported |= state.exported
            result.special |= state.special
            result.read = result.read or state.read
            result.printed = LOST if state.printed != first.printed else result.printed
        for name in dict.fromkeys(name for state in states for name in state.values):
            values = [state.values.get(name) for state in states]
            if any(value != values[0] for value in values):
                result.values[name] = self._either(name, values, why)
        if any(state.arguments != first.arguments for state in others):
            most = max(len(state.arguments) for state in states)
            result.arguments = tuple(self._option(str(k + 1), (), why) for k in range(most))

    def _either(self, name: str, values: Sequence[Value | None], why: Why) -> Value:
        """Return a value that is one of several."""
        arrays = any(isinstance(value, tuple) for value in values)
        if name in self.supplied:
            given = self.supplied[name]
            return tuple(given.split()) if arrays else given
        if arrays and any(isinstance(value, str) for value in values):
            return self._option(name, (), why)
        rows = [value or "" for value in values]
        end = next((k for k, row in enumerate(zip(*rows, strict=False)) if len({*row}) > 1),
                   min(map(len, rows)))  # fmt: skip
        if arrays:
            options = [" ".join(map(_quoted, row[end:])) for row in rows]
            return (*rows[0][:end], self._option(name, options, why))
        texts = [str(row) for row in rows]
        if any(len(text) > end and not text[end].isspace() for text in texts):
            end = 1 + max(texts[0].rfind(blank, 0, end) for blank in " \t\n")
        return texts[0][:end] + self._option(name, [text[end:] for text in texts], why)

    def _option(self, name: str, texts: Sequence[str], why: Why) -> str:
        kept = tuple(dict.fromkeys(texts)) if sum(map(len, texts)) <= MOST_OPTIONS else ()
        said = f"{why[0]} of line {why[1]}"
        return self.unknowns.mark(
            Unknown(text=f"${name}", key=name, line=why[1], why=said, options=kept)
        )


def _quoted(word: str) -> str:
    """Return a word as a script writes it."""
    plain = word and not re.search(r"[\s'\"]", word)
    return word if plain or not known(word) else "'" + word.replace("'", "'\\''") + "'"
