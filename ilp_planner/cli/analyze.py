"""`ilp-plan analyze`."""

import typer

from ilp_planner.cli import analyze_options as a
from ilp_planner.cli import options as o


def analyze(
    ctx: typer.Context,
    plan_file: a.MaybePlan = None,
    model: a.Model = None,
    megatron_args: a.MegatronArgs = None,
    megatron_script: a.MegatronScript = None,
    cluster: a.Cluster = None,
    device_memory: a.DeviceMemory = None,
    tp: a.Tp = 1,
    pp: a.Pp = 1,
    dp: a.Dp = None,
    cp: a.Cp = 1,
    ep: a.Ep = 1,
    etp: a.Etp = 0,
    virtual: a.VirtualStages = 1,
    layout: a.Layout = None,
    micro_batch: a.MicroBatch = 1,
    global_batch: a.GlobalBatchOrNone = None,
    world_size: a.WorldSize = None,
    devices_per_node: a.DevicesPerNode = None,
    sequence_length: a.SequenceLength = None,
    sequence_parallel: a.SequenceParallel = False,
    recompute: a.Recompute = "none",
    recompute_modules: a.RecomputeModules = None,
    recompute_method: a.RecomputeMethod = None,
    recompute_layers: a.RecomputeLayers = None,
    distributed_optimizer: a.DistributedOptimizer = False,
    sharding: a.Sharding = "none",
    rank_order: a.RankOrder = "tp-cp-ep-dp-pp",
    attention: a.Attention = "flash",
    dispatcher: a.Dispatcher = "alltoall",
    cp_comm: a.CpComm = "p2p",
    fused_loss: a.FusedLoss = False,
    grouped_experts: a.GroupedExperts = False,
    imbalance: a.Imbalance = 1.0,
    stage: a.Stage = None,
    all_groups: a.AllGroups = False,
    compat: a.Compat = None,
    accept_changed: o.AcceptChanged = False,
    as_json: o.Json = False,
    output: a.Output = None,
) -> None:
    """Tell what a training job holds and sends, GPU by GPU, before it is launched."""
    from ilp_planner.cli.analyze_output import emit
    from ilp_planner.cli.analyze_sources import read_job

    # Up to Typer 0.25 these are texts there.
    ctx.params |= {"plan_file": plan_file, "megatron_script": megatron_script, "output": output}
    emit(read_job(ctx), ctx.params)
