"""T5: encoder and decoder (Raffel et al. 2020) with the biases and positions of Megatron-LM."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ilp_planner.specs.architecture import Parameters, check_fields
from ilp_planner.specs.gpt import (
    DECODER_LAYER,
    ENCODER_LAYER,
    attention_flops,
    attention_parameters,
    mlp_flops,
    mlp_parameters,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class T5:
    """Dimensions of a T5.

    layers: of the encoder, and as many of the decoder. kv_channels: channels of one head.
    encoder_sequence, decoder_sequence: tokens of a sample on either side.
    vocab: entries of the word embedding, padding included.
    ffn: width inside the MLP, 4 * hidden when 0.
    max_position_embeddings: the longer sequence when 0.
    """

    layers: int
    hidden: int
    heads: int
    kv_channels: int
    encoder_sequence: int
    decoder_sequence: int
    vocab: int
    ffn: int = 0
    max_position_embeddings: int = 0

    family: ClassVar[str] = "t5"
    micro_batch_sizes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)

    def __post_init__(self) -> None:
        sequences = ("encoder_sequence", "decoder_sequence")
        check_fields(self, "layers", "hidden", "heads", "kv_channels", *sequences, "vocab")
        longest = max(self.encoder_sequence, self.decoder_sequence)
        if self.ffn == 0:
            object.__setattr__(self, "ffn", 4 * self.hidden)
        if self.max_position_embeddings == 0:
            object.__setattr__(self, "max_position_embeddings", longest)
        check_fields(self, "ffn", "max_position_embeddings")
        if self.max_position_embeddings < longest:
            raise ValueError(
                f"max_position_embeddings must be at least the longer sequence ({longest}), "
                f"found {self.max_position_embeddings}"
            )

    @property
    def inner(self) -> int:
        """Return the width inside attention."""
        return self.heads * self.kv_channels

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the chain: 13 operators to an encoder layer, 21 to a decoder layer, and 5."""
        return (
            "encoder-embedding",
            *ENCODER_LAYER * self.layers,
            "enc-final-layernorm",
            "decoder-embedding",
            *DECODER_LAYER * self.layers,
            "dec-final-layernorm",
            "t5-post-process",
        )

    @property
    def parameters(self) -> dict[str, Parameters]:
        """Return the parameters of every operator, biases and layer norms included."""
        h, words = self.hidden, self.vocab * self.hidden
        embedding = Parameters(words, self.max_position_embeddings * h)
        norms = [name for name in dict.fromkeys(self.operators) if name.endswith("layernorm")]
        return {
            "encoder-embedding": embedding,
            "decoder-embedding": embedding,
            **{name: Parameters(whole=2 * h) for name in norms},
            **attention_parameters("enc", "", h, self.inner),
            **attention_parameters("dec", "-1", h, self.inner),
            **attention_parameters("dec", "-2", h, self.inner),
            **mlp_parameters("enc", h, self.ffn),
            **mlp_parameters("dec", h, self.ffn),
            "t5-post-process": Parameters(words + self.vocab),
        }

    @property
    def flops(self) -> dict[str, int]:
        """Return forward FLOPs per operator and sample."""
        s, d, h, inner = self.encoder_sequence, self.decoder_sequence, self.hidden, self.inner
        return {
            **attention_flops("enc", "", queries=s, keys=s, hidden=h, inner=inner),
            **attention_flops("dec", "-1", queries=d, keys=d, hidden=h, inner=inner),
            **attention_flops("dec", "-2", queries=d, keys=s, hidden=h, inner=inner),
            **mlp_flops("enc", tokens=s, hidden=h, ffn=self.ffn),
            **mlp_flops("dec", tokens=d, hidden=h, ffn=self.ffn),
            "t5-post-process": 2 * d * h * self.vocab,
        }

    @property
    def masked_flops(self) -> int:
        """Return half of the decoder's scores of itself and of their products with the values."""
        return 2 * self.layers * self.decoder_sequence**2 * self.inner

    @property
    def masked(self) -> dict[str, float]:
        """Return as much of the scores as of their products with the values."""
        names = ("dec-attention-score-1", "dec-attention-context-1")
        return dict.fromkeys(names, self.masked_flops / self.layers / len(names))

    @property
    def tokens(self) -> int:
        """Return the tokens of a sample, read and written."""
        return self.encoder_sequence + self.decoder_sequence

    @property
    def tensor_parts(self) -> int:
        """Return the parts that tensor parallelism divides: whole heads, and columns of the MLP."""
        return math.gcd(self.heads, self.ffn)
