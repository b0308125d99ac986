"""Causes that timers of passes, or the kernels and messages of a trace, tell."""

from __future__ import annotations

import math
from collections import Counter
from operator import attrgetter

from ilp_planner.analysis.doctor.case import (
    JOB,
    LOG,
    OF_RANKS,
    TIMERS,
    TRACE,
    Case,
    Cause,
    NotTold,
    needed,
)
from ilp_planner.analysis.doctor.prediction import COMPUTE, DATA, Prediction
from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.formats.logs import metrics as m
from ilp_planner.settings.table import of_symptom
from ilp_planner.specs.training import NOT_RECOMPUTED, Recompute

FORWARD, BACKWARD = ("forward-compute",), ("backward-compute",)
SYNC = ("all-grads-sync", "params-all-gather")
APART = 0.05  # share by which ranks with equal work differ in healthy runs, at most
RATIO = 0.08  # by which the ratio of passes is off as a rule, at most
SAME = 0.8  # of the steps in which one rank is the slowest, if it is a straggler
HOST = 0.05  # of a step: gaps between kernels of healthy runs, at most
SLOW = 1.5  # measured over predicted seconds of a message that is slow
ALONE = 1.2  # measured over predicted seconds of messages that nothing hides, at most
UNKNOWN = 1.25  # measured over predicted seconds of kernels, where no error is known
# Half widths of the interval of 4 of 5 runs, in logarithms, beyond which 1 in 100 healthy runs is.
SURE = 1.8


