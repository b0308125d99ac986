"""Constraints from a TOML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.file_kinds import FileKind
from ilp_planner.inputs.constraints import NAMES, Constraints, constraints_of
from ilp_planner.inputs.references import stage_from
from ilp_planner.specs.toml_reader import read_toml

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "constraints"


def read_constraints(path: Path) -> Constraints:
    """Return the constraints of the table `[constraints]` of a file; plans that it names are
    relative to its folder.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    table = read_toml(path, (TABLE,), FileKind.CONSTRAINTS).table(TABLE, NAMES)
    try:
        said = constraints_of(table.values)
        return said.with_(keep=tuple(stage_from(stage, path.parent) for stage in said.keep))
    except UsageError as error:
        raise SpecError(f"{path}: {TABLE}.{error}") from None
