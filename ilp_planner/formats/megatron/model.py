"""The model in Megatron-LM's arguments: `Decoder` from values, and values from `Decoder`."""

from collections.abc import Mapping

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.compressed import (
    MIXED,
    RATIOS,
    compressed_of,
    compressed_values,
    is_compressed,
)
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.hybrid import (
    PATTERN,
    STACK,
    hybrid_of,
    hybrid_values,
    layers_in,
    pattern_of,
)
from ilp_planner.formats.megatron.model_features import (
    feature_values,
    features_of,
    rotary_of,
    routing_of,
    routing_values,
)
from ilp_planner.formats.megatron.sparse import sparse_of, sparse_values
from ilp_planner.formats.megatron.values import MegatronArguments, given
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention

NORMS = {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}
POSITIONS = {
    "learned_absolute": "learned",
    "rope": "rope",
    "yarn": "rope",
    "mrope": "rope",
    "none": "none",
}
# Vocabularies of the tokenizers that Megatron brings along.
VOCABULARIES = {
    "GPT2BPETokenizer": 50257,
    "BertWordPieceLowerCase": 30522,
    "BertWordPieceCase": 28996,
}
DEFAULT_TOKENIZER = "GPT2BPETokenizer"
# These add the end of a document to --vocab-size.
NULL_TOKENIZERS = ("NullTokenizer", "NullMultimodalTokenizer")
# What makes another model of it: key -> what it is.
UNSUPPORTED = {
    "mtp_hybrid_override_pattern": "prediction layers of a pattern of their own",
    "heterogeneous_layers_config_path": "layers of different sizes",
    "heterogeneous_layers_config_encoded_json": "layers of different sizes",
    RATIOS: "compressed sparse attention",
    MIXED: "hyper-connections",
    "moe_shortcut_connection": "shortcut connections around experts",
    "mtp_use_repeated_layer": "a repeated prediction layer",
    "decoder_num_layers": "encoder-decoder models",
    "decoder_seq_length": "encoder-decoder models",
    "vision_pretraining": "vision models",
    "yaml_cfg": "arguments in a YAML file",
}


def check_supported(args: MegatronArguments) -> None:
    """Refuse arguments that change the model in an unmodelled way.

    Raises
    ------
    SpecError: the argument, and its effect.
    """
    from ilp_planner.formats.megatron.flags import flag_of

    for key, what in UNSUPPORTED.items():
        if args[key] and not (key in (RATIOS, MIXED) and is_compressed(args)):
            raise SpecError(f"{flag_of(key)}: found {what}, expected a decoder-only transformer")
    named = args.words("spec")
    if named and named[0] != "local" and not (pattern_of(args) and named == STACK):
        raise SpecError("--spec: found a model of its own, expected Megatron's own or `local`")
    if args.text("position_embedding_type") == "relative":
        raise SpecError(
            "--position-embedding-type: found relative, expected learned_absolute, rope or none"
        )
    tp = args.whole("tensor_model_parallel_size")
    if args.whole("tensor_parallel_num_weight_shards") > tp:
        raise SpecError(
            "--tensor-parallel-num-weight-shards: found weights that are gathered before use, "
            f"expected --tensor-model-parallel-size ({tp}) or none"
        )


def decoder_of(args: MegatronArguments) -> Decoder:
    """Return the model of checked arguments.

    Raises
    ------
    SpecError: the model is not supported, or its vocabulary is in a file.
    """
    check_supported(args)
    grouped = args.on("group_query_attention")
    positions = args.text("position_embedding_type")
    turned = args.on("use_rotary_position_embeddings") or POSITIONS[positions] == "rope"
    gated = args.on("swiglu") or args.on("quick_geglu")
    hidden = args.whole("hidden_size")
    # Megatron's own default; `Decoder` has the same for SwiGLU, not for quick GeGLU.
    ffn = args.whole("ffn_hidden_size") or (0 if args.on("swiglu") else 4 * hidden)
    experts, experts_in = _experts(args)
    hybrid = hybrid_of(args, layers_of(args), experts is not None)
    ahead = hybrid.pop("prediction_layers", args.whole("mtp_num_layers"))
    compressed = compressed_of(args, layers_of(args))
    fields = dict(
        layers=layers_of(args),
        hidden=hidden,
        heads=args.whole("num_attention_heads"),
        sequence=sequence_of(args),
        vocab=vocabulary_of(args),
        ffn=ffn,
        kv_heads=args.whole("num_query_groups") if grouped else 0,
        head=args.whole("kv_channels"),
        gated=gated,
        bias=args.on("add_bias_linear"),
        qkv_bias=args.on("add_qkv_bias"),
        norm=NORMS[args.text("normalization")],
        positions="rope" if turned else POSITIONS[positions],
        max_position_embeddings=args.whole("max_position_embeddings"),
        tied=not args.on("untie_embeddings_and_output_weights"),
        dropout=args.number("hidden_dropout"),
        latent=_latent(args),
        prediction_layers=ahead,
        attention_gate=args.on("attention_output_gate"),
        sparse=sparse_of(args),
        experts=experts,
        experts_in=experts_in,
        rotary=rotary_of(args) if turned and not compressed else None,
        **features_of(args),
        **hybrid,
    )
    return Decoder(**fields | compressed)


