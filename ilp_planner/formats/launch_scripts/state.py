"""What a shell holds at one moment, and what is left of it where two ways meet again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.unknowns import Unknown, Unknowns, known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.formats.launch_scripts.nodes import Function

MOST_OPTIONS = 400  # characters of what a value may be
# What a shell or a system sets in all cases, so that it is never taken as empty.
ALWAYS = (
    "PWD", "OLDPWD", "HOME", "USER", "LOGNAME", "HOSTNAME", "PATH", "SHELL", "UID", "EUID", "PPID",
    "RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "BASHPID", "LINENO", "BASH", "BASH_SOURCE",
    "BASH_VERSION", "HOSTTYPE", "OSTYPE", "SHLVL", "TMPDIR", "LANG",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """The entries of an array by place, or by name."""

    items: Mapping[int | str, str] = field(default_factory=dict)
    named: bool = False

    @property
    def words(self) -> list[str]:
        """Return the entries in bash's order."""
        return [self.items[key] for key in self.keys]

    @property
    def keys(self) -> list[int | str]:
        """Return the places of the entries in bash's order."""
        numbers = [key for key in self.items if isinstance(key, int)]
        return [*sorted(numbers), *(key for key in self.items if isinstance(key, str))]

    @property
    def end(self) -> int:
        """Return the place behind the last entry."""
        return 1 + max((key for key in self.items if isinstance(key, int)), default=-1)

    @classmethod
    def of(cls, words: Sequence[str]) -> Array:
        """Return an array of words."""
        return cls(dict(enumerate(words)))


Value = str | Array


@dataclass(slots=True)
class State:
    """Variables, functions, arguments and options of a shell.

    attributes: letters of `declare` by name: x exported, i whole numbers, r read only. names: of
    variables that are names of others. read: file that was read into the shell and that nobody
    here knows, with its line; what it sets is not known.
    """

    values: dict[str, Value] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    read: tuple[str, int] | None = None

    def copy(self) -> State:
        """Return a state of its own."""
        return replace(
            self,
            values=dict(self.values),
            attributes=dict(self.attributes),
            names=dict(self.names),
            functions=dict(self.functions),
        )

    @property
    def size(self) -> int:
        """Return what a copy costs."""
        return 8 * (len(self.values) + len(self.functions))

    def has(self, name: str, letter: str) -> bool:
        """Whether a variable has an attribute."""
        return letter in self.attributes.get(name, "")

    def exported(self) -> dict[str, str]:
        """Return what programs that are started see."""
        return {
            name: value
            for name in sorted(self.attributes)
            if self.has(name, "x") and isinstance(value := self.values.get(name), str)
        }

    def child(self) -> State:
        """Return what a shell that this one starts begins with."""
        values = self.exported()
        return State(values=dict(values), attributes=dict.fromkeys(values, "x"), read=self.read)


def merged(
    states: Sequence[State],
    unknowns: Unknowns,
    supplied: Mapping[str, str],
    why: tuple[str, int],
) -> State:
    """Return what is known where several ways meet, of which only running tells which was taken.

    why: what decides between them as it is written, and the line.
    """
    first = states[0]
    if len(states) == 1:
        return first
    result = first.copy()
    for state in states[1:]:
        result.functions |= state.functions
        result.names |= state.names
        result.options |= state.options
        result.read = result.read or state.read
        for name, letters in state.attributes.items():
            result.attributes[name] = "".join(set(letters + result.attributes.get(name, "")))
    for name in dict.fromkeys(name for state in states for name in state.values):
        values = [state.values.get(name) for state in states]
        if any(value != values[0] for value in values):
            result.values[name] = _either(name, values, unknowns, supplied, why)
    if any(state.arguments != first.arguments for state in states):
        result.arguments = tuple(
            unknowns.mark(Unknown(text=f"${k + 1}", key=str(k + 1), line=why[1], why=_why(why)))
            for k in range(max(len(state.arguments) for state in states))
        )
    return result


def _either(
    name: str,
    values: Sequence[Value | None],
    unknowns: Unknowns,
    supplied: Mapping[str, str],
    why: tuple[str, int],
) -> Value:
    """Return a value that is one of several."""
    if name in supplied:
        given = supplied[name]
        return Array.of(given.split()) if any(isinstance(v, Array) for v in values) else given
    if all(value is None or (isinstance(value, Array) and not value.named) for value in values):
        rows = [value.words if isinstance(value, Array) else [] for value in values]
        shared = _same_beginning(rows)
        texts = [_joined(row[shared:]) for row in rows]
        return Array.of([*rows[0][:shared], _mark(name, texts, unknowns, why)])
    if any(isinstance(value, Array) for value in values):
        return _mark(name, (), unknowns, why)
    texts = [value if isinstance(value, str) else "" for value in values]
    shared = _shared(texts)
    return texts[0][:shared] + _mark(name, [text[shared:] for text in texts], unknowns, why)


def _same_beginning(rows: Sequence[Sequence[str]]) -> int:
    """Return how many first entries are the same in all rows."""
    count = 0
    for entries in zip(*rows, strict=False):
        if any(entry != entries[0] for entry in entries):
            break
        count += 1
    return count


def _shared(rows: Sequence[str]) -> int:
    """Return how far texts are the same, in whole words."""
    end = _same_beginning(rows)
    if any(len(row) > end and not row[end].isspace() for row in rows):
        end = 1 + max(rows[0].rfind(blank, 0, end) for blank in " \t\n")
    return end


def _mark(name: str, texts: Sequence[str], unknowns: Unknowns, why: tuple[str, int]) -> str:
    kept = tuple(dict.fromkeys(texts)) if sum(map(len, texts)) <= MOST_OPTIONS else ()
    return unknowns.mark(
        Unknown(text=f"${name}", key=name, line=why[1], why=_why(why), options=kept)
    )


def _joined(words: Sequence[str]) -> str:
    """Return words as one text, as a script writes them."""
    return " ".join(
        word if (word and not any(c.isspace() or c in "'\"" for c in word)) or not known(word)
        else "'" + word.replace("'", "'\\''") + "'"
        for word in words
    )  # fmt: skip


def _why(why: tuple[str, int]) -> str:
    return f"{why[0]} of line {why[1]}"
