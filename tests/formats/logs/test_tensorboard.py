"""Event files, as TensorBoard 2.20 writes them (checked against its own writer by hand)."""

import struct
from pathlib import Path

import pytest

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import RunLog
from ilp_planner.formats.logs.read import read_log
from ilp_planner.formats.logs.tensorboard import _event


def record(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + bytes(4) + content + bytes(4)


def first() -> bytes:
    # wall_time, then file_version, the third field: a text
    version = b"brain.Event:2"
    return record(b"\x09" + struct.pack("<d", 1.0) + b"\x1a" + bytes([len(version)]) + version)


def event(step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    one = _event()(wall_time=100.0 + step, step=step)
    entry = one.summary.value.add(tag=tag)
    if tensor:
        entry.tensor.dtype = 1
        entry.tensor.tensor_content = struct.pack("<f", value)
    else:
        entry.simple_value = value
    return record(one.SerializeToString())


def read(path: Path, content: bytes) -> RunLog:
    path.write_bytes(content)
    found = read_log(path)
    assert isinstance(found, RunLog)
    return found


@pytest.mark.parametrize("tensor", [False, True])
def test_scalars_of_both_kinds(tmp_path: Path, tensor: bool) -> None:
    content = first()
    for step in (1, 2, 3):
        content += event(step, "iteration-time", 0.5, tensor=tensor)
        content += event(step, "lm loss", 3.0)
    found = read(tmp_path / "events.out.tfevents.1", content)
    assert found.title == "TensorBoard's events"
    assert found.seconds.tolist() == [0.5] * 3
    assert found.last(m.LOSS) == 3.0


def test_moments_tell_seconds_where_no_number_does(tmp_path: Path) -> None:
    content = first() + b"".join(event(step, "lm loss", 3.0) for step in (1, 2, 3))
    assert read(tmp_path / "e", content).seconds[1:].tolist() == [1.0, 1.0]


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    whole = first() + b"".join(event(step, "step_time", 0.5) for step in range(1, 5))
    assert len(read(tmp_path / "e", whole[:-9]).steps) == 3
