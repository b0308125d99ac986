"""`ilp-plan profile`: the commands that make, complete and check profiles."""

import importlib
from collections.abc import Sequence

import typer

from ilp_planner.faces.cli.help import Group
from ilp_planner.faces.cli.options import MANY, ManyNumbers

# Command -> its module and function, imported only where it is asked for.
COMMANDS = {
    "measure": ("ilp_planner.profiler.commands.measure", "measure"),
    "measure-links": ("ilp_planner.profiler.commands.links", "measure_links"),
    "import": ("ilp_planner.profiler.commands.convert", "import_profile"),
    "export": ("ilp_planner.profiler.commands.convert", "export_profile"),
    "predict": ("ilp_planner.profiler.commands.predict", "predict"),
    "check": ("ilp_planner.profiler.commands.check", "check"),
}


class ManyLists(ManyNumbers):
    """A command with several options of several numbers."""

    many = (MANY, "--tp", "--cp", "--ep", "--etp", "--sequence-length", "--sizes")


def profile_app(arguments: Sequence[str] | None) -> typer.Typer:
    """Return the group with the command that is asked for, or with all of them; with none if
    `arguments`, the words after `profile`, are None: another command is asked for."""
    app = typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        help="Measure, import, complete and check profiles.",
        no_args_is_help=True,
    )
    if arguments is None:
        return app
    first = arguments[0] if arguments else ""
    for name in (first,) if first in COMMANDS else COMMANDS:
        module, function = COMMANDS[name]
        command = getattr(importlib.import_module(module), function)
        app.command(name, cls=ManyLists)(command)
    return app
