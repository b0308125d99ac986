"""Hostfiles: one node per line, `NAME slots=8` (DeepSpeed, MPI, Metis) or `NAME 8` (Metis's
README).

Blank lines and text after a `#` do not count. A name may come twice: two nodes of one kind, as
Metis reads it.
"""

import re
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import Document, read_document
from ilp_planner.base.limits import DEVICES

LINE = re.compile(r"(?P<name>\S+)\s+(?:slots\s*=\s*)?(?P<devices>[0-9]+)", re.ASCII)


class Host(NamedTuple):
    """One node. devices: of it."""

    name: str
    devices: int


def read_hostfile(source: Path | Document) -> tuple[Host, ...]:
    """Read the nodes, in the order of the lines.

    Raises
    ------
    SpecError: one line with the file, the line, the found and the expected value.
    """
    refuse_other_kind(source, FileKind.HOSTFILE, SpecError)
    path, text = source if isinstance(source, Document) else read_document(source, SpecError)
    hosts = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        content = line.partition("#")[0].strip()
        if content:
            hosts.append(_read_line(path, number, content))
    if not hosts:
        raise SpecError(f"{path}: must have a line 'NAME slots=N' per node, found none")
    return tuple(hosts)


def _read_line(path: str, number: int, content: str) -> Host:
    match = LINE.fullmatch(content)
    if match is None:
        raise SpecError(
            f"{path}: line {number}: expected 'NAME slots=N' or 'NAME N', found {content!r}"
        )
    digits = match["devices"]
    if len(digits) > len(str(DEVICES)) or not 1 <= int(digits) <= DEVICES:
        raise SpecError(f"{path}: line {number}: slots must be 1 to {DEVICES}, found {digits[:20]}")
    return Host(match["name"], int(digits))
