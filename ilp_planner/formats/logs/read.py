"""Reading of any file of a run: its kind is told by how it begins."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.units import format_bytes
from ilp_planner.formats.logs.base import LogError, RunLog, Snapshot, Trace
from ilp_planner.formats.logs.lines import read_lines
from ilp_planner.formats.logs.runs import log_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

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
        from ilp_planner.formats.logs.tables import read_csv

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
    from ilp_planner.formats.logs import tables

    line = begin.split(b"\n", 1)[0].strip()
    if line.startswith(b"{") and line.endswith(b"}") and content.count(b"\n") > 1:
        return log_of(tables.read_objects(content.split(b"\n")), path, run)
    return log_of(tables.read_document(content, path), path, run)


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
