"""From records of a file to the log of one run: ranks, restarts, seconds of steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, Range, Record, RunLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

LATE = 2  # records by which lines of ranks that write into one file come late at most
NEEDED = 2  # steps below which nothing is said of a run


@dataclass(kw_only=True)
class Found:
    """What a reader has found in a file.

    title: of the format. records: in the file's order. timers: of each record by its number,
    seconds of the fastest and the slowest rank. said, saved: as in `RunLog`. unit: of places.
    alone: the records are of one run, which was chosen already. without: rows that say no step.
    """

    title: str = ""
    records: list[Record] = field(default_factory=list)
    timers: dict[int, dict[str, tuple[float, float, int]]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    saved: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unit: str = "line"
    alone: bool = False
    without: int = 0


def log_of(found: Found, path: Path, run: int | None) -> RunLog:
    """Return the log of a file's only run, or of the run of that number, from 1.

    Raises
    ------
    LogError: there are no steps, or one alone; several runs, or fewer than `run`.
    """
    records, notes = found.records, list(found.notes)
    numbered = _of_one_rank(list(enumerate(records)), notes)
    parts = _parts(numbered)
    chosen = _chosen(parts, found, path, None if found.alone else run, notes)
    if not chosen and found.without:
        raise LogError(
            f"{path}: found {found.without:,} rows that say no step, expected a column or "
            "key step, iteration or _step"
        )
    if not chosen:
        raise LogError(
            f"{path}: found no step in {found.title or 'it'}, expected a log with the seconds of "
            "steps, or with the time at which each ended"
        )
    if len(chosen) < NEEDED:
        raise LogError(
            f"{path}: found one step alone ({found.unit} {chosen[0][1].place}), expected at least "
            f"{NEEDED}: the first one of a run is no measure of the others; let it run for 20"
        )
    return _arrays([number for number, _ in chosen], [one for _, one in chosen], found, path, notes)


Numbered = list[tuple[int, Record]]


def _of_one_rank(numbered: Numbered, notes: list[str]) -> Numbered:
    """Return the records of the rank that wrote most of them, where lines say their rank."""
    ranks = Counter(record.rank for _, record in numbered)
    if len(ranks) < 2:
        return numbered
    (rank, _), *_ = sorted(ranks.items(), key=lambda item: (-item[1], item[0]))
    notes.append(f"{len(ranks)} ranks wrote steps: those of {rank or 'lines without a rank'} count")
    return [(number, record) for number, record in numbered if record.rank == rank]


def _parts(numbered: Numbered) -> list[Numbered]:
    """Divide records where the steps begin again. Lines of a step that another rank has said, or
    that come a little late, are left out."""
    parts: list[Numbered] = []
    seen: set[int] = set()
    recent: list[int] = []
    for number, record in numbered:
        late = recent and record.step <= max(recent[-LATE:])
        if late and record.step in seen and record.step >= min(recent[-LATE:]):
            continue
        if not parts or (recent and record.step <= recent[-1]):
            parts.append([])
            seen, recent = set(), []
        parts[-1].append((number, record))
        seen.add(record.step)
        recent.append(record.step)
    return parts


def _chosen(
    parts: list[Numbered], found: Found, path: Path, run: int | None, notes: list[str]
) -> Numbered:
    """Return the records of one run, with those of its restarts from a checkpoint."""
    runs: list[Numbered] = []
    for part in parts:
        first = part[0][1].step
        began = runs[-1][0][1].step if runs else first
        if not runs or first <= began:
            runs.append(part)
            continue
        kept = [one for one in runs[-1] if one[1].step < first]
        lost = len(runs[-1]) - len(kept)
        notes.append(
            f"the run began again at step {first} ({found.unit} {part[0][1].place}); {lost} "
            f"record{'s' * (lost != 1)} before it count as lost"
        )
        runs[-1] = kept + part
    if run is not None and run > len(runs):
        raise LogError(
            f"{path}: `run_number`: found {run}, expected at most {len(runs)}: it has no more"
        )
    if run is None and len(runs) > 1:
        begins = [f"steps {one[0][1].step} to {one[-1][1].step} from {found.unit} {one[0][1].place}"
                  for one in runs]  # fmt: skip
        raise LogError(
            f"{path}: found {len(runs)} runs in one file ({'; '.join(begins[:4])}), expected one: "
            f"`run_number={len(runs)}` takes the last one"
        )
    return runs[(run or 1) - 1] if runs else []


def _arrays(
    numbers: Sequence[int], records: Sequence[Record], found: Found, path: Path, notes: list[str]
) -> RunLog:
    steps = np.array([record.step for record in records], np.int64)
    names = dict.fromkeys(name for record in records for name in record.values)
    series = {
        name: np.array([record.values.get(name, np.nan) for record in records]) for name in names
    }
    apart = np.diff(steps, prepend=steps[0] - (steps[1] - steps[0])).astype(np.float64)
    weights = apart if any(record.mean for record in records) else np.ones(len(records))
    if records[0].mean and steps[0] < apart[0]:  # as step 1 of systems that print every tenth
        weights[0] = max(1, steps[0])
    seconds, weights, times = _seconds(series, apart, weights)
    timers = [found.timers.get(number, {}) for number in numbers]
    keys = dict.fromkeys(name for one in timers for name in one)
    nothing = (np.nan, np.nan, -1)
    ranges, slowest = {}, {}
    for key in keys:
        rows = [one.get(key, nothing) for one in timers]
        ranges[key] = Range(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]))
        if any(row[2] >= 0 for row in rows):
            slowest[key] = tuple(row[2] for row in rows if row[2] >= 0)
    return RunLog(
        source=str(path),
        title=found.title,
        steps=steps,
        seconds=seconds,
        weights=weights,
        series=series,
        timers=ranges,
        slowest=slowest,
        said=found.said,
        saved=tuple(found.saved),
        times=times,
        notes=tuple(dict.fromkeys(notes)),
    )


def _seconds(
    series: dict[str, NDArray[np.float64]],
    apart: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Return the seconds of each step, the steps that each record counts for, and how they are
    known."""
    if _some(series.get(m.SECONDS)):
        return series[m.SECONDS], weights, "as the log says them"
    if _some(series.get(m.TIME)):
        elapsed = np.diff(series[m.TIME], prepend=np.nan)
        elapsed[elapsed < 0] = np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            return elapsed / apart, apart, "from the times at which lines were written"
    if _some(series.get(m.SAMPLES_RATE)) and _some(series.get(m.BATCH)):
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(series[m.SAMPLES_RATE] > 0, series[m.SAMPLES_RATE], np.nan)
            return series[m.BATCH] / rate, weights, "from samples per second and the batch"
    return np.full(len(apart), np.nan), weights, ""


def _some(values: NDArray[np.float64] | None) -> bool:
    return values is not None and int(np.isfinite(values).sum()) >= NEEDED
