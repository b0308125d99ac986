"""One verb, `diagnose`: the seconds of a run's step, those it should take, causes, and cures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.analysis.doctor import causes_kernels as kernels
from ilp_planner.analysis.doctor import causes_settings as settings
from ilp_planner.analysis.doctor import causes_steps as steps
from ilp_planner.analysis.doctor.case import JOB, OF_RANKS, TIMERS, TRACE, Case, Cause, NotTold
from ilp_planner.analysis.doctor.causes_kernels import BACKWARD, FORWARD, SYNC
from ilp_planner.analysis.doctor.causes_settings import (
    as_printed,
    flags,
    printed_differences,
    samples_of,
)
from ilp_planner.analysis.doctor.causes_steps import LOADING
from ilp_planner.analysis.doctor.prediction import COMPUTE, DATA, IDLE, Prediction
from ilp_planner.analysis.fit.fit import Changes, all_free, draft_of
from ilp_planner.base.units import format_seconds
from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, RunLog
from ilp_planner.formats.logs.metrics import printed_job
from ilp_planner.formats.nearest_run import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ilp_planner.analysis.fit.fit import AllFree, Change, Writer
    from ilp_planner.analysis.fit.judge import Judge
    from ilp_planner.formats.logs.base import Snapshot, Trace
    from ilp_planner.specs.training import TrainingJob


class Row(NamedTuple):
    """A cause that is looked for.

    find: returns the cause, with its seconds and its evidence, or None if it is not there; raises
    `NotTold` if the files do not tell. It does not look at words of people: numbers of steps,
    timers, kernels and settings decide.
    """

    name: str
    title: str
    find: Callable[[Case], Cause | None]


ROWS = (
    Row("batch", "another batch than asked for", settings.another_batch),
    Row("warm-up", "warm-up counted", steps.warm_up),
    Row("data", "stalls of data loading or checkpoints", steps.stalls),
    Row("data", "waiting for data", steps.loading),
    Row("checkpoint", "seconds of checkpoints", steps.saving),
    Row("straggler", "a straggler", kernels.straggler),
    Row("straggler", "jitter", steps.jitter),
    Row("link", "a slow link, no overlap", kernels.messages),
    Row("recomputation", "recomputation that was not meant", kernels.recomputation),
    Row("host", "steps bound by the host", kernels.host_bound),
    Row("experts", "imbalance of experts", kernels.experts),
    Row("clocks", "clocks below the usual", kernels.clocks),
    Row("clocks", "GPUs that became slower", steps.slower_later),
    Row("memory", "fragmented memory", steps.fragmentation),
    Row("padding", "padding", settings.padding),
)


UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
FAR_OFF = 50.0  # measured over predicted seconds beyond which the unit is another one
# By which FLOP of a step differ in another job: fewer, and more, as some count masked attention.
OTHER_MODEL = (1.6, 2.5)
OTHER_RUN = 1.5  # by which steps of a trace and of a log differ if they are of two runs
PROFILED = 2.0  # by which a profiler slows a step down, at most
OPTIMIZER = ("optimizer",)
OF_THE_JOB = ("flag", "batch")  # causes by which the job that ran is another one


class Part(NamedTuple):
    """A part of a step: seconds, None where they are not known."""

    name: str
    measured: float | None
    predicted: float | None


class Untold(NamedTuple):
    """What would tell whether some causes are there. titles: of these."""

    needs: str
    titles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer.

    case: with the job as it was asked for. ran: the prediction of what ran by the log, the same
    where nothing differs. differs: in words, most seconds first. causes: in order of their seconds.
    parts: measured, and predicted of what ran. untold: what the files do not tell. unexplained:
    seconds of a step above those predicted of what ran that no cause explains; None without a
    prediction. changes: of one setting, the fastest first. best: the fastest plan with all settings
    free.
    """

    case: Case
    ran: Prediction | None
    differs: tuple[str, ...]
    causes: tuple[Cause, ...]
    parts: tuple[Part, ...]
    untold: tuple[Untold, ...]
    unexplained: float | None
    changes: tuple[Change, ...] = ()
    best: AllFree | None = None

    @property
    def as_expected(self) -> bool:
        """Whether the steady step is within the expected error, or faster."""
        return self.ran is None or self.case.steady <= self.ran.high

    @property
    def fastest(self) -> float | None:
        """Seconds of the fastest plan that is known: the best found, or this one."""
        if self.best is None or self.case.prediction is None:
            return None
        found = self.best.change
        own = self.case.prediction.seconds
        return own if found is None else min(own, found.judged.seconds)

    @property
    def explained(self) -> float:
        """Seconds of a step that causes explain."""
        return sum(max(0.0, cause.seconds) for cause in self.causes)