def layers_of(args: MegatronArguments) -> int:
    """Return the transformer layers, 0 if nothing says."""
    if pattern := pattern_of(args):
        return layers_in(pattern)
    return args.whole("num_layers") or args.whole("encoder_num_layers")


def sequence_of(args: MegatronArguments) -> int:
    """Return the tokens of a sample, 0 if nothing says."""
    return args.whole("seq_length") or args.whole("encoder_seq_length")


def ffn_of(args: MegatronArguments) -> int:
    """Return the width inside an MLP, Megatron's default if it is not given."""
    hidden = args.whole("hidden_size")
    default = int(4 * hidden * 2 / 3 / 64) * 64 if args.on("swiglu") else 4 * hidden
    return args.whole("ffn_hidden_size") or default


def vocabulary_of(args: MegatronArguments) -> int:
    """Return the entries of the vocabulary before padding.

    Raises
    ------
    SpecError: only the tokenizer's file says.
    """
    if args.given("padded_vocab_size"):
        return args.whole("padded_vocab_size")
    extra = args.whole("vocab_extra_ids")
    kind = args.text("tokenizer_type") or DEFAULT_TOKENIZER
    if args.given("vocab_size"):
        return args.whole("vocab_size") + extra + (kind in NULL_TOKENIZERS)
    if kind in VOCABULARIES:
        return VOCABULARIES[kind] + extra
    if known := tokenizer_of(args):
        return known[1] + extra
    file = args.text("tokenizer_model") or args.text("vocab_file")
    where = f" of {file}" if file else ""
    raise SpecError(
        f"--vocab-size: found none, expected the vocabulary of {kind}{where}, which only its file "
        "says: add --vocab-size N (for a script: --set vocab-size=N)"
    )


def tokenizer_of(args: MegatronArguments) -> tuple[str, int] | None:
    """Return the model of ours that a tokenizer is of, by its name at Hugging Face or by that of
    its folder, and the vocabulary of that model; None: it is of none, or a number says it."""
    from ilp_planner.base.library import library_model
    from ilp_planner.specs.decoder import as_decoder
    from ilp_planner.specs.model_reader import read_model

    kind = args.text("tokenizer_type") or DEFAULT_TOKENIZER
    said = args.given("padded_vocab_size") or args.given("vocab_size") or kind in VOCABULARIES
    file = None if said else library_model(args.text("tokenizer_model"))
    model = None if file is None else as_decoder(read_model(file).architecture)
    return None if file is None or model is None else (file.stem, model.vocab)


def said_vocabulary(values: Mapping[str, Value], vocab: int) -> int:
    """Return the vocabulary as `--vocab-size` says it beside the tokenizer of these values."""
    extra = values.get("vocab_extra_ids") or 0
    assert isinstance(extra, int)
    return vocab - extra - (values.get("tokenizer_type") in NULL_TOKENIZERS)


def model_values(model: Decoder, vocab_multiple: int) -> dict[str, Value]:
    """Return the arguments that say a model.

    Parameters
    ----------
    vocab_multiple: the vocabulary is padded to a multiple of this times tp.

    Raises
    ------
    SpecError: Megatron has no arguments for it.
    """
    check_model(model)
    hybrid = hybrid_values(model)
    apart = PATTERN not in hybrid  # what a pattern says besides
    grouped = model.kv_heads != model.heads and not (model.latent or model.compressed)
    positions = "yarn" if _has_yarn(model) else model.positions
    values = given(
        ("num_layers", model.layers, apart),
        ("hidden_size", model.hidden, True),
        ("ffn_hidden_size", model.ffn, True),
        ("num_attention_heads", model.heads, True),
        ("kv_channels", model.head, model.head * model.heads != model.hidden),
        ("group_query_attention", True, grouped),
        ("num_query_groups", model.kv_heads, grouped),
        ("seq_length", model.sequence, True),
        ("max_position_embeddings", model.max_position_embeddings, True),
        ("vocab_size", model.vocab, True),
        ("make_vocab_size_divisible_by", vocab_multiple, vocab_multiple != 128),
        ("position_embedding_type", positions, positions != "learned"),
        ("normalization", "RMSNorm", model.norm != "layernorm"),
        ("add_qkv_bias", True, model.qkv_bias),
        ("untie_embeddings_and_output_weights", True, not model.tied),
        ("add_bias_linear", False, not model.bias),
        ("hidden_dropout", model.dropout, True),
        ("attention_dropout", model.dropout, True),
    )
    values |= feature_values(model)
    if model.latent:
        values |= _latent_values(model.latent)
    if model.experts:
        values |= _expert_values(model, model.experts)
    ahead = apart and model.prediction_layers
    values |= given(
        ("attention_output_gate", True, model.attention_gate),
        ("mtp_num_layers", model.prediction_layers, ahead),
    )
    return values | hybrid | sparse_values(model) | compressed_values(model)


