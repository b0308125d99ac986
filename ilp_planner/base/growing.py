"""Files that only grow: an addition is there as a whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ilp_planner.base.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


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
