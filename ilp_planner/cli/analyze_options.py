"""The options of `ilp-plan analyze`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from ilp_planner.cli.completion import clusters, models, plans
from ilp_planner.cli.help import OUTPUT
from ilp_planner.cli.options import number, option

what = partial(option, "What to analyse")
parallel, degree = partial(option, "Parallelism"), partial(number, "Parallelism")
memory, kernels = partial(option, "Memory"), partial(option, "Kernels")
output = partial(option, OUTPUT)

MaybePlan = Annotated[
    Path | None,
    typer.Argument(metavar="PLAN", help="A saved plan.", show_default=False, autocompletion=plans),
]
Model = Annotated[
    str | None,
    what("--model", "Model, TOML, or the name of a known one.", "FILE", autocompletion=models),
]
MegatronArgs = Annotated[
    str | None,
    what("--megatron-args", "Arguments of Megatron-LM's pretrain_gpt.py, as one text.", "ARGS"),
]
MegatronScript = Annotated[
    Path | None,
    what("--megatron-script", "A launch script of Megatron-LM; it is read, not run.", "FILE"),
]
Cluster = Annotated[
    str | None,
    what(
        "--cluster", "Cluster, TOML, or the name of a known one.", "FILE", autocompletion=clusters
    ),
]
DeviceMemory = Annotated[
    str | None,
    what("--device-memory", "Memory of a device, as 80GiB; a card sold as 80 GB has that.", "SIZE"),
]
SequenceLength = Annotated[
    int | None, number("What to analyse", "--sequence-length", "Tokens of a sample; the model's.")
]
Tp = Annotated[int, degree("--tp", "Tensor-parallel degree.", True)]
Pp = Annotated[int, degree("--pp", "Pipeline stages.", True)]
Dp = Annotated[int | None, degree("--dp", "Replicas; what --world-size or --cluster leaves, or 1.")]
Cp = Annotated[int, degree("--cp", "Context-parallel degree.", True)]
Ep = Annotated[int, degree("--ep", "Expert-parallel degree.", True)]
Etp = Annotated[
    int, degree("--etp", "Tensor-parallel degree of experts; 0: that of --tp.", True, least=0)
]
VirtualStages = Annotated[int, degree("--virtual-stages", "Virtual stages per GPU.", True)]
Layout = Annotated[
    str | None, parallel("--layout", "Uneven stages, in Megatron's letters: 'Et*3|t*5L'.", "TEXT")
]
MicroBatch = Annotated[int, degree("--micro-batch-size", "Samples per replica at a time.", True)]
GlobalBatchOrNone = Annotated[int | None, degree("--global-batch-size", "Samples per iteration.")]
WorldSize = Annotated[int | None, degree("--world-size", "GPUs in all.")]
DevicesPerNode = Annotated[
    int | None, degree("--devices-per-node", "GPUs of a node; the cluster's, or 8.")
]
RankOrder = Annotated[
    Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
    parallel("--rank-order", "Fastest first.", default=True),
]
SequenceParallel = Annotated[
    bool, memory("--sequence-parallel", "Divide activations between products too.")
]
Recompute = Annotated[
    Literal["none", "selective", "full"],
    memory("--recompute", "Activations computed again.", default=True),
]
RecomputeModules = Annotated[
    str | None, memory("--recompute-modules", "Of selective: Megatron's names, by commas.", "NAMES")
]
RecomputeMethod = Annotated[
    Literal["uniform", "block"] | None, memory("--recompute-method", "Of full.")
]
RecomputeLayers = Annotated[
    int | None,
    number("Memory", "--recompute-layers", "Of full: layers of a chunk, or of each stage."),
]
DistributedOptimizer = Annotated[
    bool, memory("--distributed-optimizer", "The same as --sharding optimizer.")
]
Sharding = Annotated[
    Literal["none", "optimizer", "gradients", "parameters"],
    memory("--sharding", "What replicas divide: ZeRO 0, 1, 2, 3.", default=True),
]
Attention = Annotated[Literal["flash", "unfused"], kernels("--attention", "Kernel.", default=True)]
Dispatcher = Annotated[
    Literal["allgather", "alltoall", "flex"],
    kernels("--dispatcher", "Of tokens to experts.", default=True),
]
CpComm = Annotated[
    Literal["p2p", "all_gather", "a2a"],
    kernels("--cp-comm", "Of attention over --cp.", default=True),
]
GroupedExperts = Annotated[
    bool, kernels("--grouped-experts", "All experts of a GPU in one kernel.")
]
FusedLoss = Annotated[bool, kernels("--fused-loss", "Cross-entropy as one kernel.")]
Imbalance = Annotated[
    float,
    kernels(
        "--imbalance",
        "Assumed: the fullest rank's tokens over the average.",
        "N",
        default=True,
        min=1.0,
    ),
]
Stage = Annotated[int | None, number(OUTPUT, "--stage", "Show only this pipeline stage.", least=0)]
AllGroups = Annotated[bool, output("--all-groups", "Name every communication group.")]
Compat = Annotated[
    Literal["analysis-tool"] | None,
    output("--compat", "The report of Megatron-LM's analysis tool, with its formulas and errors."),
]
Output = Annotated[
    Path | None, output("--output", "Where to write it, JSON for FILE.json.", "FILE")
]

# Parameters that say something of a job, and so go with --model only.
OF_JOBS = (
    "tp", "pp", "dp", "cp", "ep", "etp", "virtual", "layout", "micro_batch", "global_batch",
    "sequence_length", "sequence_parallel", "recompute", "recompute_modules", "recompute_method",
    "recompute_layers", "distributed_optimizer", "sharding", "rank_order", "attention",
    "dispatcher", "cp_comm", "fused_loss", "grouped_experts", "imbalance",
)  # fmt: skip
OF_LAUNCHES = ("world_size", "devices_per_node")  # what a launch line may leave open
# Parameters that are called otherwise than their options.
RENAMED = {
    "virtual": "--virtual-stages",
    "micro_batch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
}
SOURCES = {
    "plan_file": "PLAN",
    "model": "--model",
    "megatron_args": "--megatron-args",
    "megatron_script": "--megatron-script",
}


def option_of(parameter: str) -> str:
    """Return the option of a parameter."""
    return RENAMED.get(parameter, f"--{parameter.replace('_', '-')}")