def _has_yarn(model: Decoder) -> bool:
    """Tell whether positions are of a type of their own; latent attention says YaRN otherwise."""
    if model.latent or model.compressed or model.rotary is None:
        return False
    return model.rotary.scaling == "yarn"


def _latent(args: MegatronArguments) -> LatentAttention | None:
    if not args.on("multi_latent_attention"):
        return None
    return LatentAttention(
        key_value_rank=args.whole("kv_lora_rank"),
        key=args.whole("qk_head_dim"),
        rotary=args.whole("qk_pos_emb_head_dim"),
        value=args.whole("v_head_dim"),
        query_rank=args.whole("q_lora_rank"),
    )


def _latent_values(latent: LatentAttention) -> dict[str, Value]:
    return given(
        ("multi_latent_attention", True, True),
        ("kv_lora_rank", latent.key_value_rank, True),
        ("qk_head_dim", latent.key, True),
        ("qk_pos_emb_head_dim", latent.rotary, True),
        ("v_head_dim", latent.value, True),
        ("q_lora_rank", latent.query_rank, latent.query_rank),
    )


def _experts(args: MegatronArguments) -> tuple[Experts | None, tuple[bool, ...]]:
    """Return `experts` and `experts_in` of a `Decoder`."""
    count = args.whole("num_experts")
    if not count:
        return None, ()
    frequency, layers = args["moe_layer_freq"], layers_of(args)
    first, every = 0, 1
    irregular: tuple[bool, ...] = ()
    if isinstance(frequency, tuple):
        pattern = tuple(bool(entry) for entry in frequency)
        found = _regular(pattern)
        first, every = found or (0, 1)
        irregular = () if found else pattern
        if len(pattern) != layers:
            raise SpecError(
                f"--moe-layer-freq: found {len(pattern)} entries, expected --num-layers ({layers})"
            )
    elif isinstance(frequency, int):
        every = frequency
    experts = Experts(
        count=count,
        top_k=args.whole("moe_router_topk"),
        ffn=args.whole("moe_ffn_hidden_size") or ffn_of(args),
        shared_ffn=args.whole("moe_shared_expert_intermediate_size"),
        dense_first=first,
        every=every,
        groups=args.whole("moe_router_num_groups") or 1,
        top_groups=args.whole("moe_router_group_topk"),
        latent=args.whole("moe_latent_size"),
        hashed=args.whole("moe_n_hash_layers"),
        **routing_of(args),
    )
    return experts, irregular


def _regular(pattern: tuple[bool, ...]) -> tuple[int, int] | None:
    """Return (dense_first, every) that give a pattern, the smallest; None: there are none."""
    if not any(pattern):
        return None
    first = pattern.index(True)
    later = [i for i in range(first + 1, len(pattern)) if pattern[i]]
    every = later[0] - first if later else max(1, len(pattern) - first)
    made = tuple(i >= first and (i - first) % every == 0 for i in range(len(pattern)))
    return (first, every) if made == pattern else None


def _expert_values(model: Decoder, experts: Experts) -> dict[str, Value]:
    irregular = model.experts_in or experts.dense_first
    layers = tuple(int(has) for has in model.expert_layers)
    return given(
        ("num_experts", experts.count, True),
        ("moe_router_topk", experts.top_k, True),
        ("moe_ffn_hidden_size", experts.ffn, True),
        ("moe_shared_expert_intermediate_size", experts.shared_ffn, experts.shared_ffn),
        ("moe_router_num_groups", experts.groups, experts.groups > 1),
        ("moe_router_group_topk", experts.top_groups, experts.groups > 1 and experts.top_groups),
        ("moe_latent_size", experts.latent, experts.latent),
        ("moe_layer_freq", layers if irregular else experts.every, irregular or experts.every != 1),
    ) | routing_values(experts)
