"""The measured device: its clock, its count of memory, and its failures.

On a GPU an event is recorded at every mark, and nobody waits until all of them are: launches stay
asynchronous, as in training. On a CPU a mark is the time of day.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import _disable_profiler_legacy
from torch.autograd.profiler import record_function
from torch.autograd.profiler_legacy import profile

from ilp_planner.base.errors import MeasureError
from ilp_planner.profiler.measure.machine import describe_machine, device_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# ---- the device ----------------------------------------------------------------------------------


DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
LEAD = 1  # passes of every chain that do not count: the host gets ahead of a GPU
MEMORY_INFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
# What a device that ran out says, where it is not an exception of its own: the allocator of the
# CPU, the libraries of the GPU.
EXHAUSTED = ("out of memory", "can't allocate memory", "ALLOC_FAILED", "not enough memory")
# What says that nothing will run any more in this process.
LOST = ("CUDA error", "CUDA driver error", "NVML", "device-side assert", "device lost")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Device and precision of a measurement.

    kind: `cuda` or `cpu`. name: of the device in the table. dtype: `bf16`, `fp16` or `fp32`.
    """

    kind: str
    name: str
    dtype: str

    @property
    def device(self) -> Any:
        """Return it as PyTorch's device."""
        return torch.device(self.kind)

    @property
    def number(self) -> Any:
        """Return PyTorch's type of parameters and activations."""
        return getattr(torch, DTYPES[self.dtype])

    def mark(self) -> Any:
        """Return a mark in the stream of work."""
        if self.kind == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait until all work is done."""
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def between(self, marks: Sequence[Any]) -> list[float]:
        """Return seconds from each mark to the next; the device must have reached all of them."""
        if self.kind == "cpu":
            return [after - before for before, after in pairwise(marks)]
        return [1e-3 * before.elapsed_time(after) for before, after in pairwise(marks)]

    def passes(
        self, run: Callable[[Callable[[], None]], None], count: int, chain: int
    ) -> Iterator[list[float]]:
        """Yield the seconds between the marks of so many passes, one after the other.

        run: does a pass, and calls its argument at every mark. chain: passes from one waiting
            to the next; of each chain on a GPU, so many first ones do not count.
        """
        lead = LEAD if self.kind == "cuda" else 0
        for done in range(0, count, chain):
            every: list[list[Any]] = []
            for _ in range(lead + min(chain, count - done)):
                every.append([])
                run(partial(_append, every[-1], self))
            self.wait()
            for marks in every[lead:]:
                yield self.between(marks)

    def seconds_of(self, run: Callable[[], object], repeats: int) -> list[float]:
        """Return how long something takes by itself, each time."""
        found = []
        for _ in range(repeats):
            self.wait()
            marks = [self.mark()]
            run()
            marks.append(self.mark())
            self.wait()
            found += self.between(marks)
        return found

    def tidy(self) -> None:
        """Free unused memory, after something large."""
        gc.collect()
        if self.kind == "cuda":
            torch.cuda.empty_cache()

    def free_memory(self) -> float:
        """Return the bytes that a CPU's process can still have; of a GPU, infinity: it says itself
        when it has no more, and an operating system rather ends the process."""
        return free_memory() if self.kind == "cpu" else float("inf")

    def describe(self) -> dict[str, str]:
        """Return the lines that stand above the rows."""
        lines = describe_machine(self.kind) | {"device": self.name, "dtype": self.dtype}
        if self.kind == "cpu":
            lines["threads"] = str(torch.get_num_threads())
        else:
            driver = _driver()
            if driver:
                lines["driver"] = driver
        if self.dtype == "fp32":
            lines["float32 products"] = torch.get_float32_matmul_precision()
        return lines


def open_target(
    kind: str | None = None, dtype: str | None = None, *, precision: str, name: str | None = None
) -> Target:
    """Return the device to measure.

    kind: `cuda` or `cpu`; None: a GPU if there is one. dtype: None: the model's precision, but
        fp32 on a CPU, which computes with nothing else at full speed. name: what the table calls
        the device; None: its own name.

    Raises
    ------
    MeasureError: there is no GPU.
    """
    if kind == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"PyTorch {torch.__version__} is built without CUDA" if built is None else "no GPU"
        hint = (
            "install one built with it (https://pytorch.org/get-started/locally)"
            if built is None
            else "`nvidia-smi` shows whether the driver sees one"
        )
        raise MeasureError(f"`device=cuda`: {why}: {hint}, or measure with `device=cpu`")
    found = kind or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = dtype or (precision if found == "cuda" else "fp32")
    return Target(kind=found, name=name or device_name(found), dtype=chosen)


def ran_out(error: BaseException) -> bool:
    """Tell whether an error of PyTorch says that memory did not suffice."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in EXHAUSTED)


def is_lost(error: BaseException) -> bool:
    """Tell whether an error of PyTorch says that the device does not answer any more."""
    return isinstance(error, RuntimeError) and any(text in str(error) for text in LOST)


def free_memory() -> float:
    """Return the bytes of the machine, or of this process's control group, that are free."""
    free = memory_of_host()
    try:
        limit = int((CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CGROUP / "memory.current").read_text(encoding="ascii"))
        free = min(free, float(max(limit - used, 0)))
    except (OSError, ValueError):  # no control group of the second version, or no limit: "max"
        pass
    return free


def memory_of_host() -> float:
    """Return the bytes that the machine can still give; infinity if it does not say so."""
    try:
        for line in MEMORY_INFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return float("inf")


def _append(marks: list[Any], target: Target) -> None:
    marks.append(target.mark())


def median_spread(values: Sequence[float]) -> float:
    """Return the distance of the quartiles over the median; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (high - low) / middle if middle > 0 else 0.0


def _driver() -> str:
    """Return the version of the GPU's driver, empty if nothing tells it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


# ---- memory of PyTorch's allocator ---------------------------------------------------------------
# At every mark, and the peak before it.
# A GPU's allocator counts by itself. A CPU's does not; PyTorch's profiler sees each block that
# comes and goes, in order, and the sums are made afterwards.


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
