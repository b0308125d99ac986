"""What a plan file holds: the decision, what it is for, what was claimed, how it was judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import Plan
    from ilp_planner.profiles.shares import Share
    from ilp_planner.profiles.table import Provenance
    from ilp_planner.result import Outcome, Status, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An input: the name or path that the user gave, and its content's SHA-256 (empty: none)."""

    name: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a plan was made for, enough to build the problem again.

    profile: its name is `FORMAT:PATH`, or `FORMAT` where the format needs no files.
    memory_limit: bytes per device. micro_batches: sizes that were tried.
    """

    model: Reference
    cluster: Reference
    profile: Reference
    cost_model: str
    global_batch: int
    memory_limit: float
    micro_batches: tuple[int, ...]
    max_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What differs when the same is solved again, or elsewhere.

    wall: seconds that the search took. versions: package -> version.
    """

    wall: float
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the solver said about the plan.

    objective, bound: seconds per iteration. run: None where the file leaves it out.
    among: the plans that the bound is about, confirmed_by: the solver that found the same optimum,
    both empty where the file does not say.
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
    run: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the evaluator said when the plan was saved.

    iteration_time: seconds, nan for a plan that cannot be priced.
    stages: (seconds per micro-batch, bytes per device) of each.
    provenance: share of the time by where its figures come from. errors: expected relative error of
    those that are predictions, where it is known.
    """

    legal: bool
    iteration_time: float
    stages: tuple[tuple[float, float], ...]
    violations: tuple[str, ...]
    provenance: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What is said of a plan. claim: None for a plan that came from elsewhere."""

    claim: Claim | None = None
    verdict: Verdict | None = None
    certificate: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan(Saved):
    """All that the file of a plan of operators holds."""

    plan: Plan
    inputs: Inputs


def claim_of(result: Outcome, versions: Mapping[str, str] | None = None) -> Claim:
    """Return what a result claims, without the plan.

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
        run=None if versions is None else Run(wall=result.wall, versions=dict(versions)),
    )


def verdict_of(evaluation: Evaluation, shares: Mapping[Provenance, Share] | None = None) -> Verdict:
    """Return an evaluation in the form that is saved.

    Parameters
    ----------
    shares: of its time.
    """
    return Verdict(
        legal=evaluation.legal,
        iteration_time=evaluation.iteration_time,
        stages=tuple((cost.time, cost.memory) for cost in evaluation.stages),
        violations=tuple(map(str, evaluation.violations)),
        **saved_shares(shares or {}),
    )


def saved_shares(shares: Mapping[Provenance, Share]) -> dict[str, dict[str, float]]:
    """Return shares of the time as the fields of a verdict."""
    errors = {str(source): share.error for source, share in shares.items()}
    return {
        "provenance": {str(source): share.share for source, share in shares.items()},
        "errors": {source: error for source, error in errors.items() if error is not None},
    }
