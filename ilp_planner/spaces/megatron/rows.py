"""The table of a training job's settings, and their treatment by searches.

It holds for all runtimes that share this folder's engine. They state differences themselves
(`Runtime.lacks`, `Runtime.says`). The values of their plans are not written down anywhere, but read
off their answers (`treatment`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.spaces.megatron.example_jobs import more_recomputations, said_recomputations

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.spaces.megatron.runtime import Runtime

# What a row is about: a decision of plans; what the user says; what follows from these or is the
# planner's own; what systems can do and no search tries.
DECIDED, GIVEN, FIXED, LEFT_OUT = "decided", "given", "fixed", "left out"
IMPORTED = "judged in imported plans, never tried"
DEFAULT = "Megatron-LM's default"


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    fields: attributes of a `TrainingJob`, each in one row alone. kind: one of the four above.
    asked_by: parameters of a request for its values. remark: why, or when.
    choice: its name in `CHOICES`. values: if examples do not show them, from a runtime. on_request:
    likewise, values of plans only if these ask for them. span: the meaning of several numbers of an
    example. words: names of values, if their own text says too little.
    """

    name: str
    fields: tuple[str, ...]
    kind: str
    remark: str = ""
    asked_by: tuple[str, ...] = ()
    choice: str = ""
    values: Callable[[Runtime], tuple[str, ...]] | None = None
    on_request: Callable[[Runtime], tuple[str, ...]] | None = None
    span: str = ""
    words: tuple[tuple[object, str], ...] = ()


def _most_cp(runtime: Runtime) -> tuple[str, ...]:
    return ("1",) if runtime.most_cp == 1 else (f"1 to {runtime.most_cp}",)


def _inner(runtime: Runtime) -> tuple[str, ...]:
    return () if "inner ranks of a2a+p2p" in runtime.lacks else ("divisors of cp between 1 and cp",)


def _virtual(runtime: Runtime) -> tuple[str, ...]:
    return ("any number",) if runtime.interleaves else ("1",)


def _turns(runtime: Runtime) -> tuple[str, ...]:
    return ("more, with none or at least pp left over",) if runtime.other_turns else ()


def _always(*values: str) -> Callable[[Runtime], tuple[str, ...]]:
    return lambda runtime: values


def _of(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"settings.{prefix}{name}" for name in names)


