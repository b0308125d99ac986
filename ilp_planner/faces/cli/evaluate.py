"""`ilp-plan evaluate`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ilp_planner.base.errors import PlanError
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.values import number_of_tokens
from ilp_planner.faces.report.console import print_brief
from ilp_planner.faces.report.evaluation import judgement_lines, judgement_tables, verdict_lines
from ilp_planner.faces.report.json_report import judgement_object, print_json
from ilp_planner.formats.saved_json import read_saved

if TYPE_CHECKING:
    from ilp_planner.formats.saved_check import Judgement


def evaluate(
    plan_file: o.PlanFile,
    check_certificate: Annotated[
        bool, typer.Option("--check-certificate", help="Derive the proved bound again.")
    ] = False,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Judge a saved plan again from its inputs, never from what the file claims."""
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.formats.saved_problem import problem_of

    run_tokens = number_of_tokens(tokens)
    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    try:
        judgement = judge_saved(problem, saved, certificate=check_certificate)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    show(judgement, run_tokens, as_json=as_json)
    if judgement.fault:
        raise PlanError(f"{plan_file}: {judgement.fault}")


def show(judgement: "Judgement", tokens: float | None = None, *, as_json: bool) -> None:
    """Print a verdict. tokens: of a training run; None: nothing is said of one."""
    if as_json:
        print_json(judgement_object(judgement, tokens))
        return
    details = judgement_lines(judgement, tokens)
    print_brief(verdict_lines(judgement), judgement_tables(judgement), details)
