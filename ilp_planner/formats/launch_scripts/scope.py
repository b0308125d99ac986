"""Variables by name, as bash finds them: unset ones, those of the caller, those supplied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.arithmetic import ArithmeticMistakeError, evaluate
from ilp_planner.formats.launch_scripts.budget import WORD, Budget
from ilp_planner.formats.launch_scripts.state import ALWAYS, Array, State, Value
from ilp_planner.formats.launch_scripts.unknowns import Unknown, Unknowns, known

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
Number = Callable[[str, int], str]


class ReadOnly(Exception):  # noqa: N818 - bash goes on behind it
    """A variable that must not be set."""


@dataclass(slots=True)
class Scope:
    """The variables of a script while it is followed.

    supplied: values for what only running would tell, by name. used: those that were taken.
    overruled: those that the script sets itself, with the line. empty: variables that nobody set
    and that were taken as empty, with the line. locals: what each function that runs has to put
    back when it ends.
    """

    state: State
    unknowns: Unknowns
    budget: Budget
    supplied: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    overruled: dict[str, int] = field(default_factory=dict)
    empty: dict[str, int] = field(default_factory=dict)
    locals: list[dict[str, tuple[Value | None, str]]] = field(default_factory=list)
    status: int | None = 0
    substituted: int | None = 0
    line: int = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return $1, $2 and so on."""
        return self.state.arguments

    @property
    def separators(self) -> str:
        """Return the characters that divide words."""
        value = self.state.values.get("IFS", " \t\n")
        return value if isinstance(value, str) and known(value) else " \t\n"

    def at(self, line: int) -> Scope:
        """Return this, with the line that messages name."""
        self.line = line
        return self

    def fields(self, text: str) -> list[str]:
        """Return a text divided; empty ones at the ends where separators stand there."""
        marks = self.separators
        if not marks or not text:
            return [text]
        return re.split(f"[{re.escape(marks)}]+", text)

    def get(self, name: str) -> Value | None:
        """Return a value; None: not set."""
        name = self.named(name)
        if name in self.supplied:
            self.used.add(name)
        return self.state.values.get(name)

    def named(self, name: str) -> str:
        """Return the variable that a name stands for."""
        for _ in range(8):
            if name not in self.state.names:
                break
            name = self.state.names[name]
        return name

    def value(self, name: str, line: int) -> Value:
        """Return a value, special ones among them; a mark where there is none."""
        if name == "#":
            return str(len(self.arguments))
        if name == "?":
            if self.status is None:
                return self.unknowns.mark(
                    Unknown(text="$?", key="?", line=line, why="how a command ends")
                )
            return str(self.status)
        if name.isdecimal() and name != "0":
            if as_whole(name) <= len(self.arguments):
                return self.arguments[as_whole(name) - 1]
            return self.unset_mark(name, line)
        found = self.get(name)
        return self.unset_mark(name, line) if found is None else found

    def text_of(self, name: str, line: int) -> str:
        """Return a value as one text: of an array its first entry."""
        value = self.value(name, line)
        return value.items.get(0, "") if isinstance(value, Array) else value

    def element(self, name: str, index: str | None, line: int, number: Number) -> str:
        """Return a value, or the entry of an array."""
        value = self.value(name, line)
        if index is None:
            return self.text_of(name, line)
        if isinstance(value, str):
            place: int | str | None = self.place(index, line, number, named=False)
            alone = self.unknowns.alone(value)
            return (
                value
                if place == 0 or (alone and not alone.empty)
                else self._entry(name, index, line)
            )
        place = self.place(index, line, number, named=value.named)
        if place is None or any(self.unknowns.alone(word) for word in value.items.values()):
            whole = place is not None and value.items.get(place)
            return whole if whole and known(whole) else self._some(name, index, value, line)
        if isinstance(place, int) and place < 0:
            place += value.end
        found = value.items.get(place)
        return self._entry(name, index, line) if found is None else found

    def _entry(self, name: str, index: str, line: int) -> str:
        text = f"${{{name}[{index}]}}"
        return self.unknowns.mark(
            Unknown(text=text, key=f"{name}[{index}]", line=line, unset=True, empty=True)
        )

    def _some(self, name: str, index: str, value: Array, line: int) -> str:
        inner = next((u for w in value.words if (u := self.unknowns.alone(w))), None)
        return self.unknowns.mark(
            inner or Unknown(text=f"${{{name}[{index}]}}", key=name, line=line)
        )

    def place(self, index: str, line: int, number: Number, *, named: bool) -> int | str | None:
        """Return where an entry is; None: not known."""
        if named:
            return index.strip("'\"") if "$" not in index else None
        found = number(index, line)
        return as_whole(found) if re.fullmatch(r"-?\d+", found) else None

    def unset_mark(self, name: str, line: int) -> str:
        """Return the mark of a variable that the script does not set."""
        read = self.state.read
        key = self.named(name)
        if key in ALWAYS or key in "0$!-":
            unknown = Unknown(text=f"${name}", key=key, line=line)
        elif read and not key.isdecimal():
            why = f"{read[0]}, which line {read[1]} reads, may set it"
            unknown = Unknown(text=f"${name}", key=key, line=line, why=why)
        else:
            unknown = Unknown(text=f"${name}", key=key, line=line, unset=True, empty=True)
        return self.unknowns.mark(unknown)

    def take_supplied(self, name: str) -> str:
        """Return a value that was supplied, and note that it was taken."""
        self.used.add(name)
        return self.supplied[name]

    def assign(self, name: str, value: Value, line: int, *, check: bool = True) -> None:
        """Set a variable; what is not known of it is what was supplied, if anything was.

        Raises
        ------
        ReadOnly: it must not be set.
        """
        name = self.named(name)
        if check and self.state.has(name, "r"):
            raise ReadOnly
        if isinstance(value, str):
            value = self._settled(name, value, line)
        elif name in self.supplied and not all(map(known, value.words)):
            value = Array.of(self.take_supplied(name).split())
        self.budget.spend(
            WORD + (len(value) if isinstance(value, str) else WORD * len(value.items)), line
        )
        self.state.values[name] = value

    def _settled(self, name: str, value: str, line: int) -> str:
        if self.state.has(name, "i") and known(value):
            try:
                value = str(evaluate(value, self.at(line)))
            except ArithmeticMistakeError:
                value = self.unknowns.mark(Unknown(text=value, key=name, line=line))
        if name in self.supplied:
            if not known(value):
                return self.take_supplied(name)
            if value != self.supplied[name]:
                self.overruled[name] = line
            return value
        alone = self.unknowns.alone(value)
        if alone and not IDENTIFIER.fullmatch(alone.key) and not alone.key.isdecimal():
            # Of `N=$(nproc)` it is N that can be supplied.
            return self.unknowns.mark(
                Unknown(text=alone.text, key=name, line=line, why=alone.why, options=alone.options)
            )
        return value

    def set_entry(self, name: str, place: int | str, value: str, line: int) -> None:
        """Set one entry of an array."""
        old = self.state.values.get(self.named(name))
        items: dict[int | str, str] = {}
        if isinstance(old, Array):
            items = dict(old.items)
        elif old is not None:
            items = {0: old}
        if isinstance(place, int) and place < 0:
            place += 1 + max((k for k in items if isinstance(k, int)), default=-1)
        items[place] = value
        named = isinstance(place, str) or (isinstance(old, Array) and old.named)
        self.assign(name, Array(items, named), line)

    def unset(self, name: str) -> None:
        """Forget a variable, or an entry of an array."""
        match = re.fullmatch(r"(\w+)\[(.*)\]", name)
        if match and isinstance(old := self.state.values.get(match[1]), Array):
            keys: tuple[int | str, ...] = (match[2],)
            keys += (as_whole(match[2]),) if match[2].isdecimal() else ()
            kept = {k: v for k, v in old.items.items() if k not in keys}
            self.state.values[match[1]] = Array(kept, old.named)
            return
        if not self.state.has(name, "r"):
            self.state.values.pop(self.named(name), None)
            self.state.attributes.pop(name, None)

    def make_local(self, name: str) -> None:
        """Give the function that runs a variable of its own."""
        if not self.locals or name in self.locals[-1]:
            return
        old = self.state.values.pop(name, None), self.state.attributes.pop(name, "")
        self.locals[-1][name] = old

    def put_back(self) -> None:
        """Give back what the function that ends has had as its own."""
        for name, (value, letters) in self.locals.pop().items():
            self.state.values.pop(name, None)
            self.state.attributes.pop(name, None)
            self.state.names.pop(name, None)
            if value is not None:
                self.state.values[name] = value
            if letters:
                self.state.attributes[name] = letters

    def forget(self, name: str, text: str, line: int, why: str = "") -> None:
        """Make a variable one that is not known."""
        self.assign(
            name, self.unknowns.mark(Unknown(text=text, key=name, line=line, why=why)), line,
            check=False,
        )  # fmt: skip

    def number_text(self, name: str, index: str) -> str:
        """Return the text of a variable in an expression, or a mark."""
        value = self.state.values.get(self.named(name))
        if isinstance(value, Array) and value.named:
            return value.items.get(index.strip("'\""), "")
        text = (
            self.element(name, index or None, self.line, self._number)
            if index
            else self.text_of(name, self.line)
        )
        return text.strip()

    def set_number(self, name: str, index: str, value: str) -> None:
        """Set a variable in an expression."""
        if not index:
            self.assign(name, value, self.line)
            return
        place = self._number(index, self.line)
        if re.fullmatch(r"-?\d+", place):
            self.set_entry(name, as_whole(place), value, self.line)

    def _number(self, expression: str, line: int) -> str:
        return str(evaluate(expression, self.at(line)))

    def empty_unset(self, text: str) -> str:
        """Return a text in which variables that nobody set are empty, as bash has them."""
        return self.unknowns.as_empty(text, self.empty)
