"""Counting memory: what the allocator of a CPU does is seen block by block."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.profiler.measure.memory import MemoryTrace
from ilp_planner.profiler.measure.target import Target
from tests.examples import examples

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

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
