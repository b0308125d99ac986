"""The options of `solve` for constraints on plans and devices."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ilp_planner.cli.help import CONSTRAINTS
from ilp_planner.cli.options import option
from ilp_planner.inputs.constraints import Constraints, constraints_of
from ilp_planner.schedule import PIPELINES
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    ORDERS,
    PARTS,
    RECOMPUTATIONS,
    SHARDINGS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

asked = partial(option, CONSTRAINTS)
degrees = partial(option, CONSTRAINTS, metavar="N")

Tp = Annotated[
    str | None, degrees("--tp", "Tensor-parallel degree: 4, a list as 2,4 or a range as 2..8.")
]
Pp = Annotated[str | None, degrees("--pp", "Pipeline stages, but for virtual ones; likewise.")]
Cp = Annotated[str | None, degrees("--cp", "Context-parallel degree; likewise.")]
Ep = Annotated[str | None, degrees("--ep", "Expert-parallel degree; likewise.")]
Dp = Annotated[str | None, degrees("--dp", "Data-parallel degree; likewise.")]
VirtualStages = Annotated[
    str | None, degrees("--virtual-stages", "Virtual stages of a pipeline rank; likewise.")
]
MicroBatchGroupSize = Annotated[
    str | None,
    degrees(
        "--micro-batch-group-size",
        "Micro-batches that pass one virtual stage of a rank before the next one's turn "
        "(--microbatch-group-size-per-virtual-pipeline-stage); likewise; as many as pipeline ranks "
        "without this option.",
    ),
]
Layout = Annotated[
    str | None,
    asked(
        "--layout",
        "Which layers every virtual stage has: even, any, how many as 10,11,11, or Megatron's "
        "letters as 'Et*10|t*11|t*11L'.",
        "LAYERS",
    ),
]
Remainder = Annotated[
    str | None,
    asked(
        "--remainder",
        "Which virtual stages take what is left over of a rank's layers: some of first, last and "
        "alone (the last ones, and the embedding and the output have stages without layers); all "
        "are tried without this option.",
        "WHICH",
    ),
]
RankOrder = Annotated[
    str | None, asked("--rank-order", f"Order of ranks: {', '.join(ORDERS)} or both.", "ORDER")
]
PipelineSchedule = Annotated[
    str | None,
    asked(
        "--schedule",
        f"Order of a pipeline's operations: some of {', '.join(PIPELINES)}; all that the runtime "
        "has are tried without this option.",
        "NAME",
    ),
]
Recompute = Annotated[
    str | None,
    asked(
        "--recompute",
        f"What may be computed again: some of {', '.join(RECOMPUTATIONS)}, or parts of every "
        f"layer: some of {', '.join(PARTS)}.",
        "KIND",
    ),
]
Sharding = Annotated[
    str | None,
    asked(
        "--sharding",
        f"What data-parallel ranks share: some of {', '.join(SHARDINGS)} (ZeRO 0 to 3).",
        "KIND",
    ),
]
ShardingCopies = Annotated[
    str | None,
    asked(
        "--sharding-copies",
        "How many copies there are of what is sharded, divisors of dp: 2, or a list as 1,2,4 "
        "(--num-distributed-optimizer-instances, HSDP); without this option 1 for Megatron-LM, all "
        "for torchtitan.",
        "N",
    ),
]
CpComm = Annotated[
    str | None,
    asked(
        "--cp-comm",
        f"How context-parallel ranks attend: some of {', '.join(CP_COMMUNICATIONS)}.",
        "HOW",
    ),
]
Overlap = Annotated[
    str | None,
    asked(
        "--overlap",
        "Whether gradients and parameters travel while passes compute: data, none or both; data "
        "without this option.",
        "WHAT",
    ),
]
FusedLoss = Annotated[
    str | None,
    asked(
        "--fused-loss",
        "The loss as one kernel, Megatron's own: native, none or both; native without this option.",
        "KERNEL",
    ),
]
Gradients = Annotated[
    str | None,
    asked("--gradients", "Types that gradients may be added up and sent in: fp32, bf16.", "TYPE"),
]
Moments = Annotated[
    str | None,
    asked("--moments", "Types that Adam's moments may be kept in: fp32, bf16, fp8.", "TYPE"),
]
Keep = Annotated[
    list[str] | None,
    asked(
        "--keep",
        "A stage of a saved plan that stays as it is, its layers, devices and degrees, as "
        "plan.json:stage0; may be repeated.",
        "PLAN:STAGE",
    ),
]
TensorOverlap = Annotated[
    str | None,
    asked(
        "--tensor-overlap",
        "Whether messages of tensor parallelism travel while products run (Megatron-LM's "
        "--tp-comm-overlap, torchtitan's async tensor parallelism): on, off or both; off without "
        "this option.",
        "SWITCH",
    ),
]
ExpertOverlap = Annotated[
    str | None,
    asked(
        "--expert-overlap",
        "Whether tokens travel to experts and back while another micro-batch computes "
        "(--overlap-moe-expert-parallel-comm): on, off or both; off without this option.",
        "SWITCH",
    ),
]
CudaGraphs = Annotated[
    str | None,
    asked(
        "--cuda-graphs",
        "What CUDA graphs have: some of none, attn, router (attention and routing), layer, "
        "full_iteration; none without this option.",
        "WHAT",
    ),
]
OptimizerOffload = Annotated[
    str | None,
    asked(
        "--optimizer-offload",
        "Shares of the optimizer's states that may be in the host's memory and stepped there, from "
        "0 to 1: 0.5, or a list as 0,0.5,1; 0 without this option.",
        "SHARE",
    ),
]
ActivationOffload = Annotated[
    str | None,
    asked(
        "--activation-offload",
        "Which activations may wait in the host's memory: none, those of modules as "
        "core_attn+attn_proj (--offload-modules), or of a number of layers as 4 "
        "(--cpu-offloading-num-layers); likewise a list; none without this option.",
        "WHAT",
    ),
]
Dispatcher = Annotated[
    str | None,
    asked(
        "--dispatcher",
        "How tokens get to experts: some of alltoall, allgather, flex (DeepEP); alltoall without "
        "this option.",
        "HOW",
    ),
]
FusedPermute = Annotated[
    str | None,
    asked(
        "--fused-permute",
        "Whether one kernel puts tokens in the order of experts (--moe-permute-fusion): on, off or "
        "both; off without this option.",
        "SWITCH",
    ),
]
Compile = Annotated[
    str | None,
    asked(
        "--compile",
        "Whether torch.compile compiles layers and the loss, as torchtitan can: on, off or both; "
        "off without this option, but for async tensor parallelism (--tensor-overlap on).",
        "SWITCH",
    ),
]
MaxDevices = Annotated[
    str | None, asked("--max-devices", "Devices at most, in whole nodes that are equal.", "N")
]
Without = Annotated[
    list[str] | None,
    asked(
        "--without",
        "A node that stays idle, by its number from 0, or all of a group by its name; may be "
        "repeated.",
        "NODE",
    ),
]
Headroom = Annotated[
    str | None, asked("--headroom", "Memory of every device that stays free, as 2GiB.", "SIZE")
]
ConstraintsFile = Annotated[
    Path | None,
    asked(
        "--constraints",
        "The same as a table [constraints] in a TOML file; what options say goes before it.",
        "FILE",
    ),
]


def constrained(**others: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take all of these options, and get their joint value as `demands`.

    others: options that say something else of a constraint there, by its name.
    """
    options = {**OPTIONS, **others}

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        def run(**said: Any) -> None:
            own = {name: said.pop(name) for name in options}
            command(**said, demands=demanded(own.pop("constraints"), own))

        signature = inspect.signature(command, eval_str=True)
        kept = [one for one in signature.parameters.values() if one.name != "demands"]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in options.items()
        ]
        run.__dict__["__signature__"] = signature.replace(parameters=[*kept, *more])
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return taking


