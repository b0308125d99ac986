"""Judging a plan again, and its proof: nothing that a solver or a file claims is believed."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.api.problem import Problem, rebuilt
from ilp_planner.api.result import Result, as_text, need_plan
from ilp_planner.api.words import expect, in_python, python_words
from ilp_planner.errors import PlanError
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.plan import OperatorPlan

if TYPE_CHECKING:
    import os

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.coverage import Coverage
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import Claim, SavedPlan
    from ilp_planner.plan import GroupPlan


@dataclass(frozen=True, kw_only=True, repr=False)
class Check:
    """A plan and its proof, judged again.

    certificate: None where the plan came without a proof. claim: what the solver said.
    fault: the first thing that does not hold; empty when everything does.
    """

    problem: Problem
    plan: OperatorPlan | GroupPlan
    evaluation: Evaluation | Evaluation
    certificate: CertificateCheck | None
    claim: Claim | None
    fault: str = ""

    @property
    def coverage(self) -> Coverage:
        """Which plans the proof is about, and why this one is outside, if it is."""
        return _coverage(self.problem, self.plan, legal=self.evaluation.legal)

    @property
    def holds(self) -> bool:
        """The plan is legal, takes the time that is claimed, and its bound is proved."""
        return not self.fault

    @property
    def bound(self) -> float:
        """Seconds that no plan of the space is below, derived again; 0 without a certificate."""
        return 0.0 if self.certificate is None else self.certificate.bound

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<Check {self.fault or 'holds'}>"

    def __str__(self) -> str:
        from ilp_planner.report.evaluation import certificate_table, evaluation_lines, proof_lines
        from ilp_planner.report.groups import group_evaluation_lines, group_table
        from ilp_planner.report.tables import stage_table, summary

        layers = is_layers(self.problem)
        table, lines = (
            (group_table, group_evaluation_lines) if layers else (stage_table, evaluation_lines)
        )
        judged: Any = (self.problem.instance, self.plan, self.evaluation)
        tables = [table(*judged)] if priced(self.evaluation) else []
        if self.certificate is not None:
            tables.append(certificate_table(self.certificate, "part" if layers else "micro-batch"))
        proof = proof_lines(
            self.claim, self.certificate, self.evaluation.iteration_time, self.coverage
        )
        return as_text(summary([*lines(*judged), *proof]), tables)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Saved:
    """A plan that was read from a file, with the problem that its inputs make today."""

    file: Path
    problem: Problem
    content: SavedPlan | SavedGroups

    @property
    def plan(self) -> OperatorPlan | GroupPlan:
        """The decision."""
        return self.content.plan

    @property
    def evaluation(self) -> Evaluation | Evaluation:
        """The plan judged anew."""
        judged: Evaluation | Evaluation = evaluate(self.problem, self.plan)
        return judged

    @property
    def claim(self) -> Claim | None:
        """What the solver said; None for a plan that came from elsewhere."""
        return self.content.claim

    def __repr__(self) -> str:
        return f"<Saved {self.file}: {self.plan!r}>"

    def __str__(self) -> str:
        return str(_check(self.problem, self.content, self.file, certificate=False))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def check(self) -> Check:
        """Judge the plan again, and derive every bound of its certificate again."""
        return check(self)

    def export(self, runtime: str, file: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the plan for a training system; return the files. See `export_plan`."""
        from ilp_planner.api.export import export_plan

        return export_plan(self.problem, self.plan, runtime, Path(file), self.content.certificate)

    def analyze(self) -> Analysis:
        """Return what every rank of the plan holds and sends."""
        from ilp_planner.api.analysis import analyze

        return analyze(self)


def load(file: str | os.PathLike[str], *, accept_changed: bool = False) -> Saved:
    """Read a saved plan, and build its problem again from its inputs.

    Parameters
    ----------
    accept_changed: judge by the inputs as they are now, also where they differ from those recorded.

    Raises
    ------
    PlanError: it cannot be read, or an input has changed.
    """
    from ilp_planner.cli.inputs import plan_folders, rebuild_case
    from ilp_planner.cli.layer_inputs import rebuild_layer_case
    from ilp_planner.formats.groups_json import read_saved

    path = Path(file)
    with python_words():
        content = read_saved(path)
        if isinstance(content, SavedGroups):
            layers = rebuild_layer_case(content, path, accept_changed=accept_changed)
            problem = rebuilt(layers.inputs, layers.problem, plan_folders(path))
        else:
            case = rebuild_case(content, path, accept_changed=accept_changed)
            problem = rebuilt(case.inputs, case.problem)
    return Saved(file=path, problem=problem, content=content)


