"""Arithmetic and parameters of a transformer layer's operators, shared by GPT and T5.

Operator names are Aceso's: 13 to an encoder layer, also GPT's only kind, 21 to a decoder layer with
cross-attention. inner: heads x channels per head, the width inside attention.
"""

from ilp_planner.specs.architecture import Parameters

ATTENTION = (
    "attention-qkv", "attention-score", "attention-softmax", "attention-dropout",
    "attention-context", "attention-dense", "post-attention-dropout",
)  # fmt: skip
MLP = ("MLP-GEMM-1", "MLP-gelu", "MLP-GEMM-2", "post-MLP-dropout")
ENCODER_LAYER = tuple(
    f"enc-{step}" for step in ("1st-layernorm", *ATTENTION, "2nd-layernorm", *MLP)
)
OWN, ACROSS = (tuple(f"{step}-{number}" for step in ATTENTION) for number in (1, 2))
DECODER_LAYER = tuple(
    f"dec-{step}"
    for step in ("1st-layernorm", *OWN, "2nd-layernorm", *ACROSS, "3rd-layernorm", *MLP)
)


def attention_parameters(side: str, number: str, hidden: int, inner: int) -> dict[str, Parameters]:
    """Return the parameters of one attention; the split of each as in Megatron.

    Parameters
    ----------
    side: `enc` or `dec`.
    number: empty, or `-1`, `-2` for a decoder's self- and cross-attention.
    """
    return {
        f"{side}-attention-qkv{number}": Parameters(split=3 * inner * (hidden + 1)),
        f"{side}-attention-dense{number}": Parameters(split=inner * hidden, whole=hidden),
    }


def mlp_parameters(side: str, hidden: int, ffn: int) -> dict[str, Parameters]:
    """Return the parameters of the two products of an MLP."""
    return {
        f"{side}-MLP-GEMM-1": Parameters(split=ffn * (hidden + 1)),
        f"{side}-MLP-GEMM-2": Parameters(split=ffn * hidden, whole=hidden),
    }


def attention_flops(
    side: str, number: str, *, queries: int, keys: int, hidden: int, inner: int
) -> dict[str, int]:
    """Return the forward FLOPs of one attention and sample; queries, keys: tokens."""
    return {
        f"{side}-attention-qkv{number}": 2 * (queries + 2 * keys) * hidden * inner,
        f"{side}-attention-score{number}": 2 * queries * keys * inner,
        f"{side}-attention-context{number}": 2 * queries * keys * inner,
        f"{side}-attention-dense{number}": 2 * queries * inner * hidden,
    }


def mlp_flops(side: str, *, tokens: int, hidden: int, ffn: int) -> dict[str, int]:
    """Return the forward FLOPs of the two products of an MLP for one sample."""
    product = 2 * tokens * hidden * ffn
    return {f"{side}-MLP-GEMM-1": product, f"{side}-MLP-GEMM-2": product}
