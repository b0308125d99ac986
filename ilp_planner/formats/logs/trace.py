"""Traces of PyTorch's profiler (Kineto) of one rank: seconds of kernels, messages and waits.

Events are read one after the other, so that a trace of a run that was killed is read up to there.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.formats.logs.base import LogError, Message, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MICRO = 1e-6
LONGEST = 1e13  # seconds, since 1970 perhaps
GAP = 1e-3  # seconds of a pause between kernels that a slow host may leave, at most
BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
NEXT = re.compile(r"[\s,]*")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
LOADER = "enumerate(DataLoader)"  # begins the name of getting a batch
STEP = re.compile(r"ProfilerStep#\d+$")
NCCL = re.compile(r"nccl|rccl", re.IGNORECASE)
PAIRED = re.compile(r"SendRecv|_Send|_Recv|^(send|recv)", re.IGNORECASE)
KINDS = (
    ("AllReduce", "all-reduce"), ("ReduceScatter", "reduce-scatter"), ("AllGather", "all-gather"),
    ("SendRecv", "send and receive"), ("Send", "send and receive"), ("Recv", "send and receive"),
    ("AllToAll", "all-to-all"), ("Broadcast", "broadcast"),
)  # fmt: skip
MEMORY_CALLS = re.compile(r"(cuda|hip)(Malloc|Free)(Async|Retry)?$|cuMem(Create|Map|Unmap|Release)")
ATTENTION = re.compile(r"flash|fmha|attn|attention", re.IGNORECASE)
BACKWARD = re.compile(r"bwd|backward|grad|_dq|dkv", re.IGNORECASE)
SIZES = {"Float": 4, "BFloat16": 2, "Half": 2, "Byte": 1, "Char": 1, "Long": 8, "Int": 4,
         "Double": 8, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Bool": 1}  # fmt: skip


def events_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace, up to the first that is not whole."""
    begin = BEGIN.search(text)
    if begin is None:
        begin = re.match(r"\s*\[", text)
    decode, place = json.JSONDecoder().raw_decode, begin.end() if begin else len(text)
    while True:
        match = NEXT.match(text, place)
        assert match is not None
        place = match.end()
        if place >= len(text) or text[place] != "{":
            return
        try:
            event, place = decode(text, place)
        except (ValueError, RecursionError):
            return
        yield event


def read_trace(text: str, path: Path) -> Trace:
    """Read a trace.

    Raises
    ------
    LogError: it has no kernels of a GPU, or is of something else.
    """
    kernels: list[tuple[float, float, str, dict[str, Any]]] = []
    steps: dict[str, tuple[float, float]] = {}
    launched: dict[object, float] = {}
    calls: list[tuple[float, float]] = []
    loads: list[tuple[float, float]] = []
    total = 0
    for event in events_of(text):
        if event.get("ph") != "X":
            continue
        try:
            start, length = float(event["ts"]) * MICRO, float(event["dur"]) * MICRO
            kind, name, about = event.get("cat", ""), str(event["name"]), event.get("args") or {}
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if not (abs(start) < LONGEST and 0 <= length < LONGEST and isinstance(about, dict)):
            continue
        total += 1
        if kind in GPU:
            kernels.append((start, start + length, name if kind == "kernel" else kind, about))
        elif kind in LAUNCHES:
            if MEMORY_CALLS.search(name):
                calls.append((start, start + length))
            if (number := about.get("correlation")) is not None:
                launched[number] = start
        elif name.startswith(LOADER):
            loads.append((start, start + length))
        elif STEP.fullmatch(name) and kind != "gpu_user_annotation":
            steps[name] = (start, start + length)
    if not total:
        raise LogError(f"{path}: found no events, expected a trace of torch.profiler")
    if not kernels:
        raise LogError(
            f"{path}: found a trace without CUDA activities, expected kernels: record it with "
            "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
        )
    host = _Host(launched, calls, sorted(loads))
    return _trace(sorted(kernels, key=lambda one: one[:2]), steps, host, path)


class _Host(NamedTuple):
    """Rows of the host: when kernels were launched, by their correlation; calls that ask for memory
    or give it back, and those that get a batch."""

    launched: dict[object, float]
    calls: list[tuple[float, float]]
    loads: list[tuple[float, float]]


