"""The device: chosen, timed, and what its errors mean."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import MeasureError
from ilp_planner.profiler.measure import target as module
from ilp_planner.profiler.measure.target import (
    MemoryTrace,
    Target,
    free_memory,
    is_lost,
    median_spread,
    open_target,
    ran_out,
)
from tests.examples import examples

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


CPU = Target(kind="cpu", name="CPU", dtype="fp32")


def block(size):
    return torch.empty(size, dtype=torch.uint8)


def test_levels_are_those_between_the_marks():
    with MemoryTrace(CPU) as trace:
        first = block(1000)
        trace.mark()
        second = block(4000)
        del second
        trace.mark()
        third = block(500)
    assert [(level.held, level.peak) for level in trace.levels] == [
        (1000, 1000),
        (1000, 5000),
        (1500, 1500),
    ]
    assert max(level.peak for level in trace.levels) == 5000
    del first, third


@examples(12)
@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans(), st.booleans()), max_size=20))
def test_any_sequence_of_blocks(steps):
    held, peak, expected, blocks = 0, 0, [], []
    with MemoryTrace(CPU) as trace:
        for size, frees, marks in steps:
            blocks.append(block(size))
            held += size
            peak = max(peak, held)
            if frees:
                held -= blocks.pop(0).numel()
            if marks:
                trace.mark()
                expected.append((held, peak))
                peak = held
    expected.append((held, peak))
    assert [(level.held, level.peak) for level in trace.levels] == expected


def test_a_gpu_counts_by_itself(monkeypatch):
    """The counters are read at every mark, and the highest begins anew there."""
    state = {"held": 100, "peak": 100}

    def reset():
        state["peak"] = state["held"]

    fake = SimpleNamespace(
        synchronize=lambda: None,
        memory_allocated=lambda: state["held"],
        max_memory_allocated=lambda: state["peak"],
        reset_peak_memory_stats=reset,
    )
    monkeypatch.setattr(torch, "cuda", fake)
    with MemoryTrace(Target(kind="cuda", name="GPU", dtype="bf16")) as trace:
        state.update(held=160, peak=190)
        trace.mark()
        state.update(held=120, peak=170)
    assert [(level.held, level.peak) for level in trace.levels] == [(60, 90), (20, 70)]


def test_an_error_inside_ends_it():
    with pytest.raises(RuntimeError, match="mine"), MemoryTrace(CPU):
        raise RuntimeError("mine")
    with MemoryTrace(CPU) as trace:
        kept = block(10)
    assert trace.levels[-1].held == 10
    del kept


def test_garbage_of_before_is_not_given_back_inside():
    import gc

    circle = [block(100_000)]
    circle.append(circle)
    del circle
    with MemoryTrace(CPU) as trace:
        assert not gc.isenabled()
        kept = [block(10) for _ in range(5)]
    assert gc.isenabled()
    assert trace.levels[-1].held == 50
    del kept
