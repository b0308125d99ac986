"""`ilp-plan solve`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.help import SOLVER
from ilp_planner.cli.inputs import Case, Request, build_case, named_once
from ilp_planner.cli.layer_checks import LAYER_OPTIONS
from ilp_planner.cli.layer_inputs import build_layer_case, check_num_layers, plans_layers
from ilp_planner.cli.layer_solve import save_and_show_layers, search_layers
from ilp_planner.cli.values import (
    Solver,
    input_files,
    memory_limit,
    micro_batch_sizes,
    solve_limits,
)
from ilp_planner.cli.versions import versions
from ilp_planner.errors import InfeasibleError, OutputError, UsageError
from ilp_planner.files import check_writable
from ilp_planner.formats.plan_json import write_plan
from ilp_planner.formats.saved_groups import GroupInputs
from ilp_planner.formats.saved_plan import Reference, SavedPlan, claim_of, verdict_of
from ilp_planner.report.console import print_report, tell_of_compiling
from ilp_planner.report.json_report import print_json, result_object
from ilp_planner.report.live import Progress
from ilp_planner.report.tables import describe_gap, result_lines, stage_table, summary
from ilp_planner.result import Result, Status
from ilp_planner.solvers.base import Limits

NO_PLAN = 4
GAP_TOO_LARGE = 5


def solve(
    model_name: o.ModelName = None,
    cluster_name: o.ClusterName = None,
    model: o.MaybeModel = None,
    cluster: o.MaybeCluster = None,
    hostfile: o.Hostfile = None,
    clusterfile: o.Clusterfile = None,
    profile: o.AnyProfile = o.DEFAULT_PROFILE,
    experiment: o.Experiment = None,
    cost_model: o.AnyCostModel = "native",
    space: o.Space = None,
    runtime: o.Runtime = None,
    memory_rule: o.MemoryRule = None,
    placement: o.Placement = None,
    global_batch: o.AnyGlobalBatch = None,
    micro_batches: o.MicroBatches = None,
    memory: o.MemoryLimit = None,
    max_stages: o.MaxStages = None,
    max_tp: o.MaxTp = None,
    max_cp: o.MaxCp = None,
    hidden_size: o.HiddenSize = None,
    sequence_length: o.SequenceLength = None,
    vocab_size: o.VocabSize = None,
    num_layers: o.NumLayers = None,
    top: o.Top = None,
    time_limit: o.TimeLimit = 200.0,
    gap: Annotated[
        float,
        o.option(SOLVER, "--gap", "Stop once the gap is this small.", "FRACTION", default=True),
    ] = 0.0,
    require_gap: Annotated[
        float | None,
        o.option(SOLVER, "--require-gap", "Exit with 5 when the gap stays larger.", "FRACTION"),
    ] = None,
    solver: Annotated[
        Solver,
        o.option(
            SOLVER,
            "--solver",
            "What solves; auto combines. gradient and anneal are heuristics: their plan, with the "
            "bound of auto.",
            default=True,
        ),
    ] = "auto",
    starts: o.Starts = None,
    workers: o.Workers = 2,
    seed: o.Seed = 0,
    output: o.Output = None,
    reproducible: o.Reproducible = False,
    as_json: o.Json = False,
) -> None:
    """Find the fastest plan, and prove how far from the best possible it can be.

    Where all devices are equal, operators are planned; whole layers where they differ, and where
    the profile or the cost model is of layers.
    """
    limits = solve_limits(
        time_limit, gap, require_gap, workers, seed, starts=starts, solvers=(solver,)
    )
    named = {
        "model": named_once("--model", model, model_name),
        "cluster": named_once("--cluster", cluster, cluster_name),
        "hostfile": hostfile,
        "clusterfile": clusterfile,
        "profile": profile,
    }
    asked = GroupInputs(
        files={kind: Reference(name=name) for kind, name in named.items() if name is not None},
        cost_model=cost_model,
        space=chosen_space(space, runtime),
        memory_rule=memory_rule or "",
        placement=placement or "",
        experiment=experiment or "",
        global_batch=global_batch or 0,
        micro_batch_sizes=micro_batch_sizes(micro_batches or ()),
        memory_limit=memory_limit(memory),
        max_stages=max_stages,
        max_tp=max_tp,
        max_cp=max_cp,
        hidden=hidden_size,
        sequence=sequence_length,
        vocabulary=vocab_size,
    )
    if output is not None:
        check_writable(output, input_files(named.values()))
    if not as_json:
        tell_of_compiling()
    known = None if reproducible else versions()
    result: Result | Result
    if plans_layers(asked):
        layers = build_layer_case(asked)
        check_num_layers(layers.problem, num_layers)
        result = search_layers(layers, limits, solver, top or 1)
        save_and_show_layers(layers, result, output, known, as_json=as_json)
    else:
        case = build_case(operator_request(asked, num_layers=num_layers, top=top))
        result = search(case, limits, solver)
        save_and_show(case, result, output, known, as_json=as_json)
    raise typer.Exit(verdict(result, require_gap))


def chosen_space(space: str | None, runtime: str | None) -> str:
    """Return the plan space that two options ask for; empty when neither does.

    Raises
    ------
    UsageError: they contradict each other.
    """
    if runtime and space not in (None, runtime):
        raise UsageError(
            f"--space: found {space} with --runtime {runtime}, expected none or {runtime}"
        )
    return runtime or space or ""


def operator_request(asked: GroupInputs, **others: int | None) -> Request:
    """Return what is asked of a plan of operators.

    Raises
    ------
    UsageError: an option that says something of layers only.
    """
    given = [option for field, option in LAYER_OPTIONS.items() if getattr(asked, field)]
    given += [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if given:
        raise UsageError(
            f"{given[0]}: found operators to plan, as all devices are equal, expected layers: "
            "--space planner plans these"
        )
    return Request(
        model=asked.name("model") or o.DEFAULT_MODEL,
        cluster=asked.name("cluster") or o.DEFAULT_CLUSTER,
        profile=asked.files["profile"].name,
        cost_model=asked.cost_model,
        global_batch=asked.global_batch or o.DEFAULT_GLOBAL_BATCH,
        micro_batches=asked.micro_batch_sizes,
        memory_limit=asked.memory_limit,
        max_stages=asked.max_stages,
    )


def search(case: Case, limits: Limits, solver: str) -> Result:
    """Solve a case, with the live line."""
    from ilp_planner.solve import solve as run

    with Progress() as progress:
        return run(case.problem, limits=limits, solver=solver, progress=progress)


def save_and_show(
    case: Case,
    result: Result,
    output: Path | None,
    known: dict[str, str] | None,
    *,
    as_json: bool,
) -> None:
    """Save the plan, if there is one and somewhere to, and print the result.

    Parameters
    ----------
    known: package -> version, to be saved with the time that the search took; None: neither.

    Raises
    ------
    OutputError: it could not be saved; the result, which may have cost hours, is printed first.
    """
    if output is not None and result.plan is not None:
        try:
            write_plan(output, saved_plan(case, result, known))
        except OutputError:
            show(case, result, None, as_json=as_json)
            raise
    show(case, result, output, as_json=as_json)


def saved_plan(case: Case, result: Result, known: dict[str, str] | None = None) -> SavedPlan:
    """Return what is saved of a result that has a plan."""
    from ilp_planner.evaluate import time_shares

    assert result.plan is not None
    found = result.evaluation
    shares = {} if found is None else time_shares(case.problem, result.plan, found)
    return SavedPlan(
        plan=result.plan,
        inputs=case.inputs,
        claim=claim_of(result, known),
        verdict=None if found is None else verdict_of(found, shares),
        certificate=result.certificate,
    )


def show(case: Case, result: Result, output: Path | None, *, as_json: bool) -> None:
    """Print a result. output: where its plan was saved, if it has one."""
    if as_json:
        print_json(result_object(case.problem, result))
        return
    tables = []
    if result.plan is not None and result.evaluation is not None:
        tables.append(stage_table(case.problem, result.plan, result.evaluation))
    lines = result_lines(case.problem, result)
    if output is not None and result.plan is not None:
        lines.append(("saved to", str(output)))
    print_report(summary(lines), *tables)


def verdict(result: Result | Result, require_gap: float | None) -> int:
    """Return the exit code, after a line on stderr when it is not 0.

    Raises
    ------
    InfeasibleError: proved that there is no plan.
    """
    if result.status is Status.INFEASIBLE:
        raise InfeasibleError(f"infeasible: {result.reason or 'no plan fits'}")
    if result.plan is None:
        typer.echo(f"ilp-plan: no plan found in {result.wall:.1f} s", err=True)
        return NO_PLAN
    if require_gap is not None and result.gap > require_gap:
        found = describe_gap(result.gap)
        expected = f"{100 * require_gap:g} %"
        typer.echo(f"ilp-plan: gap: found {found}, --require-gap expects {expected}", err=True)
        return GAP_TOO_LARGE
    return 0
