"""`ilp-plan runtimes`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import runtimes as complete
from ilp_planner.faces.cli.wording import as_typed, option_of

if TYPE_CHECKING:
    from ilp_planner.settings.base import Treatment


def runtimes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUNTIME",
            help="One of them: what a search does about each setting of its plans.",
            show_default=False,
            autocompletion=complete,
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Show the training systems: what is written for which release, what checks it, what is
    searched.

    Of one that `solve --runtime` takes, a table has every setting of a training job: the values
    that are searched, those that are fixed, and what is left out, and why.
    """
    from ilp_planner.base.errors import UsageError
    from ilp_planner.faces.report.catalogues import (
        runtime_lines,
        runtime_object,
        runtimes_legend,
        runtimes_table,
        treatment_object,
        treatments_legend,
        treatments_table,
    )
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.schemas import headed
    from ilp_planner.formats.exports import RELEASES
    from ilp_planner.settings.base import HOW
    from ilp_planner.spaces.registry import RUNTIMES, runtime_named

    if name is None:
        if as_json:
            print_json(
                headed("runtimes") | {"runtimes": [runtime_object(each) for each in RELEASES]}
            )
        else:
            print_report(runtimes_legend(), runtimes_table())
        return
    known = dict.fromkeys((*RELEASES, *RUNTIMES))
    if name not in known:
        raise UsageError(f"RUNTIME: found {name!r}, expected one of {', '.join(known)}")
    runtime = runtime_named(name) if name in RUNTIMES else None
    rows = [_typed(row) for row in runtime.treatments()] if runtime else []
    if as_json:
        settings = [treatment_object(row) for row in rows]
        print_json(headed("runtime") | runtime_object(name) | {"settings": settings})
    elif runtime:
        about = [("above", f"what a search does about the settings of {runtime.title}")]
        legend = about + treatments_legend(HOW)
        print_report(runtime_lines(name) + legend, treatments_table(rows))
    else:
        print_report(runtime_lines(name))


def _typed(row: "Treatment") -> "Treatment":
    """Return the treatment of a setting in the words of the command line."""
    options = tuple(option_of(name) for name in row.asked_by)
    return replace(row, asked_by=options, remark=as_typed(row.remark))
