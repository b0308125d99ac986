"""All that a page says of one plan, before anything is written as HTML.

The place of every device of every node in the plan, as the script of the page draws it.

The launch of a plan, or why there is none.

The verdict on a plan in a few words, and the numbers that people ask for first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.base.units import counted, format_seconds
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.page.picture import (
    MOST_OPERATIONS,
    RankBar,
    memory_bars,
    packed,
    sends_of,
    timeline_data,
)
from ilp_planner.faces.report.brief import fastest_text
from ilp_planner.faces.report.evaluation import proof_lines
from ilp_planner.faces.report.expected import known_of
from ilp_planner.faces.report.lines import NANOSECOND, evaluation_lines
from ilp_planner.faces.report.parallelism import BETWEEN
from ilp_planner.faces.report.rates import Figure, price_of, rate_figures, run_in
from ilp_planner.faces.report.simulation import simulation_lines, simulation_table
from ilp_planner.faces.report.stages import stage_table
from ilp_planner.faces.report.tables import STOPS, Table, describe_gap, exact_seconds, proved_by
from ilp_planner.faces.report.verdict import BAD, judgement_verdict
from ilp_planner.formats.exported import file_name
from ilp_planner.formats.exports import EXPORTS, Target, expected_of, export_job, runtime_of
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.plan import is_of_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.analysis.simulated import Simulated
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Moment
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec


# ---- figures -------------------------------------------------------------------------------------


class Headline(NamedTuple):
    """A verdict. mood: `good`, `fair` or `bad`. details: one line each. folded: the text that
    unfolds them; empty if everybody must see them. nearby: the plan that is nearly as good, empty
    without one."""

    mood: str
    text: str
    details: tuple[str, ...] = ()
    folded: str = ""
    nearby: str = ""


def headline_of(judgement: Judgement) -> Headline:
    """Return the verdict on a plan: whether it is legal and its file's claims hold, and its gap."""
    evaluation, claim = judgement.evaluation, judgement.saved.claim
    if not evaluation.legal:
        count = len(evaluation.violations)
        rules = f"{count} rule{'s' if count > 1 else ''}"
        return Headline(BAD, f"Breaks {rules}", tuple(map(str, evaluation.violations)))
    if judgement.faults:
        return Headline(BAD, "Legal, but its file claims what does not hold", judgement.faults)
    verdict = judgement_verdict(judgement)
    among, outside = judgement.coverage
    if claim is None or outside:
        return Headline(verdict.mood, verdict.sentence)
    about = ((f"{among[:1].upper()}{among[1:]}.",), "Which plans were searched")
    return Headline(verdict.mood, verdict.sentence, *about, nearby=_nearby(judgement))


def _nearby(judgement: Judgement) -> str:
    """Return the fastest plan, if a plainer one was taken; empty if there is none."""
    claim = judgement.saved.claim
    fastest = None if claim is None else claim.fastest
    if fastest is None:
        return ""
    judged = evaluate(judgement.problem, fastest.plan)
    words = fastest_text(judgement.problem, judgement.saved.plan, fastest.plan, judged)
    return f"The fastest plan: {words.replace(BETWEEN, ', ')}."


def figures_of(judgement: Judgement, tokens: float | None = None) -> Iterator[Figure]:
    """Yield the three numbers, iteration time, bound and gap, and then the rates.

    Parameters
    ----------
    tokens: of a training run; None: nothing is said of one.
    """
    problem, plan, evaluation = judgement.problem, judgement.saved.plan, judgement.evaluation
    yield from _proof(judgement)
    yield from rate_figures(problem, plan, evaluation)
    yield Figure(
        "devices", str(plan.devices), f"in {plan.ranks} pipeline rank{'s' * (plan.ranks > 1)}"
    )
    yield from _expected(problem, plan)
    yield from _prices(problem, plan, evaluation)
    if tokens and (run := run_in(problem, plan, evaluation, tokens)) is not None:
        cost = "" if run.price is None else f"price {run.price:,.0f}"
        yield Figure(f"days for {tokens:g} tokens", f"{run.days:,.2f}", cost, run.days)


def _proof(judgement: Judgement) -> Iterator[Figure]:
    plan, evaluation = judgement.saved.plan, judgement.evaluation
    claim, seconds = judgement.saved.claim, evaluation.iteration_time
    batch = f"{plan.global_batch} samples in {counted(plan.micro_batches, 'micro-batch')}"
    yield Figure("iteration time", exact_seconds(seconds), batch, seconds)
    if claim is None or claim.bound <= 0:
        yield Figure("bound", "-", "none is claimed")
        yield Figure("gap", "-", "no bound")
        return
    proof = judgement.saved.certificate and claim.bound_source
    note = f"claimed, proved by {proved_by(claim)}" if proof else "claimed"
    yield Figure("bound", exact_seconds(claim.bound), note, claim.bound)
    outside = judgement.coverage.outside
    if outside or not evaluation.legal or judgement.faults:
        yield Figure("gap", "-", "the bound is not about this plan" if outside else "not judged")
        return
    gap = proved_gap(seconds, claim.bound)
    yield Figure("gap", describe_gap(gap).removesuffix(" (proved optimal)"), "1 - bound / time")


