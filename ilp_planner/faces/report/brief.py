"""A result in eight lines or so, the verdict first, as people read it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fullest import fullest_device
from ilp_planner.base.errors import PlanError
from ilp_planner.base.units import COUNT_UNITS, TERA, counted, format_percent, format_seconds
from ilp_planner.costs.profiles.shares import predicted_error
from ilp_planner.evaluate import time_shares
from ilp_planner.faces.report.devices import describe_types
from ilp_planner.faces.report.expected import known_of
from ilp_planner.faces.report.parallelism import BETWEEN, degree_words
from ilp_planner.faces.report.rates import (
    felt,
    price_lines,
    price_of,
    run_in,
    samples_of_plan,
    three_digits,
)
from ilp_planner.faces.report.shortlist import shortlist_lines
from ilp_planner.faces.report.stages import training_words
from ilp_planner.faces.report.tables import GIB
from ilp_planner.faces.report.verdict import all_nodes, result_verdict
from ilp_planner.job.verdict import PERCENT, Verdict, verdict_of
from ilp_planner.optimize.result import Status
from ilp_planner.spaces.throughput import throughput
from ilp_planner.specs.prices import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Result
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec

TOKENS = 1e12  # of a training run, where nobody says
MOST_NOTES = 3
MOST_TYPED = 100  # letters of a command that is not broken
FILE = "plan.json"  # of a plan that was not saved yet


def brief_lines(
    problem: Problem[Any],
    result: Result,
    tokens: float | None = None,
    steps: Iterable[str] = (),
) -> list[tuple[str, str]]:
    """Return a head and a text for each line; things that a line lists are two spaces apart.

    Parameters
    ----------
    tokens: of a training run; None: of 10^12. steps: commands that may follow.
    """
    verdict = result_verdict(problem, result)
    said = (verdict.head, verdict.text)
    plan, evaluation = result.plan, result.evaluation
    if plan is None or evaluation is None:
        about = [said, ("problem", problem_text(problem, None)), *_note_lines(problem, result)]
        return [*about, *(("next", BETWEEN.join(each)) for each in [list(steps)] if each)]
    step = f"{format_seconds(evaluation.iteration_time)} per step"
    price = price_lines(price_of(problem, plan, evaluation))
    return [
        (step, problem_text(problem, plan)),
        said,
        _rate_line(problem, plan, evaluation, tokens),
        *samples_of_plan(problem, plan),
        *price,
        *run_lines(problem, plan, evaluation),
        ("memory", memory_text(problem, plan, evaluation)),
        *(("BROKEN RULE", str(violation)) for violation in evaluation.violations),
        *_fastest_lines(problem, result),
        *shortlist_lines(problem, result),
        *_note_lines(problem, result),
        *(("next", BETWEEN.join(each)) for each in [list(steps)] if each),
    ]


# ---- what was planned ---------------------------------------------------------------------------


def problem_text(problem: Problem[Any], plan: AnyPlan | None) -> str:
    """Return `llama3-70b on 64 x H100, all 8 nodes, batch 1024 x 8192`."""
    cluster = problem.cluster
    used = _devices_of(cluster, plan)
    tokens = 0 if problem.spec is None else problem.spec.architecture.tokens
    batch = f"{problem.global_batch} x {tokens:.0f}" if tokens else str(problem.global_batch)
    where = describe_types(cluster, used)
    return f"{problem.model} on {where}, {nodes_text(problem, plan)}, batch {batch}"


def _devices_of(cluster: ClusterSpec, plan: AnyPlan | None) -> list[int] | range:
    """Return the devices of a plan that the cluster has, all of them without a plan.

    A broken rule names the others.
    """
    every = range(cluster.device_count)
    return every if plan is None else sorted({*every} & {*plan.used})


def nodes_text(problem: Problem[Any], plan: AnyPlan | None) -> str:
    """Return `all 8 nodes`, or `3 of 6 nodes (16 x V100 + 8 x T4 idle)`.

    Nodes that a plan may not use count, too: they idle as well.
    """
    own, whole = problem.cluster, whole_cluster(problem)
    every = range(own.device_count)
    used = _devices_of(own, plan)
    number, total = len(nodes_of(own, used)), whole.node_count
    idle = describe_types(own, sorted({*every} - {*used}))
    if whole.device_count > own.device_count:
        idle = _left_out(whole, own, used)
    idle = f" ({idle} idle)" if idle else ""
    if number < total:
        return f"{number} of {total} nodes{idle}"
    return f"{all_nodes(total)}{idle}"


def _left_out(whole: ClusterSpec, own: ClusterSpec, used: list[int] | range) -> str:
    """Return the devices of a cluster that are in no plan on a part of it, by type."""
    left = _counts(whole)
    for name, count in _counts(own, used).items():
        left[name] -= count
    return " + ".join(f"{count} x {name}" for name, count in left.items() if count > 0)


def _counts(cluster: ClusterSpec, devices: list[int] | range | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for device in range(cluster.device_count) if devices is None else devices:
        name = cluster.called[cluster.node_of[device]]
        found[name] = found.get(name, 0) + 1
    return found


def whole_cluster(problem: Problem[Any]) -> ClusterSpec:
    """Return the whole cluster of a problem, with the devices that plans may not use."""
    files, own = problem.files, problem.cluster
    if files is None or not {"cluster"} & {*files.request.files, *files.objects}:
        return own
    whole = files.whole_cluster
    return whole if whole.device_count > own.device_count else own


# ---- what it is worth ---------------------------------------------------------------------------


def _rate_line(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation, tokens: float | None
) -> tuple[str, str]:
    """Say tokens per second, FLOP/s of GPUs, the days of a training run, and the error."""
    error = error_text(problem, plan, evaluation)
    done = throughput(problem, plan, evaluation)
    if done is None:
        rate = plan.global_batch / evaluation.iteration_time
        return f"{three_digits(rate)} samples/s", error
    rate, unit = (done.tokens, "tokens") if done.tokens else (done.samples, "samples")
    parts = [f"{three_digits(rate / done.devices)} per GPU"]
    if done.mfu is not None:
        parts.append(f"MFU {100 * done.mfu:.1f} %")
    else:
        parts.append(f"{three_digits(done.flops / TERA)} TFLOP/s per GPU")
    if felt(done.host):
        parts.append(f"waits for the host {short_percent(done.host or 0.0)}")
    run = run_in(problem, plan, evaluation, tokens or TOKENS)
    if run is not None:
        cost = "" if run.price is None else f", price {run.price:,.0f}"
        parts.append(f"{short_count(run.tokens)} tokens: {three_digits(run.days)} days{cost}")
    return f"{three_digits(rate)} {unit}/s", BETWEEN.join([*parts, error])


def short_count(number: float) -> str:
    """Return `15T` for 15e12."""
    for unit, size in sorted(COUNT_UNITS.items(), key=lambda pair: -pair[1]):
        if number >= size:
            return f"{number / size:.4g}{unit.upper()}"
    return f"{number:.4g}"


def error_text(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> str:
    """Say in a few words how far the time is off as a rule."""
    expected = known_of(problem, plan).error
    if expected is not None:
        if expected.runs and not expected.unmeasured:
            return f"4 of 5 such runs {expected.words}"
        missing = f"none with {', '.join(expected.unmeasured)}" if expected.runs else "none like it"
        return f"4 of 5 runs near it {expected.words}: {missing}"
    shares = time_shares(problem, plan, evaluation)
    error = predicted_error(shares)
    if error is not None:
        return f"predicted times are off by {short_percent(error)}"
    measured = sum(share.share for source, share in shares.items() if source == "measured")
    if measured > 0:
        return f"{short_percent(measured)} of the time rests on measurements"
    return "times are estimates, of unknown error"


def short_percent(share: float) -> str:
    """Return `9.8 %`, `5 %`."""
    percent = 100 * share
    return f"{percent:.2g} %" if 0.1 <= percent < 99.5 else format_percent(share)


# ---- the plan -----------------------------------------------------------------------------------


def run_lines(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> Iterator[tuple[str, str]]:
    """Say how to run a plan: degrees, micro-batch, flags and layout."""
    name = "plan" if plan.settings is None else "run it"
    degrees, layout = degree_words(problem, plan, evaluation)
    yield name, BETWEEN.join([*degrees, *training_words(plan, brief=True)])
    if layout:
        yield "", layout


def memory_text(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> str:
    """Return `55.1 to 76.0 of 79.1 GiB; rank 1 has 3.1 GiB left`."""
    pairs = zip(plan.stages[: plan.ranks], evaluation.stages, strict=False)
    costs = [(stage, cost) for stage, cost in pairs if cost.memory_terms or any(cost.memory)]
    if not costs:
        return f"not modelled by the costs of {problem.costs.name}"
    used = [fullest_device(problem, stage, cost) for stage, cost in costs]
    least, most = (pick(size for size, _ in used) / GIB for pick in (min, max))
    limits = {limit for _, limit in used}
    text = f"{least:.1f} to {most:.1f}" if f"{least:.1f}" != f"{most:.1f}" else f"{most:.1f}"
    text += f" of {limits.pop() / GIB:.1f} GiB" if len(limits) == 1 else " GiB"
    rank = max(range(len(used)), key=lambda r: used[r][0] / used[r][1])
    size, limit = used[rank]
    left = f"{max(0.0, limit - size) / GIB:.1f} GiB left" if size <= limit else "too little"
    kind = describe_types(problem.cluster, plan.stages[rank].devices[:1]).removeprefix("1 x ")
    which = f" ({kind})" if len({*problem.memory_limits.values()}) > 1 else ""
    who = f"rank {rank}{which} has " if plan.ranks > 1 else ""
    uncertain = plan.settings is not None and verdict_of(size, limit) is Verdict.MAY_NOT_FIT
    near = f", less than {PERCENT}: may not fit" if uncertain and size <= limit else ""
    return f"{text}; {who}{left}{near}"


def _fastest_lines(problem: Problem[Any], result: Result) -> Iterator[tuple[str, str]]:
    """Say the fastest plan, if a plainer one was taken."""
    fastest = result.fastest
    if fastest is not None and result.plan is not None:
        yield "fastest", fastest_text(problem, result.plan, fastest.plan, fastest.evaluation)


def fastest_text(
    problem: Problem[Any], plan: AnyPlan, fastest: AnyPlan, evaluation: Evaluation
) -> str:
    """Return the fastest plan in few words: its degrees, the flags that a plainer plan has not, its
    layout and its time.

    evaluation: of the fastest plan.
    """
    words, layout = degree_words(problem, fastest, evaluation)
    own = training_words(plan, brief=True)
    flags = [word for word in training_words(fastest, brief=True) if word not in own]
    time = format_seconds(evaluation.iteration_time)
    return BETWEEN.join(filter(None, [*words, *flags, layout, time]))


# ---- what else ----------------------------------------------------------------------------------


def _note_lines(problem: Problem[Any], result: Result) -> Iterator[tuple[str, str]]:
    """Yield remarks, but for remarks on the cluster, which are only counted here."""
    every = dict.fromkeys((*result.notes, *problem.notes))
    notes = [note for note in every if note not in problem.cluster.notes]
    for note in notes[:MOST_NOTES]:
        yield "note", note
    if len(notes) > MOST_NOTES:
        yield "note", f"{counted(len(notes) - MOST_NOTES, 'more note')}: --verbose"
    if assumed := len(every) - len(notes):
        yield "assumed", f"{counted(assumed, 'figure')} of the cluster: --verbose"


def next_steps(problem: Problem[Any], result: Result, saved_to: Path | None) -> Iterator[str]:
    """Yield commands that go on from here, in the order of a shell's line."""
    if result.plan is None or result.evaluation is None:
        if result.status is Status.INFEASIBLE and "memory" in result.reason and _trains(problem):
            yield "ilp-plan fit with the same model and GPUs: does other training fit, as --lora"
        return
    file = shlex.quote(str(saved_to or FILE))
    if saved_to is None:
        yield f"this command with --output {FILE}, then:"
    runtime = runtime_for(problem, result.plan)
    steps = [f"ilp-plan export {file} --to {runtime} --output run;"] if runtime else []
    steps += [f"ilp-plan why {file};", f"ilp-plan show {file}"]
    if max(map(len, steps)) <= MOST_TYPED:
        yield from steps
    else:  # a command that is broken would be none
        verbs = "export, why and show" if runtime else "why and show"
        yield f"saved; ilp-plan {verbs} take the path of the plan"


def _trains(problem: Problem[Any]) -> bool:
    """Tell whether plans are jobs of a training system of which nothing is demanded, and of a model
    that may be trained in part."""
    from ilp_planner.formats.exports import EXPORTS
    from ilp_planner.settings.rules import tunable

    if problem.space.name.partition("@")[0] not in EXPORTS or problem.constraints.texts:
        return False
    return tunable(problem.costs.model)


def runtime_for(problem: Problem[Any], plan: AnyPlan) -> str:
    """Return the export that a plan is named for: the first that takes it, of its own system if
    that one does; empty: none."""
    from ilp_planner.formats.exports import EXPORTS, Target, expected_of, takers
    from ilp_planner.formats.megatron.plan import job_of_plan

    own = problem.space.name
    if problem.spec is None or own.partition("@")[0] not in EXPORTS:
        return ""
    try:
        job = job_of_plan(plan, problem.spec, problem.cluster)
        expected = expected_of(plan, job, Target(problem.spec, problem.cluster))
    except PlanError:
        return ""
    return next(takers(job, expected, own), "")
