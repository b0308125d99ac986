"""Reading and writing whole files: one-line errors, and never half a file on disk."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import json
import math
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import OutputError, PlannerError
from ilp_planner.base.file_kinds import OF_JSON, kind_of_bytes, kind_of_text
from ilp_planner.base.limits import (
    JSON_BYTES,
    NESTING,
    TEXT_BYTES,
    check_parsed,
    check_values,
    whole_number,
)
from ilp_planner.base.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that alone is no character
SUFFIX, TEMPORARY = ".tmp", r"[a-z0-9_]{8}\.tmp"  # how tempfile names them
NAME_BYTES = 200  # of a name that a temporary file begins with; names have 255 at most
LINE_WIDTH = 100  # columns that a flat JSON object may take before it is spread over lines


def check_writable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Find out before hours of work whether a file can be written there, changing nothing.

    Parameters
    ----------
    inputs: files that are read, and must not change.

    Raises
    ------
    OutputError: with the obstacle.
    """
    try:
        target = resolved(path)
        if target.is_file() and any(target == known.resolve() for known in inputs):
            raise OutputError(f"{path}: would be written over the input, expected another file")
        if target.is_dir():
            raise OutputError(f"{path}: is a folder, expected a file to write")
        if not target.parent.is_dir():
            raise OutputError(f"{path}: no such folder {str(path.parent)!r} to write in")
        if target.exists() and not os.access(target, os.W_OK):
            raise OutputError(f"{path}: not writable: permission denied")
        if _is_special(target):
            return
        # The same steps as when it is written: they also meet quotas and read-only file systems.
        handle, temporary = _temporary(target)
        temporary.unlink()
        os.close(handle)
    except OutputError:  # an OSError, with all that there is to say
        raise
    except OSError as error:
        raise OutputError(f"{path}: not writable: {error.strerror}") from None


def resolved(path: Path) -> Path:
    """Return the target of a path.

    Raises
    ------
    OutputError: nowhere: links that lead to one another, or no name of a file.
    """
    try:
        return path.resolve()
    except (RuntimeError, OSError):  # which one depends on the version of Python
        raise OutputError(f"{path}: found links that lead in a circle, expected a file") from None
    except ValueError:  # a NUL byte
        raise OutputError(f"{str(path)!r}: is no name of a file") from None


