"""`ilp-plan gpus`."""

from typing import Annotated

import typer

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import gpu_names


def gpus(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="GPU",
            help="One of them, in full; also as torch calls it.",
            show_default=False,
            autocompletion=gpu_names,
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Show the table of GPUs: peaks, memory, bandwidths and links, and what each number rests on.

    `--gpus 16xA100-80GB` plans for some of them; a cluster file may name one and say only what
    differs.
    """
    from ilp_planner.base.errors import SpecError, UsageError
    from ilp_planner.faces.report.catalogues import gpu_lines, gpu_object, gpus_legend, gpus_table
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.schemas import headed
    from ilp_planner.specs.gpus import gpu, table

    try:
        rows = list(table().values()) if name is None else [gpu(name)]
    except SpecError as error:
        raise UsageError(f"GPU: {error}") from None
    if as_json:
        print_json(headed("gpus") | {"gpus": [gpu_object(row) for row in rows]})
    elif name is None:
        print_report(gpus_legend(), gpus_table(rows))
    else:
        print_report(gpu_lines(rows[0]))
