"""Full disks: whatever is written, and wherever it stops, there is the old file or the new one."""

import errno
import json
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import OutputError
from ilp_planner.base.files import write_bytes
from ilp_planner.costs.profiles.measurements import read_measurements
from ilp_planner.faces.sweeps.journal import Journal as Points
from ilp_planner.faces.sweeps.sweep import JOURNAL
from ilp_planner.profiler.measure.journal import Journal as Rows
from ilp_planner.profiler.measure.journal import begun
from tests.faces.cli.conftest import Done
from tests.faults.commands import Calibrate

OLD, NEW = b"what was there before\n", b"what is written\n" * 99
MACHINE = {"device": "one", "model": "small", "dtype": "fp32"}


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: what is written up to there is, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    """Return the files of a folder."""
    return sorted(path.name for path in folder.iterdir())


def full_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the call of this number, of those that need room on a disk, find none; return a list of
    the calls that are made."""
    calls: list[str] = []

    def failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return call

    real = os.fdopen

    def opened(*arguments: Any) -> Any:
        file = real(*arguments)
        writer = type(
            "Writer",
            (),
            {
                "__enter__": lambda self: self,
                "__exit__": lambda self, *error: file.close(),
                "write": staticmethod(failing("write", file.write)),
                "flush": staticmethod(failing("flush", file.flush)),
                "fileno": staticmethod(file.fileno),
            },
        )
        return writer()

    patch.setattr(os, "fdopen", opened)
    patch.setattr(os, "fsync", failing("fsync", os.fsync))
    patch.setattr(tempfile, "mkstemp", failing("mkstemp", tempfile.mkstemp))
    for name in ("chmod", "replace"):
        patch.setattr(Path, name, failing(name, getattr(Path, name)))
    return calls


def test_a_disk_that_is_full_at_any_call_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for number in count(1):
        path.write_bytes(OLD)
        with pytest.MonkeyPatch.context() as patch:
            calls = full_at(patch, number)
            try:
                write_bytes(path, NEW)
                message = ""
            except OutputError as error:
                message = str(error)
        found = path.read_bytes()
        assert names(tmp_path) == ["plan.json"], calls
        if message:
            assert message == f"{path}: cannot be written: No space left on device"
            assert found == OLD, calls
        else:
            assert found == NEW, calls
        if len(calls) < number:
            break
    assert calls == ["mkstemp", "write", "flush", "fsync", "chmod", "replace", "fsync"]


@pytest.fixture
def runs(folder: Path) -> None:
    """Write what `calibrate` reads."""
    Calibrate().prepare(folder)


@pytest.mark.usefixtures("saved", "runs")
@pytest.mark.parametrize(
    "words",
    [
        ("solve", "tiny.toml", "pair.toml", "--space", "operators", "--output"),
        ("show", "plan.json", "--trace"),
        pytest.param(("show", "plan.json", "--html"), marks=pytest.mark.slow),
        pytest.param(("show", "plan.json", "--png"), marks=pytest.mark.slow),
        pytest.param(
            ("calibrate", "runs.csv", "--cluster", "mine.toml", "--output"), marks=pytest.mark.slow
        ),
    ],
)
def test_commands_on_a_full_disk_leave_the_old_file(
    folder: Path, ilp_plan: Callable[..., Done], words: tuple[str, ...]
) -> None:
    output = folder / ("new.png" if words[-1] == "--png" else "new.json")
    assert ilp_plan(*words, output.name).code == 0
    whole = output.stat().st_size
    before = names(folder)
    for room in (0, whole // 2, whole - 1):
        output.write_bytes(OLD)
        with room_for(room):
            done = ilp_plan(*words, output.name)
        assert done.code == 1
        assert done.err == f"ilp-plan: {output.name}: cannot be written: File too large\n"
        assert output.read_bytes() == OLD
        assert names(folder) == before
    assert ilp_plan(*words, output.name).code == 0
    assert output.stat().st_size == whole


def added(add: Callable[[dict[str, Any]], None], rows: list[dict[str, Any]], room: int) -> int:
    """Add rows until there is no more room; return how many were taken."""
    with room_for(room):
        for taken, row in enumerate(rows):
            try:
                add(row)
            except OutputError:
                return taken
    return len(rows)


def test_a_journal_of_points_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    rows = [
        {"key": f"key {n}", "status": "optimal", "values": {"pp": str(n)}, "step_s": n / 7}
        for n in range(3)
    ]
    path = tmp_path / "s.csv.jsonl"
    about = {"model": "tiny"}
    Points(path, about, JOURNAL).close()
    head = path.stat().st_size
    most = head + sum(len(json.dumps(row)) + 1 for row in rows)
    for room in range(head, most, 11):
        path.unlink()
        journal = Points(path, about, JOURNAL)
        taken = added(lambda row: journal.add([row]), rows, room)  # noqa: B023
        assert path.read_bytes().endswith(b"\n")
        journal.add([rows[-1]])  # there is room again, and nobody has begun anew
        journal.close()
        again = Points(path, about, JOURNAL)
        assert list(again.rows) == list(dict.fromkeys(f"key {n}" for n in (*range(taken), 2)))
        again.close()


def test_a_table_of_rows_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    rows = [
        {"record": "layer", "layers": str(n), "tp": 1, "micro_batch": 1, "time_s": (n + 1) / 7}
        for n in range(3)
    ]

    def fresh() -> Rows:
        path.unlink(missing_ok=True)
        return Rows(path, MACHINE)

    assert added(fresh().add, rows, 10**6) == 3
    most = path.stat().st_size
    line = (most - path.read_bytes().index(b"layer,")) // 3
    for room in range(most - 1, 0, -line // 2):
        taken = added(fresh().add, rows, room)
        assert path.exists() == (taken > 0)
        known = begun(path, MACHINE)
        assert len(known) == taken
        journal = Rows(path, MACHINE, append=bool(known))
        for row in rows[taken:]:
            journal.add(row)
        journal.close()
        assert list(read_measurements(path).frame["layers"]) == ["0", "1", "2"]
    assert names(tmp_path) == ["p.csv"]
