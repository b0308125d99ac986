"""The native table: measured rows of any kind (layers, operators, collectives, links, whole steps),
one CSV file, tidy, with provenance per row.

Lines before the header that begin with `#` describe the machine: `# key: value`. Times are seconds,
sizes bytes; the names of the columns say so. A cell that does not apply is empty.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import write_text
from ilp_planner.base.limits import COUNT, FIGURE, LEAST_SECONDS, SECONDS
from ilp_planner.base.units import DURATION_UNITS, SIZE_UNITS
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.profiles.table_text import COMMENT, TITLE, VERSION, read_table_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pandas


class Record(StrEnum):
    """The subject of a row.

    layer: consecutive layers of the model that take the same, each by itself. operator: the
    smallest thing that can be placed. step: a part of a whole training step (`forward_backward`,
    `optimizer`, `batch_generator`, `total`). collective: one among the devices of a group.
    point_to_point: a message between two devices. matmul: a product of two matrices.
    """

    LAYER = "layer"
    OPERATOR = "operator"
    STEP = "step"
    COLLECTIVE = "collective"
    POINT_TO_POINT = "point_to_point"
    MATMUL = "matmul"


class RowStatus(StrEnum):
    """The outcome of measuring a row; the times of one that is not `ok` are empty."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"


TEXT_COLUMNS = ("record", "device", "name", "layers", "dtype", "timing", "original")
"""record: a `Record`. device: device type. name: of the layer kind, operator, collective or part of
a step. layers: which of the model, from 0: `0`, `1-24`. timing: `isolated` where each layer was
timed by itself, the host waiting for the device; empty where it ran among the others. original:
time_s as the source has it, `12.3 ms`, where seconds would not give it back to the last digit."""
COUNT_COLUMNS = (
    "tp", "cp", "ep", "etp", "split", "micro_batch", "sequence", "hidden",
    "group_size", "hosts", "stride", "groups",
)  # fmt: skip
"""Degrees of a layer, of which empty means none: cp context-parallel; ep expert-parallel, and etp
the tensor-parallel one of the experts (empty: tp). micro_batch: samples of one replica. sequence:
tokens of a sample, all context-parallel ranks together. group_size: devices of a collective; hosts:
nodes that they are on; stride: between their ranks; groups: how many do it at once."""
VALUE_COLUMNS = (
    "bytes", "flop", "traffic_bytes",
    "time_s", "forward_s", "backward_s", "optimizer_s", "spread",
    "parameters", "weight_bytes", "gradient_bytes", "state_bytes", "activation_bytes",
    "forward_workspace_bytes", "backward_workspace_bytes", "memory_bytes",
    "input_bytes", "output_bytes",
    "messages", "message_bytes",
)  # fmt: skip
"""All per device. bytes: of the whole tensor that a collective gathers or reduces, or of a message.
flop, traffic_bytes: what the forward pass computes, and reads and writes of device memory. time_s:
seconds; of layers and operators forward and backward of one micro-batch together. optimizer_s: of
the optimiser step. spread: quartile distance of the repeats over their median.
parameters: of the whole layer, in the unit of the source (elements, or bytes of some width).
weight_bytes: parameters. gradient_bytes: their gradients. state_bytes: parameters, gradients and
optimiser states. activation_bytes: kept for the backward pass of one micro-batch.
*_workspace_bytes: beyond these, while it runs.
memory_bytes: the most that it needs altogether, where that is all that is known. input_bytes,
output_bytes: of one micro-batch, what crosses a pipeline cut before / after it. messages,
message_bytes: tensor-parallel all-reduces of a forward pass, and of a backward pass, that time_s
leaves out, and the bytes of each; empty where time_s has them. What context- and expert-parallel
ranks send each other is in neither."""
ORIGIN_COLUMNS = ("repeats", "status", "provenance", "error", "source")
"""repeats: how often it was measured. error: of a prediction, cross-validated, relative."""
COLUMNS = (*TEXT_COLUMNS, *COUNT_COLUMNS, *VALUE_COLUMNS, *ORIGIN_COLUMNS)
NUMBERS = (*COUNT_COLUMNS, *VALUE_COLUMNS, "repeats", "error")
WHOLE = (*COUNT_COLUMNS, "repeats")