OPTIONS = {
    "constraints": ConstraintsFile,
    "tp": Tp,
    "pp": Pp,
    "cp": Cp,
    "ep": Ep,
    "dp": Dp,
    "virtual_stages": VirtualStages,
    "micro_batch_group_size": MicroBatchGroupSize,
    "layout": Layout,
    "remainder": Remainder,
    "rank_order": RankOrder,
    "schedule": PipelineSchedule,
    "recompute": Recompute,
    "sharding": Sharding,
    "sharding_copies": ShardingCopies,
    "cp_comm": CpComm,
    "overlap": Overlap,
    "fused_loss": FusedLoss,
    "gradients": Gradients,
    "moments": Moments,
    "keep": Keep,
    "tensor_overlap": TensorOverlap,
    "expert_overlap": ExpertOverlap,
    "cuda_graphs": CudaGraphs,
    "optimizer_offload": OptimizerOffload,
    "activation_offload": ActivationOffload,
    "dispatcher": Dispatcher,
    "fused_permute": FusedPermute,
    "compile": Compile,
    "max_devices": MaxDevices,
    "without": Without,
    "headroom": Headroom,
}


def demanded(file: Path | None, said: Mapping[str, Any]) -> Constraints:
    """Return the demands of a file and options; if both say something, the option counts.

    Raises
    ------
    PlanError, SpecError, UsageError: one line with the file, the name, the found and the expected
        value.
    """
    from ilp_planner.formats.kept_stages import with_kept_stages
    from ilp_planner.inputs.constraints_file import read_constraints

    options = {name: value for name, value in said.items() if value}
    texts = {} if file is None else read_constraints(file).texts
    return with_kept_stages(constraints_of({**texts, **options}))
