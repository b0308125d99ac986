"""Reading of any file of a run: its kind is told by how it begins."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import counted, format_bytes
from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, Record, RunLog, Snapshot, Trace
from ilp_planner.formats.logs.lines import read_lines
from ilp_planner.formats.logs.runs import Found, log_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO


LARGEST = 1e15  # number of a step
WHOLE = re.compile(r"-?[0-9]{1,15}")
EXTREMES = ("__MIN", "__MAX")  # columns of W&B beside that of the mean


def read_csv(lines: Iterable[bytes], path: Path, run: int | None) -> Found:
    """Return the steps of a table with a column per number; of W&B's, with a column per run and
    number, those of one run.

    Raises
    ------
    LogError: several runs.
    """
    rows = csv.reader(line.decode("utf-8-sig", "replace").replace("\r", "") for line in lines)
    names = [name.strip() for name in next(rows, [])]
    kept = {
        n: name.rpartition(" - ") for n, name in enumerate(names) if not name.endswith(EXTREMES)
    }
    runs = list(dict.fromkeys(parts[0] for parts in kept.values() if m.meaning(parts[2])))
    own = [name for name in runs if name]
    if len(own) > 1 and run is None:
        raise LogError(
            f"{path}: found {len(own)} runs in one table ({', '.join(own[:4])}), expected one: "
            "`run_number=1` takes the first one"
        )
    if run is not None and len(own) > 1 and run > len(own):
        raise LogError(
            f"{path}: `run_number`: found {run}, expected at most {len(own)}: it has no more"
        )
    chosen = {"", *own[(run or 1) - 1 : run or 1]}
    columns = {n: parts[2] for n, parts in kept.items() if parts[0] in chosen}
    found, place = Found(title="a table of a run", unit="row", alone=len(own) > 1), 1
    try:
        for place, cells in enumerate(rows, 2):
            pairs = [(columns[n], cell) for n, cell in enumerate(cells) if n in columns and cell]
            _add(found, m.numbers(pairs), place)
    except csv.Error as error:
        found.notes.append(f"row {place + 1} and all after it are not read: {error}")
    return found


def read_objects(lines: Iterable[bytes]) -> Found:
    """Return the steps of lines of JSON, an object each; others are left out."""
    found, bad = Found(title="lines of JSON", unit="line"), 0
    for place, line in enumerate(lines, 1):
        try:
            said = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            bad += bool(line.strip())
            continue
        if isinstance(said, dict):
            _add(found, m.numbers(_flat(said)), place)
    if bad:
        found.notes.append(f"{counted(bad, 'line')} without a whole object left out")
    return found


def read_document(content: bytes, path: Path) -> Found:
    """Return the steps of one JSON document.

    Raises
    ------
    LogError: it is of another kind, or cut off.
    """
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: cannot be read as JSON: {error}") from None
    if isinstance(said, dict) and isinstance(said.get("log_history"), list):
        return _trainer(said)
    if isinstance(said, dict):
        said = list(_columns(said))
    if not isinstance(said, list) or not any(isinstance(one, dict) for one in said):
        raise LogError(
            f"{path}: found JSON without steps, expected the state of Hugging Face's Trainer "
            "(log_history), a list of steps, or values by step"
        )
    found = Found(title="values by step", unit="entry")
    for place, one in enumerate(said, 1):
        if isinstance(one, dict):
            _add(found, m.numbers(_flat(one)), place)
    return found


def _add(found: Found, values: dict[str, float], place: int) -> None:
    """Add the row of a step; those that say no step are of something else."""
    step = values.pop(m.STEP, float("nan"))
    if values and abs(step) < LARGEST:
        found.records.append(Record(int(step), values, place))
    elif values:
        found.without += 1


def _flat(said: Mapping[str, Any], before: str = "") -> dict[str, object]:
    """Return the numbers of an object and of those in it, one level deep."""
    found: dict[str, object] = {}
    for name, value in said.items():
        kind = type(value)
        if kind is dict and not before:
            found |= _flat(value, f"{name}/")
        elif kind is not dict and kind is not list:
            found[before + name] = value
    return found


def _columns(said: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Yield a row per step of an object with the values of each number by step."""
    rows: dict[int, dict[str, object]] = {}
    for name, column in said.items():
        if not isinstance(column, dict):
            continue
        values = column.get("values", column)
        if isinstance(values, list):
            first, apart = column.get("start_step", 0), column.get("step_interval", 1)
            if not (isinstance(first, int) and isinstance(apart, int)):
                continue
            values = {first + n * apart: value for n, value in enumerate(values)}
        if not isinstance(values, dict):
            continue
        for step, value in values.items():
            if WHOLE.fullmatch(str(step)):
                rows.setdefault(int(step), {"step": int(step)})[name] = value
    yield from (rows[step] for step in sorted(rows))


def _trainer(said: Mapping[str, Any]) -> Found:
    """Return the steps of the Trainer's state: with their seconds where a callback logs some, else
    the mean of the whole run."""
    found = Found(title="the state of Hugging Face's Trainer", unit="entry")
    entries = [one for one in said["log_history"] if isinstance(one, dict)]
    for place, one in enumerate(entries, 1):
        if "train_runtime" not in one and not any(key.startswith("eval") for key in one):
            _add(found, m.numbers(_flat(one)), place)
    timed = sum(m.SECONDS in one.values or m.TIME in one.values for one in found.records)
    whole = next((one for one in entries if "train_runtime" in one), None)
    count, seconds = (m.finite((whole or {}).get(key)) for key in ("step", "train_runtime"))
    if timed < 2 and count is not None and seconds is not None and 0 < count < LARGEST:
        ended = Record(int(count), {m.TIME: seconds}, 1)
        rest = found.records[-1].values if found.records else {}
        tokens = {m.TOKENS: rest[m.TOKENS]} if m.TOKENS in rest else {}
        found.records = [
            Record(0, {m.TIME: 0.0, **({m.TOKENS: 0.0} if tokens else {})}, 1),
            ended._replace(values={**ended.values, **tokens}),
        ]
        found.notes.append("it has the seconds of the whole run alone: nothing of single steps")
    batch = said.get("train_batch_size")
    if isinstance(batch, int):
        found.said["per_device_train_batch_size"] = str(batch)
    return found


