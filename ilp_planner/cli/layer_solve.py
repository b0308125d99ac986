"""`ilp-plan solve` for whole layers: search, save and show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.errors import OutputError
from ilp_planner.formats.groups_json import write_groups
from ilp_planner.formats.saved_groups import SavedGroups, verdict_of_groups
from ilp_planner.formats.saved_plan import claim_of
from ilp_planner.report.console import print_report
from ilp_planner.report.groups import group_result_lines, group_table, ranking_table
from ilp_planner.report.groups_json import group_result_object
from ilp_planner.report.json_report import print_json
from ilp_planner.report.live import Progress
from ilp_planner.report.tables import summary

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.cli.layer_inputs import LayerCase
    from ilp_planner.result import Result
    from ilp_planner.solvers.base import Limits


def search_layers(case: LayerCase, limits: Limits, solver: str, top: int = 1) -> Result:
    """Solve a case, with the live line."""
    from ilp_planner.solve import solve

    with Progress() as progress:
        return solve(case.problem, limits=limits, solver=solver, progress=progress, top=top)


def save_and_show_layers(
    case: LayerCase,
    result: Result,
    output: Path | None,
    known: dict[str, str] | None,
    *,
    as_json: bool,
) -> None:
    """Save the plan, if there is one and somewhere to, and print the result.

    Parameters
    ----------
    known: package -> version, to be saved with the time that the search took; None: neither.

    Raises
    ------
    OutputError: it could not be saved; the result, which may have cost hours, is printed first.
    """
    if output is not None and result.plan is not None:
        try:
            write_groups(output, saved_groups(case, result, known))
        except OutputError:
            show_layers(case, result, None, as_json=as_json)
            raise
    show_layers(case, result, output, as_json=as_json)


def saved_groups(
    case: LayerCase, result: Result, known: dict[str, str] | None = None
) -> SavedGroups:
    """Return what is saved of a result that has a plan."""
    from ilp_planner.evaluate import time_shares

    assert result.plan is not None
    found = result.evaluation
    shares = {} if found is None else time_shares(case.problem, result.plan, found)
    return SavedGroups(
        plan=result.plan,
        inputs=case.inputs,
        claim=claim_of(result, known),
        verdict=None if found is None else verdict_of_groups(found, shares),
        certificate=result.certificate,
    )


def show_layers(case: LayerCase, result: Result, output: Path | None, *, as_json: bool) -> None:
    """Print a result. output: where its plan was saved, if it has one."""
    if as_json:
        print_json(group_result_object(case.problem, result))
        return
    tables = []
    if result.plan is not None and result.evaluation is not None:
        tables.append(group_table(case.problem, result.plan, result.evaluation))
    if result.ranking:
        tables.append(ranking_table(case.problem, result.ranking))
    lines = group_result_lines(case.problem, result)
    if output is not None and result.plan is not None:
        lines.append(("saved to", str(output)))
    print_report(summary(lines), *tables)
