"""`ilp-plan analyze`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.job_options import AnyJob
from ilp_planner.faces.cli.options import number, script_arguments, shown, taking


@dataclass(frozen=True, kw_only=True)
class Report:
    """Which parts are printed, and where to."""

    stage: Annotated[
        int | None, number(OUTPUT, "--stage", "Show only this pipeline stage.", least=0)
    ] = None
    all_groups: Annotated[bool, shown("--all-groups", "Name every communication group.")] = False
    compat: Annotated[
        Literal["analysis-tool"] | None,
        shown(
            "--compat", "The report of Megatron-LM's analysis tool, with its formulas and errors."
        ),
    ] = None
    output: Annotated[
        Path | None, shown("--output", "Where to write it, JSON for FILE.json.", "FILE")
    ] = None
    as_json: o.Json = False


@taking(job=AnyJob, report=Report)
def analyze(
    ctx: typer.Context,
    plan_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            help="A launch script or a configuration, the same as --megatron-script; a job of "
            "`ilp-plan capture`; a saved plan; or a model, the same as --model.",
            show_default=False,
            autocompletion=plans,
        ),
    ] = None,
    *,
    job: AnyJob,
    report: Report,
    accept_changed: o.AcceptChanged = False,
) -> None:
    """Tell what a training job holds and sends, GPU by GPU, before it is launched."""
    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.faces.cli.analyze_output import emit
    from ilp_planner.faces.cli.analyze_sources import read_analysis, source_by_kind
    from ilp_planner.job.verdict import EXIT_CODE, Verdict

    asked = {**vars(job), **vars(report), "plan_file": plan_file, "accept_changed": accept_changed}
    asked["script_arguments"] = script_arguments(ctx)
    if job.model is None:
        asked |= source_by_kind(plan_file, asked)
    found = read_analysis(ctx, asked)
    emit(found, asked)
    if isinstance(found, Analysis) and found.verdict is Verdict.MAY_NOT_FIT:
        raise typer.Exit(EXIT_CODE)