MOST = 1 << 31  # bytes of a log, unpacked
HEAD = 1 << 16
PIECE = 1 << 13  # bytes unpacked at once
CUT = "the compressed file is cut off or damaged at its end: what comes before counts"
GZIP, PICKLE = b"\x1f\x8b", re.compile(rb"\x80[\x02-\x05]")
JSON = re.compile(rb"\{|\[\s*[{\]]")  # not `[2026-01-01` of a line
ZIP = b"PK\x03\x04"
KNOWN = (
    "iteration lines of Megatron-LM, NeMo, torchtitan, DeepSpeed or nanotron, MLPerf's :::MLLOG, a "
    "CSV or JSON export, TensorBoard's events, a trace of torch.profiler or a memory snapshot"
)


def read_log(path: Path, run: int | None = None) -> RunLog | Trace | Snapshot:
    """Read a log, a trace or a memory snapshot, whichever a file is.

    Parameters
    ----------
    run: which of several in the file, from 1; None: there is one.

    Raises
    ------
    LogError: it is none of them, or says nothing of a run.
    """
    content, whole = _content(path)
    found = _read(content, path, run)
    if whole or isinstance(found, Snapshot):
        return found
    return replace(found, notes=(CUT, *found.notes))


def _read(content: bytes, path: Path, run: int | None) -> RunLog | Trace | Snapshot:
    head = content[:HEAD]
    if not content.strip():
        raise LogError(f"{path}: found an empty file, expected {KNOWN}")
    if PICKLE.match(head):
        from ilp_planner.formats.logs.snapshot import read_pickle

        return read_pickle(content, path)
    from ilp_planner.formats.logs.tensorboard import is_events, read_events

    if is_events(head):
        return log_of(read_events(content), path, run)
    if head.startswith(ZIP) or b"\0" in head[:1024]:
        raise LogError(f"{path}: found bytes that are no text, expected {KNOWN}")
    begin = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    if JSON.match(begin):
        found = _of_json(content, begin, path, run)
        if found is not None:
            return found
    lines = content.splitlines(keepends=True) if content.count(b"\n") < 2 else content.split(b"\n")
    found_lines = read_lines(lines)
    if found_lines.records:
        return log_of(found_lines, path, run)
    first = begin.split(b"\n", 1)[0]
    if b"," in first and _has_columns(first):
        return log_of(read_csv((line + b"\n" for line in lines), path, run), path, run)
    raise LogError(f"{path}: found no step of a run, expected {KNOWN}")


def _has_columns(first: bytes) -> bool:
    from ilp_planner.formats.logs.metrics import meaning

    names = (
        name.strip(' "').rpartition(" - ")[2] for name in first.decode(errors="replace").split(",")
    )
    return any(meaning(name) for name in names)


def _of_json(
    content: bytes, begin: bytes, path: Path, run: int | None
) -> RunLog | Trace | Snapshot | None:
    """Return what a file of JSON says; None if it is no JSON, but a log that begins like it."""
    if b'"traceEvents"' in begin or b'"schemaVersion"' in begin[:200]:
        from ilp_planner.formats.logs.trace import read_trace

        return read_trace(content.decode("utf-8", "replace"), path)
    if b'"segments"' in begin[:4096]:
        from ilp_planner.formats.logs.snapshot import read_json

        return read_json(content, path)
    line = begin.split(b"\n", 1)[0].strip()
    if line.startswith(b"{") and line.endswith(b"}") and content.count(b"\n") > 1:
        return log_of(read_objects(content.split(b"\n")), path, run)
    return log_of(read_document(content, path), path, run)


def _content(path: Path) -> tuple[bytes, bool]:
    """Return the bytes of a file, unpacked, and whether these are all."""
    whole = True
    try:
        with path.open("rb") as file:
            content = _bytes_of(file)
        if content.startswith(GZIP):
            content, whole = _unpacked(content)
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except zlib.error as error:
        raise LogError(f"{path}: found a compressed file that is damaged: {error}") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MOST:
        raise LogError(
            f"{path}: found more than {format_bytes(MOST)}, expected at most that; `tail -c 1G` "
            "keeps its end"
        )
    return content, whole


def _bytes_of(file: BinaryIO) -> bytes:
    """Return the bytes of a file, at most one more than allowed; memory for as many as there are
    is asked for."""
    pieces = [file.read(min(os.fstat(file.fileno()).st_size, MOST) + 1)]
    size = len(pieces[0])
    while size <= MOST and (piece := file.read(PIECE)):  # of a pipe, or a file that grows
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _unpacked(packed: bytes) -> tuple[bytes, bool]:
    """Return the bytes of a compressed file, one after another if several were joined, as far as
    they go, and whether these are all: a run that was killed leaves a file without an end."""
    pieces, size = [], 0
    with gzip.open(io.BytesIO(packed)) as file:
        try:
            while size <= MOST and (piece := file.read1(PIECE)):
                pieces.append(piece)
                size += len(piece)
        except (EOFError, gzip.BadGzipFile):  # cut off, or followed by something else
            return b"".join(pieces), False
    return b"".join(pieces), True