def _expected(problem: Problem[Any], plan: AnyPlan) -> Iterator[Figure]:
    """Yield the expected error of times, if it is known."""
    error = known_of(problem, plan).error
    if error is not None:
        yield Figure(
            "expected error", error.short, f"measured over predicted, in 4 of 5 runs: {error.basis}"
        )


def _prices(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Iterator[Figure]:
    """Yield the price of the nodes in use; nothing if a price is not known."""
    price = price_of(problem, plan, evaluation)
    if price is None:
        return
    whole = f"of {counted(price.nodes, 'node')}"
    yield Figure("price per hour", f"{price.hourly:,.2f}", whole, price.hourly)
    yield Figure("price per iteration", f"{price.once:.4g}", "", price.once)
    if price.tokens is not None:
        yield Figure("price per 10^9 tokens", f"{price.tokens:,.2f}", "", price.tokens)


# ---- launch --------------------------------------------------------------------------------------


USUAL = "megatron"  # of plans that are for no runtime


class Launch(NamedTuple):
    """The main file that starts a plan. runtime: the training system. name: of the file.
    comments: the lines it begins with that a reader may skip; text: the rest. refusal: why there is
    none; empty if there is one."""

    runtime: str
    name: str = ""
    comments: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    refusal: str = ""


def launch_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation, stem: str) -> Launch:
    """Return the launch of a plan under its training system, or Megatron-LM if it has none.

    Parameters
    ----------
    stem: how the names of files begin.
    """
    from ilp_planner.formats.megatron.plan import job_of_plan

    own = problem.space.name
    runtime = runtime_of(own if own.partition("@")[0] in EXPORTS else USUAL)
    if problem.spec is None:
        return Launch(str(runtime), refusal="a profile alone says what is planned, not a model")
    time = evaluation.iteration_time if evaluation.cost is not None else None
    target = Target(problem.spec, problem.cluster, time)
    try:
        job = job_of_plan(plan, problem.spec, problem.cluster, problem.request)
        exported = export_job(runtime, job, stem, expected_of(plan, job, target))
    except PlanError as refusal:
        return Launch(str(runtime), refusal=str(refusal))
    suffix, text = next(iter(exported.files.items()))
    return Launch(str(runtime), file_name(stem, suffix), *parted(text), exported.notes)


def parted(text: str) -> tuple[str, str]:
    """Return the comments that a file begins with, and the rest."""
    lines = text.splitlines(keepends=True)
    begin = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), 0)
    return "".join(lines[:begin]), "".join(lines[begin:])


# ---- devices -------------------------------------------------------------------------------------


MOST_DEVICES = 16_384  # that a page draws


def device_map(plan: AnyPlan, cluster: ClusterSpec) -> dict[str, Any]:
    """Return the script's data for every device of a cluster, ready for JSON.

    `packed` has three columns, in the cluster's order of devices: pipeline rank, data-parallel
    replica, and place in the replica; -1 of devices that the plan leaves idle, and, of plans that
    differ from operator to operator, of the last two. `tp` is the number of places of a
    tensor-parallel group: a replica has `tp` x cp of them.
    """
    place = np.full((3, cluster.device_count), -1, np.int64)
    for rank in range(plan.ranks):
        for device in plan.stages[rank].devices:
            if device < cluster.device_count:
                place[0, device] = rank
    if is_of_groups(plan):
        for stage in plan.stages[: plan.ranks]:
            for r, replica in enumerate(stage.replicas):
                here = [device for device in replica.devices if device < cluster.device_count]
                place[1, here], place[2, here] = r, np.arange(len(here))
    return {
        "nodes": list(cluster.devices_of_nodes),
        "types": list(cluster.called),
        "ranks": plan.ranks,
        "cp": plan.cp,
        "grouped": is_of_groups(plan),
        "packed": packed(*place),
    }


# ---- view ----------------------------------------------------------------------------------------


HASH = 12  # digits of a hash that are shown


@dataclass(frozen=True, kw_only=True)
class View:
    """The content of a plan's page.

    name: of the plan. terms: seconds of an iteration by name, which add up to its time.
    simulated: the iteration in time. timeline, devices: data for scripts, ready for JSON; these
    three are None if there is nothing, or too much. missing: omitted parts, with reasons, by
    section. groups: of ranks that send to each other; None if no training job says the plan.
    history: of the search, empty if it was not saved.
    """

    name: str
    model: str
    cluster: str
    headline: Headline
    figures: tuple[Figure, ...]
    lines: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...]
    stages: Table | None
    ranks: Table | None
    groups: Table | None
    terms: Mapping[str, float]
    memory: tuple[RankBar, ...]
    launch: Launch
    simulated: Simulated | None
    schedule: tuple[tuple[str, str], ...]
    timeline: dict[str, Any] | None
    devices: dict[str, Any] | None
    missing: Mapping[str, str]
    history: tuple[Moment, ...]


