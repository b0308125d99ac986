"""The options that say a training job, for the commands that take one: each described once."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.options import number, option

ABOUT = "The job"
about = partial(option, ABOUT)
parallel, degree = partial(option, "Parallelism"), partial(number, "Parallelism")
memory, kernel = partial(option, "Memory"), partial(option, "Kernels")

Model = Annotated[str | None, o.model_option("", default=False, section=ABOUT)]
MegatronArgs = Annotated[
    str | None,
    about("--megatron-args", "Arguments of Megatron-LM's pretrain_gpt.py, as one text.", "ARGS"),
]
MegatronScript = Annotated[
    Path | None,
    about("--megatron-script", "A launch script of Megatron-LM; it is read, not run.", "FILE"),
]
SetValues = Annotated[
    list[str] | None,
    about("--set", "What only running the script would tell; repeatable.", "NAME=VALUE"),
]
Strict = Annotated[bool, about("--strict", "Refuse arguments that Megatron-LM does not have.")]
Cluster = Annotated[str | None, o.cluster_option(default=False, section=ABOUT)]
Gpus = Annotated[str | None, o.gpus_option(ABOUT)]
DeviceMemory = Annotated[
    str | None,
    about(
        "--device-memory",
        "Memory of a device, as 80GiB; a card sold as 80 GB has that.",
        "SIZE",
    ),
]
Tp = Annotated[int, degree("--tp", "Tensor-parallel degree.", True)]
Pp = Annotated[
    int | None,
    degree("--pp", "Pipeline ranks; with a --layout of several stages they must be given.", "1"),
]
Dp = Annotated[int | None, degree("--dp", "Replicas; what --world-size or --cluster leaves, or 1.")]
Cp = Annotated[int, degree("--cp", "Context-parallel degree.", True)]
Ep = Annotated[int, degree("--ep", "Expert-parallel degree.", True)]
Etp = Annotated[
    int | None,
    degree("--etp", "Tensor-parallel degree of experts; 0: that of --tp.", "0", least=0),
]
Virtual = Annotated[int, degree("--virtual-stages", "Virtual stages per GPU.", True)]
Layout = Annotated[
    str | None,
    parallel("--layout", "Uneven stages, in Megatron's letters: 'Et*3|t*5L'.", "TEXT"),
]
MicroBatch = Annotated[int, degree("--micro-batch-size", "Samples per replica at a time.", True)]
GlobalBatch = Annotated[int | None, degree("--global-batch-size", "Samples per iteration.")]
WorldSize = Annotated[int | None, degree("--world-size", "GPUs in all.")]
DevicesPerNode = Annotated[
    int | None, degree("--devices-per-node", "GPUs of a node; the cluster's, or 8.")
]
SequenceLength = Annotated[
    int | None,
    number(ABOUT, "--sequence-length", "Tokens of a sample; the model's."),
]
TextOnly = Annotated[bool, about("--text-only", o.TEXT_ONLY)]
SequenceParallel = Annotated[
    bool, memory("--sequence-parallel", "Divide activations between products too.")
]
Recompute = Annotated[
    Literal["none", "selective", "full"] | None,
    memory(
        "--recompute",
        "Activations computed again; none, or what --recompute-modules, -method or -layers is of.",
    ),
]
RecomputeModules = Annotated[
    str | None,
    memory("--recompute-modules", "Of selective: Megatron's names, by commas.", "NAMES"),
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
RankOrder = Annotated[
    Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"],
    parallel("--rank-order", "Fastest first.", default=True),
]
Attention = Annotated[
    Literal["flash", "unfused"] | None,
    kernel("--attention", "Kernel; flash where the GPUs have it."),
]
Precision = Annotated[
    o.PrecisionName | None,
    kernel("--precision", "Of training, or a recipe of products in 8 or 4 bits; the model's."),
]
Dispatcher = Annotated[
    Literal["allgather", "alltoall", "flex"],
    kernel("--dispatcher", "Of tokens to experts.", default=True),
]
CpComm = Annotated[
    Literal["p2p", "all_gather", "a2a"] | None,
    kernel("--cp-comm", "Of attention over --cp.", default="p2p"),
]
FusedLoss = Annotated[bool, kernel("--fused-loss", "Cross-entropy as one kernel.")]
GroupedExperts = Annotated[bool, kernel("--grouped-experts", "All experts of a GPU in one kernel.")]
Imbalance = Annotated[
    float,
    kernel(
        "--imbalance",
        "Assumed: the fullest rank's tokens over the average.",
        "N",
        default=True,
        min=1.0,
    ),
]
