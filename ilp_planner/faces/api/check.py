"""Judging a plan again, and its proof: nothing that a solver or a file claims is believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.api.words import Printed, brief_text, in_python, python_words

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.optimize.certificate import CertificateCheck
    from ilp_planner.optimize.coverage import Coverage
    from ilp_planner.problem import Problem


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Printed):
    """A plan and its proof, judged again."""

    judgement: Judgement

    @property
    def evaluation(self) -> Evaluation:
        """The plan judged anew."""
        return self.judgement.evaluation

    @property
    def certificate(self) -> CertificateCheck | None:
        """The proof derived again; None if the plan came without one."""
        return self.judgement.certificate

    @property
    def coverage(self) -> Coverage:
        """The plans of the proof, and why this one is outside, if it is."""
        return self.judgement.coverage

    @property
    def fault(self) -> str:
        """The first thing that does not hold; empty when everything does."""
        return in_python(self.judgement.fault)

    @property
    def holds(self) -> bool:
        """The plan is legal, takes the time that is claimed, and its bound is proved."""
        return self.judgement.holds

    @property
    def bound(self) -> float:
        """Seconds that no plan of the space is below, derived again; 0 without a certificate."""
        return 0.0 if self.certificate is None else self.certificate.bound

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan evaluate --json`."""
        from ilp_planner.faces.report.json_report import judgement_object

        return judgement_object(self.judgement)

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<Check {self.fault or 'holds'}>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.evaluation import (
            judgement_lines,
            judgement_tables,
            verdict_lines,
        )

        judged = self.judgement
        tables = judgement_tables(judged)
        return brief_text(verdict_lines(judged), tables, judgement_lines(judged))


def check_plan(problem: Problem[Any], saved: SavedPlan, *, certificate: bool = True) -> Check:
    """Judge a plan again, and derive every bound of its certificate again, if it has one.

    Raises
    ------
    PlanError: the certificate is malformed.
    SolverError: the bound derived again is above the time of a plan that it is about.
    """
    from ilp_planner.formats.saved_check import judge_saved

    with python_words():
        derive = certificate and bool(saved.certificate)
        return Check(judgement=judge_saved(problem, saved, certificate=derive))
