"""A cluster file with the constants of its machine written into it, the rest as it was."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import SpecError
from ilp_planner.specs.machine import DURATIONS, Machine

if TYPE_CHECKING:
    from ilp_planner.files import Document

TITLE = re.compile(r"[ \t]*\[")


def with_machine(document: Document, device: str, machine: Machine, note: str) -> str:
    """Return the text of a cluster file with the table of a device's machine appended or replaced.

    Parameters
    ----------
    note: of where the constants come from, as a comment.

    Raises
    ------
    SpecError: the file has the constants in another form than that table.
    """
    table = machine_table(device, machine, note)
    kept = _without(document.text, device)
    text = f"{kept.rstrip()}\n\n{table}"
    wanted = tomllib.loads(document.text)
    wanted["devices"][device]["machine"] = tomllib.loads(table)["devices"][device]["machine"]
    try:
        right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise SpecError(
            f"{document.name}: device {device!r}: cannot write its machine into this form, "
            f"expected the header [devices.{_key(device)}] above what it has, and nothing of its "
            "machine outside of a table of its own"
        )
    return text


def machine_table(device: str, machine: Machine, note: str) -> str:
    """Return the table of a device's machine in a cluster file."""
    values = {field.name: getattr(machine, field.name) for field in fields(machine)}
    lines = [
        f"{name} = {_value(name, value)}" for name, value in values.items() if value is not None
    ]
    return "\n".join([f"[devices.{_key(device)}.machine]  # {note}", *lines]) + "\n"


def _value(name: str, value: Any) -> str:
    if name in DURATIONS and value:
        return f'"{float(f"{1e3 * value:.9g}"):.12g} ms"'
    return repr(value)


def _key(name: str) -> str:
    """Return a key of TOML, in quotes where it needs them."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without(text: str, device: str) -> str:
    """Return a file without the table of a device's machine: from its header to the next one."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if TITLE.match(line):
            inside = _header(line) == {"devices": {device: {"machine": {}}}}
        if not inside:
            kept.append(line)
    return "".join(kept)


def _header(line: str) -> dict[str, Any]:
    """Return what a line makes as a file of its own; nothing where it is no header."""
    try:
        return tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return {}
