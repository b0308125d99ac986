"""`ilp-plan solve`."""

import math
from typing import Annotated, Literal

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.inputs import Case, Request, build_case, memory_limit, micro_batch_sizes
from ilp_planner.cli.versions import versions
from ilp_planner.errors import InfeasibleError, UsageError
from ilp_planner.files import check_writable
from ilp_planner.formats.plan_json import write_plan
from ilp_planner.formats.saved_plan import SavedPlan, claim_of, verdict_of
from ilp_planner.report.console import print_report
from ilp_planner.report.json_report import print_json, result_object
from ilp_planner.report.live import Progress
from ilp_planner.report.tables import describe_gap, result_lines, stage_table, summary
from ilp_planner.result import Result, Status
from ilp_planner.solvers.base import Limits

NO_PLAN = 4
GAP_TOO_LARGE = 5
Solver = Literal["auto", "dp", "cp-sat", "milp", "pulp"]


def solve(
    model: o.Model = o.DEFAULT_MODEL,
    cluster: o.Cluster = o.DEFAULT_CLUSTER,
    profile: o.Profile = o.DEFAULT_PROFILE,
    cost_model: o.CostModel = "native",
    global_batch: o.GlobalBatch = o.DEFAULT_GLOBAL_BATCH,
    micro_batches: o.MicroBatches = None,
    memory: o.MemoryLimit = None,
    max_stages: o.MaxStages = None,
    time_limit: o.TimeLimit = 200.0,
    gap: Annotated[
        float, typer.Option("--gap", metavar="FRACTION", help="Stop once the gap is this small.")
    ] = 0.0,
    require_gap: Annotated[
        float | None,
        typer.Option(
            "--require-gap",
            metavar="FRACTION",
            help="Exit with 5 when the gap stays larger.",
            show_default=False,
        ),
    ] = None,
    solver: Annotated[
        Solver, typer.Option("--solver", help="What solves; auto combines.")
    ] = "auto",
    workers: o.Workers = 2,
    seed: o.Seed = 0,
    output: o.Output = None,
    as_json: o.Json = False,
) -> None:
    """Find the fastest plan, and prove how far from the best possible it can be."""
    limits = solve_limits(time_limit, gap, require_gap, workers, seed)
    request = Request(
        model=model,
        cluster=cluster,
        profile=profile,
        cost_model=cost_model,
        global_batch=global_batch,
        micro_batches=micro_batch_sizes(micro_batches or ()),
        memory_limit=memory_limit(memory),
        max_stages=max_stages,
    )
    if output is not None:
        check_writable(output)
    case = build_case(request)
    result = search(case, limits, solver)
    if output is not None and result.plan is not None:
        write_plan(output, saved_plan(case, result))
    show(case, result, as_json=as_json)
    raise typer.Exit(verdict(result, require_gap))


def solve_limits(
    time_limit: float, gap: float, require_gap: float | None, workers: int, seed: int
) -> Limits:
    """Return the limits that the options ask for.

    Raises
    ------
    UsageError: they contradict each other, or are no such numbers.
    """
    if not math.isfinite(time_limit):
        raise UsageError(f"--time-limit: found {time_limit}, expected a number of seconds")
    for name, value in (("--gap", gap), ("--require-gap", require_gap)):
        if value is not None and not 0 <= value < 1:
            raise UsageError(f"{name}: found {value}, expected a fraction from 0 to below 1")
    if require_gap is not None and gap > require_gap:
        raise UsageError(
            f"--gap {gap} stops the search before --require-gap {require_gap} is reached: "
            "expected --gap to be the smaller"
        )
    return Limits(seconds=time_limit, gap=gap, workers=workers, seed=seed)


def search(case: Case, limits: Limits, solver: str) -> Result:
    """Solve a case, with the live line."""
    from ilp_planner.solve import solve as run

    with Progress() as progress:
        return run(case.problem, limits=limits, solver=solver, progress=progress)


def saved_plan(case: Case, result: Result) -> SavedPlan:
    """Return what is saved of a result that has a plan."""
    assert result.plan is not None
    return SavedPlan(
        plan=result.plan,
        inputs=case.inputs,
        claim=claim_of(result, versions()),
        verdict=None if result.evaluation is None else verdict_of(result.evaluation),
        certificate=result.certificate,
    )


def show(case: Case, result: Result, *, as_json: bool) -> None:
    """Print a result."""
    if as_json:
        print_json(result_object(case.problem, result))
        return
    tables = []
    if result.plan is not None and result.evaluation is not None:
        tables.append(stage_table(case.problem, result.plan, result.evaluation))
    print_report(summary(result_lines(case.problem, result)), *tables)


def verdict(result: Result, require_gap: float | None) -> int:
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
