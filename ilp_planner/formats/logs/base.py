"""The content of a log of a training run: numbers of every step, by names of one kind."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]


class LogError(PlannerError, ValueError):
    """A log that cannot be read, or that says nothing of a run."""


class Record(NamedTuple):
    """What a log says of one step.

    step: its number. values: by the names of `metrics`. place: line, row or entry of the file, from
    1. rank: of the process that wrote it, empty where lines do not say it. mean: the values are
    means over the steps since the record before.
    """

    step: int
    values: dict[str, float]
    place: int = 0
    rank: str = ""
    mean: bool = False


class Range(NamedTuple):
    """Seconds of a timer in every step, of the fastest and the slowest rank; [n], nan where a step
    has none."""

    least: Numbers
    most: Numbers


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The log of one run.

    title: of its format. steps: numbers of the steps, [n], ascending. seconds: of each step, [n],
    nan where the log tells none. weights: steps that each record is the mean of, [n]. series:
    numbers of each step, by names of `metrics`, [n]. timers: by names of the training system.
    slowest: rank with the longest time of a timer in each record, by timer. said: settings that the
    log prints, by the training system's own keys. saved: steps after which it speaks of saving a
    checkpoint. times: how the seconds are known, in words. notes: on what was read.
    """

    source: str
    title: str
    steps: NDArray[np.int64]
    seconds: Numbers
    weights: Numbers
    series: Mapping[str, Numbers] = field(default_factory=dict)
    timers: Mapping[str, Range] = field(default_factory=dict)
    slowest: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    saved: tuple[int, ...] = ()
    times: str = ""
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Steps whose seconds are known."""
        return int(self.weights[np.isfinite(self.seconds)].sum())

    def last(self, name: str) -> float | None:
        """Return the median of a series; None if the log has none."""
        values = self.series.get(name)
        if values is None or not np.isfinite(values).any():
            return None
        found = float(np.nanmedian(values))
        return found if math.isfinite(found) else None


class Segment(NamedTuple):
    """Bytes of one segment of the caching allocator: reserved, of blocks in use, of its largest
    free block. growing: it can be extended (expandable segments)."""

    size: int
    used: int
    free: int
    growing: bool = False


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A memory snapshot of PyTorch's allocator.

    segments: of one GPU. mapped: how often memory was asked of the driver while it was recorded,
    returned: how often it was given back. ended: entries of running out of memory.
    """

    source: str
    segments: tuple[Segment, ...]
    mapped: int = 0
    returned: int = 0
    ended: int = 0

    @property
    def reserved(self) -> int:
        """Bytes that PyTorch holds."""
        return sum(one.size for one in self.segments)

    @property
    def used(self) -> int:
        """Bytes of blocks in use."""
        return sum(one.used for one in self.segments)

    @property
    def torn(self) -> int:
        """Free bytes in segments that are in use in part: whole free ones are given to whoever
        asks next, and growing ones are no segments of the device."""
        return sum(one.size - one.used for one in self.segments if one.used and not one.growing)

    @property
    def largest(self) -> int:
        """Bytes of the largest free block."""
        return max((one.free for one in self.segments), default=0)


class Message(NamedTuple):
    """A kind of collective in a trace: number of calls, their seconds, bytes and ranks. Bytes: of
    one call, 0 if the trace does not say them."""

    name: str
    calls: int
    seconds: float
    size: float = 0.0
    ranks: int = 0


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace of the GPU of one rank, seconds per step in the mean of its steps.

    steps: seconds of each step, [n]. compute: kernels that are no messages. collectives: while one
    runs, of which `exposed`: and no other kernel. waits: a send or a receive alone runs, which
    waits for other pipeline ranks. copies: from and to the host. idle: no kernel runs, of which in
    `gaps`, short ones, the host had not launched the next kernel yet; `pauses`: long ones, of which
    `loading` while torch's loader gets a batch, nan: the trace does not say. kernels: their number.
    allocation: of calls that ask memory of the driver, or give it back. attention: calls of the
    most frequent kernel of attention in forward and in backward passes. kinds: of messages. names:
    seconds of the longest kernels. notes: on what was read.
    """

    source: str
    steps: Numbers
    compute: float
    collectives: float
    exposed: float
    waits: float
    copies: float
    idle: float
    gaps: float
    pauses: float
    loading: float
    kernels: float
    allocation: float
    attention: tuple[float, float]
    kinds: tuple[Message, ...] = ()
    names: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
