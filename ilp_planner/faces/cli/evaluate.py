"""`ilp-plan evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.values import number_of_tokens
from ilp_planner.faces.report.evaluation import print_judgement
from ilp_planner.formats.saved_json import read_saved


def evaluate(
    plan_file: o.PlanFile,
    check_certificate: Annotated[
        bool, typer.Option("--check-certificate", help="Derive the proved bound again.")
    ] = False,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="Let a checker judge the plan and prove its bound that shares nothing with the "
            "planner: ilp_planner/checker/checker.py, which runs alone as well.",
        ),
    ] = False,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Judge a saved plan again from its inputs, never from what the file claims."""
    if independent:
        given = (
            ("--check-certificate", check_certificate),
            ("--accept-changed", accept_changed),
            ("--tokens", tokens is not None),
            ("--json", as_json),
        )
        for name in (name for name, there in given if there):
            raise UsageError(
                f"{name}: expected no --independent beside it, which asks the file alone"
            )
        _checked(plan_file)
        return
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.formats.saved_problem import problem_of

    run_tokens = number_of_tokens(tokens)
    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    try:
        judgement = judge_saved(problem, saved, certificate=check_certificate)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    print_judgement(judgement, run_tokens, as_json=as_json)
    if judgement.fault:
        raise PlanError(f"{plan_file}: {judgement.fault}")


def _checked(plan_file: Path) -> None:
    """Run the checker on a file, and print its verdict."""
    from ilp_planner.checker import checker

    try:
        verdict = checker.check(checker.read(str(plan_file)))
    except checker.RefusedError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    typer.echo("\n".join(checker.told(verdict)))
    faults = checker.faults_of(verdict)
    if faults:
        raise PlanError(f"{plan_file}: {faults[0]}")


def tell_checked(plan_file: Path, unproved: str) -> None:
    """Print that a plan was just saved whose proof holds, or why it was not checked.

    unproved: why the file has no proof; empty: it has one.

    Raises
    ------
    PlanError: it does not hold.
    """
    from ilp_planner.checker import checker

    if unproved:
        from ilp_planner.faces.cli.wording import as_typed

        why = as_typed(unproved)
        typer.echo(f"ilp-plan: not checked: {plan_file}: no independent proof: {why}", err=True)
        return
    try:
        verdict = checker.check(checker.read(str(plan_file)))
    except checker.RefusedError as error:
        typer.echo(f"ilp-plan: not checked: {plan_file}: {error}", err=True)
        return
    faults = checker.faults_of(verdict)
    if faults:
        raise PlanError(f"{plan_file}: {faults[0]}")
    below = checker.weaker(verdict)
    said = verdict.get("on", "") + (f", {below}" if below else "")
    typer.echo(f"{'checked':<18}independently, {verdict['took']:.1f} s{said}")
