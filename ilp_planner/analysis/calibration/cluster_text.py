"""A cluster file with the constants of its machine written into it, the rest as it was."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.cluster_writer import machine_lines, quoted

if TYPE_CHECKING:
    from ilp_planner.base.files import Document
    from ilp_planner.specs.machine import Machine

TITLE = re.compile(r"[ \t]*\[")


def with_machine(document: Document, device: str, machine: Machine, note: str) -> str:
    """Return the text of a cluster file with the table of a device's machine appended or replaced.

    Parameters
    ----------
    note: on the source of the constants, as a comment.

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
    header = f"[devices.{_key(device)}.machine]  # {note}"
    return "\n".join([header, *machine_lines(machine)]) + "\n"


def _key(name: str) -> str:
    """Return a key of TOML, in quotes if it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


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
    """Return the table of a line as a file of its own; nothing if it is no header."""
    try:
        return tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return {}