# What a row must say, by what it is of; the last ones only where its status is `ok`.
KEYS: dict[Record, tuple[str, ...]] = {
    Record.LAYER: ("layers", "tp", "micro_batch"),
    Record.OPERATOR: ("name", "tp", "split", "micro_batch"),
    Record.STEP: ("name", "tp", "micro_batch"),
    Record.COLLECTIVE: ("name", "group_size", "bytes"),
    Record.POINT_TO_POINT: ("bytes",),
    Record.MATMUL: ("flop",),
}
VALUES: dict[Record, tuple[str, ...]] = dict.fromkeys(Record, ("time_s",))
VALUES[Record.OPERATOR] = ("forward_s", "backward_s")
AT_LEAST_ONE = (
    "tp", "cp", "ep", "etp", "micro_batch", "group_size", "hosts", "groups", "stride",
)  # fmt: skip
ISOLATED = "isolated"  # what `timing` says of layers that were timed by themselves
VERSION_LINE = f"{COMMENT} {TITLE} {VERSION}"
QUANTITY = re.compile(r"([0-9.eE+-]+)\s*([A-Za-zµ]+)")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurements:
    """A native table.

    frame: one row each, with all of COLUMNS: numbers as float64 (NaN: does not apply), others as
    str ('' likewise). source: for the user. machine: in words.
    notes: one-line remarks about missing or suspicious values. lines: of the file that each row was
    read from, from 1; empty if there was none.
    """

    frame: pandas.DataFrame
    source: str
    machine: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    def of(self, *records: Record) -> pandas.DataFrame:
        """Return the rows of these kinds that were not in vain."""
        rows = self.frame
        return rows[rows["record"].isin(records) & (rows["status"] == RowStatus.OK)]


def measurements_of(
    rows: Iterable[Mapping[str, Any]],
    source: str,
    *,
    machine: Mapping[str, str] | None = None,
    notes: Iterable[str] = (),
) -> Measurements:
    """Return a table of rows given as mappings, column to value; missing ones are empty.

    A row is `ok` and `measured` if it says nothing else.

    Raises
    ------
    ProfileError: an unknown column, or a row that is not complete.
    """
    import pandas as pd

    given = [{"status": "ok", "provenance": "measured", **row} for row in rows]
    unknown = sorted({key for row in given for key in row} - set(COLUMNS))
    if unknown:
        raise ProfileError(f"{source}: column {unknown[0]!r} is unknown")
    frame = pd.DataFrame(given, columns=list(COLUMNS), index=range(1, len(given) + 1))
    return Measurements(
        frame=_checked(frame, source, "row"),
        source=source,
        machine=dict(machine or {}),
        notes=tuple(notes),
    )


