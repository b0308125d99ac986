"""One argument of Megatron-LM's `pretrain_gpt.py`, and finding it by name."""

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flag_table import REMOVED, TABLES

Value = bool | int | float | str | tuple[int | float | str, ...] | None

LONGEST = 80  # characters of an unknown argument that others are compared with
ENTRY = re.compile(
    r"(?P<on>~?)(?P<name>[\w-]+?)(?:!(?P<off>\w+)|(?P<both>\?)|:(?P<type>\w+)(?P<many>[+*]|\^\d)?"
    r"(?:=(?P<default>[^{}>]+))?(?:\{(?P<choices>[^}]*)\})?)?(?:>(?P<key>\w+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One name of an argument.

    name: without the leading dashes. key: of the value that it sets, shared by names that mean the
    same. kind: `switch`, `int`, `float`, `str`, `pattern` or `sizes`. sets: the value that a switch
    sets.
    least, most: numbers of values that follow (most None: any). default: of the key, if Megatron
    gives one. choices: values allowed; none: any.
    """

    name: str
    key: str
    kind: str = "switch"
    sets: bool = True
    least: int = 0
    most: int | None = 0
    default: Value = None
    choices: tuple[str, ...] = ()
    topic: str = ""

    @property
    def text(self) -> str:
        """Return it as it is typed."""
        return f"--{self.name}"

    @property
    def many(self) -> bool:
        """Whether its value is a tuple."""
        return self.most != 0 and self.most != 1


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Return all flags by name."""
    table = {}
    for topic, text in TABLES.items():
        for entry in text.replace("|\n", "|").split():
            for flag in _read_entry(entry, topic):
                table[flag.name] = flag
    return table


@functools.cache
def flags_by_key() -> Mapping[str, tuple[Flag, ...]]:
    """Return the flags that set each key, the most common first."""
    table: dict[str, tuple[Flag, ...]] = {}
    for flag in flags().values():
        table[flag.key] = (*table.get(flag.key, ()), flag)
    return table


def flag_of(key: str) -> str:
    """Return how a key is set, as it is typed."""
    return flags_by_key()[key][0].text


def find_flag(text: str) -> Flag:
    """Return the flag that is typed like this.

    Raises
    ------
    SpecError: there is none; names the nearest.
    """
    name = text.removeprefix("--")
    if name in flags():
        return flags()[name]
    if name in REMOVED:
        raise SpecError(f"{text}: Megatron-LM has no such argument any more: {REMOVED[name]}")
    near = _nearest(name.replace("_", "-")) if len(name) <= LONGEST else ""
    hint = f", did you mean --{near}?" if near else ""
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    raise SpecError(f"{shown}: Megatron-LM has no such argument (unrecognized arguments){hint}")


@functools.lru_cache(maxsize=4096)
def _nearest(wanted: str) -> str:
    """Return the flag that was probably meant; empty if none is like it."""
    near = difflib.get_close_matches(wanted, [*flags(), *REMOVED], n=1, cutoff=0.75)
    return (near or _longest_beginning(wanted) or [""])[0]


def _longest_beginning(name: str) -> list[str]:
    """Return the flag that a longer name begins with, as one with a suffix made up."""
    known = [flag for flag in flags() if name.startswith(f"{flag}-")]
    return [max(known, key=len)] if known else []


def _read_entry(entry: str, topic: str) -> tuple[Flag, ...]:
    match = ENTRY.fullmatch(entry)
    assert match is not None, f"flag_table: {entry!r}"
    name = match["name"]
    key = match["key"] or name.replace("-", "_")
    if match["on"]:
        return tuple(
            Flag(name=f"{no}-{name}", key=key, sets=False, default=True, topic=topic)
            for no in ("no", "disable")
        )
    if match["off"]:
        return (Flag(name=name, key=match["off"], sets=False, default=True, topic=topic),)
    if match["both"]:
        on = Flag(name=name, key=key, default=False, topic=topic)
        return on, Flag(name=f"no-{name}", key=key, sets=False, default=False, topic=topic)
    if match["type"] is None:
        return (Flag(name=name, key=key, default=False, topic=topic),)
    least, most = _count(match["many"])
    return (
        Flag(
            name=name,
            key=key,
            kind=match["type"],
            least=least,
            most=most,
            default=_default(match["type"], match["default"]),
            choices=tuple(match["choices"].split("|")) if match["choices"] else (),
            topic=topic,
        ),
    )


def _count(many: str | None) -> tuple[int, int | None]:
    """Return how many values follow, at least and at most."""
    if many is None:
        return 1, 1
    if many == "*":
        return 0, None
    if many == "+":
        return 1, None
    return int(many[1:]), int(many[1:])


def _default(kind: str, text: str | None) -> Value:
    if text is None:
        return None
    if kind in ("int", "pattern"):
        return int(text)
    return float(text) if kind == "float" else text
