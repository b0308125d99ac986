"""Causes that the seconds of steps tell, and the numbers that logs have beside them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.analysis.doctor.case import LOG, STEPS, Case, Cause, NotTold, needed
from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.formats.logs import metrics as m

if TYPE_CHECKING:
    from ilp_planner.formats.logs.base import RunLog

SHORT = 32  # steps: a rhythm of so many is of data workers, a longer one of what is done rarely
NOISY = 0.05  # of a step: noise above which steps jitter
CLOCKS = 0.05  # of a step: clocks change as much in healthy runs
LOST = 0.25  # of the memory that PyTorch holds: free, and in pieces
AGAIN = 10  # segments given back and asked for again: fewer are those of the first steps
LOADING = ("batch-generator",)


def warm_up(case: Case) -> Cause | None:
    """Look for slow first steps in the mean."""
    steps = needed(case.steps, STEPS)
    if steps.warming <= case.least:
        return None
    first = format_seconds(steps.steady + steps.warming * steps.count / steps.warm)
    return Cause(
        "warm-up",
        "warm-up is counted",
        steps.warming,
        f"the first {_steps(steps.warm)} take {first} each, all later ones "
        f"{format_seconds(steps.steady)}: compiling, tuning of kernels, first allocations",
        f"leave the first {_steps(steps.warm)} out of the mean, or run longer",
    )


def stalls(case: Case) -> Cause | None:
    """Look for slow steps in a rhythm."""
    steps = needed(case.steps, STEPS)
    rhythm = steps.rhythm
    if rhythm is None or steps.rhythmic <= case.least:
        return None
    every = round(rhythm.every)
    evidence = (
        f"every {every} steps one takes {format_seconds(rhythm.seconds)} longer "
        f"({len(rhythm.steps)} times, as in steps {', '.join(map(str, rhythm.steps[:3]))})"
    )
    saved = _saved_then(case, rhythm.steps)
    if saved or every > SHORT:
        reason = (
            "checkpoints are saved there"
            if saved
            else "a rhythm of checkpoints or evaluations, which the log does not tell apart"
        )
        return Cause(
            "checkpoint",
            "stalls of checkpoints",
            steps.rhythmic,
            f"{evidence}; {reason}",
            "save asynchronously (Megatron-LM: --async-save), more rarely, or on a faster disk",
        )
    return Cause(
        "data",
        "stalls of data loading",
        steps.rhythmic,
        f"{evidence}; so short a rhythm is that of workers which load data, or of shards",
        f"more workers that load data than {every} (--num-workers), or data on a local disk; one "
        "run with mock data tells",
    )


def _saved_then(case: Case, slow: tuple[int, ...]) -> bool:
    """Tell whether checkpoints are saved at most of the slow steps, by the log's own words or by
    the interval that it prints."""
    log = needed(case.log, LOG)
    near = [any(abs(step - saved) <= 1 for saved in log.saved) for step in slow]
    if near and sum(near) > len(near) / 2:
        return True
    interval = log.said.get("save_interval", "")
    return len(interval) < 10 and interval.isdecimal() and int(interval) > 1 and all(
        min(step % int(interval), -step % int(interval)) <= 1 for step in slow
    )  # fmt: skip


def loading(case: Case) -> Cause | None:
    """Look for seconds that steps wait for data, as the log or a trace has them."""
    found, what = _series_mean(case.log, m.DATA), "the log says that a step waits for its batch"
    if found is None and (timed := case.timed(*LOADING)) is not None:
        found, what = timed[1], "the timer batch-generator says that steps wait for batches"
    if found is None and case.trace is not None:
        found, what = case.trace.loading, "the GPU rests while the loader gets a batch"
        if math.isnan(found):
            found = case.trace.pauses
            what = (
                "the GPU rests in pieces of more than 1 ms, in which the host loads data or does "
                "something else that is slow"
            )
    if found is None:
        raise NotTold("a log with data_loading times, timers or a trace")
    steps = case.steps
    rhythmic = steps.rhythmic if steps is not None and steps.rhythm is not None else 0.0
    if found - rhythmic <= case.least:
        return None
    return Cause(
        "data",
        "steps wait for data",
        found - rhythmic,
        f"{what}: {format_seconds(found)} of {format_seconds(case.seconds)}",
        "more workers that load data (--num-workers), or data on a local disk; one run with mock "
        "data tells",
    )


def saving(case: Case) -> Cause | None:
    """Look for seconds of checkpoints that the log has in steps."""
    log = needed(case.log, LOG)
    values = log.series.get(m.CHECKPOINT)
    steps = case.steps
    if values is None:
        return None
    mean = float(np.nansum(values) / len(values))
    if mean <= case.least or (steps is not None and steps.rhythm is not None):
        return None
    return Cause(
        "checkpoint",
        "stalls of checkpoints",
        mean,
        f"the log has {format_seconds(float(np.nanmax(values)))} of saving in single steps, "
        f"{format_seconds(mean)} in the mean",
        "save asynchronously (Megatron-LM: --async-save), or more rarely",
    )


def jitter(case: Case) -> Cause | None:
    """Look for steps that are slow at random."""
    steps = needed(case.steps, STEPS)
    noisy = steps.noise if steps.noise > NOISY * steps.steady else 0.0
    seconds = steps.random + noisy
    if seconds <= case.least or _retried(case) is not None:
        return None
    slow = f"{_steps(steps.jitter)} of {steps.count} are slow, in no rhythm" if steps.jitter else ""
    noise = f"steps vary by {format_percent(steps.noise / steps.steady)} (1 sigma)" if noisy else ""
    return Cause(
        "straggler",
        "a straggler or jitter",
        seconds,
        f"{'; '.join(filter(None, (slow, noise)))}; a synchronous step takes as long as its "
        "slowest rank",
        "log the seconds of every rank (Megatron-LM: --log-straggler, or timers with "
        "--timing-log-option all): one rank is a bad node, changing ones are the network or "
        "other jobs",
    )


def slower_later(case: Case) -> Cause | None:
    """Look for a step from which on all are slower."""
    steps = needed(case.steps, STEPS)
    clock = _clock(case)
    if clock is not None:
        return clock
    level = steps.level
    if level is None or steps.raised <= case.least:
        return None
    how = "at once" if level.sudden else "little by little"
    return Cause(
        "clocks",
        "GPUs that became slower: clocks below the usual",
        steps.raised,
        f"from step {level.step} on steps take {format_seconds(level.seconds)} longer, {how}: heat "
        "or a power limit lowers clocks so; the log does not tell it from a node that became slow",
        "nvidia-smi -q -d PERFORMANCE,CLOCK on every node while it runs",
    )


def _clock(case: Case) -> Cause | None:
    """Return clocks that the log has, if they fall and steps become slower with them."""
    log = needed(case.log, LOG)
    values = log.series.get(m.CLOCK)
    if values is None or int(np.isfinite(values).sum()) < 3:
        return None
    there = np.isfinite(values) & np.isfinite(log.seconds) & (values > 0)
    best, usual = float(np.nanmax(values)), float(np.nanmedian(values[there]))
    lost = case.steady * (1 - usual / best)
    if lost <= max(case.least, CLOCKS * case.steady):
        return None
    return Cause(
        "clocks",
        "clocks below the usual",
        lost,
        f"clocks are {usual / 1e6:,.0f} MHz as a rule, and were {best / 1e6:,.0f} MHz at best",
        "nvidia-smi -q -d PERFORMANCE,CLOCK on every node while it runs",
    )


def _retried(case: Case) -> tuple[float, int] | None:
    """Return the seconds of a step in the mean by which those with further retries of allocations
    are slower, and how many these are; None where the log counts none."""
    log = case.log
    values = None if log is None else log.series.get(m.RETRIES)
    if log is None or values is None or not np.isfinite(values).any():
        return None
    grown = np.diff(np.nan_to_num(values), prepend=np.nan_to_num(values)[0]) > 0
    there = np.isfinite(log.seconds)
    if not (grown & there).any() or not (~grown & there).any():
        return None
    usual = float(np.median(log.seconds[there & ~grown]))
    excess = (log.seconds[there & grown] - usual) * log.weights[there & grown]
    return float(excess.sum() / log.weights[there].sum()), int((grown & there).sum())


def fragmentation(case: Case) -> Cause | None:
    """Look for memory that PyTorch gives back and asks for again."""
    check = (
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; torch.cuda.memory_stats()"
        "['num_alloc_retries'] must not grow"
    )
    snapshot = case.snapshot
    retried = _retried(case)
    if retried is not None and retried[0] > case.least:
        return Cause(
            "memory",
            "memory is fragmented or too full",
            retried[0],
            f"in {_steps(retried[1])} PyTorch gave memory back to the driver and asked again "
            "(allocation retries), and these are slower",
            check,
        )
    if case.trace is not None and case.trace.allocation > case.least:
        return Cause(
            "memory",
            "memory is fragmented or too full",
            case.trace.allocation,
            f"the host spends {format_seconds(case.trace.allocation)} of a step in calls that ask "
            "the driver for memory or give it back",
            check,
        )
    if snapshot is not None:
        asked_again = min(snapshot.mapped, snapshot.returned)
        if snapshot.ended or asked_again > AGAIN or snapshot.torn > LOST * snapshot.reserved:
            return Cause(
                "memory",
                "memory is fragmented or too full",
                0.0,
                f"of {format_bytes(snapshot.reserved)} that PyTorch holds "
                f"{format_bytes(snapshot.torn)} are free in pieces between blocks in use, the "
                f"largest free piece {format_bytes(snapshot.largest)}; it gave memory back "
                f"{snapshot.returned} times and ran out {snapshot.ended} times while it was "
                "recorded; a snapshot has no seconds",
                check,
            )
    if retried is None and case.trace is None and snapshot is None:
        raise NotTold("a log with num_alloc_retries, a trace or a memory snapshot")
    return None


def _series_mean(log: RunLog | None, name: str) -> float | None:
    values = None if log is None else log.series.get(name)
    if log is None or values is None or not np.isfinite(values).any():
        return None
    there = np.isfinite(values)
    return float((values * log.weights)[there].sum() / log.weights[there].sum())


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"
