"""A run: its log, trace and memory snapshot, and the prediction of its job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ilp_planner.analysis.doctor.statistics import Steps, steps_of

if TYPE_CHECKING:
    from ilp_planner.analysis.doctor.prediction import Prediction
    from ilp_planner.formats.logs.base import Range, RunLog, Snapshot, Trace
    from ilp_planner.specs.training import TrainingJob

Part = TypeVar("Part")

WORTH = 0.02  # share of a step below which nothing is called a cause


class Cause(NamedTuple):
    """Why a step takes longer than it should.

    name: of its kind. title: in words. seconds: of a step that it explains, 0: not known. evidence:
    with its numbers. check: what to run to be sure, or to mend it.
    """

    name: str
    title: str
    seconds: float
    evidence: str
    check: str


class NotTold(Exception):  # noqa: N818 - no error: what is there does not tell
    """The files that are there do not tell whether a cause is there; the text is what would."""


TRACE = "a trace of one rank (torch.profiler, 3 steps)"
OF_RANKS = "timers (Megatron-LM: --timing-log-level 2 --timing-log-option minmax)"
TIMERS = f"{OF_RANKS} or a trace"
JOB = "the job (`job_file`)"
LOG, STEPS = "a log", "a log with the seconds of steps"


def needed(part: Part | None, what: str) -> Part:
    """Return a part of a case. what: it is, in words.

    Raises
    ------
    NotTold: the run has none.
    """
    if part is None:
        raise NotTold(what)
    return part


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run. Any part of it may be missing. printed: the job that its log prints."""

    log: RunLog | None = None
    trace: Trace | None = None
    snapshot: Snapshot | None = None
    prediction: Prediction | None = None
    printed: TrainingJob | None = None

    @cached_property
    def steps(self) -> Steps | None:
        """The statistics of the log's steps."""
        return None if self.log is None else steps_of(self.log)

    @property
    def seconds(self) -> float:
        """Seconds of a step in the mean; 0: nothing says them."""
        if self.steps is not None:
            return self.steps.mean
        return float(np.mean(self.trace.steps)) if self.trace is not None else 0.0

    @property
    def steady(self) -> float:
        """Seconds of a step without slow ones."""
        if self.steps is not None:
            return self.steps.steady
        return float(np.median(self.trace.steps)) if self.trace is not None else 0.0

    @property
    def least(self) -> float:
        """Seconds below which nothing is called a cause."""
        return WORTH * self.seconds

    def timer(self, *names: str) -> Range | None:
        """Return the sum of timers in each step; None if the log has none of them."""
        timers = self.log.timers if self.log is not None else {}
        found = [timers[name] for name in names if name in timers]
        if not found:
            return None
        from ilp_planner.formats.logs.base import Range

        return Range(*(np.sum(each, axis=0) for each in zip(*found, strict=True)))

    def timed(self, *names: str) -> tuple[float, float] | None:
        """Return the usual seconds of timers of the fastest and the slowest rank; None if the log
        has none of them."""
        found = self.timer(*names)
        if found is None or not np.isfinite(found.most).any():
            return None
        most = float(np.nanmedian(found.most))
        least = float(np.nanmedian(found.least)) if np.isfinite(found.least).any() else np.nan
        return least, most