def diagnose(
    files: Sequence[RunLog | Trace | Snapshot],
    judge: Judge | None,
    *,
    writer: Writer | None = None,
    seconds: float = 0.0,
) -> Diagnosis:
    """Return why a run takes as long as it does.

    Parameters
    ----------
    files: of one run, at most one log, one trace and one snapshot. judge: of its job; None: it is
        not known. writer: of changes, in the words of the user. seconds: of searching the best
        plan; 0: it is not searched.

    Raises
    ------
    LogError: two files of a kind, a log of another job or in another unit. PlannerError: the job
    breaks a rule of its training system.
    """
    case = _case(files, judge)
    causes, untold, ran, differs = _causes(case)
    unexplained = None
    if ran is not None:
        explained = sum(cause.seconds for cause in causes if cause.name not in OF_THE_JOB)
        unexplained = case.seconds - ran.seconds - explained
    changes: tuple[Change, ...] = ()
    best = None
    if judge is not None and writer is not None and seconds > 0:
        assert case.prediction is not None
        tried = Changes(judge, writer, case.prediction.seconds)
        tried.singles(draft_of(judge.job))
        changes = tried.ranked()
        best = all_free(judge, writer, seconds)
    return Diagnosis(
        case=case,
        ran=ran,
        differs=differs,
        causes=tuple(sorted(causes, key=lambda cause: -abs(cause.seconds))),
        parts=tuple(parts_of(replace(case, prediction=ran))),
        untold=untold,
        unexplained=unexplained,
        changes=changes,
        best=best,
    )


def _case(files: Sequence[RunLog | Trace | Snapshot], judge: Judge | None) -> Case:
    from ilp_planner.formats.logs.base import Snapshot, Trace

    kinds: dict[type, RunLog | Trace | Snapshot] = {}
    for file in files:
        if type(file) in kinds:
            raise LogError(
                f"{file.source}: found a second {WORDS[type(file).__name__]} beside "
                f"{kinds[type(file)].source}, expected one of each run"
            )
        kinds[type(file)] = file
    log, trace, snapshot = (kinds.get(kind) for kind in (RunLog, Trace, Snapshot))
    assert log is None or isinstance(log, RunLog)
    assert trace is None or isinstance(trace, Trace)
    assert snapshot is None or isinstance(snapshot, Snapshot)
    if judge is not None and log is not None:
        log = with_seconds(log, judge.job)
    case = Case(
        log=log,
        trace=trace,
        snapshot=snapshot,
        prediction=None if judge is None else Prediction(judge, judge.job),
        printed=None if log is None else printed_job(log),
    )
    if case.printed is not None and judge is not None:
        here = judge.job
        printed = replace(
            case.printed,
            devices_per_node=here.devices_per_node,
            gpu_architecture=here.gpu_architecture,
        )
        case = replace(case, printed=printed)
    _check(case)
    return case


WORDS = {"RunLog": "log", "Trace": "trace", "Snapshot": "memory snapshot"}


def with_seconds(log: RunLog, job: TrainingJob) -> RunLog:
    """Return a log with the seconds of its steps, where it has tokens per second alone."""
    if np.isfinite(log.seconds).any():
        return log
    tokens = job.global_batch * job.model.sequence
    for name, count in ((m.TOKENS_RATE, tokens), (m.DEVICE_TOKENS, tokens / job.world),
                        (m.SAMPLES_RATE, job.global_batch)):  # fmt: skip
        rate = log.series.get(name)
        if rate is not None and np.isfinite(rate).any():
            seconds = np.where(rate > 0, count / np.where(rate > 0, rate, 1.0), np.nan)
            words = f"from {name.replace('_', ' ')} and the job's batch"
            return replace(log, seconds=seconds, times=words)
    return log


