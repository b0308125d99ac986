"""What a launch line asks for that the memory and communication models do not know."""

from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.model import sequence_of
from ilp_planner.formats.megatron.rules import check_environment
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.units import format_bytes

# Key -> what is not counted.
UNCOUNTED = {
    "fp8": "8-bit products and what they cache; counted as the training precision",
    "fp4": "4-bit products and what they cache; counted as the training precision",
    "fp8_param_gather": "8-bit parameters; counted as the training precision",
    "window_size": "attention windows; counted as full attention",
    "cpu_offloading_num_layers": "activations that lie in the host's memory; counted on the device",
    "fine_grained_activation_offloading": "offloaded activations; counted on the device",
    "moe_shared_expert_gate": "the gate of shared experts, hidden-size parameters per layer",
    "softmax_type": "the offset of softmax, a number per head",
    "fp32_residual_connection": "4-byte residual connections; counted as the training precision",
    "overlap_moe_expert_parallel_comm": "a second micro-batch in flight, whose exchange overlaps",
    "moe_shared_expert_overlap": "the overlap of shared experts with the exchange of tokens",
    "defer_embedding_wgrad_compute": "outputs that are kept until the pipeline flushes",
    "sft": "packed samples of different lengths; counted as full ones",
    "use_varlen_dataset": "packed samples of different lengths; counted as full ones",
    "hybrid_context_parallel": "samples of different lengths; counted as full ones",
    "rampup_batch_size": "smaller batches at the beginning; counted as --global-batch-size",
    "perform_rl_step": "inference between training steps",
    "moe_enable_deepep": "DeepEP's buffers, which are none of PyTorch's",
    "moe_paged_stash": "paged activations of experts; counted as kept",
}
BIG = 2**28  # bytes worth a note
DEFAULTS = {"softmax_type": "vanilla"}


def unmodelled(args: MegatronArguments) -> tuple[str, ...]:
    """Return notes on what is not counted, and on the environment, one line each."""
    notes = [
        f"{flag_of(key)}: not counted: {what}"
        for key, what in UNCOUNTED.items()
        if args[key] and args[key] != DEFAULTS.get(key)
    ]
    hidden, attention = args.number("hidden_dropout"), args.number("attention_dropout")
    if args.on("cross_entropy_loss_fusion") and args["cross_entropy_fusion_impl"] == "linear":
        notes.append("--cross-entropy-fusion-impl: linear is counted as native, which keeps logits")
    if args.given("attention_dropout") and attention != hidden:
        notes.append(f"--attention-dropout: {attention} is counted as --hidden-dropout ({hidden})")
    lacking = (str(finding) for finding in check_environment(args))
    return (*args.remarks, *notes, *_mask(args), *lacking)


def _mask(args: MegatronArguments) -> tuple[str, ...]:
    """Return a note on the data loader's mask, where it is big; causal attention needs none."""
    length = sequence_of(args)
    size = args.whole("micro_batch_size") * length * length
    if not args.on("create_attention_mask_in_dataloader") or size < BIG:
        return ()
    return (
        f"--no-create-attention-mask-in-dataloader would save {format_bytes(size)}: the mask of "
        "every pair of tokens, which causal attention does not read",
    )
