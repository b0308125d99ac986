"""Files that grow: a line is there as a whole, or not at all."""

import errno
import os
import resource
from pathlib import Path

import pytest

from ilp_planner.base.errors import OutputError
from ilp_planner.base.files import append


@pytest.fixture
def handle(tmp_path: Path):
    """Return an open file that has a line."""
    (tmp_path / "rows").write_bytes(b"first\n")
    handle = os.open(tmp_path / "rows", os.O_WRONLY | os.O_APPEND)
    yield handle
    os.close(handle)


def test_what_is_added_is_there(tmp_path: Path, handle: int) -> None:
    append(tmp_path / "rows", handle, b"second\n")
    append(tmp_path / "rows", handle, b"")
    assert (tmp_path / "rows").read_bytes() == b"first\nsecond\n"


def test_a_system_that_takes_a_part_at_a_time_gets_the_rest(
    tmp_path: Path, handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:3]))
    append(tmp_path / "rows", handle, b"second\n")
    assert (tmp_path / "rows").read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize("room", range(7))
def test_the_part_that_a_full_disk_takes_is_cut_off(tmp_path: Path, handle: int, room: int) -> None:
    """A limit on the size of files lets a part of a write through, as a full disk does."""
    path, (soft, hard) = tmp_path / "rows", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(b"first\n") + room, hard))
    try:
        with pytest.raises(OutputError, match=r"rows: cannot be written: File too large$"):
            append(path, handle, b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"first\n"
    append(path, handle, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_what_never_reached_the_disk_is_cut_off(
    tmp_path: Path, handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match="No space left on device"):
        append(tmp_path / "rows", handle, b"second\n")
    assert (tmp_path / "rows").read_bytes() == b"first\n"
