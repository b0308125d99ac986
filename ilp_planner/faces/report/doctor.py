"""The diagnosis of a run, for people and as JSON."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import counted, format_bytes, format_percent, format_seconds
from ilp_planner.faces.report.expected import known_object
from ilp_planner.faces.report.fit import signed_percent
from ilp_planner.faces.report.grid import grid_lines, wrapped
from ilp_planner.faces.report.lines import NANOSECOND
from ilp_planner.faces.report.tables import Table
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.doctor.doctor import Diagnosis
    from ilp_planner.analysis.doctor.prediction import Prediction

COLUMN = 16
FEW = 3  # differences from the job that the first line names
SHORT = 0.1  # seconds from which on an interval is in seconds


def diagnosis_lines(
    found: Diagnosis, notes: Sequence[str], *, words: str, top: int, width: int
) -> Iterator[str]:
    """Yield the diagnosis: the user's number first, then parts, causes and what to do.

    Parameters
    ----------
    notes: on the job. words: the subject of changes. top: causes and changes to show.
    """
    yield wrapped(f"{'; '.join(_verdict(found))}.", width)
    yield from (wrapped(line, width) for line in _read(found))
    table = _parts(found)
    if table is not None:
        yield ""
        yield from grid_lines(table, width)
    yield ""
    yield from (wrapped(line, width) for line in _causes(found, top))
    yield from (wrapped(line, width) for line in _untold(found))
    if found.best is not None or found.changes:
        yield ""
        yield from (wrapped(line, width) for line in _to_do(found, words, top))
    for note in dict.fromkeys((*_of_files(found), *notes)):
        yield wrapped(f"{'note':<{COLUMN}}{note}", width)


def _verdict(found: Diagnosis) -> Iterator[str]:
    """Yield what the step takes, should take, and could take."""
    case = found.case
    steps, prediction = case.steps, case.prediction
    if steps is not None:
        between = f"{_between(steps.low, steps.high)} over {steps.count:,} steps"
        yield f"your step takes {format_seconds(steps.mean)} ({between})"
    elif case.trace is not None:
        each = case.trace.steps
        between = f"{_between(min(each), max(each))} over {counted(len(each), 'step')}"
        yield f"your step takes {format_seconds(case.seconds)} ({between} of the trace)"
    elif case.snapshot is not None:
        one = case.snapshot
        yield (
            f"PyTorch holds {format_bytes(one.reserved)}, of which {format_bytes(one.used)} are in "
            "use; a memory snapshot tells nothing of time"
        )
    if prediction is not None:
        yield f"this plan should take {_expected(prediction)}{_as_it_ran(found)}"
    best = found.best
    if best is None or prediction is None:
        return
    title, gpus = prediction.judge.space.runtime.title, prediction.job.world
    fastest = found.fastest
    if fastest is not None:
        samples = f" for {prediction.job.global_batch:,} samples" if found.differs else ""
        yield (
            f"the best plan of {title}{samples} on these {gpus:,} GPUs should take "
            f"{format_seconds(fastest)}"
        )
        if best.bound > fastest:  # this plan is none of those that were searched
            yield "none of the plans that were searched is faster (proved of predicted times)"
        elif best.bound > 0:
            yield f"none below {format_seconds(best.bound)} exists (proved of predicted times)"


def _expected(prediction: Prediction) -> str:
    """Return predicted seconds, with the interval of most runs where it is known."""
    seconds = format_seconds(prediction.seconds)
    known = prediction.judged.known.error is not None
    return f"{seconds} ({_between(prediction.low, prediction.high)})" if known else seconds


def _as_it_ran(found: Diagnosis) -> str:
    """Return what is predicted of the job that ran by the log, if it is another one."""
    if not found.differs or found.ran is None:
        return ""
    more = f" and {len(found.differs) - FEW} more" if len(found.differs) > FEW else ""
    said = f"{', '.join(found.differs[:FEW])}{more}"
    if found.ran is found.case.prediction:
        return f" (the log has {said}: nothing is predicted of that)"
    return f", and {_expected(found.ran)} as it ran by the log, with {said}"


def _between(low: float, high: float) -> str:
    """Return an interval of seconds: `0.94-1.31`, or of short ones `9.4-13.1 ms`."""
    return f"{low:.3g}-{high:.3g}" if high >= SHORT else f"{1e3 * low:.3g}-{1e3 * high:.3g} ms"


def _read(found: Diagnosis) -> Iterator[str]:
    log = found.case.log
    if log is not None:
        yield f"{'read':<{COLUMN}}{log.source}: {log.title}, seconds {log.times}"
    for file in (found.case.trace, found.case.snapshot):
        if file is not None:
            kind = type(file).__name__
            words = {"Trace": "a trace of one rank", "Snapshot": "a memory snapshot"}[kind]
            yield f"{'read':<{COLUMN}}{file.source}: {words}"


def _parts(found: Diagnosis) -> Table | None:
    """Return the parts of a step, measured and predicted; None if nothing is known of them."""
    told = any(part.measured is not None for part in found.parts)
    if not found.parts:
        return None
    table = Table("part of a step", *["measured"] * told, "predicted", left=("part of a step",))
    for part in found.parts:
        if max(part.measured or 0.0, part.predicted or 0.0) < NANOSECOND:
            continue
        cells = [part.measured] * told + [part.predicted]
        table.add(part.name, *("-" if one is None else format_seconds(one) for one in cells))
    return table


def _causes(found: Diagnosis, top: int) -> Iterator[str]:
    causes = found.causes
    for number, cause in enumerate(causes[:top], 1):
        much = format_seconds(cause.seconds) if cause.seconds else "seconds not known"
        head = f"{f'cause {number}':<{COLUMN}}{cause.title}: {much}"
        share = f" of a step, {format_percent(cause.seconds / found.case.seconds)}"
        yield f"{head}{share if cause.seconds and found.case.seconds else ''}"
        yield f"{'evidence':<{COLUMN}}{cause.evidence}"
        yield f"{'to check':<{COLUMN}}{cause.check}"
    if len(causes) > top:
        yield f"... and {len(causes) - top} more (--top)"
    if not causes:
        yield f"{'causes':<{COLUMN}}none found: {_as_predicted(found)}"
        return
    rest = found.unexplained
    if rest is not None and found.ran is not None:
        within = found.ran.high - found.ran.seconds
        if rest > within:
            yield f"{'not explained':<{COLUMN}}{format_seconds(rest)} of a step"


def _as_predicted(found: Diagnosis) -> str:
    prediction = found.ran
    if prediction is None:
        return "its steps are even; whether they could be faster, only the job tells (`job_file`)"
    if found.case.steady < prediction.low:
        less = format_percent(1 - found.case.steady / prediction.seconds)
        return f"the step takes {less} less than predicted: are job and GPUs those of the run?"
    if found.as_expected:
        return "the step takes what is predicted, within the expected error"
    rest = found.case.steady - prediction.seconds
    return f"{format_seconds(rest)} of a step are not explained"


def _untold(found: Diagnosis) -> Iterator[str]:
    for one in found.untold:
        yield f"{'not told':<{COLUMN}}{', '.join(one.titles)}: needs {one.needs}"


def _to_do(found: Diagnosis, words: str, top: int) -> Iterator[str]:
    """Yield the fastest changes, the best plan, and what a short run would settle."""
    prediction = found.case.prediction
    assert prediction is not None
    for change in found.changes[:top]:
        seconds = change.judged.seconds
        less = signed_percent(seconds / prediction.seconds - 1)
        yield f"{'change':<{COLUMN}}{change.words}: {format_seconds(seconds)} predicted, {less}"
    best = found.best.change if found.best is not None else None
    if best is not None and best.judged.seconds < prediction.seconds:
        seconds = best.judged.seconds
        less = signed_percent(seconds / prediction.seconds - 1)
        yield f"{'best plan':<{COLUMN}}{best.words}: {format_seconds(seconds)} predicted, {less}"
        error = best.judged.known.error
        if error is not None and seconds * error.high > prediction.low:
            yield (
                f"{'a short run':<{COLUMN}}20 steps of the best plan tell whether it is faster: "
                f"the predictions overlap, {_between(seconds * error.low, seconds * error.high)} "
                f"and {_between(prediction.low, prediction.high)}"
            )
    elif not found.changes:
        yield f"{'change':<{COLUMN}}none of one setting is faster, nor is another plan"
    if (found.changes or best is not None) and words:
        yield f"{'words':<{COLUMN}}what to add to the {words}, or to change or leave out there"
    if found.best is not None and found.best.among:
        yield f"{'searched':<{COLUMN}}{found.best.among}"


def _of_files(found: Diagnosis) -> Iterator[str]:
    if found.case.log is not None:
        yield from found.case.log.notes
    if found.case.trace is not None:
        yield from found.case.trace.notes


def diagnosis_object(found: Diagnosis, notes: Sequence[str]) -> dict[str, Any]:
    """Return the object of `--json`."""
    case = found.case
    steps, prediction, best = case.steps, case.prediction, found.best
    log = case.log
    return {
        **headed("doctor"),
        "log": None if log is None else {"file": log.source, "format": log.title},
        "trace": None if case.trace is None else case.trace.source,
        "snapshot": None if case.snapshot is None else case.snapshot.source,
        "measured": None
        if steps is None
        else {
            "mean_s": steps.mean,
            "low_s": steps.low,
            "high_s": steps.high,
            "steady_s": steps.steady,
            "noise_s": steps.noise,
            "steps": steps.count,
            "warm_up_steps": steps.warm,
        },
        "predicted": None
        if prediction is None
        else {
            "seconds": prediction.seconds,
            **known_object(prediction.judged.known, prediction.seconds),
        },
        "ran": None
        if not found.differs or found.ran is None
        else {
            "differs": list(found.differs),
            "seconds": found.ran.seconds,
            **known_object(found.ran.judged.known, found.ran.seconds),
        },
        "parts": [
            {"name": part.name, "measured_s": part.measured, "predicted_s": part.predicted}
            for part in found.parts
        ],
        "causes": [
            {
                "name": cause.name,
                "title": cause.title,
                "cost_s": cause.seconds or None,
                "evidence": cause.evidence,
                "check": cause.check,
            }
            for cause in found.causes
        ],
        "unexplained_s": found.unexplained,
        "untold": [{"needs": one.needs, "titles": list(one.titles)} for one in found.untold],
        "faster": [
            {"words": str(change.words), "seconds": change.judged.seconds}
            for change in found.changes
        ],
        "best_plan": None
        if best is None
        else {
            "words": None if best.change is None else str(best.change.words),
            "seconds": found.fastest,
            "bound_s": best.bound if best.bound > 0 and isfinite(best.bound) else None,
            "among": best.among,
        },
        "notes": list(dict.fromkeys((*_of_files(found), *notes))),
    }
