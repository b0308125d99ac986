"""Causes in what ran: another batch, padding, settings that the log prints otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.analysis.doctor.case import JOB, LOG, Case, Cause, NotTold, needed
from ilp_planner.analysis.doctor.prediction import Other, Prediction, other_settings
from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.formats.logs import metrics as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.formats.logs.base import RunLog

SPREAD = 0.005  # relative, of tokens in a step: more of it is padding, not another batch


def another_batch(case: Case) -> Cause | None:
    """Look for steps of another number of samples than the job's."""
    prediction, log = needed(case.prediction, JOB), needed(case.log, LOG)
    job = prediction.job
    found = samples_of(log, job.model.sequence, job.world)
    if found is None:
        raise NotTold("a log with its batch, samples or tokens")
    samples, source, steady = found
    if abs(samples / job.global_batch - 1) < SPREAD or not steady:
        return None
    near = max(1, round(samples))
    other = _nearest_batch(prediction, near)
    seconds = (
        other.seconds - prediction.seconds
        if other is not None
        else prediction.seconds * (samples / job.global_batch - 1)
    )
    if abs(seconds) <= case.least:
        return None
    return Cause(
        "batch",
        "another batch than asked for",
        seconds,
        f"a step trains {near:,} samples by {source}, the job asks for {job.global_batch:,}: "
        f"predicted {format_seconds(prediction.seconds + seconds)} instead of "
        f"{format_seconds(prediction.seconds)}",
        f"compare per sample, or set the global batch size to {job.global_batch}: replicas times "
        "micro-batch size times micro-batches",
    )


def _nearest_batch(prediction: Prediction, samples: int) -> Prediction | None:
    job = prediction.job
    whole = job.micro_batch * job.dp
    return prediction.changed({"global_batch": max(1, round(samples / whole)) * whole})


def samples_of(log: RunLog, sequence: int, world: int) -> tuple[float, str, bool] | None:
    """Return the samples of a step, what says so, and whether they are the same in all steps; None
    if nothing says it."""
    if (batch := log.last(m.BATCH)) is not None:
        return batch, "the log's batch", True
    for name, factor in ((m.SAMPLES, 1.0), (m.TOKENS, 1.0 / sequence)):
        each = _per_step(log, name)
        if each is not None:
            usual = float(np.median(each)) * factor
            spread = float(np.std(each) / np.mean(each))
            return usual, f"the {name} it counts", spread < SPREAD
    rates = ((m.SAMPLES_RATE, 1.0), (m.TOKENS_RATE, sequence), (m.DEVICE_TOKENS, sequence / world))
    for name, each_sample in rates:
        values = log.series.get(name)
        if values is not None and log.times.startswith("as the log"):
            product = values * log.seconds / each_sample
            product = product[np.isfinite(product)]
            if len(product):
                usual = float(np.median(product))
                spread = float(np.median(np.abs(product / usual - 1)))
                return usual, f"its {name.replace('_', ' ')}", spread < SPREAD
    return None


def _per_step(log: RunLog, name: str) -> np.ndarray | None:
    """Return by how much a count grows in a step, [n]; None if it does not."""
    values = log.series.get(name)
    if values is None or int(np.isfinite(values).sum()) < 3:
        return None
    there = np.isfinite(values)
    grown = np.diff(values[there]) / np.maximum(1, np.diff(log.steps[there]))
    grown = grown[grown > 0]
    return grown if len(grown) >= 2 else None


def padding(case: Case) -> Cause | None:
    """Look for tokens that are no text."""
    log, prediction = needed(case.log, LOG), needed(case.prediction, JOB)
    job = prediction.job
    asked = job.global_batch * job.model.sequence
    real = log.series.get(m.REAL)
    if real is not None and np.isfinite(real).any():
        each = real[np.isfinite(real)]
        if float(np.median(each)) < asked / job.world * 2:  # of one rank
            each = each * job.dp
    else:
        counted = _per_step(log, m.TOKENS)
        if counted is None:
            raise NotTold("a log that counts real tokens (num_tokens, num_input_tokens_seen)")
        each = counted
        if float(np.std(each) / np.mean(each)) < SPREAD:
            return None  # the same in each step: another batch
    share = 1 - float(np.mean(each)) / asked
    seconds = share * case.steady
    if not 0 < share < 1 or seconds <= case.least:
        return None
    return Cause(
        "padding",
        "padding",
        seconds,
        f"of {asked:,} tokens of a step {format_percent(share)} are none of a text "
        f"({float(np.mean(each)):,.0f} are, and their number varies)",
        "pack samples (Megatron-LM's GPTDataset packs; Hugging Face: packing=True), or group them "
        "by length",
    )


class Difference(NamedTuple):
    """A setting that the log prints otherwise than the job has it. seconds: that it costs a step,
    below 0: saves; None: alone it does not run."""

    other: Other
    seconds: float | None


def printed_differences(case: Case) -> list[Difference]:
    """Return the settings that the log prints otherwise than the job has them.

    Raises
    ------
    NotTold: no job is known, or the log prints none.
    """
    prediction = needed(case.prediction, JOB)
    if case.printed is None:
        raise NotTold("a log that prints its arguments")
    found = []
    for other in other_settings(prediction.job, case.printed):
        changed = prediction.changed(other.fields)
        seconds = None if changed is None else changed.seconds - prediction.seconds
        found.append(Difference(other, seconds))
    return found


def as_printed(case: Case) -> Prediction | None:
    """Return the prediction of the job as its log prints it, with the batch that is asked for; None
    if its training system does not run that."""
    if case.prediction is None or case.printed is None:
        return None
    job = case.prediction.job
    try:
        printed = replace(case.printed, model=job.model, global_batch=job.global_batch)
    except ValueError:
        return None
    return case.prediction.of(printed)


def flags(case: Case, differences: Iterable[Difference]) -> Iterator[Cause]:
    """Yield the settings that the log prints otherwise than the job has them, and that cost."""
    prediction = needed(case.prediction, JOB)
    for other, seconds in differences:
        if seconds is not None and seconds > case.least:
            yield Cause(
                "flag",
                f"a flag that costs: {other.title}",
                seconds,
                f"the log prints {other.theirs}, the job has {other.ours}: "
                f"{format_seconds(prediction.seconds + seconds)} predicted instead of "
                f"{format_seconds(prediction.seconds)}",
                f"start it with {other.ours}",
            )