def evaluate(problem: Any, plan: Any) -> Any:
    """Judge a plan: every broken rule, and time and memory recomputed.

    Parameters
    ----------
    problem: of `ilp_planner.problem`, or what it holds. plan: of operators (`Plan`) or of layers
        (`GroupPlan`), as the problem asks for.

    Raises
    ------
    UsageError: an object of another kind.
    """
    from ilp_planner.evaluate import evaluate
    from ilp_planner.evaluate import evaluate as judge
    from ilp_planner.plan import GroupPlan

    whole = as_problem("evaluate", problem)
    layers = is_layers(whole)
    expect("evaluate", plan, GroupPlan if layers else OperatorPlan)
    instance: Any = whole.instance
    return evaluate(instance, plan) if layers else judge(instance, plan)


def check(subject: Result | Saved | str | os.PathLike[str]) -> Check:
    """Judge a plan again, and derive every bound of its certificate again.

    Parameters
    ----------
    subject: a result, what `load` returned, or the file of a plan.

    Raises
    ------
    PlanError: it holds no plan, or cannot be read.
    """
    import os

    if isinstance(subject, str | os.PathLike):
        subject = load(subject)
    expect("check", subject, Result, Saved)
    if isinstance(subject, Saved):
        return _check(subject.problem, subject.content, subject.file)
    from ilp_planner.formats.saved_plan import claim_of

    need_plan(subject)
    content = _Content(subject, claim_of(subject, {}))
    return _check(subject.problem, content, Path("result"))


class _Content:
    """What is checked of a result."""

    def __init__(self, result: Any, claim: Claim) -> None:
        self.plan, self.certificate, self.claim = result.plan, result.certificate, claim


def _coverage(problem: Problem, plan: Any, *, legal: bool) -> Coverage:
    """Return which plans the proof is about, and whether this is one of them."""
    from ilp_planner.coverage import coverage_of
    from ilp_planner.evaluate import coverage_of

    instance: Any = problem.instance
    if is_layers(problem):
        return coverage_of(instance, plan, legal=legal)
    return coverage_of(instance, plan, legal=legal)


def _check(problem: Problem, content: Any, file: Path, *, certificate: bool = True) -> Check:
    from ilp_planner.cli.evaluate import complain, rederive
    from ilp_planner.cli.layer_evaluate import rederive_layers

    layers = is_layers(problem)
    evaluation = evaluate(problem, content.plan)
    instance: Any = problem.instance
    derived, fault = None, ""
    try:
        if certificate and content.certificate:
            derived = (rederive_layers if layers else rederive)(instance, content, file)
        parts = [] if derived is None else derived.parts
        broken = [str(part.part) for part in parts if not part.holds]
        complain(file, content.claim, evaluation, derived, broken)
    except PlanError as error:
        fault = in_python(str(error))
    return Check(
        problem=problem,
        plan=content.plan,
        evaluation=evaluation,
        certificate=derived,
        claim=content.claim,
        fault=fault,
    )


def as_problem(verb: str, given: Any) -> Problem:
    """Return a problem; one of the planner's own is wrapped.

    Raises
    ------
    UsageError: it is none.
    """
    from ilp_planner.problem import Problem
    from ilp_planner.problem import Problem as OperatorProblem

    if isinstance(given, OperatorProblem | Problem[Any]):
        model = given.model if isinstance(given, OperatorProblem) else None
        return Problem(instance=given, model=model, objects=("problem",))
    expect(verb, given, Problem)
    whole: Problem = given
    return whole


def is_layers(problem: Problem) -> bool:
    """Tell whether whole layers are planned."""
    return problem.space != "operators"


def priced(evaluation: Any) -> bool:
    """Tell whether a plan was whole enough to have times."""
    return getattr(evaluation, "cost", None) is not None or bool(getattr(evaluation, "stages", ()))
