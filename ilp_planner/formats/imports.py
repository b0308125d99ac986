"""The training systems whose files and launches are read; one is imported when it is asked for.

`recognise` says whose a file or a launch is, `read` what it trains, as arguments of Megatron-LM, in
which jobs are said (`formats.megatron.arguments.job_of_arguments`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError, shown
from ilp_planner.base.file_kinds import FileKind, file_kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ilp_planner.formats.imported.table import System
    from ilp_planner.formats.megatron.ranks import Gpus
    from ilp_planner.formats.megatron.values import MegatronArguments


class Import(NamedTuple):
    """The import of a training system's files or launches.

    module: with its table. name: as commands take it. kind: of its files.
    """

    module: str
    name: str
    kind: FileKind | None = None


IMPORTS = (
    Import("nanotron", "nanotron", FileKind.NANOTRON),
    Import("gpt_neox", "gpt-neox", FileKind.NEOX),
)
NAMES = tuple(row.name for row in IMPORTS)


class Recognised(NamedTuple):
    """A file or launch of a system. pairs: its keys and values. source: for messages."""

    row: Import
    pairs: tuple[tuple[str, Any], ...]
    source: str

    @property
    def system(self) -> System:
        """Return the table of the system."""
        module = importlib.import_module(f"ilp_planner.formats.imported.{self.row.module}")
        found: System = module.SYSTEM
        return found


def recognise(path: Path) -> Recognised | None:
    """Return whose configuration a file is; None: of no system that is known here.

    Raises
    ------
    SpecError: it cannot be read.
    """
    kind = file_kind(path)
    row = next((row for row in IMPORTS if kind is not None and row.kind is kind), None)
    if row is None:
        return None
    from ilp_planner.base.yaml_files import read_yaml
    from ilp_planner.formats.imported.table import flat

    values = read_yaml(path, SpecError)
    if not isinstance(values, dict):
        raise SpecError(f"{path}: found {shown(values)}, expected the keys of {row.name}")
    return Recognised(row, tuple(flat(values)), str(path))


def read(
    found: Recognised,
    world: int | None = None,
    *,
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = False,
) -> MegatronArguments:
    """Return what a file or launch of another system trains.

    Parameters
    ----------
    world: ranks; None: what it says, else those of `gpus`. supplied: values of keys, which count.
    strict: refuse keys that are not known.

    Raises
    ------
    SpecError: a value that cannot be, a model that is not supported, or something is missing.
    """
    from ilp_planner.base.yaml_files import scalar
    from ilp_planner.formats.imported.table import read_pairs

    more = [(name, scalar(value)) for name, value in (supplied or {}).items()]
    return read_pairs(
        found.system,
        (*found.pairs, *more),
        source=found.source,
        world=world,
        gpus=gpus,
        strict=strict,
    )
