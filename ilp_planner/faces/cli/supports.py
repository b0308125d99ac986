"""`ilp-plan supports`."""

from typing import Annotated

import typer

from ilp_planner.base.limits import DEVICES
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import models as complete


def supports(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Any that --model takes; `ilp-plan models` lists those that are here.",
            show_default=False,
            autocompletion=complete,
        ),
    ],
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="NAMES",
            help="Kinds of GPU, as H100,B200, whose expected error is shown; those that published "
            "runs are of without this option.",
            show_default=False,
        ),
    ] = "",
    devices: Annotated[
        int, typer.Option("--devices", metavar="N", help="GPUs of a job.", min=1, max=DEVICES)
    ] = 8,
    text_only: Annotated[bool, o.plain("--text-only", o.TEXT_ONLY)] = False,
    as_json: o.Json = False,
) -> None:
    """Show what is done with a model: which training systems plan and write it, with which expected
    error on which GPU, and what is refused and why."""
    from ilp_planner.analysis.supports import support_of
    from ilp_planner.faces.report.console import print_brief
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.supports import (
        supports_legend,
        supports_lines,
        supports_object,
        supports_tables,
    )
    from ilp_planner.inputs.files import find_model

    model = find_model(name, text_only=text_only)
    found = support_of(model, [each for each in gpus.split(",") if each.strip()], devices)
    if as_json:
        print_json(supports_object(found))
        return
    print_brief([*supports_lines(found, name), *supports_legend()], list(supports_tables(found)))
