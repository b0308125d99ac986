"""The verdict on a plan in a few words, and the numbers that people ask for first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import TERA, counted, format_percent
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.brief import BETWEEN, fastest_text
from ilp_planner.faces.report.expected import expected_object
from ilp_planner.faces.report.prices import price_of, run_in
from ilp_planner.faces.report.rates import three_digits
from ilp_planner.faces.report.tables import describe_gap, exact_seconds, proved_by
from ilp_planner.faces.report.verdict import BAD, judgement_verdict
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.spaces.throughput import throughput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem


class Headline(NamedTuple):
    """A verdict. mood: `good`, `fair` or `bad`. details: one line each. folded: the text that
    unfolds them; empty if everybody must see them. nearby: the plan that is nearly as good, empty
    without one."""

    mood: str
    text: str
    details: tuple[str, ...] = ()
    folded: str = ""
    nearby: str = ""


class Figure(NamedTuple):
    """A number with its name. note: its subject. value: in a fixed unit, nan if the ratio of two
    plans' numbers says nothing."""

    name: str
    text: str
    note: str = ""
    value: float = math.nan


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
    yield from _rates(problem, plan, evaluation)
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
    batch = f"{plan.global_batch} samples in {plan.micro_batches} micro-batches"
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


def _rates(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Iterator[Figure]:
    done = throughput(problem, plan, evaluation)
    if done is None:
        return
    rate, unit = (done.tokens, "tokens/s") if done.tokens else (done.samples, "samples/s")
    yield Figure(unit, three_digits(rate), "of all devices", rate)
    each = rate / done.devices
    yield Figure(f"{unit} per GPU", three_digits(each), "", each)
    flops = done.flops / TERA
    yield Figure("TFLOP/s per GPU", three_digits(flops), "of the model", flops)
    assert problem.spec is not None
    peak = f"of the {problem.spec.precision} peak"
    for name, share, note in (
        ("MFU", done.mfu, peak),
        ("HFU", done.hfu, f"{peak}, with what is computed again"),
        ("bubble", done.bubble, "of the iteration"),
    ):
        if share is not None:
            yield Figure(name, format_percent(share), note)


def _expected(problem: Problem[Any], plan: AnyPlan) -> Iterator[Figure]:
    """Yield the expected error of times, if it is known."""
    known = expected_object(problem, plan)
    error, runs = known["expected_error"], known["calibration_runs"]
    if error is not None:
        note = f"{runs} runs of this machine" if runs else "other machines of this kind"
        yield Figure("expected error", format_percent(error), note)


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
