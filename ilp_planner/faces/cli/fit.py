"""`ilp-plan fit`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ilp_planner.base.printable import printable_lines
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.job_options import Job
from ilp_planner.faces.cli.options import number, option, script_arguments, shown, solving, taking
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import number_of_tokens
from ilp_planner.inputs.table import BY_NAME


@taking(job=Job)
def fit(
    ctx: typer.Context,
    plan_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            help="A launch script of Megatron-LM or another system, or a configuration, which is "
            "read, not run; a job of `ilp-plan capture`; a saved plan; or a model, the same as "
            "--model.",
            show_default=False,
            autocompletion=plans,
        ),
    ] = None,
    *,
    job: Job,
    time_limit: Annotated[
        float,
        solving(
            "--time-limit",
            "Seconds of searching with all settings free, where no pair of changes fits.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 10.0,
    verdict: Annotated[
        bool, shown("--verdict", "Whether it fits alone, without times and changes.")
    ] = False,
    top: Annotated[
        int, number(OUTPUT, "--top", "Changes to show of one setting, and of two.", True)
    ] = 5,
    price: Annotated[str | None, option(OUTPUT, "--price", BY_NAME["price"].help, "PRICE")] = None,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Tell whether a training job fits its GPUs, and the cheapest changes that make it fit."""
    from ilp_planner.faces.cli.analyze_output import output_width
    from ilp_planner.faces.cli.analyze_sources import source_by_kind
    from ilp_planner.faces.cli.fit_sources import read_job
    from ilp_planner.faces.report.fit import (
        change_lines,
        changes_object,
        note_lines,
        time_lines,
        uncounted_notes,
        verdict_lines,
        verdict_object,
    )
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.job.verdict import EXIT_CODE, Verdict

    # A cluster says the devices of its nodes.
    said = {**vars(job), "devices_per_node": None, "accept_changed": accept_changed, "price": price}
    said["script_arguments"] = script_arguments(ctx)
    run_tokens = number_of_tokens(tokens)
    asked = read_job(ctx, said | source_by_kind(plan_file, said))
    judge = asked.judge() if asked.timed else None
    if judge:
        judge.check(asked.job)
    as_is = asked.needs()
    width, styled = output_width()
    about: dict[str, Any] = {}
    notes = asked.notes
    if not as_json:
        echo(printable_lines(verdict_lines(as_is, width=width, styled=styled)))
    if judge and not verdict:
        from ilp_planner.analysis.fit.fit import fit as fit_job

        found = fit_job(judge, asked.writer, time_limit)
        about = changes_object(found, run_tokens)
        notes += uncounted_notes(found)
        if not as_json:
            echo("\n".join(time_lines(found.as_is, run_tokens, width=width)))
            lines = change_lines(found, words=asked.words, top=top, width=width)
            echo("\n".join(lines))
    if as_json:
        print_json(verdict_object(as_is, name=asked.model.name, notes=notes) | about)
    elif notes:
        echo("\n".join(note_lines(notes, width=width)))
    if as_is.verdict is Verdict.MAY_NOT_FIT:
        raise typer.Exit(EXIT_CODE)
