"""A saved plan judged again: nothing that a solver or a file claims is believed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ilp_planner.coverage import coverage_of, proved_gap
from ilp_planner.errors import PlanError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_remarks import (
    bound_remarks,
    certificate_remarks,
    claim_remarks,
    key_remarks,
    verdict_remarks,
)
from ilp_planner.numerics import SAVED_ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.coverage import Coverage
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.objectives.check import AimCheck
    from ilp_planner.problem import Problem


@dataclass(frozen=True, kw_only=True, repr=False)
class Judgement:
    """A saved plan and its proof, judged again.

    certificate: None where it was not derived again. aim: the bounds of all sets of nodes,
    likewise, and None where the plan was searched on all of them for the least time. faults: what
    does not hold, the worst first.
    """

    problem: Problem[Any]
    saved: SavedPlan
    evaluation: Evaluation
    coverage: Coverage
    certificate: CertificateCheck | None
    aim: AimCheck | None = None
    faults: tuple[str, ...]

    @property
    def fault(self) -> str:
        """The first thing that does not hold, and how many more there are; empty when everything
        does."""
        if not self.faults:
            return ""
        more = f" ({len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return f"{self.faults[0]}{more}"


def judge_saved(problem: Problem[Any], saved: SavedPlan, *, certificate: bool) -> Judgement:
    """Judge a plan again, and what is claimed of it.

    Parameters
    ----------
    certificate: derive every bound of its certificate again as well.

    Raises
    ------
    PlanError: it has no certificate, or a malformed one.
    SolverError: the bound derived again is above the time of a plan that it is about.
    """
    from ilp_planner.certificate import check_certificate

    evaluation = evaluate(problem, saved.plan)
    coverage = coverage_of(problem, saved.plan, legal=evaluation.legal)
    derived = None
    if certificate:
        if not saved.certificate:
            raise PlanError("certificate: found null, expected the record of a proof")
        derived = check_certificate(problem, saved.certificate)
        if evaluation.legal and coverage.outside is None:
            proved_gap(evaluation.iteration_time, derived.bound)
    aim = None
    if certificate and saved.aim and evaluation.legal:
        from ilp_planner.objectives.check import check_aim

        aim = check_aim(problem, saved.plan, evaluation.iteration_time, saved.aim)
    faults = (*_faults(problem, saved, evaluation, derived), *_aim_faults(saved, aim))
    return Judgement(
        problem=problem,
        saved=saved,
        evaluation=evaluation,
        coverage=coverage,
        certificate=derived,
        aim=aim,
        faults=faults,
    )


def _aim_faults(saved: SavedPlan, aim: AimCheck | None) -> Iterator[str]:
    """Yield what does not hold of an objective that was derived again."""
    if aim is None:
        return
    yield from (
        f"objective.sets: the bound of {one.name} does not hold"
        for one in aim.sets
        if not one.holds
    )
    claimed = saved.aim.get("bound")
    if not isinstance(claimed, int | float) or claimed > aim.bound * (1 + SAVED_ROUNDING):
        yield f"objective.bound: found {claimed!r}, expected at most {aim.bound!r}, derived again"
    if aim.bound > aim.value * (1 + SAVED_ROUNDING):
        yield f"objective: the bound of {aim.bound!r} is above the plan's own {aim.value!r}"


def _faults(
    problem: Problem[Any],
    saved: SavedPlan,
    evaluation: Evaluation,
    derived: CertificateCheck | None,
) -> Iterator[str]:
    """Yield what does not hold of the plan; of its claim and its certificate only where it does."""
    if not evaluation.legal:
        yield from (f"plan: {violation}" for violation in evaluation.violations)
        return
    time, claim = evaluation.iteration_time, saved.claim
    if claim is not None:
        if not abs(claim.objective - time) <= SAVED_ROUNDING * time:
            yield (
                f"result.objective_s: found {claim.objective!r}, expected {time!r} as computed "
                "from the inputs"
            )
            return
        yield from claim_remarks(claim)
    if saved.verdict is not None:
        yield from verdict_remarks(saved.verdict, time)
    if saved.certificate:
        yield from key_remarks(saved.certificate, problem.space)
        yield from bound_remarks(claim, saved.certificate)
        listed = partial(problem.space.part_names, problem)
        yield from certificate_remarks(saved.certificate, problem.space.part_key, listed)
    if derived is not None and not derived.holds:
        parts = problem.space.part_key.replace("_", "-")
        broken = ", ".join(str(part.part) for part in derived.parts if not part.holds)
        where = f"{parts} {broken}" if broken else "the whole"
        yield f"certificate: the bound of {where} does not hold"
