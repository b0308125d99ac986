"""Between Aceso's profile database and the native table.

Of one model: a row per operator, number of samples, tensor-parallel degree and split; rows of
collectives and of messages between two devices. A failure of Aceso's measurement is a failed row.
Sizes of Aceso's collectives are a device's input, in the native table the whole tensor.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import make_folder, write_text
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus, measurements_of
from ilp_planner.costs.profiles.table import (
    FIELDS,
    MIB,
    OperatorRow,
    Profile,
    Provenance,
    RowKey,
    whole_tensor,
)
from ilp_planner.peers.aceso.source import BANDWIDTH_UNIT, FAILED_ROW, OPERATOR_COLUMNS
from ilp_planner.peers.units import undo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


FAILED_SECONDS = 100.0  # Aceso's sentinels of collectives are 10^6 or 10^9 ms; real ones seconds
FAILED_MILLISECONDS = 1_000_000_000  # what is written of one that failed
MICROSECOND, MILLISECOND = 1e-6, 1e-3


def aceso_table(profile: Profile, key: str, sizes: Mapping[str, Any] | None = None) -> Measurements:
    """Return a model's part of the database as a native table. key: the model's name in the
    database. sizes: columns that are the same for all operators: hidden, sequence, dtype."""
    rows: list[dict[str, Any]] = []
    for at, row in profile.rows.items():
        values = {column: getattr(row, name) for name, column in FIELDS.items()}
        total = row.forward + row.backward
        rows.append({**_operator(at), **(sizes or {}), **values, "time_s": total})
    for at in sorted(profile.failed, key=lambda k: (k.micro_batch, k.tp, k.split, k.operator)):
        rows.append({**_operator(at), **(sizes or {}), "status": RowStatus.FAILED})
    rows += _collectives(profile)
    rows += _messages(profile)
    return measurements_of(
        rows, profile.source, machine={"format": "aceso", "model": key}, notes=profile.notes
    )


def _operator(key: RowKey) -> dict[str, Any]:
    return {
        "record": Record.OPERATOR,
        "name": key.operator,
        "tp": key.tp,
        "split": key.split,
        "micro_batch": key.micro_batch,
    }


def _collectives(profile: Profile) -> Iterator[dict[str, Any]]:
    for (primitive, devices), table in profile.collectives.items():
        for size, seconds in table.items():
            row = {
                "record": Record.COLLECTIVE,
                "name": primitive,
                "group_size": devices,
                "hosts": 1,
                "stride": 1,
                "bytes": size * MIB * whole_tensor(primitive, devices),
            }
            failed = seconds >= FAILED_SECONDS
            yield row | ({"status": RowStatus.FAILED} if failed else {"time_s": seconds})


def _messages(profile: Profile) -> Iterator[dict[str, Any]]:
    tables = [(1, profile.intra_node)]
    if profile.inter_node is not profile.intra_node:
        tables.append((2, profile.inter_node))
    for hosts, bandwidths in tables:
        for place, bandwidth in enumerate(bandwidths):
            size = 2**place * MIB
            # Such that size / time is the bandwidth again, where there is such a number.
            time = undo(bandwidth, lambda t, size=size: size / t, size / bandwidth)  # type: ignore[misc]
            yield {
                "record": Record.POINT_TO_POINT,
                "group_size": 2,
                "hosts": hosts,
                "bytes": size,
                "time_s": time,
            }


# ---- writing ------------------------------------------------------------------------------------


def write_aceso_profile(profile: Profile, folder: Path, key: str) -> list[str]:
    """Write the files of one model that Aceso and `read_aceso_profile` read; return their names.

    Operators of a file are in the profile's order. Predicted rows are written like measured ones:
    the format has no place for sources.

    Raises
    ------
    OutputError: a file cannot be written.
    """
    make_folder(folder)
    files: dict[str, list[Sequence[Any]]] = {}
    for at, row in profile.rows.items():
        files.setdefault(_operator_file(key, at), []).append(_operator_line(at, row))
    for at in profile.failed:
        failed = [at.operator, *[f"{FAILED_ROW:.0f}"] * (len(OPERATOR_COLUMNS) - 1)]
        files.setdefault(_operator_file(key, at), []).append(failed)
    order = {name: i for i, name in enumerate(dict.fromkeys(k.operator for k in profile.rows))}
    for lines in files.values():
        lines.sort(key=lambda line: order.get(line[0], len(order)))
        lines.insert(0, OPERATOR_COLUMNS)
    for (primitive, devices), table in profile.collectives.items():
        lines = [("data_size(MB)", "time(ms)")]
        lines += [(size, _milliseconds(table[size])) for size in sorted(table)]
        files[f"prim_{key}_{primitive}_{devices}gpus.csv"] = lines
    for name, bandwidths in (("intra", profile.intra_node), ("inter", profile.inter_node)):
        files[f"p2p_{name}_node.csv"] = [
            [2**place for place in range(len(bandwidths))],
            [_undone(b, BANDWIDTH_UNIT) for b in bandwidths],
        ]
    for name, lines in files.items():
        write_text(folder / name, _csv(lines))
    return list(files)


def _operator_file(key: str, at: RowKey) -> str:
    return f"{key}_mbs{at.micro_batch}_tp{at.tp}_algo{at.split}.csv"


def _operator_line(at: RowKey, row: OperatorRow) -> list[str]:
    values = [getattr(row, name) for name in FIELDS]
    times = [_undone(value, MICROSECOND) for value in values[:2]]
    return [at.operator, *times, *(_number(value / MIB) for value in values[2:])]


def _milliseconds(seconds: float) -> str:
    if seconds >= FAILED_SECONDS:
        return str(FAILED_MILLISECONDS)
    return _undone(seconds, MILLISECOND)


def _undone(value: float, unit: float) -> str:
    """Return the number that the reader makes `value` of."""
    return _number(undo(value, lambda number: number * unit, value / unit))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and value < 1e15 else repr(value)


def _csv(lines: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def check_exportable(profile: Profile, source: str, key: str) -> list[str]:
    """Return the rows that Aceso will miss or not read, one line each.

    Raises
    ------
    ProfileError: nothing that Aceso reads.
    """
    from ilp_planner.peers.aceso.source import MICRO_BATCHES, SPLITS, TENSOR_DEGREES

    family = key.split("_")[0]
    if family not in MICRO_BATCHES:
        raise ProfileError(
            f"model: found {key!r}, expected a name that begins with one of "
            f"{', '.join(f'{name}_' for name in MICRO_BATCHES)}, as Aceso's files have"
        )
    notes = []
    for what, have, read in (
        ("micro-batch", set(profile.micro_batch_sizes), set(MICRO_BATCHES[family])),
        ("tp", set(profile.tensor_degrees), set(TENSOR_DEGREES)),
        ("split", set(profile.splits), set(SPLITS[family])),
    ):
        if not have & read:
            raise ProfileError(
                f"{source}: {what}: found {_list(have)}, expected some of {_list(read)}, which "
                f"Aceso reads of {family}"
            )
        if read - have and what != "tp":
            notes.append(f"{what} {_list(read - have)}: no rows; Aceso plans without them")
        if have - read:
            notes.append(f"{what} {_list(have - read)}: written, but Aceso does not read them")
    predicted = sum(row.provenance is not Provenance.MEASURED for row in profile.rows.values())
    if predicted:
        notes.append(f"{predicted} of {len(profile.rows)} operator rows are predictions")
    return notes


def _list(values: set[int]) -> str:
    return ", ".join(map(str, sorted(values)))