def _passes(case: Case, needs: str = TIMERS) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the seconds of forward and of backward passes of the fastest and the slowest rank."""
    forward, backward = case.timed(*FORWARD), case.timed(*BACKWARD)
    if forward is None or backward is None:
        raise NotTold(needs)
    return forward, backward


def recomputation(case: Case) -> Cause | None:
    """Look for a backward pass that runs a forward pass again, and should not."""
    prediction = needed(case.prediction, JOB)
    job = prediction.job
    check = "start it without recomputation (Megatron-LM: no --recompute-granularity)"
    if case.trace is not None and min(case.trace.attention) > 0:
        there, back = case.trace.attention
        again = there / back - 1
        whole = prediction.changed({"settings.recompute": FULL_RECOMPUTE})
        if again < 0.5 or job.settings.recompute != NOT_RECOMPUTED or whole is None:
            return None
        return Cause(
            "recomputation",
            "recomputation that was not meant",
            whole.seconds - prediction.seconds,
            f"the trace has {there:,.0f} forward kernels of attention and {back:,.0f} backward "
            "ones in a step: what the job keeps is computed again",
            check,
        )
    (_, forward), (_, backward) = _passes(case)
    ratio = math.log(backward / forward)
    found: list[tuple[float, Prediction]] = []
    for kind in (job.settings.recompute, NOT_RECOMPUTED, *RECOMPUTED):
        other = (
            prediction
            if kind == job.settings.recompute
            else prediction.changed({"settings.recompute": kind})
        )
        if other is not None:
            ahead, behind = other.passes
            found.append((abs(ratio - math.log(max(behind) / max(ahead))), other))
    off, best = min(found, key=lambda one: one[0])
    own = found[0][0]
    seconds = best.seconds - prediction.seconds
    if best is prediction or own < RATIO or off > own / 2 or seconds <= case.least:
        return None
    name = best.job.settings.recompute
    ahead, behind = prediction.passes
    return Cause(
        "recomputation",
        "recomputation that was not meant",
        seconds * forward / max(ahead),
        f"backward passes take {backward / forward:.2f} times as long as forward passes; "
        f"{max(behind) / max(ahead):.2f} are predicted of the job, "
        f"{max(best.passes[1]) / max(best.passes[0]):.2f} with recomputation of {name}",
        check,
    )


FULL_RECOMPUTE = Recompute(granularity="full", method="uniform", layers=1)
RECOMPUTED = (FULL_RECOMPUTE, Recompute(granularity="selective", modules=("core_attn",)))


def straggler(case: Case) -> Cause | None:
    """Look for a rank that computes longer than others with as much to do."""
    prediction = needed(case.prediction, JOB)
    forward, backward = _passes(case, OF_RANKS)
    if math.isnan(forward[0]) or math.isnan(backward[0]):
        raise NotTold(OF_RANKS.replace("minmax", "minmax, not max"))
    seconds, apart = 0.0, []
    for (least, most), passes in zip((forward, backward), prediction.passes, strict=True):
        even = max(passes) / min(passes)
        apart.append(most / least / even)
        seconds += max(0.0, most - least * even)
    if min(apart) < 1 + APART or seconds <= case.least:
        return None
    slowest = _slowest(case)
    slow = f"the slowest rank computes {format_percent(min(apart) - 1)} longer than another one"
    experts = prediction.job.model.experts is not None
    if experts and slowest is not None and slowest[1] < SAME:
        return Cause(
            "experts",
            "imbalance of experts",
            seconds,
            f"{slow} with as much to do, and it is another rank from step to step",
            "log tokens per expert; a higher auxiliary loss, or a capacity "
            "(--moe-expert-capacity-factor)",
        )
    who = f"rank {slowest[0]} in {format_percent(slowest[1])} of the steps" if slowest else "a rank"
    return Cause(
        "straggler",
        "a straggler",
        seconds,
        f"{slow} with as much to do ({who}), forward and backward",
        "nvidia-smi -q -d PERFORMANCE,CLOCK and dmesg on that node; leave it out of the job "
        "(ilp-plan replan)",
    )


def _slowest(case: Case) -> tuple[int, float] | None:
    """Return the rank that is slowest most often, and in which share of steps."""
    ranks = [
        rank
        for name in (*FORWARD, *BACKWARD)
        for rank in needed(case.log, LOG).slowest.get(name, ())
    ]
    if not ranks:
        return None
    rank, count = Counter(ranks).most_common(1)[0]
    return rank, count / len(ranks)


def clocks(case: Case) -> Cause | None:
    """Look for kernels that are slower than these GPUs', all by as much."""
    prediction = needed(case.prediction, JOB)
    error = prediction.judged.known.error
    high = error.high**SURE if error is not None else UNKNOWN
    usual = sum(prediction.parts.get(name, 0.0) for name in COMPUTE)
    if case.trace is not None:
        again = recomputation(case)
        measured = case.trace.compute - (again.seconds if again is not None else 0.0)
        ratio, what = measured / usual, "kernels of the trace"
    else:
        (least, most), _ = _passes(case)
        ahead = prediction.passes[0]
        # The fastest rank has no straggler's time in it.
        ratio = most / max(ahead) if math.isnan(least) else least / min(ahead)
        what = "forward passes"
    seconds = (ratio - 1) * usual
    if ratio < high or seconds <= case.least:
        return None
    return Cause(
        "clocks",
        "clocks below the usual",
        seconds,
        f"{what} take {format_percent(ratio - 1)} longer than predicted, "
        f"and 99 of 100 runs at most {format_percent(high - 1)}: all ranks are slower",
        "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER while it runs: a power limit lowers clocks",
    )


def messages(case: Case) -> Cause | None:
    """Look for messages that take longer than these links need, or that are not overlapped."""
    prediction = needed(case.prediction, JOB)
    if case.trace is not None:
        return _messages_of_trace(case, prediction)
    timed = case.timed(*SYNC)
    if timed is None:
        raise NotTold(TIMERS)
    measured, predicted = timed[1], prediction.parts.get(DATA, 0.0)
    if measured - predicted <= case.least:
        return None
    alone = _without_overlap(prediction)
    found = f"gradients and parameters take {format_seconds(measured)} of a step outside of passes"
    if alone > predicted * SLOW and measured <= ALONE * alone:
        return _not_overlapped(
            measured - predicted,
            f"{found}; {format_seconds(predicted)} are predicted with overlap, "
            f"{format_seconds(alone)} without",
        )
    return _slow_link(
        measured - predicted,
        f"{found}; {format_seconds(predicted)} are predicted, and not more than "
        f"{format_seconds(max(alone, predicted))} without any overlap",
        case,
    )


def _without_overlap(prediction: Prediction) -> float:
    """Return the seconds of gradients and parameters if nothing hides them."""
    other = prediction.changed(dict.fromkeys(of_symptom("overlap"), False))
    return prediction.parts.get(DATA, 0.0) if other is None else other.parts.get(DATA, 0.0)


