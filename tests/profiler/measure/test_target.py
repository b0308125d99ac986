"""The device: chosen, timed, and what its errors mean."""

from types import SimpleNamespace

import pytest

from ilp_planner.base.errors import MeasureError
from ilp_planner.profiler.measure import target as module
from ilp_planner.profiler.measure.target import (
    Target,
    free_memory,
    is_lost,
    median_spread,
    open_target,
    ran_out,
)

torch = pytest.importorskip("torch", reason="needs the extra [torch]")


def test_a_cpu_computes_in_single_precision_unless_asked():
    assert open_target("cpu", precision="bf16").dtype == "fp32"
    assert open_target("cpu", "bf16", precision="fp32").dtype == "bf16"
    assert open_target("cpu", precision="bf16", name="EPYC").name == "EPYC"


def test_no_gpu_says_what_would_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(MeasureError, match=r"built without CUDA: install one .*`device=cpu`"):
        open_target("cuda", precision="bf16")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(MeasureError, match=r"`device=cuda`: no GPU: `nvidia-smi`.*`device=cpu`"):
        open_target("cuda", precision="bf16")
    assert open_target(None, precision="bf16").kind == "cpu"


def test_events_are_read_after_all_of_them(monkeypatch):
    """On a GPU, marks are events of milliseconds; nothing waits between them."""
    waited = []

    class Event:
        now = 0.0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            Event.now += 5.0
            self.at = Event.now

        def elapsed_time(self, other):
            assert waited, "the device may not have reached the event"
            return other.at - self.at

    fake = SimpleNamespace(Event=Event, synchronize=lambda: waited.append(True))
    monkeypatch.setattr(torch, "cuda", fake)
    gpu = Target(kind="cuda", name="GPU", dtype="bf16")
    marks = [gpu.mark() for _ in range(3)]
    gpu.wait()
    assert gpu.between(marks) == pytest.approx([5e-3, 5e-3])


@pytest.mark.parametrize(
    ("error", "out", "lost"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True, False),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True, 1),
        (RuntimeError("CUDA error: unspecified launch failure"), False, True),
        (RuntimeError("CUDA error: device lost"), False, True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, False),
        (MemoryError(), True, False),
        (ValueError("out of memory"), False, False),
    ],
)
def test_what_errors_mean(error, out, lost):
    """Out of memory is asked first: it may be a CUDA error as well."""
    assert (ran_out(error), is_lost(error)) == (out, bool(lost))


def test_free_memory_is_that_of_the_control_group(tmp_path, monkeypatch):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 2000 kB\nMemAvailable:    1000 kB\n")
    monkeypatch.setattr(module, "MEMORY_INFO", info)
    monkeypatch.setattr(module, "CGROUP", tmp_path)
    assert free_memory() == 1000 * 1024
    (tmp_path / "memory.max").write_text("700000\n")
    (tmp_path / "memory.current").write_text("100000\n")
    assert free_memory() == 600000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() == 1000 * 1024
    monkeypatch.setattr(module, "MEMORY_INFO", tmp_path / "none")
    assert free_memory() == float("inf")


def test_spread_is_the_distance_of_the_quartiles():
    assert median_spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert median_spread([1.0]) == 0.0
