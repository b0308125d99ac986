"""`ilp-plan export`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.export_runtime import RUNTIMES, export_runtime
from ilp_planner.cli.inputs import check_unchanged, find_model, plan_folders, rebuild_case
from ilp_planner.cli.layer_inputs import rebuild_layer_case
from ilp_planner.errors import PlanError
from ilp_planner.files import check_writable
from ilp_planner.formats.aceso import save_aceso
from ilp_planner.formats.groups_json import read_saved
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.formats.saved_plan import Reference

if TYPE_CHECKING:
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.search.confirm import LastProblem


def export(
    plan_file: o.PlanFile,
    to: Annotated[
        Literal["aceso", "megatron", "torchtitan", "deepspeed", "nemo", "lp", "mps"],
        typer.Option(
            "--to", help="A training system, or the integer program that the plan solves."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Where to write it; what else a training system needs goes beside it.",
        ),
    ],
    accept_changed: o.AcceptChanged = False,
) -> None:
    """Write a saved plan for a training system, or as an integer program."""
    if to in RUNTIMES:
        export_runtime(plan_file, to, output, accept_changed=accept_changed)
        return
    check_writable(output, [plan_file])
    saved = read_saved(plan_file)
    if to != "aceso":
        export_program(saved, plan_file, to, output, accept_changed=accept_changed)
        return
    if isinstance(saved, SavedGroups):
        raise PlanError(
            f"{plan_file}: kind: found a plan of whole layers on groups of devices, expected one "
            f"of operators on equal devices, which --to {to} can say"
        )
    reference = saved.inputs.model
    model, digest = find_model(reference.name, reference, plan_folders(plan_file))
    if not accept_changed:
        now = Reference(name=reference.name, sha256=digest)
        check_unchanged(plan_file, "model", reference, now)
    try:
        save_aceso(output, saved.plan, model)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    if saved.verdict is not None and not saved.verdict.legal:
        typer.echo(f"ilp-plan: note: {plan_file} breaks {saved.verdict.violations[0]}", err=True)
    typer.echo(f"{output}: {len(saved.plan.stages)} stages of {model.name} for {to}", err=True)


def export_program(
    saved: "SavedPlan | SavedGroups",
    plan_file: Path,
    to: str,
    output: Path,
    *,
    accept_changed: bool,
) -> None:
    """Write the arc-flow model of all stages that the proof leaves open up to the plan."""
    from ilp_planner.certificate import plan_graph
    from ilp_planner.search.confirm import LastProblem
    from ilp_planner.solvers.pulp_backend import write_program

    if not saved.certificate:
        raise PlanError(f"{plan_file}: certificate: found none, expected that of a solved plan")
    if isinstance(saved, SavedGroups):
        last = _layer_problem(saved, plan_file, accept_changed=accept_changed)
    else:
        case = rebuild_case(saved, plan_file, accept_changed=accept_changed)
        graph = plan_graph(case.problem, saved.certificate, saved.plan)
        last = LastProblem(graph=graph)
    write_program(last.graph, output, to, constant=last.constant)
    typer.echo(f"{output}: {last.graph.arcs} stage candidates of {saved.plan.model}", err=True)


def _layer_problem(saved: SavedGroups, plan_file: Path, *, accept_changed: bool) -> "LastProblem":
    """Return what is open of the part that holds a plan of layers.

    Raises
    ------
    PlanError: the plan is illegal, or no integer program of it can be written.
    """
    from ilp_planner.group_evaluate import evaluate_groups
    from ilp_planner.search.group_search import GroupSearch
    from ilp_planner.solvers.base import Limits

    problem = rebuild_layer_case(saved, plan_file, accept_changed=accept_changed).problem
    evaluation = evaluate_groups(problem, saved.plan)
    if not evaluation.legal:
        raise PlanError(f"{plan_file}: {evaluation.violations[0]}")
    last = GroupSearch(problem, Limits(seconds=math.inf), "dp", None).last_problem(saved.plan)
    if last is None:
        raise PlanError(
            f"{plan_file}: plan: found one whose ranks were placed freely, whose virtual stages "
            "were chosen one by one, or with too much left open; expected one whose last problem "
            "is a stage graph"
        )
    return last
