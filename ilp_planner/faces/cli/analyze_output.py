"""Printing and saving results of `ilp-plan analyze`."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import check_writable, to_json, write_text
from ilp_planner.base.parts import part
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.faces.report.analysis_judged import Judged, judged_object, judged_text

if TYPE_CHECKING:
    from ilp_planner.analysis.analyze import Analysis

Shown = str | dict[str, Any]  # a text, or an object to be written as JSON
PIPE_WIDTH = 200  # columns when nobody's terminal limits them


def output_width() -> tuple[int, bool]:
    """Return the columns of the terminal, and whether it takes styles."""
    columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    return columns, sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def emit(found: Analysis | Judged, asked: dict[str, Any]) -> None:
    """Print the results, or save them; refuse a stage that is not there."""
    output = asked["output"]
    if output is not None:
        named = (asked[kind] for kind in ("plan_file", "model", "megatron_script", "cluster"))
        check_writable(output, [Path(name) for name in named if name])
    if isinstance(found, Judged):
        refuse_of_jobs(asked)
    as_json = asked["as_json"] or (output is not None and output.suffix == ".json")
    every = found.evaluation.stages if isinstance(found, Judged) else found.jobs
    stage, stages = asked["stage"], len(every)
    if stage is not None and stage >= stages:
        raise UsageError(f"--stage: found {stage}, expected one of 0 to {stages - 1}")
    shown = (_compatible if asked["compat"] else _own)(found, asked, as_json=as_json)
    text = shown if isinstance(shown, str) else to_json(shown).rstrip("\n")
    if output is None:
        echo(text)
        return
    write_text(output, text + "\n")
    echo(f"{output}: analysis of {found.name}", err=True)


def refuse_of_jobs(asked: dict[str, Any]) -> None:
    """Refuse options of training jobs, for a plan that is none.

    Raises
    ------
    UsageError: names the option.
    """
    for name in ("cluster", "gpus", "memory_limit", "stage", "all_groups"):
        if asked[name] is not None and asked[name] is not False:
            raise UsageError(
                f"{option_of(name)}: found a plan that no training job says, whose figures are "
                "those of its own cost model and inputs, expected none"
            )


def _compatible(found: Analysis | Judged, asked: dict[str, Any], *, as_json: bool) -> Shown:
    """Return the analysis tool's report."""
    if isinstance(found, Judged) or not found.uniform:
        raise UsageError(
            "--compat analysis-tool: found a plan whose stages differ in tp or dp, expected one "
            "that a launch line can say"
        )
    if asked["stage"] is not None:
        raise UsageError("--stage: found --compat too, whose report has no stages, expected none")
    shown: Shown
    if as_json:
        shown = part("peers.analysis_tool.report:tool_object")(found.job)
    else:
        text = part("peers.analysis_tool.report:tool_text")
        shown = text(found.job, all_groups=asked["all_groups"])
    return shown


def _tool_note(found: Analysis) -> tuple[str, ...]:
    """Return the analysis tool's figures for a job that it knows, if they differ."""
    if not found.uniform:
        return ()
    try:
        figures = part("peers.analysis_tool.numbers:tool_figures")(found.job)
    except UsageError:
        return ()
    peak = part("peers.analysis_tool.numbers:in_gb")(figures.rank_memory["Memory Requirement"])
    return (
        f"Megatron-LM's analysis tool would say {figures.rank_parameters:,} parameters and "
        f"{peak} GB of every GPU; --compat analysis-tool shows its report, and why it differs",
    )


def _own(found: Analysis | Judged, asked: dict[str, Any], *, as_json: bool) -> Shown:
    """Return our report."""
    width, styled = output_width() if asked["output"] is None else (PIPE_WIDTH, False)
    if isinstance(found, Judged):
        return judged_object(found) if as_json else judged_text(found, width=width, styled=styled)
    shown = replace(found, notes=(*found.notes, *_tool_note(found)))
    chosen = {"all_groups": asked["all_groups"], "stage": asked["stage"]}
    if as_json:
        from ilp_planner.faces.report.analysis_json import analysis_object

        return analysis_object(shown, **chosen)
    from ilp_planner.faces.report.analysis import analysis_text

    return analysis_text(shown, **chosen, width=width, styled=styled)
