"""The options of `ilp-plan analyze`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

MaybePlan = Annotated[
    Path | None, typer.Argument(metavar="PLAN", help="A saved plan.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Model, TOML, or the name of a known one."),
]
MegatronArgs = Annotated[
    str | None,
    typer.Option(metavar="ARGS", help="Arguments of Megatron-LM's pretrain_gpt.py, as one text."),
]
MegatronScript = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A launch script of Megatron-LM; it is read, not run."),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Cluster, TOML, or the name of a known one."),
]
DeviceMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory of a device, as 80GiB; a card sold as 80 GB has that."
    ),
]
Tp = Annotated[int, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel degree.")]
Pp = Annotated[int, typer.Option("--pp", metavar="N", min=1, help="Pipeline stages.")]
Dp = Annotated[
    int | None,
    typer.Option(
        "--dp", metavar="N", min=1, help="Replicas; what --world-size or --cluster leaves, or 1."
    ),
]
Cp = Annotated[int, typer.Option("--cp", metavar="N", min=1, help="Context-parallel degree.")]
Ep = Annotated[int, typer.Option("--ep", metavar="N", min=1, help="Expert-parallel degree.")]
Etp = Annotated[
    int,
    typer.Option(
        "--etp", metavar="N", min=0, help="Tensor-parallel degree of experts; 0: that of --tp."
    ),
]
VirtualStages = Annotated[
    int, typer.Option("--virtual-stages", metavar="N", min=1, help="Virtual stages per GPU.")
]
Layout = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Uneven stages, in Megatron's letters: 'Et*3|t*5L'."),
]
MicroBatch = Annotated[
    int,
    typer.Option("--micro-batch-size", metavar="N", min=1, help="Samples per replica at a time."),
]
GlobalBatchOrNone = Annotated[
    int | None,
    typer.Option("--global-batch-size", metavar="N", min=1, help="Samples per iteration."),
]
WorldSize = Annotated[int | None, typer.Option(metavar="N", min=1, help="GPUs in all.")]
DevicesPerNode = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="GPUs of a node; the cluster's, or 8.")
]
SequenceLength = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Tokens of a sample; the model's.")
]
SequenceParallel = Annotated[
    bool, typer.Option("--sequence-parallel", help="Divide activations between products too.")
]
Recompute = Annotated[
    Literal["none", "selective", "full"], typer.Option(help="Activations computed again.")
]
RecomputeModules = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Of selective: Megatron's names, by commas.")
]
RecomputeMethod = Annotated[
    Literal["uniform", "block"] | None, typer.Option(help="Of full.", show_default=False)
]
RecomputeLayers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Of full: layers of a chunk, or of each stage."),
]
DistributedOptimizer = Annotated[
    bool, typer.Option("--distributed-optimizer", help="The same as --sharding optimizer.")
]
Sharding = Annotated[
    Literal["none", "optimizer", "gradients", "parameters"],
    typer.Option(help="What replicas divide: ZeRO 0, 1, 2, 3."),
]
RankOrder = Annotated[
    Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"], typer.Option(help="Fastest first.")
]
Attention = Annotated[Literal["flash", "unfused"], typer.Option(help="Kernel.")]
Dispatcher = Annotated[
    Literal["allgather", "alltoall", "flex"], typer.Option(help="Of tokens to experts.")
]
CpComm = Annotated[
    Literal["p2p", "all_gather", "a2a"], typer.Option(help="Of attention over --cp.")
]
GroupedExperts = Annotated[
    bool, typer.Option("--grouped-experts", help="All experts of a GPU in one kernel.")
]
FusedLoss = Annotated[bool, typer.Option("--fused-loss", help="Cross-entropy as one kernel.")]
Imbalance = Annotated[
    float,
    typer.Option(metavar="N", min=1.0, help="Assumed: the fullest rank's tokens over the average."),
]
Stage = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Show only this pipeline stage.")
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Name every communication group.")]
Compat = Annotated[
    Literal["analysis-tool"] | None,
    typer.Option(help="The report of Megatron-LM's analysis tool, with its formulas and errors."),
]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write it, JSON for FILE.json.")
]

# What says something of a job, and so goes with --model only: parameter -> option.
JOB_OPTIONS = {
    "tp": "--tp",
    "pp": "--pp",
    "dp": "--dp",
    "cp": "--cp",
    "ep": "--ep",
    "etp": "--etp",
    "virtual": "--virtual-stages",
    "layout": "--layout",
    "micro_batch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
    "sequence_length": "--sequence-length",
    "sequence_parallel": "--sequence-parallel",
    "recompute": "--recompute",
    "recompute_modules": "--recompute-modules",
    "recompute_method": "--recompute-method",
    "recompute_layers": "--recompute-layers",
    "distributed_optimizer": "--distributed-optimizer",
    "sharding": "--sharding",
    "rank_order": "--rank-order",
    "attention": "--attention",
    "dispatcher": "--dispatcher",
    "cp_comm": "--cp-comm",
    "fused_loss": "--fused-loss",
    "grouped_experts": "--grouped-experts",
    "imbalance": "--imbalance",
}
# What a launch line may leave open.
LAUNCH_OPTIONS = {"world_size": "--world-size", "devices_per_node": "--devices-per-node"}
SOURCES = {
    "plan_file": "PLAN",
    "model": "--model",
    "megatron_args": "--megatron-args",
    "megatron_script": "--megatron-script",
}
