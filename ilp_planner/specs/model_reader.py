"""Model specifications from TOML; `models/README.md` describes the format."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.specs.model import ARCHITECTURES, PRECISIONS, ModelSpec
from ilp_planner.specs.toml_reader import Table, read_toml

if TYPE_CHECKING:
    from ilp_planner.specs.architecture import Architecture

KEYS = ("name", "family", "precision", "micro_batches", "architecture", "profile", "export")


def read_model(path: Path | str) -> ModelSpec:
    """Read a model specification.

    Raises
    ------
    SpecError: one line with the file, the key, what was found and what was expected.
    """
    root = read_toml(Path(path), KEYS)
    family = root.choice("family", tuple(ARCHITECTURES))
    architecture = _read_architecture(root, family)
    export = root.table("export", optional=True)
    with root.blamed():
        return ModelSpec(
            name=root.text("name"),
            precision=root.choice("precision", tuple(PRECISIONS)),
            architecture=architecture,
            micro_batches=root.wholes("micro_batches", architecture.micro_batches),
            profile=root.texts("profile"),
            export={key: export.scalars(key) for key in export.values},
        )


def _read_architecture(root: Table, family: str) -> Architecture:
    kind = ARCHITECTURES[family]
    table = root.table("architecture", [f.name for f in fields(kind)])
    values: dict[str, Any] = {}
    for f in fields(kind):
        if f.default is MISSING or f.name in table.values:
            is_list = "tuple" in str(f.type)
            values[f.name] = table.wholes(f.name) if is_list else table.whole(f.name)
    with table.blamed():
        return kind(**values)
