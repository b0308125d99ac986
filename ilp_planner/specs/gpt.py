"""GPT: a decoder-only transformer (Brown et al. 2020), with the operators of Megatron-LM."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ilp_planner.specs.architecture import Parameters, check_fields

# ---- arithmetic and parameters of a transformer layer's operators, shared by GPT and T5 ----------
# Operator names are Aceso's: 13 to an encoder layer, also GPT's only kind, 21 to a decoder layer
# with cross-attention. inner: heads x channels per head, the width inside attention.


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


# ---- GPT -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpt:
    """Dimensions of a GPT.

    sequence: tokens of a sample. vocab: entries of the word embedding, padding included.
    ffn: width inside the MLP, 4 * hidden when 0. max_position_embeddings: sequence when 0.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocab: int
    ffn: int = 0
    max_position_embeddings: int = 0

    family: ClassVar[str] = "gpt"
    micro_batch_sizes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)

    def __post_init__(self) -> None:
        check_fields(self, "layers", "hidden", "heads", "sequence", "vocab")
        if self.ffn == 0:
            object.__setattr__(self, "ffn", 4 * self.hidden)
        if self.max_position_embeddings == 0:
            object.__setattr__(self, "max_position_embeddings", self.sequence)
        check_fields(self, "ffn", "max_position_embeddings")
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden must be divisible by heads ({self.heads}), found {self.hidden}"
            )
        if self.max_position_embeddings < self.sequence:
            raise ValueError(
                f"max_position_embeddings must be at least sequence ({self.sequence}), "
                f"found {self.max_position_embeddings}"
            )

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the chain: 13 operators to a layer, and 3."""
        return (
            "encoder-embedding",
            *ENCODER_LAYER * self.layers,
            "final-layernorm",
            "gpt-post-process",
        )

    @property
    def parameters(self) -> dict[str, Parameters]:
        """Return the parameters of every operator, biases and layer norms included."""
        words = self.vocab * self.hidden
        norm = Parameters(whole=2 * self.hidden)
        return {
            "encoder-embedding": Parameters(words, self.max_position_embeddings * self.hidden),
            "enc-1st-layernorm": norm,
            **attention_parameters("enc", "", self.hidden, self.hidden),
            "enc-2nd-layernorm": norm,
            **mlp_parameters("enc", self.hidden, self.ffn),
            "final-layernorm": norm,
            "gpt-post-process": Parameters(words),
        }

    @property
    def flops(self) -> dict[str, int]:
        """Return forward FLOPs per operator and sample.

        A layer has 2 s (4 h^2 + 2 h f) + 4 s^2 h and the logits 2 s h V: with f = 4 h, the formula
        of Narayanan et al. 2021 (arXiv 2104.04473, appendix).
        """
        s, h = self.sequence, self.hidden
        return {
            **attention_flops("enc", "", queries=s, keys=s, hidden=h, inner=h),
            **mlp_flops("enc", tokens=s, hidden=h, ffn=self.ffn),
            "gpt-post-process": 2 * s * h * self.vocab,
        }

    @property
    def masked_flops(self) -> int:
        """Return half of the scores and of their products with the values."""
        return 2 * self.layers * self.sequence**2 * self.hidden

    @property
    def masked(self) -> dict[str, float]:
        """Return as much of the scores as of their products with the values."""
        names = ("enc-attention-score", "enc-attention-context")
        return dict.fromkeys(names, self.masked_flops / self.layers / len(names))

    @property
    def tokens(self) -> int:
        """Return the tokens of a sample."""
        return self.sequence

    @property
    def tensor_parts(self) -> int:
        """Return the parts that tensor parallelism divides: whole heads, and columns of the MLP."""
        return math.gcd(self.heads, self.ffn)
