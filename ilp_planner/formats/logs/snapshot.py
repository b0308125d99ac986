"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): a pickle, or the same as JSON.

A pickle may run any program. This one is of lists, dictionaries, texts and numbers; a reader that
knows no names of anything else reads it, and refuses all others.
"""

from __future__ import annotations

import io
import json
import pickle
from typing import TYPE_CHECKING, Any, NoReturn

from ilp_planner.base.limits import MEMORY
from ilp_planner.base.units import format_bytes
from ilp_planner.formats.logs.base import LogError, Segment, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1 << 27  # bytes of a pickle: ten times as many in memory, and a minute to read
USED = ("active_allocated", "active_awaiting_free", "active_pending_free")
ASKED, RETURNED, ENDED = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap"), "oom"


class _Plain(pickle._Unpickler):
    """Reads plain values alone: whatever a pickle names, it is not imported.

    The reader in Python keeps its memo in a dictionary; that in C reserves whatever memory a few
    bytes of a damaged file ask for.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to data outside of it")


def read_pickle(content: bytes, path: Path) -> Snapshot:
    """Read a snapshot.

    Raises
    ------
    LogError: it names anything but plain values, is too large, cut off, or no snapshot.
    """
    fix = (
        'write it as JSON: python -c "import json, pickle; json.dump(pickle.load(open('
        f"'{path}', 'rb')), open('{path.stem}.json', 'w'), default=str)\""
    )
    if len(content) > MOST:
        raise LogError(
            f"{path}: found a pickle of {format_bytes(len(content))}, expected at most "
            f"{format_bytes(MOST)}; if you trust it, {fix}"
        )
    try:
        said = _Plain(io.BytesIO(content)).load()
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle may raise nearly everything
        raise LogError(
            f"{path}: found a pickle that is not read: {error or type(error).__name__}, expected "
            f"plain lists, dictionaries and numbers; if you trust it, {fix}"
        ) from None
    return _snapshot(said, path)


def read_json(content: bytes, path: Path) -> Snapshot:
    """Read a snapshot that was written as JSON.

    Raises
    ------
    LogError: it is none.
    """
    try:
        return _snapshot(json.loads(content), path)
    except (ValueError, RecursionError) as error:
        if isinstance(error, LogError):
            raise
        raise LogError(f"{path}: cannot be read as JSON: {error}") from None


def _snapshot(said: Any, path: Path) -> Snapshot:
    segments = said.get("segments") if isinstance(said, dict) else None
    if not isinstance(segments, list):
        raise LogError(
            f"{path}: found no segments, expected what torch.cuda.memory._dump_snapshot writes"
        )
    try:
        of_device = min((int(one.get("device", 0)) for one in segments), default=0)
        own = [one for one in segments if int(one.get("device", 0)) == of_device]
        found = tuple(_segment(one) for one in own)
        traces = said.get("device_traces") or [[]]
        actions = [one.get("action") for one in traces[min(of_device, len(traces) - 1)]]
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise LogError(f"{path}: segments: found another form: {error!r}") from None
    return Snapshot(
        source=str(path),
        segments=found,
        mapped=sum(action in ASKED for action in actions),
        returned=sum(action in RETURNED for action in actions),
        ended=actions.count(ENDED),
    )


def _segment(said: dict[str, Any]) -> Segment:
    blocks = said["blocks"]
    if not 0 <= said["total_size"] <= MEMORY or any(one["size"] > MEMORY for one in blocks):
        raise ValueError("sizes that no GPU has")
    used = sum(int(one["size"]) for one in blocks if one["state"] in USED)
    free = max((int(one["size"]) for one in blocks if one["state"] not in USED), default=0)
    return Segment(int(said["total_size"]), used, free, bool(said.get("is_expandable", False)))
