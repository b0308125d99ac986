"""`ilp-plan import`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.cli import options as o
from ilp_planner.cli.import_megatron import import_megatron
from ilp_planner.cli.inputs import Request, build_case, find_model
from ilp_planner.cli.values import memory_limit, micro_batch_sizes
from ilp_planner.files import check_writable
from ilp_planner.formats.aceso import read_aceso
from ilp_planner.formats.plan_json import write_plan
from ilp_planner.formats.saved_plan import SavedPlan, verdict_of
from ilp_planner.report.console import print_report
from ilp_planner.report.evaluation import evaluation_lines
from ilp_planner.report.tables import stage_table, summary


def import_plan(
    ctx: typer.Context,
    source: Annotated[
        Literal["aceso", "megatron"], typer.Argument(metavar="FORMAT", help="aceso | megatron")
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Somebody else's plan; of megatron, a launch script, an exported JSON or the "
            "arguments as one text.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to save it.")],
    model: o.Model = o.DEFAULT_MODEL,
    cluster: o.Cluster = o.DEFAULT_CLUSTER,
    profile: o.Profile = o.DEFAULT_PROFILE,
    cost_model: o.OperatorTables = "native",
    global_batch: o.MaybeGlobalBatch = None,
    micro_batches: o.MicroBatches = None,
    memory: o.MemoryLimit = None,
    max_stages: o.MaxStages = None,
) -> None:
    """Save somebody else's plan as one of ours, judged, to be evaluated and compared."""
    from ilp_planner.evaluate import evaluate, time_shares

    check_writable(output, [Path(file), Path(model), Path(cluster)])
    if source == "megatron":
        import_megatron(ctx, file, output, cluster=cluster, memory=memory_limit(memory))
        return
    plan = read_aceso(Path(file), find_model(model)[0], global_batch=global_batch)
    request = Request(
        model=model,
        cluster=cluster,
        profile=profile,
        cost_model=cost_model,
        global_batch=plan.global_batch,
        micro_batches=micro_batch_sizes(micro_batches or ()),
        memory_limit=memory_limit(memory),
        max_stages=max_stages,
    )
    case = build_case(request)
    evaluation = evaluate(case.problem, plan)
    verdict = verdict_of(evaluation, time_shares(case.problem, plan, evaluation))
    write_plan(output, SavedPlan(plan=plan, inputs=case.inputs, verdict=verdict))
    tables = [stage_table(case.problem, plan, evaluation)] if evaluation.stages else []
    print_report(summary(evaluation_lines(case.problem, plan, evaluation)), *tables)
