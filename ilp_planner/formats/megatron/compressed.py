"""Attention to pooled keys and streams of hidden states, in Megatron-LM's arguments.

`transformer_config.py`, `csa.py` and `hyper_connection.py` of `megatron.core` on its branch dev;
no release up to 0.19.0 takes the arguments. Its kernels of cuDNN are modelled.
"""

from typing import Any

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import Value, flag_of
from ilp_planner.formats.megatron.hybrid import POOLED, VARIANT
from ilp_planner.formats.megatron.sparse import BACKEND, CHOSEN, LOSS
from ilp_planner.formats.megatron.sparse import KEYS as INDEXER
from ilp_planner.formats.megatron.values import MegatronArguments, given
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import CompressedAttention, Rotary
from ilp_planner.specs.layer_kinds import BY_LETTERS, LAYER_KINDS, write_pattern

RATIOS, HASHED = "csa_compress_ratios", "moe_n_hash_layers"
MIXED, STREAMS = "enable_hyper_connections", "num_residual_streams"
KEYS = {
    "query_rank": "q_lora_rank", "output_rank": "output_projection_lora_rank",
    "groups": "output_projection_groups", "rotary": "qk_pos_emb_head_dim",
    "window": "csa_window_size", "index_heads": INDEXER["heads"], "index_head": INDEXER["head"],
    "top_k": INDEXER["top_k"],
}  # fmt: skip
BASE, ORIGINAL = "csa_compress_rotary_base", "original_max_position_embeddings"
KERNELS, WEIGHT = "cudnn", 0.01  # of the indexer's loss, as Megatron-Bridge's recipes have it
NEAR, FAR = 4, 128  # tokens of a pooled key that the branch knows
LETTERS = {0: "WE", NEAR: "CE", FAR: "HE"}


def is_compressed(args: MegatronArguments) -> bool:
    """Tell whether a launch line asks for attention to pooled keys."""
    return args.text(VARIANT) == POOLED


def compressed_of(args: MegatronArguments, layers: int) -> dict[str, Any]:
    """Return the fields of a `Decoder` that say compressed attention and streams; none without it.

    Raises
    ------
    SpecError: an argument is missing, or says what is not modelled.
    """
    if not is_compressed(args):
        return {}
    ratios, ahead = args[RATIOS], args.whole("mtp_num_layers")
    if not isinstance(ratios, tuple) or len(ratios) < layers + ahead:
        found = len(ratios) if isinstance(ratios, tuple) else "none"
        raise SpecError(
            f"{flag_of(RATIOS)}: found {found}, expected {layers + ahead} entries, one per layer"
        )
    if unknown := sorted({*map(str, ratios)} - {*map(str, LETTERS)}):
        raise SpecError(
            f"{flag_of(RATIOS)}: found {', '.join(unknown)}, expected "
            f"{', '.join(map(str, LETTERS))}"
        )
    if not args.whole("num_experts"):
        raise SpecError("--num-experts: found none, expected experts in all layers beside pooled "
                        "keys: others are not modelled")  # fmt: skip
    if args[BACKEND] != KERNELS:
        raise SpecError(
            f"{flag_of(BACKEND)}: found {args[BACKEND] or 'none'}, whose copies of every token's "
            f"keys are not modelled, expected {KERNELS}"
        )
    if not args.on(CHOSEN) or not args.number(LOSS):
        raise SpecError(
            f"{flag_of(LOSS)}: found {args[LOSS] or 'none'} over all pooled keys, expected a loss "
            f"and {flag_of(CHOSEN)}: others are not modelled"
        )
    kinds = tuple(BY_LETTERS[LETTERS[int(str(one))]] for one in ratios[:layers])
    return {
        "pattern": write_pattern(kinds),
        "compressed": CompressedAttention(
            **{name: args.whole(key) for name, key in KEYS.items()}, near=NEAR, far=FAR
        ),
        "streams": args.whole(STREAMS) if args.on(MIXED) else 1,
        "head": args.whole("v_head_dim"),
        "kv_heads": 1,
        "latent": None,
        "qk_norm": False,
        "rotary": _rotary_of(args),
    }


def _rotary_of(args: MegatronArguments) -> Rotary:
    plain, pooled = args.number("rotary_base"), args.number(BASE) or args.number("rotary_base")
    factor = args.number("rotary_scaling_factor")
    yarn: dict[str, Any] = (
        {"scaling": "yarn", "factor": factor, "original": args.whole(ORIGINAL)}
        if factor != 1
        else {}
    )
    share = args.whole("qk_pos_emb_head_dim") / args.whole("v_head_dim")
    return Rotary(base=pooled, share=share, windowed_base=0.0 if plain == pooled else plain, **yarn)


def compressed_values(model: Decoder) -> dict[str, Value]:
    """Return the arguments that say compressed attention and streams."""
    a, rotary = model.compressed, model.rotary
    if a is None or rotary is None:
        return {}
    by_letters = {letters: ratio for ratio, letters in LETTERS.items()}
    ratios = [by_letters[LAYER_KINDS[kind].letters] for kind in model.layer_kinds]
    ratios += [0] * model.prediction_layers
    hashed = model.experts.hashed if model.experts else 0
    found: dict[str, Value] = {VARIANT: POOLED, BACKEND: KERNELS, RATIOS: tuple(ratios)}
    found |= {key: getattr(a, name) for name, key in KEYS.items()}
    yarn = rotary.scaling == "yarn"
    return found | given(
        ("multi_latent_attention", True, True),
        ("qk_layernorm", True, True),
        ("qk_head_dim", model.head - a.rotary, True),
        ("v_head_dim", model.head, True),
        (LOSS, WEIGHT, True),
        (CHOSEN, True, True),
        ("rotary_base", int(rotary.windowed_base or rotary.base), True),
        (BASE, rotary.base, True),
        ("rotary_scaling_factor", rotary.factor, yarn),
        (ORIGINAL, rotary.original, yarn),
        (MIXED, True, model.streams > 1),
        (STREAMS, model.streams, model.streams > 1),
        ("use_fused_mhc", True, model.streams > 1),
        (HASHED, hashed, hashed),
    )
