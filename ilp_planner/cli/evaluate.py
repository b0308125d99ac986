"""`ilp-plan evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.inputs import rebuild_case
from ilp_planner.cli.layer_evaluate import judge_layers
from ilp_planner.coverage import coverage_of
from ilp_planner.errors import PlanError
from ilp_planner.formats.groups_json import read_saved
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.formats.saved_remarks import certificate_remarks, claim_remarks
from ilp_planner.numerics import SAVED_ROUNDING
from ilp_planner.report.console import print_report
from ilp_planner.report.evaluation import certificate_table, evaluation_lines, proof_lines
from ilp_planner.report.json_report import certificate_object, evaluation_object, print_json
from ilp_planner.report.tables import stage_table, summary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.coverage import Coverage
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import Claim
    from ilp_planner.problem import Problem


def evaluate(
    plan_file: o.PlanFile,
    check_certificate: Annotated[
        bool, typer.Option("--check-certificate", help="Derive the proved bound again.")
    ] = False,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Judge a saved plan again from its inputs, never from what the file claims."""
    from ilp_planner.evaluate import evaluate as judge

    saved = read_saved(plan_file)
    if isinstance(saved, SavedGroups):
        found, proof, known = judge_layers(
            saved,
            plan_file,
            check_certificate=check_certificate,
            accept_changed=accept_changed,
            as_json=as_json,
        )
        remarks = part_remarks(saved.certificate, "part", known)
        broken = [str(part.part) for part in proof.parts if not part.holds] if proof else []
        complain(plan_file, saved.claim, found, proof, broken, remarks)
        return
    case = rebuild_case(saved, plan_file, accept_changed=accept_changed)
    evaluation = judge(case.problem, saved.plan)
    check = rederive(case.problem, saved, plan_file) if check_certificate else None
    coverage = coverage_of(case.problem, saved.plan, legal=evaluation.legal)
    show(case.problem, saved, evaluation, check, coverage, as_json=as_json)
    parts = [] if check is None else check.parts
    broken = [f"micro-batch {part.part}" for part in parts if not part.holds]
    remarks = part_remarks(saved.certificate, "micro_batch", case.problem.micro_batches)
    complain(plan_file, saved.claim, evaluation, check, broken, remarks)


def part_remarks(certificate: dict[str, Any], key: str, known: "Collection[object]") -> list[str]:
    """Return what is wrong with the list of parts of a certificate, if there is one.

    Parameters
    ----------
    key: what names a part. known: the parts that the inputs have.
    """
    return list(certificate_remarks(certificate, key, known)) if certificate else []


def rederive(problem: "Problem", saved: SavedPlan, file: Path) -> "CertificateCheck":
    """Check the certificate of a saved plan.

    Raises
    ------
    PlanError: it has none, or a malformed one.
    """
    from ilp_planner.certificate import check_certificate

    if not saved.certificate:
        raise PlanError(f"{file}: certificate: found null, expected the record of a proof")
    try:
        return check_certificate(problem, saved.certificate)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def show(
    problem: "Problem",
    saved: SavedPlan,
    evaluation: "Evaluation",
    check: "CertificateCheck | None",
    coverage: "Coverage",
    *,
    as_json: bool,
) -> None:
    """Print a verdict.

    Raises
    ------
    SolverError: the bound is above the time of a plan that it is about.
    """
    if as_json:
        value: dict[str, Any] = evaluation_object(problem, saved.plan, evaluation)
        value |= coverage._asdict()
        if check is not None:
            value["certificate"] = certificate_object(
                check, evaluation.iteration_time, "micro_batch", outside=coverage.outside
            )
        print_json(value)
        return
    tables = [stage_table(problem, saved.plan, evaluation)] if evaluation.stages else []
    tables += [] if check is None else [certificate_table(check, "micro-batch")]
    lines = [
        *evaluation_lines(problem, saved.plan, evaluation),
        *proof_lines(saved.claim, check, evaluation.iteration_time, coverage),
    ]
    print_report(summary(lines), *tables)


def complain(
    file: Path,
    claim: "Claim | None",
    evaluation: "Evaluation | Evaluation",
    check: "CertificateCheck | None",
    broken: list[str],
    remarks: "Sequence[str]" = (),
) -> None:
    """Fail when the plan, its claim or its certificate does not hold.

    Parameters
    ----------
    broken: parts of the certificate that do not hold. remarks: on how it lists its parts.

    Raises
    ------
    PlanError: the first of these that does not.
    """
    if not evaluation.legal:
        rules = len(evaluation.violations)
        more = f" ({rules - 1} more)" if rules > 1 else ""
        raise PlanError(f"{file}: plan: {evaluation.violations[0]}{more}")
    time = evaluation.iteration_time
    if claim is not None and not abs(claim.objective - time) <= SAVED_ROUNDING * time:
        raise PlanError(
            f"{file}: result.objective_s: found {claim.objective!r}, "
            f"expected {time!r} as computed from the inputs"
        )
    remarks = [*(claim_remarks(claim) if claim is not None else ()), *remarks]
    if remarks:
        more = f" ({len(remarks) - 1} more)" if len(remarks) > 1 else ""
        raise PlanError(f"{file}: {remarks[0]}{more}")
    if check is not None and not check.holds:
        where = ", ".join(broken) or "the whole"
        raise PlanError(f"{file}: certificate: the bound of {where} does not hold")
