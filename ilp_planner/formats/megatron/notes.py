"""Settings of a launch line that the models lack: notes on them, and arguments carried along.

A plan keeps the arguments that it does not model word for word, and its export writes them back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ilp_planner.base.errors import SpecError
from ilp_planner.base.units import format_bytes
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.compressed import is_compressed
from ilp_planner.formats.megatron.flags import Value, flag_of, flags_by_key
from ilp_planner.formats.megatron.model import sequence_of, tokenizer_of
from ilp_planner.formats.megatron.rules import check_arguments, check_environment
from ilp_planner.formats.megatron.rules_pipeline import virtual_stages
from ilp_planner.formats.megatron.settings import (
    graphs_of,
    local_of,
    recipe_of,
    sequence_parallel_of,
)
from ilp_planner.formats.megatron.sparse import KERNELS, UNFUSED
from ilp_planner.formats.megatron.values import COUNTED_FULL, MegatronArguments, write_value
from ilp_planner.settings import values
from ilp_planner.specs.training import MIXTURES, OF_MATRICES, USUAL_FORMATS, TrainingJob

# Key -> what is not counted.
UNCOUNTED = {
    "fp8_output_proj": "the output layer in 8 bits; counted as the training precision",
    "te_precision_config_file": "its precisions; counted as --fp8-format, or without it as --bf16",
    "kitchen_config_file": "its precisions; counted as the training precision",
    "kitchen_recipe_number": "its precision; counted as the training precision",
    "first_last_layers_bf16": "memory of layers that stay as they are; counted as quantised",
    "moe_router_padding_for_quantization": "rows that fill up the tokens of an expert",
    "moe_router_padding_for_fp8": "rows that fill up the tokens of an expert",
    "optimizer_cuda_graph": "the optimizer's graph; its step is counted without",
    "fine_grained_offloading_max_inflight_offloads": "its cap on activations on their way",
    "softmax_type": "the offset of softmax, which is not learnt",
    "fp32_residual_connection": "4-byte residual connections; counted as the training precision",
    "overlap_moe_expert_parallel_comm": values.EXPERT_OVERLAP.uncounted["on"],
    "moe_shared_expert_overlap": "the overlap of shared experts with the exchange of tokens",
    "defer_embedding_wgrad_compute": values.DEFER_EMBEDDING_WGRAD.uncounted["on"],
    "sft": f"packed samples of different lengths (`--lengths`); {COUNTED_FULL}",
    "use_varlen_dataset": f"packed samples of different lengths (`--lengths`); {COUNTED_FULL}",
    "hybrid_context_parallel": "samples on different numbers of ranks; counted as on all",
    "rampup_batch_size": "smaller batches at the beginning; counted as --global-batch-size",
    "perform_rl_step": "inference between training steps",
    "moe_enable_deepep": values.DISPATCHER.uncounted["flex"],
    "optimizer": "the products of its step; its moments are counted",
    "muon_use_syrk": "the half of symmetric products that it leaves out",
    "muon_fp32_matmul_prec": "products of the step in fp32; counted as medium, of bf16",
    "muon_coefficient_type": "other products of a turn; counted as quintic",
    "muon_scalar_optimizer": "its moments; counted as adam",
    "moe_paged_stash": "paged activations of experts; counted as kept",
}
GROUPED = "mhc_recompute_layer_num"  # layers whose mixtures are computed again at once
BIG = 2**28  # bytes worth a note
# Parts of tensor-parallel overlap that are on unless turned off.
OVERLAPS = ("tp_comm_bulk_wgrad", "tp_comm_bulk_dgrad", "tp_comm_overlap_ag", "tp_comm_overlap_rs")
COUNTED = {
    "softmax_type": ("vanilla", "learnable"),
    "optimizer": ("adam", "sgd", "lion", "muon", "dist_muon"),
    "muon_fp32_matmul_prec": ("medium",),
    "muon_coefficient_type": ("simple", "quintic", "polar_express", "cans", "aol", "deepseekv4"),
    "muon_scalar_optimizer": ("adam",),
}  # values that are


def unmodelled(args: MegatronArguments) -> tuple[str, ...]:
    """Return notes on uncounted settings, and on the environment, one line each."""
    counted = bool(args.features.get("lengths"))
    notes = [
        f"{flag_of(key)}: not counted: {what}"
        for key, what in UNCOUNTED.items()
        if args[key] and args[key] not in COUNTED.get(key, ())
        if not (counted and what.endswith(COUNTED_FULL))
    ]
    notes += [*_precision(args), *_graphs(args), *_tensor_overlap(args), *_pipeline(args)]
    notes += [*_muon(args), *_attention(args)]
    hidden, attention = args.number("hidden_dropout"), args.number("attention_dropout")
    if args.given("attention_dropout") and attention != hidden:
        notes.append(f"--attention-dropout: {attention} is counted as --hidden-dropout ({hidden})")
    if known := tokenizer_of(args):
        model, vocab = known
        tokenizer = args.text("tokenizer_model")
        notes.append(f"--vocab-size: found none: {vocab} of {model}, the model of {tokenizer}")
    lacking = (str(finding) for finding in check_environment(args))
    remarks = [one for one in args.remarks if not (counted and one.endswith(COUNTED_FULL))]
    return (*remarks, *map(args.spelled, (*notes, *_mask(args), *lacking)))


def _muon(args: MegatronArguments) -> list[str]:
    """Return notes on steps of Muon that are counted otherwise."""
    if args.text("optimizer") not in OF_MATRICES or args.on("muon_split_qkv"):
        return []
    what = "queries, keys and values as one matrix; counted as three"
    return [f"--muon-no-split-qkv: not counted: {what}"]


def _attention(args: MegatronArguments) -> list[str]:
    """Return notes on attention to chosen keys, and on streams of hidden states."""
    notes, flag = [], flag_of(GROUPED)
    backend, pooled = args.text("dsa_kernel_backend"), is_compressed(args)
    if backend not in ("", UNFUSED, KERNELS) and not pooled:
        notes.append("--dsa-kernel-backend: not counted: its kernels; counted as TileLang's")
    if not args.on("enable_hyper_connections"):
        return notes
    if not args.on("use_fused_mhc"):
        what = "mixtures of streams by separate kernels; counted as fused"
        notes.append(f"--enable-hyper-connections: not counted: {what}")
    if MIXTURES in args.words("recompute_modules") and args[GROUPED] != 1:
        found = f"{args[GROUPED]} layers" if args[GROUPED] else "all of a virtual stage's layers"
        what = f"mixtures of streams of {found} together; counted layer by layer, as {flag} 1"
        notes.append(f"{flag}: not counted: {what}")
    return notes


def _precision(args: MegatronArguments) -> list[str]:
    """Return notes on quantised products that are counted otherwise than they are asked for."""
    key = next((key for key in ("fp8", "fp4") if args.given(key)), "")
    if not key:
        return []
    if not recipe_of(args):
        why = "local modules do without" if local_of(args) else "a recipe of one's own"
        return [f"{flag_of(key)}: not counted: {why}; counted as the training precision"]
    notes = []
    if sequence_parallel_of(args):
        what = "inputs gathered quantised over tensor-parallel ranks"
        notes.append(f"{flag_of(key)}: not counted: {what}; sent in the training precision")
    usual = USUAL_FORMATS[recipe_of(args)]
    if args[key] != usual:
        notes.append(f"{flag_of(key)}: {args[key]}: counted as {usual}, as fast and as large")
    if not args.on("fp8_wgrad"):
        notes.append("--no-fp8-wgrad: not counted: gradients of weights, counted as quantised")
    return notes


def _graphs(args: MegatronArguments) -> list[str]:
    """Return notes on CUDA graphs."""
    if not graphs_of(args):
        return []
    key = next(
        key
        for key in ("enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl")
        if args[key] not in (False, "none")
    )
    return [f"{flag_of(key)}: not counted: {values.CUDA_GRAPHS.uncounted['layer']}"]


def _tensor_overlap(args: MegatronArguments) -> list[str]:
    """Return a note on parts of tensor-parallel overlap that are turned off."""
    if not args.on("tp_comm_overlap"):
        return []
    off = [flag_of(key) for key in OVERLAPS if not args.on(key)]
    what = values.TENSOR_OVERLAP.uncounted["on"]
    notes = [f"--tp-comm-overlap: not counted: {what}"]
    if off:
        notes.append(f"{', '.join(off)}: not counted: counted as overlapped")
    return notes


def _pipeline(args: MegatronArguments) -> list[str]:
    """Return notes on the microbatch groups of virtual stages, if they are not counted as such."""
    ranks, key = args.whole("pipeline_model_parallel_size"), "microbatch_group_size_per_vp_stage"
    if ranks == 1 or virtual_stages(args) < 2:
        return []
    notes = []
    if not args.on("overlap_p2p_comm") and args.given(key) and args.whole(key) != ranks:
        flag = "--no-overlap-p2p-communication"
        notes.append(f"{flag}: not counted: with {flag_of(key)} counted as overlapped")
    if args.on("overlap_p2p_comm_warmup_flush"):
        what = "the memory of inputs that come ahead"
        notes.append(f"{flag_of('overlap_p2p_comm_warmup_flush')}: not counted: {what}")
    return notes


def _mask(args: MegatronArguments) -> tuple[str, ...]:
    """Return a note on the data loader's mask, if it is big; causal attention needs none."""
    length = sequence_of(args)
    size = args.whole("micro_batch_size") * length * length
    if not args.on("create_attention_mask_in_dataloader") or size < BIG:
        return ()
    return (
        f"--no-create-attention-mask-in-dataloader would save {format_bytes(size)}: the mask of "
        "every pair of tokens, which causal attention does not read",
    )


