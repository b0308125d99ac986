"""The options for constraints on plans and devices, made of the table of settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ilp_planner.faces.cli.help import CONSTRAINTS
from ilp_planner.faces.cli.options import option, options
from ilp_planner.inputs.constraints import Constraints, constraints_of
from ilp_planner.settings.table import DEMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.settings.base import Setting

asked = partial(option, CONSTRAINTS)


def _annotation(setting: Setting) -> Any:
    """Return the annotation of the option of a setting."""
    name = f"--{setting.name.replace('_', '-')}"
    said = asked(name, setting.help, setting.metavar)
    return Annotated[list[str] | None if setting.domain.repeated else str | None, said]


ConstraintsFile = Annotated[
    Path | None,
    asked(
        "--constraints",
        "The same as a table [constraints] in a TOML file; what options say goes before it.",
        "FILE",
    ),
]
OPTIONS = {
    "constraints": ConstraintsFile,
    **{setting.name: _annotation(setting) for setting in DEMANDS if setting.help},
}


def constraint_options(**others: Any) -> Callable[..., Constraints]:
    """Return the maker of the constraints that options say.

    others: annotations of options that say something else of a constraint, by its name.
    """
    every = {**OPTIONS, **others}
    return options({name: (kind, None) for name, kind in every.items()}, _demanded)


def _demanded(constraints: Path | None = None, **said: Any) -> Constraints:
    return demanded(constraints, said)


def demanded(file: Path | None, said: Mapping[str, Any]) -> Constraints:
    """Return the demands of a file and options; if both say something, the option counts.

    Raises
    ------
    PlanError, SpecError, UsageError: one line with the file, the name, the found and the expected
        value.
    """
    from ilp_planner.formats.saved_start import with_kept_stages
    from ilp_planner.inputs.constraints_file import read_constraints

    options = {name: value for name, value in said.items() if value}
    texts = {} if file is None else read_constraints(file).texts
    return with_kept_stages(constraints_of({**texts, **options}))