DEGREES = (
    Row(
        "inputs", ("model", "global_batch", "devices_per_node", "generation"), GIVEN,
        "", ("model", "global_batch", "cluster", "gpus"), values=_always("as given"),
    ),
    Row(
        "tp", ("tp",), DECIDED, "must divide heads, widths and samples", ("tp",),
        values=_always("divisors of a node's devices"),
    ),
    Row(
        "cp", _of("", "cp"), DECIDED, "more with `max_cp`; 1 without flash attention", ("cp",),
        values=_most_cp,
    ),
    Row(
        "ep", _of("", "ep"), DECIDED, "1 without experts", ("ep",),
        values=_always("divisors of the experts"),
    ),
    Row(
        "tp of experts", _of("", "etp"), DECIDED, "1 where experts have biases",
        values=_always("1", "tp"),
    ),
    Row("dp", ("dp",), DECIDED, "", ("dp",), values=_always("what the others leave")),
    Row(
        "pp", ("pp",), DECIDED, "at most layers + 2", ("pp",),
        values=_always("divisors of the devices"),
    ),
    Row(
        "micro-batch", ("micro_batch",), DECIDED, "samples of a replica", ("micro_batch_size",),
        values=_always("divisors of a replica's samples"),
    ),
    Row(
        "virtual stages", ("virtual",), DECIDED,
        "where pp divides the number of micro-batches", ("virtual_stages",), values=_virtual,
    ),
    Row(
        "schedule", _of("", "schedule"), DECIDED,
        "1f1b is interleaved where ranks have several virtual stages", ("schedule",),
        values=lambda runtime: runtime.schedules,
    ),
    Row(
        "layout", ("layout",), DECIDED,
        "a rank's layers are spread evenly over its virtual stages, the first or the last ones "
        "taking what is left over, with or without stages for the embedding and the output alone; "
        "or, where layers differ, all virtual stages but the first and the last have as many; any "
        "that is asked for, or any at all", ("layout", "remainder"),
        values=_always("any cuts between ranks"),
    ),
    Row(
        "turns", _of("", "turn"), DECIDED,
        "of micro-batches that pass one virtual stage before the next one's",
        ("micro_batch_group_size",), words=((0, "pp micro-batches"),), on_request=_turns,
    ),
    Row("order of ranks", _of("", "order"), DECIDED, "with pp and dp above 1", ("rank_order",)),
    Row("sequence parallelism", _of("", "sequence_parallel"), FIXED, "yes with tp above 1"),
    Row(
        "cp by", _of("", "cp_comm"), DECIDED,
        "a2a where cp divides a rank's heads and groups; nothing else with windows and "
        "sinks; with latent attention only if asked for",
        ("cp_comm",), choice="cp_comm",
    ),
    Row(
        "inner ranks of a2a+p2p", _of("", "cp_inner"), DECIDED, "those that exchange heads",
        ("cp_comm",), words=((0, "none"),), on_request=_inner,
    ),
)  # fmt: skip
ACTIVATIONS = (
    Row(
        "recomputation", _of("recompute.", "granularity", "modules", "method", "layers"), DECIDED,
        "of parts those that a layer has, combined as in NVIDIA's recipes; in every combination "
        "where they are asked for",
        ("recompute",), values=said_recomputations, on_request=more_recomputations,
    ),
    Row(
        "kept inputs divided", _of("recompute.", "distribute"), LEFT_OUT,
        "sequence parallelism divides them already",
    ),
    Row(
        "activations on the host", _of("offload.", "layers", "modules", "smallest"), LEFT_OUT,
        "any modules together; or of a number of layers, without a pipeline and recomputation",
        ("activation_offload",), choice="activation_offload", values=_always("none"),
    ),
)  # fmt: skip
OPTIMIZER = (
    Row("optimiser", _of("optimizer.", "name"), FIXED, "the states of Adam"),
    Row(
        "sharding", _of("optimizer.", "sharding"), DECIDED,
        "where several ranks have the same parameters; sharded parameters or gradients in a "
        "pipeline only if asked for", ("sharding",), choice="sharding",
    ),
    Row(
        "copies of sharded states", _of("optimizer.", "instances"), DECIDED,
        "any divisor of dp x cp but this itself: instances of the distributed optimizer",
        ("sharding_copies",), choice="sharding_copies",
    ),
    Row(
        "gradients", _of("optimizer.", "gradient"), DECIDED,
        "changes the arithmetic: never without being asked for; bf16 with parameters of bf16",
        ("gradients",), choice="gradients",
    ),
    Row(
        "moments", _of("optimizer.", "moments"), DECIDED,
        "changes the arithmetic: never without being asked for; others with parameters of bf16",
        ("moments",), choice="moments",
    ),
    Row(
        "bytes of the stepped copy", _of("optimizer.", "master"), FIXED,
        "0 where parameters are fp32 themselves; 2 with moments of bf16 or fp8",
    ),
    Row("parameters from the stepped copy", _of("optimizer.", "from_master"), FIXED,
        "they are gathered in the training precision"),
    Row(
        "overlap of data parallelism", _of("optimizer.", "overlap_gradients", "overlap_parameters"),
        DECIDED, "of gradients and parameters with passes; none for being asked alone",
        ("overlap",), choice="overlap",
    ),
    Row(
        "states on the host", _of("optimizer.", "offload", "overlap_offload"), DECIDED,
        "any share, with optimizer sharding and moments of fp32; stepped there while gradients and "
        "parameters travel", ("optimizer_offload",), choice="optimizer_offload",
        words=((0.0, "none"),),
    ),
)  # fmt: skip
KERNELS = (
    Row(
        "precision", _of("", "precision"), GIVEN, "else the model's; changes the arithmetic",
        ("precision",),
    ),
    Row(
        "products in 8 or 4 bits", _of("kernels.", "quantised"), GIVEN,
        "where the devices have it; changes the arithmetic", ("precision",),
    ),
    Row(
        "format of these", _of("kernels.", "number_format"), FIXED, words=(("", "the recipe's"),),
    ),
    Row(
        "parameters gathered so", _of("kernels.", "quantised_parameters"), FIXED,
        "as NVIDIA's recipes: but for fp8-blockwise and nvfp4",
    ),
    Row(
        "layers at the ends not so", _of("kernels.", "exact_first", "exact_last"), LEFT_OUT,
        IMPORTED, values=_always("none"),
    ),
    Row("layers", _of("kernels.", "implementation"), FIXED, DEFAULT),
    Row(
        "attention", _of("kernels.", "attention"), FIXED,
        "unfused where a device has no flash attention",
    ),
    Row(
        "fused loss", _of("kernels.", "fused_loss", "loss_kernel"), DECIDED,
        "Megatron-LM's own kernel; none for being asked alone", ("fused_loss",),
        choice="fused_loss",
    ),
    Row("fused dropout and bias", _of("kernels.", "fused_dropout"), FIXED, DEFAULT),
    Row("fused activation", _of("kernels.", "fused_activation"), FIXED, DEFAULT),
    Row("fused softmax", _of("kernels.", "fused_softmax"), FIXED, "counts for local layers alone"),
    Row("fused gradient accumulation", _of("kernels.", "accumulation_fusion"), FIXED,
        DEFAULT),
    Row(
        "fused permutation of tokens", _of("kernels.", "fused_permute"), DECIDED,
        "needs Transformer Engine 2.1", ("fused_permute",), choice="fused_permute",
    ),
    Row("grouped products of experts", _of("kernels.", "grouped_experts"), FIXED,
        "with experts, as Megatron's recipes"),
    Row(
        "dispatcher of tokens", _of("kernels.", "dispatcher"), DECIDED,
        "alltoall where nothing is asked, as Megatron's recipes; flex is DeepEP, from Ampere on",
        ("dispatcher",), choice="dispatcher",
    ),
    Row(
        "capacity of experts", _of("kernels.", "capacity", "pad_to_capacity"), LEFT_OUT,
        f"drops tokens, which changes the training: {IMPORTED}", values=_always("all tokens"),
    ),
    Row("imbalance of tokens", _of("kernels.", "imbalance"), FIXED, "routing is assumed even"),
    Row(
        "compiled layers", _of("kernels.", "compiled"), DECIDED,
        "by torch.compile; what it gains is not in the figures", ("compile",), choice="compile",
    ),
    Row("deterministic", _of("kernels.", "deterministic"), LEFT_OUT, IMPORTED),
    Row("mask of the loader", _of("kernels.", "loader_mask"), LEFT_OUT,
        f"causal attention needs none: {IMPORTED}"),
    Row("package flash-attn", _of("kernels.", "flash_package"), LEFT_OUT, IMPORTED),
    Row(
        "CUDA graphs", _of("kernels.", "graphs", "graphed"), DECIDED,
        "they hide what the host takes to start kernels, of which only experts have any before a "
        "calibration; router: attention and routing; layer and full_iteration without experts; "
        "layers are computed again whole with full_iteration alone",
        ("cuda_graphs",), choice="cuda_graphs",
    ),
)  # fmt: skip
MESSAGES = (
    Row(
        "overlap of tensor parallelism", _of("", "overlap_tensor"), DECIDED,
        "with tp above 1 and parameters of 2 bytes; Megatron-LM turns it off with latent attention",
        ("tensor_overlap",), choice="tensor_overlap",
    ),
    Row(
        "overlap of expert parallelism", _of("", "overlap_experts"), DECIDED,
        "with ep above 1, virtual stages in a pipeline, and neither layers nor experts computed "
        "again whole", ("expert_overlap",), choice="expert_overlap",
    ),
    Row("asynchronous backward products", _of("", "async_tensor"), FIXED, DEFAULT),
    Row("overlap of virtual stages' messages", _of("", "overlap_sends"), FIXED, DEFAULT),
    Row("shares of sends gathered", _of("", "scatter_sends"), FIXED,
        "only without sequence parallelism, and until 2023"),
    Row("gathered inputs kept", _of("", "keeps_gathered"), FIXED,
        "they are gathered again for gradients of weights"),
    Row("vocabulary padded to a multiple of", _of("", "vocab_multiple"), FIXED, "times tp"),
    Row("words of a launch line", _of("", "carried"), FIXED,
        "what is not modelled of an imported line, for an export to write back"),
)  # fmt: skip
ROWS = (*DEGREES, *ACTIVATIONS, *OPTIMIZER, *KERNELS, *MESSAGES)
