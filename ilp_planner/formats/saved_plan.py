"""The content of a plan file: the decision, its request, the claims, and the judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ilp_planner.evaluate import time_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.result import Aim, Moment, Result, Status, Stop
    from ilp_planner.plan import AnyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Values that differ when the same is solved again, or elsewhere.

    wall: seconds that the search took. versions: package -> version. history: the bounds from
    moment to moment; empty if the file does not say.
    """

    wall: float
    versions: Mapping[str, str] = field(default_factory=dict)
    history: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """The fastest plan that was found, beside a plainer one that was chosen. objective: seconds per
    iteration."""

    plan: AnyPlan
    objective: float
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The solver's claims about the plan.

    objective, bound: seconds per iteration. run: None if the file leaves it out.
    among: the plans that the bound is about, confirmed_by: the solver that found the same optimum,
    both empty if the file does not say. prefer_plain: how much longer than the fastest plan a
    plainer one might take, relative; nan if the file does not say. fastest: that plan; None if the
    plan is the fastest.
    """

    status: Status
    stopped_by: Stop
    objective: float
    bound: float
    gap: float
    bound_source: str
    solver: str
    seed: int
    notes: tuple[str, ...] = ()
    among: str = ""
    confirmed_by: str = ""
    prefer_plain: float = math.nan
    fastest: Faster | None = None
    run: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The evaluator's verdict when the plan was saved.

    iteration_time: seconds, nan for a plan that cannot be priced.
    stages: (seconds per micro-batch, bytes per device) of each.
    provenance: share of the time by source of its figures. errors: expected relative error of
    predictions, if it is known.
    """

    legal: bool
    iteration_time: float
    stages: tuple[tuple[float, float], ...]
    violations: tuple[str, ...]
    provenance: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """All that a file holds. claim: None for a plan that came from elsewhere. aim: the objective
    over sets of nodes, with the proof of each; empty if all were planned for the least time.
    newest: it is of the newest version of files."""

    plan: AnyPlan
    inputs: Request
    claim: Claim | None = None
    verdict: Verdict | None = None
    certificate: dict[str, Any] = field(default_factory=dict)
    aim: dict[str, Any] = field(default_factory=dict)
    newest: bool = field(default=True, compare=False)


INDEPENDENT = "independent"  # in a certificate: the proof for `ilp_planner/checker/checker.py`


def saved_result(
    problem: Problem[Any],
    result: Result,
    versions: Mapping[str, str] | None = None,
    *,
    independent: bool = True,
) -> SavedPlan:
    """Return the saved form of a result with a plan, on a problem that was built from a request.

    Parameters
    ----------
    versions: package -> version; None leaves out all that differs from run to run. independent:
        add the proof for the checker, if the space has one.
    """
    assert result.plan is not None
    assert problem.request is not None
    proof = {}
    aim = result.aim
    if independent and (aim is None or aim.usual) and math.isfinite(result.bound):
        sets = () if aim is None else aim.sets
        nodes = sorted({sum(one.counts) for one in sets if one.covered})
        proof = problem.space.independent_proof(problem, result.bound, nodes)
    return SavedPlan(
        plan=result.plan,
        inputs=problem.request,
        claim=claim_of(result, versions),
        verdict=verdict_of(problem, result.plan, result.evaluation),
        certificate={**result.certificate, **({INDEPENDENT: proof} if proof else {})},
        aim={} if aim is None else encode_aim(aim),
    )


def saved_import(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> SavedPlan:
    """Return the saved form of a plan from elsewhere, on a problem that was built from a
    request."""
    assert problem.request is not None
    verdict = verdict_of(problem, plan, evaluation)
    return SavedPlan(plan=plan, inputs=problem.request, verdict=verdict)


def claim_of(result: Result, versions: Mapping[str, str] | None = None) -> Claim:
    """Return the claims of a result, without the plan.

    Parameters
    ----------
    versions: package -> version; None leaves out all that differs from run to run.
    """
    return Claim(
        status=result.status,
        stopped_by=result.stopped_by,
        objective=result.objective,
        bound=result.bound,
        gap=result.gap,
        bound_source=result.bound_source,
        solver=result.solver,
        seed=result.seed,
        notes=result.notes,
        among=result.among,
        confirmed_by=result.confirmed_by,
        prefer_plain=result.prefer_plain,
        fastest=None
        if result.fastest is None
        else Faster(
            plan=result.fastest.plan,
            objective=result.fastest.objective,
            status=result.fastest.status,
        ),
        run=None
        if versions is None
        else Run(wall=result.wall, versions=dict(versions), history=result.history),
    )


def verdict_of(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None
) -> Verdict | None:
    """Return an evaluation in the form that is saved; a stage's memory is that of its fullest
    device."""
    if evaluation is None:
        return None
    shares = time_shares(problem, plan, evaluation)
    errors = {str(source): share.error for source, share in shares.items()}
    return Verdict(
        legal=evaluation.legal,
        iteration_time=evaluation.iteration_time,
        stages=tuple((c.time, max(c.memory, default=math.nan)) for c in evaluation.stages),
        violations=tuple(map(str, evaluation.violations)),
        provenance={str(source): share.share for source, share in shares.items()},
        errors={source: error for source, error in errors.items() if error is not None},
    )


# The objective of a search over sets of nodes and its proof, as JSON: sets by their nodes of each
# kind.

AIM_KEYS = ("name", "max_price_per_hour", "devices", "bound", "gap", "sets")
SET_KEYS = ("counts", "price_per_hour", "bound_s", "covered", "parts")


def encode_aim(aim: Aim) -> dict[str, Any]:
    """Return its content for a file. bound, gap: of the plan that the file is of."""
    return {
        "name": aim.objective,
        "max_price_per_hour": aim.max_hourly if math.isfinite(aim.max_hourly) else None,
        "devices": dict(aim.devices),
        "bound": aim.best[0].bound,
        "gap": aim.best[0].gap,
        "sets": [
            {
                "counts": list(one.counts),
                "price_per_hour": None if math.isnan(one.hourly) else one.hourly,
                "bound_s": one.bound if math.isfinite(one.bound) else None,
                "covered": one.covered,
                "parts": list(one.parts),
            }
            for one in aim.sets
        ],
    }
