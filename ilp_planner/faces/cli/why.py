"""`ilp-plan why`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import job_options as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.help import OUTPUT, SOLVER
from ilp_planner.faces.cli.values import finite_seconds, number_of_tokens, settings_given

if TYPE_CHECKING:
    from ilp_planner.analysis.compare.judge import Asked
    from ilp_planner.analysis.why.why import Case
    from ilp_planner.faces.report.why import Told


def why(
    ctx: typer.Context,
    plan_file: o.PlanFile,
    instead: Annotated[
        str | None,
        o.plain(
            "--not",
            "Why not another plan: the best one with constraints, as tp=8 or 'pp=2..4 "
            "recompute=none', a saved plan, a launch script or aceso:FILE.",
            "ALTERNATIVE",
        ),
    ] = None,
    set_values: j.SetValues = None,
    time_limit: Annotated[
        float,
        o.option(
            SOLVER,
            "--time-limit",
            "Seconds of all searches together, from the start of the command on.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 12.0,
    workers: Annotated[
        int | None, o.number(SOLVER, "--workers", "Searches at once.", "one per core")
    ] = None,
    within: Annotated[
        float,
        o.option(
            OUTPUT,
            "--within",
            "How far above the best the plan may be, for the error of times that it survives.",
            "FRACTION",
            default=True,
        ),
    ] = 0.05,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Tell what limits a saved plan, where its seconds go, and what would help.

    Every gain is a range that is proved: of searches that begin from the plan.
    """
    from ilp_planner.analysis.compare.judge import Asked
    from ilp_planner.analysis.why.why import read_case
    from ilp_planner.base.children import cores
    from ilp_planner.faces.report.why import Told

    if not 0 < within < 1:
        raise UsageError(f"--within: found {within}, expected a fraction above 0 and below 1")
    run_tokens = number_of_tokens(tokens)
    deadline = Deadline(finite_seconds(time_limit), started=ctx.obj)
    case = read_case(plan_file, workers or cores(), accept_changed=accept_changed)
    if instead is None:
        if set_values:
            raise UsageError("--set: found no --not, expected a launch script that it is for")
        show_why(case, deadline, Told(within, run_tokens), as_json=as_json)
        return
    asked = Asked(instead, settings_given(set_values), accept_changed)
    show_alternative(case, asked, deadline, run_tokens, as_json=as_json)


def show_why(case: "Case", deadline: Deadline, told: "Told", *, as_json: bool) -> None:
    """Find and print the limits of a plan."""
    from ilp_planner.analysis.why.why import why as ask
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.why import why_lines, why_object, why_tables

    found = ask(case, deadline)
    if as_json:
        print_json(why_object(found, told))
        return
    print_report(why_lines(found, told), *why_tables(found), verdict=True)


def show_alternative(
    case: "Case", asked: "Asked", deadline: Deadline, tokens: float | None, *, as_json: bool
) -> None:
    """Find and print why not another plan."""
    from ilp_planner.analysis.why.alternative import given_plan, with_demands
    from ilp_planner.faces.report.alternative import (
        alternative_lines,
        alternative_object,
        alternative_tables,
    )
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.inputs.demand import demanded, names_plan

    if names_plan(asked.text):
        found = given_plan(case, asked)
    else:
        demands = demanded(asked.text, "--not")
        found = with_demands(case, demands, asked.text, deadline)
    if as_json:
        print_json(alternative_object(found, tokens))
        return
    print_report(list(alternative_lines(found)), *alternative_tables(found, tokens), verdict=True)
