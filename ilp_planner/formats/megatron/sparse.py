"""Attention to keys that an indexer chooses, in Megatron-LM's arguments.

`transformer_config.py`, `absorbed_mla.py` and `dsa.py` of `megatron.core` 0.19.0, whose kernels of
TileLang are modelled. Releases 0.16.1 and 0.17.1 take the arguments and cannot build the layers;
0.18.2 has no kernels of its own.
"""

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.hybrid import SPARSE, VARIANT
from ilp_planner.formats.megatron.values import MegatronArguments, given
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import SparseAttention

KEYS = {
    "heads": "dsa_indexer_n_heads", "head": "dsa_indexer_head_dim", "top_k": "dsa_indexer_topk",
}  # fmt: skip
BACKEND, LOSS, CHOSEN = (
    "dsa_kernel_backend",
    "dsa_indexer_loss_coeff",
    "dsa_indexer_use_sparse_loss",
)
SHARED, OFFSET = "dsa_indexer_topk_freq", "dsa_indexer_skip_topk_offset"
EPSILON = "dsa_indexer_k_norm_epsilon"
PAIRED, TURNED = "dsa_indexer_rope_interleaved", "dsa_indexer_rotate_activation"
KERNELS, UNFUSED = "tilelang", "none"
WEIGHT = 0.001  # of the indexer's loss, as Megatron-Bridge has it for GLM-5 (`glm5_bridge.py`)


def sparse_of(args: MegatronArguments) -> SparseAttention | None:
    """Return the indexer of a launch line; None: attention sees all keys.

    Raises
    ------
    SpecError: an argument is missing, or says what is not modelled.
    """
    if args.text(VARIANT) != SPARSE:
        return None
    for key in KEYS.values():
        if args.whole(key) < 1:
            raise SpecError(
                f"--{key.replace('_', '-')}: found {args[key] or 'none'}, expected a whole number "
                f"with --experimental-attention-variant {SPARSE}"
            )
    learns = args.number(LOSS) > 0
    if args.text(BACKEND) == UNFUSED:
        raise SpecError(
            f"--dsa-kernel-backend: found {UNFUSED}, whose copies of every token's chosen keys are "
            f"not modelled, expected {KERNELS}"
        )
    if learns and not args.on(CHOSEN):
        raise SpecError(
            f"--dsa-indexer-loss-coeff: found {args[LOSS]:g} over all keys, whose scores of every "
            "pair of tokens are not modelled, expected --dsa-indexer-use-sparse-loss with it, or 0"
        )
    epsilon = args.number(EPSILON) if args.given(EPSILON) else args.number("layernorm_epsilon")
    return SparseAttention(
        **{name: args.whole(key) for name, key in KEYS.items()},
        every=args.whole(SHARED) or 1,
        offset=args.whole(OFFSET),
        loss="sparse" if learns else "none",
        interleaved=args.on(PAIRED),
        rotated=args.on(TURNED),
        epsilon=epsilon,
    )


def sparse_values(model: Decoder) -> dict[str, Value]:
    """Return the arguments that say an indexer; rotary positions have no fused kernel with it."""
    sparse = model.sparse
    if sparse is None:
        return {}
    found: dict[str, Value] = {VARIANT: SPARSE, BACKEND: KERNELS, "apply_rope_fusion": False}
    found |= {key: getattr(sparse, name) for name, key in KEYS.items()}
    return found | given(
        (SHARED, sparse.every, sparse.every > 1),
        (OFFSET, sparse.offset, sparse.offset),
        (LOSS, WEIGHT, sparse.trained),
        (CHOSEN, True, sparse.trained),
        (PAIRED, True, sparse.interleaved),
        (TURNED, False, not sparse.rotated),
        (EPSILON, sparse.epsilon, sparse.epsilon != model.epsilon),
    )
