"""`ilp-plan evaluate` for saved plans of whole layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.cli.layer_inputs import rebuild_layer_case
from ilp_planner.errors import PlanError
from ilp_planner.report.console import print_report
from ilp_planner.report.evaluation import certificate_table, proof_lines
from ilp_planner.report.groups import group_evaluation_lines, group_table
from ilp_planner.report.groups_json import group_evaluation_object
from ilp_planner.report.json_report import certificate_object, print_json
from ilp_planner.report.tables import summary

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.coverage import Coverage
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_groups import SavedGroups
    from ilp_planner.problem import Problem


def judge_layers(
    saved: SavedGroups,
    file: Path,
    *,
    check_certificate: bool,
    accept_changed: bool,
    as_json: bool,
) -> tuple[Evaluation, CertificateCheck | None, list[str]]:
    """Judge a saved plan again from its inputs and print the verdict.

    Return what was found, and the names of the parts that its certificate should have.
    """
    from ilp_planner.evaluate import coverage_of, evaluate
    from ilp_planner.spaces.registry import space_of

    problem = rebuild_layer_case(saved, file, accept_changed=accept_changed).problem
    evaluation = evaluate(problem, saved.plan)
    check = rederive_layers(problem, saved, file) if check_certificate else None
    coverage = coverage_of(problem, saved.plan, legal=evaluation.legal)
    show_verdict(problem, saved, evaluation, check, coverage, as_json=as_json)
    names = [part.name for part in space_of(problem).parts()] if saved.certificate else []
    return evaluation, check, names


def rederive_layers(problem: Problem[Any], saved: SavedGroups, file: Path) -> CertificateCheck:
    """Check the certificate of a saved plan.

    Raises
    ------
    PlanError: it has none, or a malformed one.
    """
    from ilp_planner.search.graph_certificate import check_certificate

    if not saved.certificate:
        raise PlanError(f"{file}: certificate: found null, expected the record of a proof")
    try:
        return check_certificate(problem, saved.certificate)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def show_verdict(
    problem: Problem[Any],
    saved: SavedGroups,
    evaluation: Evaluation,
    check: CertificateCheck | None,
    coverage: Coverage,
    *,
    as_json: bool,
) -> None:
    """Print a verdict.

    Raises
    ------
    SolverError: the bound is above the time of a plan that it is about.
    """
    if as_json:
        value: dict[str, Any] = group_evaluation_object(problem, saved.plan, evaluation)
        value |= coverage._asdict()
        if check is not None:
            value["certificate"] = certificate_object(
                check, evaluation.iteration_time, outside=coverage.outside
            )
        print_json(value)
        return
    tables = [] if evaluation.cost is None else [group_table(problem, saved.plan, evaluation)]
    tables += [] if check is None else [certificate_table(check)]
    lines = [
        *group_evaluation_lines(problem, saved.plan, evaluation),
        *proof_lines(saved.claim, check, evaluation.iteration_time, coverage),
    ]
    print_report(summary(lines), *tables)
