"""Arithmetic and parameters of a transformer layer's operators, shared by GPT and T5.

Operator names are Aceso's: 13 to an encoder layer, which is also GPT's only kind, 21 to a decoder
layer with cross-attention. inner: heads x channels per head, the width inside attention.
"""

from __future__ import annotations

from ilp_planner.specs.architecture import Parameters

ENCODER_LAYER = (
    "enc-1st-layernorm",
    "enc-attention-qkv",
    "enc-attention-score",
    "enc-attention-softmax",
    "enc-attention-dropout",
    "enc-attention-context",
    "enc-attention-dense",
    "enc-post-attention-dropout",
    "enc-2nd-layernorm",
    "enc-MLP-GEMM-1",
    "enc-MLP-gelu",
    "enc-MLP-GEMM-2",
    "enc-post-MLP-dropout",
)
DECODER_LAYER = (
    "dec-1st-layernorm",
    "dec-attention-qkv-1",
    "dec-attention-score-1",
    "dec-attention-softmax-1",
    "dec-attention-dropout-1",
    "dec-attention-context-1",
    "dec-attention-dense-1",
    "dec-post-attention-dropout-1",
    "dec-2nd-layernorm",
    "dec-attention-qkv-2",
    "dec-attention-score-2",
    "dec-attention-softmax-2",
    "dec-attention-dropout-2",
    "dec-attention-context-2",
    "dec-attention-dense-2",
    "dec-post-attention-dropout-2",
    "dec-3rd-layernorm",
    "dec-MLP-GEMM-1",
    "dec-MLP-gelu",
    "dec-MLP-GEMM-2",
    "dec-post-MLP-dropout",
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
