"""Files are whole or not there; errors are one line."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ilp_planner.base.errors import OutputError, PlanError
from ilp_planner.base.files import (
    check_writable,
    existing,
    places,
    read_json,
    sha256_of,
    to_json,
    write_text,
)


def test_writes_a_new_file_with_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_text(path, "new")
    assert path.read_text() == "new"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_replaces_content_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    path.chmod(0o640)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_writes_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_writes_to_a_device_without_replacing_it() -> None:
    write_text(Path(os.devnull), "anything")
    assert not Path(os.devnull).is_file()


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"plan\.json: cannot be written: No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


WRITER = """
import sys
from pathlib import Path
from ilp_planner.base.files import write_text
path, number = Path(sys.argv[1]), 0
while True:
    number += 1
    write_text(path, f"{number}:" + "x" * 200_000 + f":{number}")
"""


def test_a_kill_while_saving_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("0:x:0")
    for attempt in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        time.sleep(0.15 + 0.03 * attempt)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        first, middle, last = path.read_text().split(":")
        assert first == last
        assert set(middle) == {"x"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/plan.json", "no such folder"),
        (".", "is a folder"),
        ("file/plan.json", "no such folder"),
    ],
)
def test_check_writable_refuses(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=message):
        check_writable(tmp_path / name)


def test_check_writable_keeps_inputs(tmp_path: Path) -> None:
    path, other = tmp_path / "plan.json", tmp_path / "other.json"
    check_writable(path, [path])  # not there, so nothing is lost
    path.write_text("{}")
    check_writable(other, [path])
    (tmp_path / "link.json").symlink_to(path)
    for output in (path, tmp_path / "link.json", tmp_path / "." / "plan.json"):
        with pytest.raises(OutputError, match="over the input, expected another file"):
            check_writable(output, [path])


def test_check_writable_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    check_writable(path)
    assert not any(tmp_path.iterdir())
    path.write_text("old")
    check_writable(path)
    assert path.read_text() == "old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_check_writable_meets_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match="not writable"):
            check_writable(tmp_path / "plan.json")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1,}', "line 1, column 9: not valid JSON"),
        (b'{\n "a": }', "line 2, column 7: not valid JSON"),
        (b"", "line 1, column 1: not valid JSON"),
        (b'"\xff"', "must be a UTF-8 text"),
        (b"[NaN]", "NaN is not a number in JSON"),
        (b"[" * 100_000, "more than 64 deep in one another|not valid JSON"),
        (b"[" + b"9" * 5000 + b"]", r"\[0\]: found a number of 5000 digits, expected at most 40"),
        (b'{"a": "\\ud800"}', r"not valid JSON: half of a surrogate pair, as in \\ud800"),
        (b'{"a": "\\uDFFFx"}', "not valid JSON: half of a surrogate pair"),
    ],
)
def test_read_json_refuses_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=message) as caught:
        read_json(path, PlanError)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_name_that_the_system_refuses_is_named_in_one_line(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 5000)
    with pytest.raises(OutputError, match="not writable: File name too long"):
        check_writable(long)
    with pytest.raises(PlanError, match="cannot be read: File name too long"):
        read_json(long, PlanError)


def test_what_the_system_refuses_to_tell_of_counts_only_where_nothing_else_is_there(
    tmp_path: Path,
) -> None:
    file, none, long = tmp_path / "file", tmp_path / "none", tmp_path / ("x" * 5000)
    file.touch()
    assert existing([long, none, file]) == [file]
    assert existing([none, long]) == [long]
    assert existing([none]) == []
    assert existing([tmp_path, file], Path.is_file) == [file]


def test_places_begin_at_home_where_somebody_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places("a", [tmp_path]) == [Path("a"), tmp_path / "a"]
    assert places("~/a", [Path("b")]) == [tmp_path / "a", tmp_path / "a"]
    assert places("~nobody-of-that-name/a") == [Path("~nobody-of-that-name/a")]


def test_read_json_joins_a_surrogate_pair(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text(r'"\ud83d\ude00"')
    assert read_json(path, PlanError) == "\N{GRINNING FACE}"


def test_read_json_names_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no such file"):
        read_json(tmp_path / "none.json", PlanError)
    with pytest.raises(PlanError, match="cannot be read: Is a directory"):
        read_json(tmp_path, PlanError)


def test_json_text_reads_back_and_keeps_what_is_short_on_a_line() -> None:
    value = {
        "a": [{"b": 1, "c": "é"}, {"b": 2, "c": [1, 2]}],
        "long": list(range(100)),
        "empty": [{}, []],
    }
    text = to_json(value)
    assert json.loads(text) == value
    assert '\n  {"b": 1, "c": "é"}' in text
    assert str(list(range(100))) in text


def test_numbers_that_are_none_become_null() -> None:
    value = {"a": math.inf, "b": [math.nan, (1.5, -math.inf)]}
    assert json.loads(to_json(value)) == {"a": None, "b": [None, [1.5, None]]}


def test_numbers_of_numpy_are_written_as_pythons() -> None:
    value = [np.bool_(True), np.int64(3), np.float32(0.5), np.float64("inf"), np.float32("nan")]
    assert json.loads(to_json({"a": value})) == {"a": [True, 3, 0.5, None, None]}


def test_hash_of_a_folder_sees_names_contents_and_only_what_is_wanted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    before = sha256_of(tmp_path)
    only = sha256_of(tmp_path, lambda name: name == "a")
    (tmp_path / "b").write_text("changed")
    assert sha256_of(tmp_path) != before
    assert sha256_of(tmp_path, lambda name: name == "a") == only
    (tmp_path / "a").rename(tmp_path / "c")
    assert sha256_of(tmp_path, lambda name: name in "ac") != only
