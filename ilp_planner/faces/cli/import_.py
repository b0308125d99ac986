"""`ilp-plan import`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ilp_planner.base.errors import UsageError
from ilp_planner.base.files import check_writable
from ilp_planner.base.parts import part
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.groups import taking
from ilp_planner.faces.cli.import_megatron import import_megatron
from ilp_planner.faces.cli.request_options import request_options
from ilp_planner.faces.cli.solve import build
from ilp_planner.faces.cli.values import references
from ilp_planner.faces.report.console import print_report
from ilp_planner.faces.report.lines import evaluation_lines
from ilp_planner.faces.report.stages import stage_table
from ilp_planner.formats.saved_json import write_saved
from ilp_planner.formats.saved_plan import saved_import
from ilp_planner.inputs.files import cluster_or_gpus, find_model


@taking(limits=request_options("micro_batch_sizes", "memory_limit", "max_stages"))
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
    cluster: o.MaybeCluster = None,
    gpus: o.Gpus = None,
    profile: o.Profile = o.DEFAULT_PROFILE,
    cost_model: o.OperatorCosts = "native",
    global_batch: o.MaybeGlobalBatch = None,
    limits: Any = None,
    set_values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Of megatron: what only running the script would tell; repeatable.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Of megatron: refuse arguments that Megatron-LM does not have."
        ),
    ] = False,
) -> None:
    """Save somebody else's plan as one of ours, judged, to be evaluated and compared."""
    from ilp_planner.evaluate import evaluate

    cluster = cluster_or_gpus(cluster, gpus) or o.DEFAULT_CLUSTER
    check_writable(output, [Path(file), Path(model), Path(cluster)])
    if source == "megatron":
        import_megatron(
            ctx,
            file,
            output,
            cluster=cluster,
            memory=limits.memory_limit,
            supplied=set_values,
            strict=strict,
        )
        return
    if set_values or strict:
        given = "--set" if set_values else "--strict"
        raise UsageError(f"{given}: expected none with {source}, whose plans are no launch lines")
    plan = part("peers.aceso.formats:read_aceso")(
        Path(file), find_model(model), global_batch=global_batch
    )
    request = replace(
        limits,
        files=references(model=model, cluster=cluster, profile=profile),
        space="operators",
        cost_model=cost_model,
        global_batch=plan.global_batch,
    )
    problem = build(request)
    evaluation = evaluate(problem, plan)
    write_saved(output, saved_import(problem, plan, evaluation))
    tables = [stage_table(problem, plan, evaluation)] if evaluation.stages else []
    print_report(evaluation_lines(problem, plan, evaluation), *tables)
