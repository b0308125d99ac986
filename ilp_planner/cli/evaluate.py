"""`ilp-plan evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.cli import options as o
from ilp_planner.errors import PlanError
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.report.console import print_report
from ilp_planner.report.evaluation import judgement_lines, judgement_tables
from ilp_planner.report.json_report import judgement_object, print_json
from ilp_planner.report.tables import summary

if TYPE_CHECKING:
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.formats.saved_plan import SavedPlan
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
    from ilp_planner.formats.saved_problem import problem_of

    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    judgement = judge(problem, saved, plan_file, certificate=check_certificate)
    show(judgement, as_json=as_json)
    if judgement.fault:
        raise PlanError(f"{plan_file}: {judgement.fault}")


def judge(
    problem: "Problem[Any]", saved: "SavedPlan", file: Path, *, certificate: bool
) -> "Judgement":
    """Judge a saved plan; errors begin with its file."""
    from ilp_planner.formats.saved_check import judge_saved

    try:
        return judge_saved(problem, saved, certificate=certificate)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def show(judgement: "Judgement", *, as_json: bool) -> None:
    """Print a verdict."""
    if as_json:
        print_json(judgement_object(judgement))
        return
    print_report(summary(judgement_lines(judgement)), *judgement_tables(judgement))
