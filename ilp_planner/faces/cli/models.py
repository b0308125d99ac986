"""`ilp-plan models`."""

from typing import Annotated

import typer

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import models as complete
from ilp_planner.faces.cli.terminal import echo


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="One of them, or any that --model takes: its model file, to read or to change.",
            show_default=False,
            autocompletion=complete,
        ),
    ] = None,
    text_only: Annotated[bool, o.plain("--text-only", o.TEXT_ONLY)] = False,
    as_json: o.Json = False,
) -> None:
    """Show the catalogue of models: parameters, layers, widths, and where the numbers are from.

    Their names and those that they have at Hugging Face are what --model takes, as it does a
    config.json, a folder with one, and a model file.
    """
    from ilp_planner.faces.report.catalogues import (
        entry_object,
        model_object,
        models_legend,
        models_table,
    )
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.schemas import headed
    from ilp_planner.inputs.files import find_model
    from ilp_planner.specs.model_reader import catalogue
    from ilp_planner.specs.model_writer import model_text
    from ilp_planner.specs.parameter_count import parameter_count

    if name is not None:
        model = find_model(name, text_only=text_only)
        source = f"{name}: {parameter_count(model):,} parameters."
        if as_json:
            print_json(headed("model-summary") | model_object(model))
        else:
            echo(model_text(model, source=source), nl=False)
            for remark in model.remarks:
                echo(f"ilp-plan: note: {remark}", err=True)
    elif as_json:
        print_json(headed("models") | {"models": [entry_object(entry) for entry in catalogue()]})
    else:
        print_report(models_legend(), models_table(catalogue()))