def missing_folder(folder: Path, holds: str) -> str:
    """Return the message on a missing folder: its purpose, and one of nearly that name."""
    found = "is a file" if folder.exists() else "no such profile folder"
    beside = []
    with contextlib.suppress(OSError):
        beside = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    near = difflib.get_close_matches(folder.name, beside, n=1)
    guess = f"; did you mean {str(folder.with_name(near[0]))!r}?" if near else ""
    return f"{folder}: {found}, expected a folder with {holds}{guess}"


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_bytes` does. Bytes of a path that are no UTF-8 become `?`."""
    write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a kill at any moment leaves the old one or the new one.

    An existing file keeps its mode; a link keeps its target; a device or pipe is written to, never
    replaced.

    Raises
    ------
    OutputError: the system refuses.
    """
    target = resolved(path)
    try:
        if _is_special(target):
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file()


def _replace(target: Path, content: bytes) -> None:
    _remove_left(target)
    handle, temporary = _temporary(target)
    try:
        # Locked until it has its name: whoever writes the same file takes it for no leftover.
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(_mode(target))
            temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _temporary(target: Path) -> tuple[int, Path]:
    """Return a new file beside one that will be written, open and locked, and its path."""
    while True:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=_prefix(target), suffix=SUFFIX)
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if Path(name).exists():  # nobody has removed it before it was locked
            return handle, Path(name)
        os.close(handle)


def _prefix(target: Path) -> str:
    """Return how the names of temporary files begin: with as much of a name as there is room."""
    return f".{os.fsdecode(os.fsencode(target.name)[:NAME_BYTES])}."


def _remove_left(target: Path) -> None:
    """Remove temporary files of killed writers of the same file: nobody has them locked."""
    begin = _prefix(target)
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):  # noqa: PTH208 - a folder may hold millions
            if name.startswith(begin) and re.fullmatch(TEMPORARY, name[len(begin) :]):
                _remove_unlocked(target.parent / name)


def _remove_unlocked(path: Path) -> None:
    """Remove a file unless somebody has it locked."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)


def _mode(target: Path) -> int:
    """Return the mode that the file has, or that a new file gets here."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, if the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Document(NamedTuple):
    """The content of a text file, present or recorded. name: in messages."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the content."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def places(name: str, folders: Iterable[Path] = ()) -> list[Path]:
    """Return the possible paths of a name: in the current folder, then in each of these."""
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # `~name` of nobody is a name like any other
        path = path.expanduser()
    return [folder / path for folder in (Path(), *folders)]


def existing(paths: Iterable[Path], exists: Callable[[Path], bool] = Path.exists) -> list[Path]:
    """Return the existing ones; if none is, the inaccessible ones, so that reading them says
    why."""
    there, refused = [], []
    for path in paths:
        try:
            if exists(path):
                there.append(path)
        except OSError:
            refused.append(path)
    return there or refused


def make_folder(folder: Path) -> None:
    """Make a folder to write in, unless it is there.

    Raises
    ------
    OutputError: the system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be made: {problem.strerror}") from None


def read_content(path: Path, error: type[PlannerError], most: int = TEXT_BYTES) -> bytes:
    """Return the content of a file, to the byte.

    Parameters
    ----------
    error: class of the exception: one line with the file. most: bytes; a longer file is refused,
        and no more than these are read of it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as problem:
        raise error(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError:  # a NUL byte
        raise error(f"{str(path)!r}: is no name of a file") from None
    if len(content) > most:
        limit = format_bytes(most)
        raise error(f"{path}: found more than {limit}, expected a file of at most {limit}")
    return content


def read_document(
    path: Path, error: type[PlannerError], encoding: str = "utf-8", most: int = TEXT_BYTES
) -> Document:
    """Return the content of a text file, to the byte.

    Parameters
    ----------
    error: class of the exception: one line with the file. encoding: `utf-8-sig` if spreadsheets and
        editors may have marked the text as UTF-8. most: bytes, as `read_content` has it.
    """
    return document_of(path, read_content(path, error, most), error, encoding)


def document_of(
    path: Path, content: bytes, error: type[PlannerError], encoding: str = "utf-8"
) -> Document:
    """Return the content of a file as a text; others are refused."""
    try:
        return Document(str(path), content.decode(encoding))
    except UnicodeDecodeError:
        if kind := kind_of_bytes(content):
            raise error(f"{path}: found {kind.value}, expected a UTF-8 text") from None
        raise error(f"{path}: must be a UTF-8 text, found other bytes") from None


def read_text(
    path: Path, error: type[PlannerError], encoding: str = "utf-8", most: int = TEXT_BYTES
) -> str:
    """Return the content of a text file, with line feeds alone at the ends of lines; see
    `read_document`."""
    text = read_document(path, error, encoding, most).text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text, each with its line feed, and hold no more than one of them."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def read_json(
    source: Path | Document, error: type[PlannerError], *, constants: bool = False
) -> Any:
    """Return the content of a JSON file.

    Parameters
    ----------
    error: class of the exception: one line with the file and, if it applies, line and column.
    constants: take NaN and Infinity, written by Python and absent from JSON.
    """
    path, text = (
        source if isinstance(source, Document) else read_document(source, error, most=JSON_BYTES)
    )
    check_values(text, path, error)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=None if constants else _refuse_constant,
            parse_int=whole_number,
        )
        check_parsed(value, path, error)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise error(f"{path}: not valid JSON: half of a surrogate pair, as in \\ud800") from None
    except json.JSONDecodeError as problem:
        kind = kind_of_text(text)
        if kind is not None and kind not in OF_JSON:
            raise error(f"{path}: found {kind.value}, expected JSON") from None
        where = f"line {problem.lineno}, column {problem.colno}"
        raise error(f"{path}: {where}: not valid JSON: {problem.msg}") from None
    except RecursionError:
        raise error(
            f"{path}: found lists and objects more than {NESTING} deep in one another, expected at "
            f"most {NESTING}"
        ) from None
    except PlannerError:
        raise
    except ValueError as problem:
        raise error(f"{path}: not valid JSON: {problem}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with unique keys: of two values one would be read in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for n, key in enumerate(keys) if key in keys[:n])
        raise ValueError(f"found the key {twice!r:.60} twice in one object, expected it once")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON, expected null")


NUMBERS = {bool, int, float}
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder each time


def to_json(value: Any, *, indent: int = 1) -> str:
    """Return JSON text for people: flat and short values stay on one line.

    Numbers that are not finite become null; NumPy's numbers become Python's.
    """
    return _spread(_finite(value), indent, 0) + "\n"


def _finite(value: Any) -> Any:
    if hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [v if type(v) is int else _finite(v) for v in value]  # there may be millions
    return value


def _spread(value: Any, indent: int, depth: int) -> str:
    if not isinstance(value, dict | list) or not value:
        return _encode(value)
    if isinstance(value, list) and {*map(type, value)} <= NUMBERS:
        return _encode(value)  # a row of numbers is easier to read as a row, however long
    items = value.values() if isinstance(value, dict) else value
    if not any(isinstance(v, dict | list) and v for v in items):
        flat = _encode(value)
        if len(flat) + depth * indent <= LINE_WIDTH:
            return flat
    if isinstance(value, dict):
        parts = [f"{_encode(key)}: {_spread(v, indent, depth + 1)}" for key, v in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [_spread(v, indent, depth + 1) for v in value]
        opening, closing = "[", "]"
    pad = "\n" + " " * (indent * (depth + 1))
    return opening + pad + f",{pad}".join(parts) + "\n" + " " * (indent * depth) + closing


def sha256_of(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> str:
    """Return the SHA-256 of a file's content, or of the names and contents of the files of a folder
    with names in `wanted`; an OSError if it cannot be read."""
    digest = hashlib.sha256()
    if not path.is_dir():
        digest.update(path.read_bytes())
        return digest.hexdigest()
    for file in sorted(p for p in path.iterdir() if p.is_file() and wanted(p.name)):
        digest.update(f"{file.name}\n{sha256_of(file)}\n".encode())
    return digest.hexdigest()


# ---- Files that only grow: an addition is there as a whole, or not at all ------------------------


def append(path: Path, handle: int, content: bytes) -> None:
    """Add to a file and see it onto the disk. If the system takes a part alone, as on a full disk,
    that part is cut off again, so that the next addition begins a line.

    Parameters
    ----------
    path: for messages. handle: of the file, opened to append.

    Raises
    ------
    OutputError: the system refuses.
    """
    before, rest = os.fstat(handle).st_size, content
    try:
        while rest:  # mostly once: a kill then leaves a whole line or none
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(handle, before)
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
