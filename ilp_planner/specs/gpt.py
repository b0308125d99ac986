"""GPT: a decoder-only transformer (Brown et al. 2020), with the operators of Megatron-LM."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ilp_planner.specs.architecture import Parameters, check_fields
from ilp_planner.specs.transformer import (
    ENCODER_LAYER,
    attention_flops,
    attention_parameters,
    mlp_flops,
    mlp_parameters,
)


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
