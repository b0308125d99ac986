"""Traces of one rank: kernels, messages and waits, by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.formats.logs.base import LogError, Trace
from ilp_planner.formats.logs.read import read_log


def kernel(name: str, start: float, length: float, **about: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": about}


def step(number: int, start: float, length: float) -> dict[str, Any]:
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": length}


# Two steps of 10 ms: 4 ms of products, of which 1 ms beside a message of 3 ms, a receive of 1 ms,
# a copy of half one, and 2.5 ms of nothing, in pieces of 0.5 ms and 2 ms.
STEP = (
    ("gemm", 0, 3000), ("flash_fwd", 3000, 1000), ("ncclDevKernel_AllReduce_Sum", 3000, 3000),
    ("ncclDevKernel_SendRecv", 6000, 1000), ("ncclDevKernel_Broadcast", 7500, 0),
)  # fmt: skip
SENT = {"Collective name": "allreduce", "In msg nelems": 500, "dtype": "BFloat16", "Group size": 4}


def trace() -> list[dict[str, Any]]:
    events = []
    for number in range(2):
        at = 10_000 * number
        events += [step(number, at, 10_000)]
        events += [
            kernel(name, at + start, length, **(SENT if "AllReduce" in name else {}))
            for name, start, length in STEP
            if length
        ]
        events.append({**kernel("Memcpy HtoD", at + 7500, 500), "cat": "gpu_memcpy"})
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "ts": at + 10, "dur": 40}
        )
    return events


def read(path: Path, text: str) -> Trace:
    path.write_text(text)
    found = read_log(path)
    assert isinstance(found, Trace)
    return found


def test_parts_of_a_step(tmp_path: Path) -> None:
    found = read(tmp_path / "t.json", json.dumps({"schemaVersion": 1, "traceEvents": trace()}))
    assert found.steps.tolist() == pytest.approx([0.01, 0.01])
    assert found.compute == pytest.approx(0.004)
    assert found.collectives == pytest.approx(0.003)
    assert found.exposed == pytest.approx(0.002)
    assert found.waits == pytest.approx(0.001)
    assert found.copies == pytest.approx(0.0005)
    assert found.idle == pytest.approx(0.0025)
    assert found.gaps == pytest.approx(0.0005)
    assert found.pauses == pytest.approx(0.002)
    assert found.allocation == pytest.approx(4e-5)
    assert found.attention == (1, 0)
    one = next(one for one in found.kinds if one.name == "all-reduce")
    assert (one.calls, one.ranks) == (2, 4)
    assert one.size == 1000
    assert one.seconds == pytest.approx(0.003)


@pytest.mark.parametrize(("ahead", "gaps"), [(9e6, 0.0), (100.0, 0.0005)])
def test_gaps_are_those_of_a_late_host(tmp_path: Path, ahead: float, gaps: float) -> None:
    """A kernel that was launched long before its begin waited for something else."""
    events = trace()
    for number, event in enumerate(events):
        if event["cat"] in ("kernel", "gpu_memcpy"):
            event["args"] = {**event["args"], "correlation": number}
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5, "ph": "X"}
            events = [*events, {**launch, "ts": event["ts"] - ahead, "args": event["args"]}]
    found = read(tmp_path / "t.json", json.dumps({"traceEvents": events}))
    assert found.gaps == pytest.approx(gaps)


def test_pauses_in_which_the_loader_gets_a_batch(tmp_path: Path) -> None:
    loader = {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_Iter.__next__"}
    events = [*trace(), {**loader, "ts": 8500, "dur": 1000}, {**loader, "ts": 0, "dur": 500}]
    found = read(tmp_path / "t.json", json.dumps({"traceEvents": events}))
    assert found.loading == pytest.approx(0.0005)
    assert found.pauses == pytest.approx(0.002)


def test_an_all_to_all_of_sends_is_a_collective(tmp_path: Path) -> None:
    sent = {**SENT, "Collective name": "all_to_allv"}
    events = [step(0, 0, 9000), step(1, 9000, 9000), kernel("gemm", 100, 10)]
    events.append(kernel("ncclDevKernel_SendRecv", 1000, 2000, **sent))
    found = read(tmp_path / "t.json", json.dumps({"traceEvents": events}))
    assert [one.name for one in found.kinds] == ["all-to-all"]
    assert found.waits == 0
    assert found.collectives == pytest.approx(0.001)


def test_a_trace_of_a_killed_run_is_read_up_to_there(tmp_path: Path) -> None:
    text = json.dumps({"schemaVersion": 1, "traceEvents": trace()}, indent=1)
    found = read(tmp_path / "t.json", text[:-300])
    assert found.compute == pytest.approx(0.004)


def test_a_packed_trace_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    whole = gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": trace() * 40}).encode())
    path.write_bytes(whole[:-20])
    found = read_log(path)
    assert isinstance(found, Trace)
    assert any("cut off" in note for note in found.notes)
    path.write_bytes(whole)
    found = read_log(path)
    assert isinstance(found, Trace)
    assert not any("cut off" in note for note in found.notes)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([step(0, 0, 5)], "without CUDA activities, .*ProfilerActivity.CUDA"),
        ([], "found no events"),
        ([{"ph": "i"}, 5, None], "found no events"),
    ],
)
def test_what_is_no_trace_of_a_gpu(tmp_path: Path, events: list[Any], says: str) -> None:
    with pytest.raises(LogError, match=says):
        read(tmp_path / "t.json", json.dumps({"traceEvents": events}))


def test_without_steps_all_is_one(tmp_path: Path) -> None:
    found = read(tmp_path / "t.json", json.dumps({"traceEvents": trace()[1:5]}))
    assert len(found.steps) == 1
    assert "marks no steps" in found.notes[0]
