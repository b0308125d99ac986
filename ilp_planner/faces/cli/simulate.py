"""`ilp-plan simulate`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.base.errors import PlanError
from ilp_planner.base.files import check_writable
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.values import number_of_tokens
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.schedule.schedules import SCHEDULES

NAMES = tuple(SCHEDULES)


def simulate(
    plan_file: o.PlanFile,
    schedule: Annotated[
        Literal[NAMES] | None,  # type: ignore[valid-type]
        typer.Option("--schedule", help="Another order of operations; the plan's own."),
    ] = None,
    trace: Annotated[
        Path | None,
        o.shown("--trace", "Where to write a trace that Perfetto opens.", "FILE"),
    ] = None,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Run the iteration of a saved plan in time, operation by operation."""
    from ilp_planner.analysis.simulated import simulated
    from ilp_planner.evaluate import evaluate
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.expected import expected_lines
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.simulation import (
        Ran,
        ran_lines,
        simulation_lines,
        simulation_object,
        simulation_table,
    )
    from ilp_planner.formats.saved_problem import problem_of
    from ilp_planner.schedule.trace import write_trace

    run_tokens = number_of_tokens(tokens)
    if trace is not None:
        check_writable(trace, [plan_file])
    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    evaluation = evaluate(problem, saved.plan)
    try:
        found = simulated(saved.plan, evaluation, schedule)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    if trace is not None:
        write_trace(trace, found.timeline)
    ran = Ran(problem, saved.plan, evaluation)
    if as_json:
        print_json(simulation_object(found, ran, run_tokens))
        return
    broken = [("BROKEN RULE", str(rule)) for rule in evaluation.violations]
    lines = [
        *simulation_lines(found),
        *ran_lines(found, ran, run_tokens),
        *expected_lines(problem, saved.plan),
        *broken,
    ]
    print_report(lines, simulation_table(found))
