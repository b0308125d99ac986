"""JSON schemas (draft 2020-12) of all that is printed as JSON, and of the files that are read and
written; `docs/reference/outputs.md` has the promises of a version.

They are written by `python -m tests.schemas` from outputs of every command, and from the
declarations of files' keys; a test holds them to both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import read_json

FOLDER = Path(__file__).parent
VERSION = 1  # of all that is printed as JSON


def headed(name: str) -> dict[str, Any]:
    """Return the first keys of an output: its schema and version."""
    return {"schema": f"ilp-planner/{name}", "version": VERSION}


def names() -> list[str]:
    """Return the names of the schemas, in alphabetical order."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def schema(name: str) -> dict[str, Any]:
    """Return a schema.

    Raises
    ------
    UsageError: there is none of this name.
    """
    if name not in names():
        raise UsageError(f"NAME: found {name!r}, expected one of {', '.join(names())}")
    found: dict[str, Any] = read_json(FOLDER / f"{name}.json", UsageError)
    return found
