"""`ilp-plan analyze`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.faces.cli import job_options as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.options import number, shown


def analyze(
    ctx: typer.Context,
    plan_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLAN",
            help="A saved plan; or a model, the same as --model.",
            show_default=False,
            autocompletion=plans,
        ),
    ] = None,
    model: j.Model = None,
    megatron_args: j.MegatronArgs = None,
    megatron_script: j.MegatronScript = None,
    set_values: j.SetValues = None,
    strict: j.Strict = False,
    cluster: j.Cluster = None,
    gpus: j.Gpus = None,
    device_memory: j.DeviceMemory = None,
    tp: j.Tp = 1,
    pp: j.Pp = None,
    dp: j.Dp = None,
    cp: j.Cp = 1,
    ep: j.Ep = 1,
    etp: j.Etp = None,
    virtual: j.Virtual = 1,
    layout: j.Layout = None,
    micro_batch: j.MicroBatch = 1,
    global_batch: j.GlobalBatch = None,
    world_size: j.WorldSize = None,
    devices_per_node: j.DevicesPerNode = None,
    sequence_length: j.SequenceLength = None,
    text_only: j.TextOnly = False,
    sequence_parallel: j.SequenceParallel = False,
    recompute: j.Recompute = None,
    recompute_modules: j.RecomputeModules = None,
    recompute_method: j.RecomputeMethod = None,
    recompute_layers: j.RecomputeLayers = None,
    distributed_optimizer: j.DistributedOptimizer = False,
    sharding: j.Sharding = "none",
    rank_order: j.RankOrder = "tp-cp-ep-dp-pp",
    attention: j.Attention = None,
    precision: j.Precision = None,
    dispatcher: j.Dispatcher = "alltoall",
    cp_comm: j.CpComm = None,
    fused_loss: j.FusedLoss = False,
    grouped_experts: j.GroupedExperts = False,
    imbalance: j.Imbalance = 1.0,
    stage: Annotated[
        int | None, number(OUTPUT, "--stage", "Show only this pipeline stage.", least=0)
    ] = None,
    all_groups: Annotated[bool, shown("--all-groups", "Name every communication group.")] = False,
    compat: Annotated[
        Literal["analysis-tool"] | None,
        shown(
            "--compat", "The report of Megatron-LM's analysis tool, with its formulas and errors."
        ),
    ] = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
    output: Annotated[
        Path | None, shown("--output", "Where to write it, JSON for FILE.json.", "FILE")
    ] = None,
) -> None:
    """Tell what a training job holds and sends, GPU by GPU, before it is launched."""
    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.faces.cli.analyze_output import emit
    from ilp_planner.faces.cli.analyze_sources import names_model, read_analysis, refuse_kind
    from ilp_planner.job.verdict import EXIT_CODE, Verdict

    if plan_file is not None and model is None and names_model(plan_file):
        ctx.params["model"], plan_file = str(plan_file), None
    elif plan_file is not None:
        refuse_kind(plan_file)
    # Up to Typer 0.25 these are texts there.
    ctx.params |= {"plan_file": plan_file, "megatron_script": megatron_script, "output": output}
    found = read_analysis(ctx)
    emit(found, ctx.params)
    if isinstance(found, Analysis) and found.verdict is Verdict.MAY_NOT_FIT:
        raise typer.Exit(EXIT_CODE)
