"""`ilp-plan fit`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.base.printable import printable_lines
from ilp_planner.faces.cli import job_options as j
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.echo import echo
from ilp_planner.faces.cli.help import OUTPUT
from ilp_planner.faces.cli.options import number, shown, solving
from ilp_planner.faces.cli.values import number_of_tokens


def fit(
    ctx: typer.Context,
    plan_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            help="A launch script of Megatron-LM, which is read, not run; a saved plan; or a "
            "model, the same as --model.",
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
    time_limit: Annotated[
        float,
        solving(
            "--time-limit",
            "Seconds of searching with all settings free, where no pair of changes fits.",
            "S",
            default=True,
            min=0.0,
        ),
    ] = 10.0,
    verdict: Annotated[
        bool, shown("--verdict", "Whether it fits alone, without times and changes.")
    ] = False,
    top: Annotated[
        int, number(OUTPUT, "--top", "Changes to show of one setting, and of two.", True)
    ] = 5,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
) -> None:
    """Tell whether a training job fits its GPUs, and the cheapest changes that make it fit."""
    from ilp_planner.faces.cli.analyze_output import output_width
    from ilp_planner.faces.cli.fit_sources import read_job, take_by_kind
    from ilp_planner.faces.report.fit import change_lines, note_lines, time_lines, verdict_lines
    from ilp_planner.faces.report.fit_json import changes_object, verdict_object
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.job.verdict import EXIT_CODE, Verdict

    # Up to Typer 0.25 these are texts there; a cluster says the devices of its nodes.
    ctx.params |= {
        "plan_file": plan_file,
        "megatron_script": megatron_script,
        "devices_per_node": None,
    }
    take_by_kind(ctx)
    run_tokens = number_of_tokens(tokens)
    asked = read_job(ctx)
    as_is = asked.needs()
    width, styled = output_width()
    about = verdict_object(as_is, name=asked.model.name, notes=asked.notes)
    if not as_json:
        echo(printable_lines(verdict_lines(as_is, width=width, styled=styled)))
    if asked.timed and not verdict:
        from ilp_planner.analysis.fit.fit import fit as fit_job

        found = fit_job(asked.judge(), asked.writer, time_limit)
        about |= changes_object(found, run_tokens)
        if not as_json:
            echo("\n".join(time_lines(found.as_is, run_tokens, width=width)))
            lines = change_lines(found, words=asked.words, top=top, width=width)
            echo("\n".join(lines))
    if as_json:
        print_json(about)
    elif asked.notes:
        echo("\n".join(note_lines(asked.notes, width=width)))
    if as_is.verdict is Verdict.MAY_NOT_FIT:
        raise typer.Exit(EXIT_CODE)
