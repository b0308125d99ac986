"""A saved plan judged again: nothing that a solver or a file claims is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_remarks import Evidence, remarks
from ilp_planner.optimize.coverage import coverage_of, proved_gap

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.certificate import CertificateCheck
    from ilp_planner.optimize.coverage import Coverage
    from ilp_planner.spaces.objectives.check import AimCheck


@dataclass(frozen=True, kw_only=True, repr=False)
class Judgement:
    """A saved plan and its proof, judged again.

    certificate: None if it was not derived again. aim: the bounds of all sets of nodes, likewise,
    and None if the plan was searched on all of them for the least time. faults: the worst first.
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

    @property
    def holds(self) -> bool:
        """The plan is legal, and all that its file says of it is true."""
        return not self.faults


def judge_saved(problem: Problem[Any], saved: SavedPlan, *, certificate: bool) -> Judgement:
    """Judge a plan and its claims again.

    Parameters
    ----------
    certificate: derive every bound of its certificate again as well.

    Raises
    ------
    PlanError: the certificate is malformed, or there is none, and nothing that it had to prove.
    SolverError: the bound derived again is above the time of a plan that it is about.
    """
    evaluation = evaluate(problem, saved.plan)
    coverage = coverage_of(problem, saved.plan, legal=evaluation.legal)
    derived = aim = None
    if certificate and saved.certificate:
        from ilp_planner.optimize.certificate import check_certificate

        derived = check_certificate(problem, saved.certificate)
        if evaluation.legal and coverage.outside is None:
            proved_gap(evaluation.iteration_time, derived.bound)
    if certificate and saved.aim and evaluation.legal:
        from ilp_planner.spaces.objectives.check import check_aim

        aim = check_aim(problem, saved.plan, evaluation.iteration_time, saved.aim)
    evidence = Evidence(
        problem=problem,
        saved=saved,
        evaluation=evaluation,
        coverage=coverage,
        derived=derived,
        aim=aim,
    )
    faults = tuple(remarks(evidence))
    if certificate and not saved.certificate and not faults:
        raise PlanError("certificate: found null, expected the record of a proof")
    return Judgement(
        problem=problem,
        saved=saved,
        evaluation=evaluation,
        coverage=coverage,
        certificate=derived,
        aim=aim,
        faults=faults,
    )