# ---- carried arguments ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Carried:
    """The arguments of a launch line that go through a plan unread.

    words: as they stand on the line, arguments that Megatron-LM does not have among them.
    otherwise: flags that are not among them, for the plan says the same in other words.
    """

    words: tuple[str, ...]
    otherwise: tuple[str, ...] = ()


def carried_of(args: MegatronArguments) -> Carried:
    """Return the arguments that the plan of a line has to carry, so that its export has all of the
    line.

    All that a plan models is written from the plan. Other arguments are carried if they agree with
    the written ones, and leave the job as it is.
    """
    job = job_of_arguments(args, checked=False)
    made = arguments_of_job(job).values
    rest = {key: v for key, v in args.values.items() if key not in made or made[key] != v}
    kept: dict[str, Value] = {}
    for group in _groups(rest):
        wanted = {key: rest[key] for key in group if key not in kept}
        if wanted and _the_same(args, job, {**made, **kept, **wanted}):
            kept |= wanted
    ordered = {key: value for key, value in rest.items() if key in kept}
    words = tuple(word for key, value in ordered.items() for word in write_value(key, value))
    lost = [key for key in rest if key not in kept and write_value(key, rest[key])]
    return Carried((*words, *args.unread), tuple(flag_of(key) for key in lost))


def _groups(rest: Mapping[str, Value]) -> list[list[str]]:
    """Return groups that are tried together: everything, then topic by topic, then one by one,
    twice, for some need others."""
    topics: dict[str, list[str]] = {}
    for key in rest:
        topics.setdefault(flags_by_key()[key][0].topic, []).append(key)
    single = [[key] for key in rest]
    return [list(rest), *topics.values(), *single, *single]


def _the_same(args: MegatronArguments, job: TrainingJob, values: Mapping[str, Value]) -> bool:
    """Whether values train the same job, and Megatron takes them."""
    candidate = replace(args, values=dict(values))
    try:
        return job_of_arguments(candidate, checked=False) == job and not check_arguments(candidate)
    except SpecError:
        return False
