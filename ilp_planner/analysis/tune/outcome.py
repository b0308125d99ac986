"""Short runs by their logs: seconds of a step, or the reason of a failure."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.analysis.doctor.causes_settings import samples_of
from ilp_planner.analysis.doctor.doctor import with_seconds
from ilp_planner.analysis.doctor.prediction import other_settings
from ilp_planner.analysis.doctor.statistics import steps_of
from ilp_planner.base.children import ended
from ilp_planner.formats.logs.base import LogError, RunLog
from ilp_planner.formats.logs.metrics import printed_job
from ilp_planner.formats.logs.read import read_log
from ilp_planner.formats.nearest_run import differences

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.specs.training import TrainingJob

LEAST_NOISE = 0.005  # relative: how far two runs of a plan are apart in any case
COMMAND = "its command"
FEWEST = 5  # steps of a run that was ended before its time
OTHER_BATCH = 0.1  # relative: samples of a step are counted by rates where nothing says them
TAIL = 2**20  # bytes at the end of a log in which a lack of memory is looked for
MEMORY = re.compile(
    rb"out of memory|OutOfMemoryError|oom[-_]kill|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE
)
SEVERAL_PARTS = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "global_batch")


class Status(StrEnum):
    """How a run ended."""

    MEASURED = "measured"
    MEMORY = "out of memory"
    FAILED = "failed"
    CUT = "ended at the budget"


class Outcome(NamedTuple):
    """How a run ended. seconds: of a step, without those that are slow by warming up or at times;
    nan if it was not measured. noise: standard deviation of their logarithm. steps: that were read.
    why: it failed; empty if it did not."""

    status: Status
    seconds: float = math.nan
    noise: float = 0.0
    steps: int = 0
    why: str = ""


def outcome_of(log: Path, job: TrainingJob, steps: int, status: int | None = 0) -> Outcome:
    """Return how a run of a job ended.

    Parameters
    ----------
    steps: that it should take. status: with which its command ended, below 0 by a signal; None: it
        was ended at the budget.
    """
    if status and lacked_memory(log):
        return Outcome(Status.MEMORY, why="out of memory")
    try:
        found = measured(log, job)
    except LogError as error:
        if status is None:
            return Outcome(Status.CUT, why="no time for enough steps")
        if lacked_memory(log):
            return Outcome(Status.MEMORY, why="out of memory")
        how = f"{ended(status, COMMAND)}; " if status else ""
        return Outcome(Status.FAILED, why=f"{how}{error}")
    if status is None and found.steps < FEWEST:
        return Outcome(Status.CUT, why=f"no time for {FEWEST} steps")
    if status and found.steps < steps:
        why = f"{ended(status, COMMAND)} after {found.steps} steps"
        return Outcome(Status.FAILED, why=why)
    return found


def measured(log: Path, job: TrainingJob) -> Outcome:
    """Return the seconds of a run's step.

    Raises
    ------
    LogError: a log without steps, or of another job.
    """
    run = read_log(log)
    if not isinstance(run, RunLog):
        raise LogError(f"{log}: found no log, expected the lines that a run prints of its steps")
    check_job(run, job)
    steps = steps_of(with_seconds(run, job))
    if steps is None:
        raise LogError(f"{log}: found steps without seconds, expected the seconds of each")
    noise = steps.noise / steps.steady / math.sqrt(steps.count)
    return Outcome(Status.MEASURED, steps.steady, max(LEAST_NOISE, noise), steps.count)


def check_job(run: RunLog, job: TrainingJob) -> None:
    """Refuse the log of another job.

    Raises
    ------
    LogError: with what differs.
    """
    printed = printed_job(run)
    found = ""
    if printed is not None:
        alike = {n: getattr(job, n) for n in ("devices_per_node", "gpu_architecture")}
        printed = replace(printed, **alike)
        found = next(differences(job.model, printed.model), "")
        if not found:
            others = other_settings(job, printed)
            found = next((f"{o.theirs} instead of {o.ours}" for o in others if _told(o.fields)), "")
    else:
        samples, *_ = samples_of(run, job.model.sequence, job.world) or (job.global_batch,)
        if abs(samples / job.global_batch - 1) > OTHER_BATCH:
            found = f"{samples:,.0f} samples a step instead of {job.global_batch:,}"
    if found:
        raise LogError(f"{run.source}: found the log of another job: {found}")


def _told(fields: object) -> bool:
    return isinstance(fields, dict) and any(
        name.removeprefix("settings.") in SEVERAL_PARTS for name in fields
    )


def lacked_memory(log: Path) -> bool:
    """Tell whether a log ends in a lack of memory."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            return MEMORY.search(file.read()) is not None
    except OSError:
        return False
