"""Memory snapshots: plain pickles are read, others are refused and run nothing."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.formats.logs.base import LogError, Snapshot
from ilp_planner.formats.logs.read import read_log
from ilp_planner.formats.logs.snapshot import read_pickle

SAID = {
    "segments": [
        {
            "device": 0,
            "total_size": 100,
            "blocks": [
                {"size": 60, "state": "active_allocated"},
                {"size": 30, "state": "inactive"},
                {"size": 10, "state": "inactive"},
            ],
        },
        {"device": 1, "total_size": 7, "blocks": []},
    ],
    "device_traces": [[{"action": "segment_alloc"}, {"action": "segment_free"}, {"action": "oom"}]],
}


@pytest.mark.parametrize("name", ["s.pickle", "s.json"])
def test_a_snapshot(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(SAID) if "pickle" in name else json.dumps(SAID).encode())
    found = read_log(path)
    assert isinstance(found, Snapshot)
    assert (found.reserved, found.used, found.largest) == (100, 60, 30)
    assert found.torn == 40
    assert (found.mapped, found.returned, found.ended) == (1, 1, 1)


class Evil:
    """Would make a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_of_anything_else_runs_nothing(tmp_path: Path) -> None:
    path, mark = tmp_path / "evil.pickle", tmp_path / "mark"
    path.write_bytes(pickle.dumps({"segments": [Evil(mark)]}))
    with pytest.raises(LogError, match=r"it names posix.mkdir, .*write it as JSON: python -c"):
        read_log(path)
    assert not mark.exists()


def test_the_repair_works(tmp_path: Path) -> None:
    """The command of the message makes a file that is read."""
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({**SAID, "made": range(3)}))
    with pytest.raises(LogError, match=r"it names builtins\.range") as caught:
        read_log(path)
    command = str(caught.value).partition("write it as JSON: ")[2]
    subprocess.run(
        command.replace("python", sys.executable, 1), shell=True, cwd=tmp_path, check=True
    )
    assert isinstance(read_log(tmp_path / "s.json"), Snapshot)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_pickles_are_refused_in_one_line(noise: bytes, place: int) -> None:
    content = bytearray(pickle.dumps(SAID))
    content[place : place + len(noise)] = noise
    said = ""
    try:
        read_pickle(bytes(content), Path("x.pickle"))
    except LogError as error:
        said = str(error)
    assert "\n" not in said
