"""`ilp-plan schema`."""

from typing import Annotated

import typer

from ilp_planner.faces.cli.completion import schemas
from ilp_planner.faces.cli.terminal import echo


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One of them: the schema itself, to validate an output or a file by.",
            show_default=False,
            autocompletion=schemas,
        ),
    ] = None,
) -> None:
    """Show the JSON schemas of what --json prints, and of the files that are read and written.

    Of files in TOML it is the schema of what they say, of tables in CSV that of a row.
    """
    from ilp_planner.base.files import to_json
    from ilp_planner.faces.schemas import names
    from ilp_planner.faces.schemas import schema as schema_named

    if name is not None:
        echo(to_json(schema_named(name)), nl=False)
        return
    width = max(map(len, names()))
    for each in names():
        echo(f"{each:{width}}  {schema_named(each)['title']}")