def _trace(
    kernels: Sequence[tuple[float, float, str, dict[str, Any]]],
    steps: dict[str, tuple[float, float]],
    host: _Host,
    path: Path,
) -> Trace:
    notes = []
    spans = sorted(steps.values())
    begins, ends = [b for b, _ in spans], [e for _, e in spans]
    whole = (min(one[0] for one in kernels), max(one[1] for one in kernels))
    if len(spans) > 1:
        # A step of the host ends before the GPU's: from begin to begin, all of it is in it.
        seconds = np.diff(np.array([*begins, ends[-1]]))
        whole = (begins[0], ends[-1])
    else:
        notes.append("it marks no steps (schedule and step() of the profiler do): taken as one")
        seconds = np.array([whole[1] - whole[0]])
    inside = [one for one in kernels if whole[0] <= one[0] < whole[1]]
    if not inside:
        raise LogError(f"{path}: found no kernel in its {len(spans)} steps, expected some in each")
    count = len(seconds)
    start = np.array([one[0] for one in inside])
    end = np.array([one[1] for one in inside])
    message = np.array([bool(NCCL.search(one[2])) for one in inside])
    paired = np.array([bool(NCCL.search(one[2]) and PAIRED.search(_sent(one))) for one in inside])
    copy = np.array([one[2] in GPU for one in inside])

    def together(chosen: NDArray[np.bool_]) -> float:
        return _length(_union(start[chosen], end[chosen]))

    every = _union(start, end)
    busy = _length(every)
    # When the kernel that ends a pause was launched: after its begin, and the host was late.
    asked = np.array([host.launched.get(one[3].get("correlation"), np.inf) for one in inside])
    pauses = _pauses(every, whole)
    following = np.searchsorted(start, pauses[:, 1], side="left").clip(max=len(start) - 1)
    seconds_of = pauses[:, 1] - pauses[:, 0]
    long = seconds_of > GAP
    late = ~long & (asked[following] >= pauses[:, 0])
    calls_of = Counter(one[2] for one in inside if ATTENTION.search(one[2]))
    back = max((n for name, n in calls_of.items() if BACKWARD.search(name)), default=0)
    there = max((n for name, n in calls_of.items() if not BACKWARD.search(name)), default=0)
    names: dict[str, float] = defaultdict(float)
    for begin, stop, name, _ in inside:
        names[name] += (stop - begin) / count
    shown = sorted(names.items(), key=lambda item: -item[1])[:50]
    return Trace(
        source=str(path),
        steps=seconds,
        compute=together(~message & ~copy) / count,
        collectives=together(message & ~paired) / count,
        exposed=(together(~paired) - together(~message)) / count,
        waits=(busy - together(~paired)) / count,
        copies=together(copy) / count,
        idle=(whole[1] - whole[0] - busy) / count,
        gaps=float(seconds_of[late].sum()) / count,
        pauses=float(seconds_of[long].sum()) / count,
        loading=_common(pauses[long], host.loads) / count if host.loads else float("nan"),
        kernels=len(inside) / count,
        allocation=sum(e - b for b, e in host.calls if whole[0] <= b < whole[1]) / count,
        attention=(there / count, back / count),
        kinds=_messages([one for one in inside if NCCL.search(one[2])], count),
        names=dict(shown),
        notes=tuple(notes),
    )


def _sent(kernel: tuple[float, float, str, dict[str, Any]]) -> str:
    """Return the name of a message: an all-to-all runs as sends and receives."""
    return str(kernel[3].get("Collective name", kernel[2]))


def _union(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return intervals that do not touch, [n, 2]; starts are sorted."""
    if not len(start):
        return np.zeros((0, 2))
    last = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > last[:-1]))
    stops = np.concatenate((last[np.flatnonzero(first)[1:] - 1], last[-1:]))
    return np.stack((start[first], stops), axis=1)


def _common(pauses: NDArray[np.float64], loads: Sequence[tuple[float, float]]) -> float:
    """Return the seconds of pauses in which batches are got."""
    found = 0.0
    for begin, end in _union(*np.array(loads).T):
        found += float(
            np.clip(np.minimum(pauses[:, 1], end) - np.maximum(pauses[:, 0], begin), 0, None).sum()
        )
    return found


def _length(intervals: NDArray[np.float64]) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def _pauses(busy: NDArray[np.float64], whole: tuple[float, float]) -> NDArray[np.float64]:
    """Return every pause between kernels, [n, 2], of the begin and the end too."""
    edges = np.concatenate(([whole[0]], busy.ravel(), [whole[1]])).reshape(-1, 2)
    return np.asarray(edges[edges[:, 1] > edges[:, 0]], np.float64).reshape(-1, 2)


def _messages(
    sent: Sequence[tuple[float, float, str, dict[str, Any]]], count: int
) -> tuple[Message, ...]:
    """Return the messages of a step by kind and number of ranks."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for one in sent:
        begin, end, _, about = one
        said = _sent(one).replace("_", "").casefold()
        kind = next((ours for word, ours in KINDS if word.casefold() in said), "others")
        try:
            items = max(int(about.get("In msg nelems", 0)), int(about.get("Out msg nelems", 0)))
            size = float(items * SIZES.get(str(about.get("dtype", "")), 0))
            ranks = int(about.get("Group size", 0))
        except (TypeError, ValueError, OverflowError):
            size, ranks = 0.0, 0
        found[kind, ranks].append((end - begin, size))
    return tuple(
        Message(
            kind,
            len(calls),
            sum(seconds for seconds, _ in calls) / count,
            sum(size for _, size in calls) / count,
            ranks,
        )
        for (kind, ranks), calls in sorted(found.items())
    )