def _check(case: Case) -> None:
    """Refuse a log of another job, without seconds, or in another unit."""
    log, prediction = case.log, case.prediction
    if log is not None and case.steps is None:
        raise LogError(
            f"{log.source}: found steps without seconds, expected the seconds of a step, or the "
            "time of each; tokens per second need the job (`job_file`)"
        )
    if case.trace is not None and log is not None:
        traced = float(np.median(case.trace.steps))
        if not 1 / OTHER_RUN < traced / case.steady < OTHER_RUN * PROFILED:
            raise LogError(
                f"{case.trace.source}: found the trace of another run: its steps take "
                f"{format_seconds(traced)}, those of {log.source} {format_seconds(case.steady)}, "
                "expected nearly the same"
            )
    if prediction is None or log is None:
        return
    job = prediction.job
    if case.printed is not None:
        if apart := next(differences(job.model, case.printed.model), ""):
            raise LogError(f"{log.source}: found the log of another job: its {apart}")
        if case.printed.world != job.world:
            raise LogError(
                f"{log.source}: found the log of another job: {case.printed.world} GPUs instead of "
                f"{job.world}"
            )
    ratio = case.steady / prediction.seconds
    for unit, factor in UNITS.items():
        if factor < 1 and ratio > FAR_OFF and 1 / FAR_OFF < ratio * factor < FAR_OFF:
            raise LogError(
                f"{log.source}: found steps of {format_seconds(case.steady)} where "
                f"{format_seconds(prediction.seconds)} are predicted, expected seconds; if these "
                f"are {unit}: `unit={unit}`"
            )
    flops, seconds = log.last(m.FLOPS), case.steady
    if flops is not None and log.last(m.BATCH) in (None, job.global_batch):
        done = flops * seconds * job.world
        own = _flops(prediction)
        if own > 0 and not 1 / OTHER_MODEL[0] < done / own < OTHER_MODEL[1]:
            raise LogError(
                f"{log.source}: found the log of another job: {flops / 1e12:,.0f} TFLOP/s per GPU "
                f"in {format_seconds(seconds)} are {done / 1e15:,.1f} PFLOP a step on {job.world} "
                f"GPUs, expected {own / 1e15:,.1f} PFLOP of the job"
            )


def _flops(prediction: Prediction) -> float:
    """Return the FLOP of the model in an iteration, as training systems count them."""
    done = prediction.judged.done
    return done.flops * done.devices * prediction.seconds


def _causes(
    case: Case,
) -> tuple[list[Cause], tuple[Untold, ...], Prediction | None, tuple[str, ...]]:
    """Return the causes that are there, what is not told, the prediction of what ran, and by what
    that differs from the job."""
    causes: list[Cause] = []
    differs: list[str] = []
    needs: dict[str, list[str]] = {}
    try:
        found = printed_differences(case)
        causes += flags(case, found)
        found.sort(key=lambda one: -abs(one.seconds or 0.0))
        differs += [one.other.theirs for one in found]
        case = replace(case, prediction=as_printed(case) or case.prediction)
    except NotTold as missing:
        needs.setdefault(str(missing), []).append("another setting than meant")
    for row in ROWS:
        try:
            cause = row.find(case)
        except NotTold as missing:
            needs.setdefault(str(missing), []).append(row.title)
            continue
        if cause is None:
            continue
        causes.append(cause)
        if cause.name == "batch" and case.prediction is not None:
            samples = _samples(case)
            run = case.prediction.changed({"global_batch": samples})
            differs.append(f"{samples:,} samples in a step")
            case = replace(case, prediction=run or case.prediction)
    named = {cause.name for cause in causes}
    names = {row.title: row.name for row in ROWS}
    untold = []
    for need in (JOB, OF_RANKS, TIMERS, TRACE, *needs):
        titles = [title for title in needs.pop(need, []) if names.get(title) not in named]
        if titles:
            untold.append(Untold(need, tuple(titles)))
    return causes, tuple(untold), case.prediction, tuple(differs)


def _samples(case: Case) -> int:
    """Return the samples of a step that the log says, in whole micro-batches."""
    assert case.log is not None
    assert case.prediction is not None
    job = case.prediction.job
    found = samples_of(case.log, job.model.sequence, job.world)
    assert found is not None
    whole = job.micro_batch * job.dp
    return max(1, round(found[0] / whole)) * whole


def parts_of(case: Case) -> Iterable[Part]:
    """Yield the parts of a step that timers or a trace tell, beside what is predicted."""
    prediction = case.prediction
    predicted = {} if prediction is None else prediction.parts

    def share(*names: str) -> float | None:
        return None if prediction is None else sum(predicted.get(name, 0.0) for name in names)

    sent = [n for n in predicted if n.endswith("communication") and not n.startswith("pipeline")]
    if case.trace is not None:
        trace, waiting = case.trace, [n for n in predicted if n.startswith("pipeline")]
        yield Part("kernels", trace.compute, share(*COMPUTE, "optimiser step"))
        yield Part("messages, nothing else runs", trace.exposed, share(*sent))
        yield Part("sends, receives and waiting in the pipeline", trace.waits, share(*waiting))
        yield Part("nothing runs", trace.idle, share(*IDLE))
        return
    passes = (None, None) if prediction is None else [max(one) for one in prediction.passes]
    for names, title, expected in (
        (FORWARD, "forward passes, slowest rank", passes[0]),
        (BACKWARD, "backward passes, slowest rank", passes[1]),
        (SYNC, "gradients and parameters", share(DATA)),
        (OPTIMIZER, "optimizer", share("optimiser step")),
        (LOADING, "data", None),
    ):
        timed = case.timed(*names)
        if timed is not None and not math.isnan(timed[1]):
            yield Part(title, timed[1], expected)
    if not case.log or not case.log.timers:
        for name, seconds in predicted.items():
            yield Part(name, None, seconds)