COLLECTIVES = {
    "all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter", "all-gather": "all_gather",
    "all-to-all": "all_to_all",
}  # fmt: skip
EXPOSED = "communication"


def _messages_of_trace(case: Case, prediction: Prediction) -> Cause | None:
    trace = needed(case.trace, TRACE)
    predicted = sum(
        seconds
        for name, seconds in prediction.parts.items()
        if name.endswith(EXPOSED) and not name.startswith("pipeline")
    )
    excess = trace.exposed - predicted
    late, worst = 0.0, ("", 0.0)
    for one in trace.kinds:
        if one.name not in COLLECTIVES or not one.size or one.ranks < 2:
            continue
        count = one.calls / len(trace.steps)
        alone = prediction.message(COLLECTIVES[one.name], one.ranks, one.size / count) * count
        if alone and one.seconds > SLOW * alone:
            late += one.seconds - alone
            rate = one.size / one.seconds
            words = (
                f"{one.name} of {one.ranks} ranks {one.seconds / alone:.1f} times as long as its "
                f"links need ({format_bytes(rate)}/s)"
            )
            worst = max(worst, (words, one.seconds - alone), key=lambda pair: pair[1])
    if excess <= case.least:
        return None
    share = format_percent(trace.exposed / trace.collectives)
    found = (
        f"messages take {format_seconds(trace.exposed)} of a step in which nothing is computed, "
        f"{share} of their time; {format_seconds(predicted)} are predicted"
    )
    if late > excess / 2:
        return _slow_link(min(late, excess), f"{found}; {worst[0]}", case)
    return _not_overlapped(excess, f"{found}; each takes no longer than its links need")


def _slow_link(seconds: float, evidence: str, case: Case) -> Cause:
    network = case.log.said.get("NCCL network", "") if case.log is not None else ""
    said = f"; NCCL says that it uses {network}" if network else ""
    return Cause(
        "link",
        "a slow link, or a wrong NCCL interface",
        seconds,
        evidence + said,
        "NCCL_DEBUG=INFO: the lines NET/ name the interface (NCCL_SOCKET_IFNAME, NCCL_IB_HCA); "
        "all_reduce_perf of nccl-tests on these nodes",
    )


def _not_overlapped(seconds: float, evidence: str) -> Cause:
    return Cause(
        "overlap",
        "messages are not overlapped",
        seconds,
        evidence,
        "Megatron-LM: --overlap-grad-reduce, --overlap-param-gather, --tp-comm-overlap; "
        "CUDA_DEVICE_MAX_CONNECTIONS as your release wants it",
    )


def host_bound(case: Case) -> Cause | None:
    """Look for a GPU that waits for its host between kernels."""
    trace = needed(case.trace, TRACE)
    if trace.gaps <= HOST * case.seconds:
        return None
    return Cause(
        "host",
        "steps are bound by the host",
        trace.gaps,
        f"of {trace.kernels:,.0f} kernels of a step many are launched only when the GPU rests "
        f"already: {format_seconds(trace.gaps)} in gaps below 1 ms",
        "CUDA graphs (--cuda-graph-impl local), larger micro-batches, no synchronisation in the "
        "loop (.item()), a process pinned to the GPU's NUMA node",
    )


def experts(case: Case) -> Cause | None:
    """Look for experts that get more tokens than others, as the log says."""
    prediction, log = needed(case.prediction, JOB), needed(case.log, LOG)
    if prediction.job.model.experts is None:
        return None
    fullest = log.last(m.IMBALANCE)
    if fullest is None:
        if log.slowest:
            return None  # `straggler` tells by the ranks
        raise NotTold("a log with tokens per expert (max over mean), or timers of every rank")
    fields = of_symptom("experts")
    changed = prediction.changed(dict.fromkeys(fields, max(1.0, fullest)))
    seconds = 0.0 if changed is None else changed.seconds - prediction.seconds
    if seconds <= case.least:
        return None
    return Cause(
        "experts",
        "imbalance of experts",
        seconds,
        f"the fullest expert rank gets {fullest:.2f} times the mean of tokens, "
        f"{attrgetter(*fields)(prediction.job):.2f} times are assumed",
        "a higher auxiliary loss, or a capacity (--moe-expert-capacity-factor)",
    )
