"""The table of settings that a user may demand of plans, and of the devices that they use.

The options of commands, the keywords of Python, the tables of files, the axes of sweeps and the
records of saved plans are made of it: a new setting is a row here, and the module that prices it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.schedule.formulas import DIVIDED, PIPELINES
from ilp_planner.settings.domains import (
    SWITCH,
    Count,
    Counts,
    Degree,
    Domain,
    Layers,
    Nodes,
    Offloads,
    OneOf,
    Shares,
    Size,
    Stages,
)
from ilp_planner.specs.pipeline_layout import REMAINDERS
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    OFFLOADED,
    OPERATORS,
    ORDERS,
    PARTS,
    RECOMPUTATIONS,
    SHARDINGS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ON_SWITCH = "on, off or both; off without this option"
NOT_ELSEWHERE: Mapping[str, str] = MappingProxyType({})


class Setting(NamedTuple):
    """One row.

    name: of the keyword; the option is the same with dashes. help: of the option; empty: an option
    of another kind says it. metavar: of the option. of_devices: it is about the devices, not about
    plans. only: value -> the one runtime whose plans may have it; plans of `megatron` may have all
    others.
    """

    name: str
    domain: Domain
    help: str = ""
    metavar: str = "N"
    of_devices: bool = False
    only: Mapping[str, str] = NOT_ELSEWHERE


SETTINGS = (
    Setting("tp", Degree(), "Tensor-parallel degree: 4, a list as 2,4 or a range as 2..8."),
    Setting("pp", Degree(), "Pipeline stages, but for virtual ones; likewise."),
    Setting("cp", Degree(), "Context-parallel degree; likewise."),
    Setting("ep", Degree(), "Expert-parallel degree; likewise."),
    Setting("dp", Degree(), "Data-parallel degree; likewise."),
    Setting("micro_batch_size", Degree()),  # samples of a replica
    Setting("virtual_stages", Degree(), "Virtual stages of a pipeline rank; likewise."),
    Setting(
        "micro_batch_group_size",
        Degree(),
        "Micro-batches that pass one virtual stage of a rank before the next one's turn "
        "(--microbatch-group-size-per-virtual-pipeline-stage); likewise; as many as pipeline ranks "
        "without this option.",
    ),
    Setting(
        "layout",
        Layers(),
        "Which layers every virtual stage has: even, any, how many as 10,11,11, or Megatron's "
        "letters as 'Et*10|t*11|t*11L'.",
        "LAYERS",
    ),
    Setting(
        "remainder",
        OneOf(REMAINDERS),
        "Which virtual stages take what is left over of a rank's layers: some of first, last and "
        "alone (the last ones, and the embedding and the output have stages without layers); all "
        "are tried without this option.",
        "WHICH",
    ),
    Setting("rank_order", OneOf(ORDERS), f"Order of ranks: {', '.join(ORDERS)} or both.", "ORDER"),
    Setting(
        "schedule",
        OneOf(PIPELINES),
        f"Order of a pipeline's operations: some of {', '.join(PIPELINES)}; all that the runtime "
        "has are tried without this option.",
        "NAME",
        only=dict.fromkeys(DIVIDED, "torchtitan"),
    ),
    Setting(
        "recompute",
        OneOf((*RECOMPUTATIONS, *PARTS), aliases={"uniform": "full"}),
        f"What may be computed again: some of {', '.join(RECOMPUTATIONS)}, or parts of every "
        f"layer: some of {', '.join(PARTS)}.",
        "KIND",
        only={OPERATORS: "torchtitan"},
    ),
    Setting(
        "sharding",
        OneOf(SHARDINGS),
        f"What data-parallel ranks share: some of {', '.join(SHARDINGS)} (ZeRO 0 to 3).",
        "KIND",
    ),
    Setting(
        "sharding_copies",
        Counts(("1", "2")),
        "How many copies there are of what is sharded, divisors of dp: 2, or a list as 1,2,4 "
        "(--num-distributed-optimizer-instances, HSDP); without this option 1 for Megatron-LM, all "
        "for torchtitan.",
    ),
    Setting(
        "cp_comm",
        OneOf(CP_COMMUNICATIONS),
        f"How context-parallel ranks attend: some of {', '.join(CP_COMMUNICATIONS)}.",
        "HOW",
    ),
    Setting(
        "overlap",
        OneOf(("data", "none")),
        "Whether gradients and parameters travel while passes compute: data, none or both; data "
        "without this option.",
        "WHAT",
    ),
    Setting(
        "fused_loss",
        OneOf(("native", "none")),
        "The loss as one kernel, Megatron's own: native, none or both; native without this option.",
        "KERNEL",
    ),
    Setting(
        "gradients",
        OneOf(("fp32", "bf16")),
        "Types that gradients may be added up and sent in: fp32, bf16.",
        "TYPE",
    ),
    Setting(
        "moments",
        OneOf(("fp32", "bf16", "fp8")),
        "Types that Adam's moments may be kept in: fp32, bf16, fp8.",
        "TYPE",
    ),
    Setting(
        "keep",
        Stages(),
        "A stage of a saved plan that stays as it is, its layers, devices and degrees, as "
        "plan.json:stage0; may be repeated.",
        "PLAN:STAGE",
    ),
    Setting(
        "tensor_overlap",
        OneOf(SWITCH),
        "Whether messages of tensor parallelism travel while products run (Megatron-LM's "
        f"--tp-comm-overlap, torchtitan's async tensor parallelism): {ON_SWITCH}.",
        "SWITCH",
    ),
    Setting(
        "expert_overlap",
        OneOf(SWITCH),
        "Whether tokens travel to experts and back while another micro-batch computes "
        f"(--overlap-moe-expert-parallel-comm): {ON_SWITCH}.",
        "SWITCH",
    ),
    Setting(
        "cuda_graphs",
        OneOf(("none", "attn", "router", "layer", "full_iteration")),
        "What CUDA graphs have: some of none, attn, router (attention and routing), layer, "
        "full_iteration; none without this option.",
        "WHAT",
    ),
    Setting(
        "optimizer_offload",
        Shares(("0", "0.25", "0.5", "0.75", "1")),
        "Shares of the optimizer's states that may be in the host's memory and stepped there, from "
        "0 to 1: 0.5, or a list as 0,0.5,1; 0 without this option.",
        "SHARE",
    ),
    Setting(
        "activation_offload",
        Offloads(("none", "core_attn", "qkv_linear+mlp_norm", "1"), OFFLOADED),
        "Which activations may wait in the host's memory: none, those of modules as "
        "core_attn+attn_proj (--offload-modules), or of a number of layers as 4 "
        "(--cpu-offloading-num-layers); likewise a list; none without this option.",
        "WHAT",
    ),
    Setting(
        "dispatcher",
        OneOf(("alltoall", "allgather", "flex")),
        "How tokens get to experts: some of alltoall, allgather, flex (DeepEP); alltoall without "
        "this option.",
        "HOW",
    ),
    Setting(
        "fused_permute",
        OneOf(SWITCH),
        "Whether one kernel puts tokens in the order of experts (--moe-permute-fusion): "
        f"{ON_SWITCH}.",
        "SWITCH",
    ),
    Setting(
        "compile",
        OneOf(SWITCH),
        "Whether torch.compile compiles layers and the loss, as torchtitan can: "
        f"{ON_SWITCH}, but for async tensor parallelism (--tensor-overlap on).",
        "SWITCH",
        only={"on": "torchtitan"},
    ),
    Setting(
        "max_devices", Count(), "Devices at most, in whole nodes that are equal.", of_devices=True
    ),
    Setting(
        "without",
        Nodes(),
        "A node that stays idle, by its number from 0, or all of a group by its name; may be "
        "repeated.",
        "NODE",
        of_devices=True,
    ),
    Setting(
        "headroom",
        Size(),
        "Memory of every device that stays free, as 2GiB.",
        "SIZE",
        of_devices=True,
    ),
)
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}