def view_of(judgement: Judgement, *, name: str, stem: str, tokens: float | None = None) -> View:
    """Return the content of a plan's page; the plan need not be legal.

    Parameters
    ----------
    name: of the plan. stem: how the names of files begin that start it.
    tokens: of a training run; None: nothing is said of one.
    """
    problem, saved, evaluation = judgement.problem, judgement.saved, judgement.evaluation
    plan, missing = saved.plan, dict[str, str]()
    found, timeline = None, None
    try:
        found = _simulated(judgement)
        timeline = _timeline(judgement, found)
    except PlannerError as error:
        missing["timeline"] = str(error)
    memory = memory_bars(problem, plan, evaluation)
    if not memory:
        priced = evaluation.cost is not None
        costs = f"the cost model {problem.costs.name!r} counts none"
        missing["memory"] = costs if priced else "the plan breaks rules that give it no price"
    devices = None
    if problem.cluster.device_count <= MOST_DEVICES:
        devices = device_map(plan, problem.cluster)
    else:
        many = problem.cluster.device_count
        missing["devices"] = f"{many} devices, of which a page draws at most {MOST_DEVICES}"
    claim = saved.claim
    return View(
        name=name,
        model=problem.model,
        cluster=problem.cluster.name,
        headline=headline_of(judgement),
        figures=tuple(figures_of(judgement, tokens)),
        lines=(
            *evaluation_lines(problem, plan, evaluation, tokens),
            *proof_lines(judgement),
        ),
        provenance=tuple(_provenance(saved)),
        stages=None if evaluation.cost is None else stage_table(problem, plan, evaluation),
        ranks=None if found is None else simulation_table(found),
        groups=_groups(judgement),
        terms=_terms(judgement),
        memory=memory,
        launch=launch_of(problem, plan, evaluation, stem),
        simulated=found,
        schedule=() if found is None else tuple(simulation_lines(found)),
        timeline=timeline,
        devices=devices,
        missing=missing,
        history=claim.run.history if claim is not None and claim.run is not None else (),
    )


def _simulated(judgement: Judgement) -> Simulated:
    """Return the iteration in time.

    Raises
    ------
    PlanError: the plan has no times, or there is too much to run.
    """
    from ilp_planner.analysis.simulated import simulated

    plan = judgement.saved.plan
    count = 2 * len(plan.stages) * plan.micro_batches
    if count > MOST_OPERATIONS:
        raise PlanError(
            f"{count} operations, of which a page draws at most {MOST_OPERATIONS}; "
            "`ilp-plan simulate` runs all of them"
        )
    return simulated(plan, judgement.evaluation)


def _timeline(judgement: Judgement, found: Simulated) -> dict[str, Any]:
    from ilp_planner.analysis.simulated import stage_times

    assert judgement.evaluation.cost is not None
    sends = sends_of(found.timeline, stage_times(judgement.evaluation.cost))
    return timeline_data(found, sends)


def _groups(judgement: Judgement) -> Table | None:
    """Return a row per kind of group of ranks; None if no training job says the plan."""
    from ilp_planner.analysis.plans import analyze_plan

    problem, plan = judgement.problem, judgement.saved.plan
    if problem.spec is None or judgement.evaluation.cost is None:
        return None
    try:
        found = analyze_plan(plan, problem.spec, problem.cluster, source="plan").groups
    except PlanError:
        return None
    left = ("group", "for", "messages travel")
    table = Table("group", "for", "groups", "members each", "messages travel", left=left)
    for g in found:
        table.add(g.kind, g.purpose, str(g.count), str(g.size), g.link)
    return table if found else None


def _terms(judgement: Judgement) -> Mapping[str, float]:
    """Return seconds of an iteration by term, as `why` has them; none that nobody would read, or
    that is unknown."""
    problem, cost = judgement.problem, judgement.evaluation.cost
    if cost is None:
        return {}
    found = problem.space.seconds(problem, judgement.saved.plan, cost)
    return {name: value for name, value in found.items() if NANOSECOND <= value < math.inf}


def _provenance(saved: SavedPlan) -> Iterator[tuple[str, str]]:
    """Yield the inputs and the versions of a plan."""
    for key, file in saved.inputs.files.items():
        mark = f", sha256 {file.sha256[:HASH]}" if file.sha256 else ""
        held = ", held in the plan's file" if file.text is not None else ""
        yield key, f"{file.name}{mark}{held}"
    claim = saved.claim
    if claim is None:
        yield "search", "none: the plan came from elsewhere"
        return
    yield "search", f"{claim.solver}, seed {claim.seed}, stopped by {STOPS[claim.stopped_by]}"
    for note in claim.notes:
        yield "note", note
    if claim.run is None:
        yield "run", "not saved"
        return
    yield "took", format_seconds(claim.run.wall)
    versions = [f"{package} {version}" for package, version in claim.run.versions.items()]
    if versions:
        yield "versions", ", ".join(versions)
