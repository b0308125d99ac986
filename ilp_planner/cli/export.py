"""`ilp-plan export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.inputs import check_unchanged, find_model, plan_folders
from ilp_planner.errors import PlanError
from ilp_planner.files import check_writable
from ilp_planner.formats.aceso import save_aceso
from ilp_planner.formats.plan_json import read_plan
from ilp_planner.formats.saved_plan import Reference


def export(
    plan_file: o.PlanFile,
    to: Annotated[Literal["aceso"], typer.Option("--to", help="Whose format.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to write it.")],
    accept_changed: o.AcceptChanged = False,
) -> None:
    """Write a saved plan as a training system reads it."""
    check_writable(output)
    saved = read_plan(plan_file)
    reference = saved.inputs.model
    model, digest = find_model(reference.name, reference, plan_folders(plan_file))
    if not accept_changed:
        now = Reference(name=reference.name, sha256=digest)
        check_unchanged(plan_file, "model", reference, now)
    writers = {"aceso": save_aceso}
    try:
        writers[to](output, saved.plan, model)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    if saved.verdict is not None and not saved.verdict.legal:
        typer.echo(f"ilp-plan: note: {plan_file} breaks {saved.verdict.violations[0]}", err=True)
    typer.echo(f"{output}: {len(saved.plan.stages)} stages of {model.name} for {to}", err=True)