def plain_rows(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows without context and expert parallelism, with experts divided like an MLP: a
    tensor-parallel rank's share of whole samples and of all experts."""
    alone = frame["cp"].isna() | (frame["cp"] == 1)
    all_experts = frame["ep"].isna() | (frame["ep"] == 1)
    alike = frame["etp"].isna() | (frame["etp"] == frame["tp"])
    return frame[alone & all_experts & alike]


def join(tables: Iterable[Measurements], source: str) -> Measurements:
    """Return one table with the rows of all of them."""
    import pandas as pd

    parts = list(tables)
    return Measurements(
        frame=pd.concat([part.frame for part in parts], ignore_index=True),
        source=source,
        machine={key: text for part in parts for key, text in part.machine.items()},
        notes=tuple(note for part in parts for note in part.notes),
    )


def read_measurements(path: Path) -> Measurements:
    """Read a native table.

    Raises
    ------
    ProfileError: not there or malformed: file, line, column, the found and the expected value.
    """
    import pandas as pd

    text = read_table_text(path)
    _check_columns(text.names, set(text.column("record")), path)
    cells = {name: text.column(name) if name in text.names else "" for name in COLUMNS}
    frame = pd.DataFrame(cells, index=pd.Index(text.lines, dtype=int), dtype=str)
    frame["status"] = frame["status"].where(frame["status"] != "", RowStatus.OK.value)
    frame["provenance"] = frame["provenance"].where(
        frame["provenance"] != "", Provenance.MEASURED.value
    )
    return Measurements(
        frame=_checked(frame, str(path), "line"),
        source=path.name,
        machine=text.machine,
        lines=tuple(text.lines),
    )


def write_measurements(path: Path, table: Measurements) -> None:
    """Write a native table, whole or not at all.

    Raises
    ------
    OutputError: the system refuses.
    """
    lines = [*head_lines(table.machine), *(row_line(row) for row in rows_of(table.frame))]
    write_text(path, "\n".join(lines) + "\n")


def head_lines(machine: Mapping[str, str]) -> list[str]:
    """Return the lines above the rows: the machine, and the names of the columns."""
    described = [f"# {key}: {' '.join(str(value).split())}" for key, value in machine.items()]
    return [VERSION_LINE, *described, ",".join(COLUMNS)]


def row_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line of CSV: numbers as short as they can be read back exactly."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([_cell(row.get(name)) for name in COLUMNS])
    return buffer.getvalue()


def rows_of(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as mappings, without empty columns."""
    return [
        {str(k): v for k, v in row.items() if not (v == "" or v != v)}
        for row in frame.to_dict(orient="records")
    ]


def layer_range(text: str) -> range:
    """Return the layers that `3` or `1-24` says.

    Raises
    ------
    ValueError: neither a number nor a range.
    """
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text.strip())
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"expected a layer or a range of layers such as '1-24', found {text!r}")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _cell(value: Any) -> str:
    if value is None or value == "" or value != value:
        return ""
    if isinstance(value, float | int) and not isinstance(value, bool):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return str(value)


def _check_columns(names: list[str], kinds: set[str], path: Path) -> None:
    """Refuse a table without the columns of its kinds of rows, and columns in other units."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProfileError(f"{path}: column {twice[0]!r} is there twice")
    for name in names:
        if name in COLUMNS:
            continue
        stem, _, unit = name.rpartition("_")
        for suffix in ("s", "bytes"):
            same = f"{stem}_{suffix}" if stem else suffix
            if same in COLUMNS and unit != suffix:
                full = "seconds" if suffix == "s" else "bytes"
                known = DURATION_UNITS if suffix == "s" else SIZE_UNITS
                if unit in known or unit.casefold() in {u.casefold() for u in known}:
                    raise ProfileError(
                        f"{path}: column {name!r}: expected {same!r}, in {full}: a table has one "
                        "unit for a quantity"
                    )
        near = difflib.get_close_matches(name, COLUMNS, 1, 0.6)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        raise ProfileError(f"{path}: column {name!r} is unknown{guess}")
    for kind in Record:
        if kind.value in kinds:
            for name in (*KEYS[kind], *VALUES[kind]):
                if name not in names:
                    raise ProfileError(
                        f"{path}: column {name!r} is missing, which rows of record {kind.value!r} "
                        "need"
                    )


def _number(cell: Any) -> float:
    """Return a number to the last bit; `pandas.to_numeric` gives it since pandas 3 only."""
    try:
        return math.nan if "_" in str(cell) else float(cell)
    except (TypeError, ValueError):
        return math.nan


class _Fault(NamedTuple):
    """Rows that must not be. wrong: bool [rows]. expected: of the column, or of a cell's text.
    found: the cells; None: nothing is there."""

    column: str
    wrong: pandas.Series[bool]
    expected: str | Callable[[str], str]
    found: pandas.Series | None


def _checked(frame: pandas.DataFrame, source: str, unit: str) -> pandas.DataFrame:
    """Return the frame with numbers as numbers and texts on one line, every row checked.

    unit: of the frame's index, `line` or `row`.
    """
    frame = frame.copy()
    for column, wrong, expected, cells in _faults(frame, unit):
        if wrong.any():
            place = frame.index[wrong][0]
            found = "" if cells is None else str(cells[place])
            wanted = expected if isinstance(expected, str) else expected(found)
            raise ProfileError(
                f"{source}: {unit} {int(place)}: {column!r}: found {found.strip()!r}, "
                f"expected {wanted}"
            )
    return frame.reset_index(drop=True)


def _faults(frame: pandas.DataFrame, unit: str) -> Iterator[_Fault]:
    """Yield the findings of each rule, and turn cells into texts and numbers on the way."""
    import numpy as np

    for name in (*TEXT_COLUMNS, "status", "provenance", "source"):
        texts = frame[name]
        frame[name] = texts.where(texts.notna(), "").astype(str).map(_plain)
    for name, kinds in (("record", Record), ("status", RowStatus), ("provenance", Provenance)):
        known = sorted(kind.value for kind in kinds)
        wrong = ~frame[name].isin(known)
        yield _Fault(name, wrong, f"one of {', '.join(known)}", frame[name])
    timing = frame["timing"]
    yield _Fault("timing", ~timing.isin(("", ISOLATED)), f"nothing or {ISOLATED!r}", timing)
    for name in NUMBERS:
        raw = frame[name]
        said = raw.notna() & (raw.astype(str).str.strip() != "")
        values = raw.where(said).map(_number).astype(np.float64)
        right = np.isfinite(values) & (values >= 0)
        yield _Fault(name, said & ~right, partial(_expected, name), raw)
        if name in WHOLE:
            yield _Fault(name, said & (values % 1 != 0), "a whole number", raw)
        if unit == "line":
            floor, most = _range(name)
            ends = f"at most {most:g}" + (f", and 0 or at least {floor:g}" if floor else "")
            yield _Fault(name, (values > most) | ((values > 0) & (values < floor)), ends, raw)
        frame[name] = values
    for kind in Record:
        of_kind = frame["record"] == kind.value
        done = of_kind & (frame["status"] == RowStatus.OK.value)
        for names, rows in ((KEYS[kind], of_kind), (VALUES[kind], done)):
            for name in names:
                text = name in TEXT_COLUMNS
                missing = frame[name] == "" if text else frame[name].isna()
                what = "a name" if text else _expected(name, "")
                expected = f"{what}, which a row of {kind.value!r} needs"
                yield _Fault(name, rows & missing, expected, None)
    layers = frame["layers"]
    wrong = (layers != "") & ~layers.map(_is_range).astype(bool)
    yield _Fault("layers", wrong, "a layer or a range of layers such as '1-24'", layers)
    for name in AT_LEAST_ONE:
        yield _Fault(name, frame[name] < 1, "at least 1", frame[name])


def _is_range(text: str) -> bool:
    try:
        return bool(layer_range(text))
    except ValueError:
        return False


def _plain(text: str) -> str:
    """Return a text on one line, without the characters that steer a terminal."""
    return " ".join(CONTROL.sub(" ", text).split())


def _range(column: str) -> tuple[float, float]:
    """Return the least value above 0 and the most that a table may say."""
    if column.endswith("_s"):
        return LEAST_SECONDS, SECONDS
    return 0.0, COUNT if column in WHOLE else FIGURE


def _expected(column: str, found: str) -> str:
    """Say the expected number, with a valid value for one with a unit."""
    unit = "seconds" if column.endswith("_s") else "bytes" if column.endswith("bytes") else ""
    text = f"a number of {unit}, at least 0" if unit else "a number of at least 0"
    match = QUANTITY.fullmatch(found.strip())
    if match is not None and unit:
        known = DURATION_UNITS if unit == "seconds" else SIZE_UNITS
        factor = known.get(match[2])
        try:
            value = float(match[1]) * float(factor) if factor is not None else math.nan
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            text += f": {value:.6g}"
    return text
