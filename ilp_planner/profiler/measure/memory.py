"""Memory of PyTorch's allocator: at every mark, and the peak before it.

A GPU's allocator counts by itself. A CPU's does not; PyTorch's profiler sees each block that comes
and goes, in order, and the sums are made afterwards.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import _disable_profiler_legacy
from torch.autograd.profiler import record_function
from torch.autograd.profiler_legacy import profile

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.target import Target

MARK = "ilp_planner.mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Bytes above the beginning's: held at a mark, and at most since the mark before."""

    held: float
    peak: float


class MemoryTrace:
    """Context manager; `levels` has one entry per mark when it ends, and one for the end."""

    def __init__(self, target: Target) -> None:
        self.kind = target.kind
        self.levels: list[Level] = []
        self.base = 0.0
        self.profiler: Any = None
        self.collects = False

    def __enter__(self) -> MemoryTrace:
        # Garbage of before must not be given back meanwhile.
        self.collects = gc.isenabled()
        gc.disable()
        if self.kind == "cuda":
            torch.cuda.synchronize()
            self.base = float(torch.cuda.memory_allocated())
            torch.cuda.reset_peak_memory_stats()
        else:
            # The other profiler of PyTorch says the same, and writes on the terminal as well.
            self.profiler = profile(profile_memory=True)
            self.profiler.__enter__()
        return self

    def mark(self) -> None:
        """Begin a new part."""
        if self.kind == "cuda":
            held = float(torch.cuda.memory_allocated())
            peak = float(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()
            self.levels.append(Level(held=held - self.base, peak=peak - self.base))
        else:
            with record_function(MARK):
                pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.collects:
            gc.enable()
        if self.kind == "cuda":
            if kind is None:
                self.mark()
            return
        records = _disable_profiler_legacy()
        self.profiler.enabled = False
        if kind is None:
            self.levels = _levels(max(records, key=len, default=[]))


def _levels(events: Any) -> list[Level]:
    """Return the levels at each mark among the events of the thread that works."""
    held, peak = 0.0, 0.0
    found = []
    for event in events:
        kind = event.kind()
        if kind == "memory_alloc":
            held += event.cpu_memory_usage()
            peak = max(peak, held)
        elif kind == "push" and event.name() == MARK:
            found.append(Level(held=held, peak=peak))
            peak = held
    found.append(Level(held=held, peak=peak))
    return found
