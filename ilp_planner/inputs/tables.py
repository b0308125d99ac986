"""From `FILE.csv` to a native table: the files, their content, and their subject."""

from __future__ import annotations

import csv
import hashlib
from typing import TYPE_CHECKING

from ilp_planner.base.errors import ProfileError, UsageError
from ilp_planner.base.files import existing, lines_of, places, read_text, sha256_of
from ilp_planner.base.limits import TABLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.costs.profiles.table_rows import Wanted
    from ilp_planner.inputs.request import Reference
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def find_tables(
    text: str, recorded: Reference | None = None, folders: Sequence[Path] = ()
) -> tuple[list[Path], str]:
    """Return the files of `a.csv,b.csv` and the SHA-256 of them together.

    All are looked for in the current folder, then in each of `folders`; if a saved plan recorded
    one, tables with that content are taken.

    Raises
    ------
    UsageError: a name is missing between commas.
    ProfileError: a file cannot be read.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"profile: found {text!r}, expected FILE.csv,FILE.csv")
    columns = [places(name, folders) for name in names]
    there = [row for row in zip(*columns, strict=True) if all(existing([path]) for path in row)]
    there = there or [tuple((existing(column) or column)[0] for column in columns)]
    digests = [_digest(paths) for paths in there]
    place = 0
    if recorded is not None and recorded.sha256 in digests:
        place = digests.index(recorded.sha256)
    return list(there[place]), digests[place]


def _digest(paths: Sequence[Path]) -> str:
    try:
        found = [sha256_of(path) if path.is_file() else "" for path in paths]
    except OSError as error:
        raise ProfileError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return joined_digest(found)


def joined_digest(digests: Sequence[str]) -> str:
    """Return the SHA-256 of several files together; of one file its own."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def read_tables(paths: Sequence[Path]) -> Measurements:
    """Read native tables as one.

    Raises
    ------
    ProfileError: one is not there or malformed.
    """
    from ilp_planner.costs.profiles.measurements import join, read_measurements

    tables = [read_measurements(path) for path in paths]
    return tables[0] if len(tables) == 1 else join(tables, ",".join(t.source for t in tables))


def records_in(paths: Sequence[Path]) -> set[str]:
    """Return the kinds of rows in tables; nothing of an unreadable one; `read_tables` reports
    it."""
    found: set[str] = set()
    for path in paths:
        try:
            text = read_text(path, ProfileError, most=TABLE_BYTES)
            rows = csv.reader(line for line in lines_of(text) if line.strip() and line[0] != "#")
            header = [name.strip() for name in next(rows, [])]
            place = header.index("record")
            found |= {row[place].strip() for row in rows if len(row) > place}
        except (ValueError, csv.Error):
            continue
    return found


def wanted_rows(
    model: ModelSpec | None, *, hidden: int | None = None, sequence: int | None = None
) -> Wanted:
    """Return the filter of a model's rows in a table: its sizes, or the given ones, and its
    precision."""
    from ilp_planner.costs.profiles.table_rows import Wanted

    architecture = None if model is None else model.architecture
    return Wanted(
        hidden=hidden or getattr(architecture, "hidden", None),
        sequence=sequence or getattr(architecture, "sequence", None),
        dtype=None if model is None else model.precision,
    )


def planned_layers(
    table: Measurements,
    cluster: ClusterSpec,
    model: ModelSpec | None,
    *,
    wanted: Wanted,
    most_samples: int,
    max_tp: int | None,
) -> LayerProfile:
    """Return the layers of a table, with predictions of missing ones that planning needs.

    Parameters
    ----------
    wanted: the filter of rows. most_samples: of a replica, that rows are predicted for.

    Raises
    ------
    ProfileError: the table cannot be used, or is of another model.
    """
    from ilp_planner.costs.completed_layers import Plannable, completed_layers
    from ilp_planner.costs.profiles.layer_table import check_layers
    from ilp_planner.specs.chain_layers import segments

    ask = Plannable(
        samples=tuple(1 << bit for bit in range(most_samples.bit_length())),
        parts=0 if model is None else model.architecture.tensor_parts,
        max_tp=max_tp,
    )
    profile = completed_layers(table, wanted, cluster=cluster, ask=ask)
    if model is not None:
        check_layers(profile, len(segments(model.operators)), model.name)
    return profile
