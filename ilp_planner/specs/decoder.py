"""Decoder-only transformers in Megatron-LM's terms: GPT, Llama, Mixtral, DeepSeek and their kin.

One description for memory and messages (`ilp_planner.job`), for the analytic times, and for launch
lines. `Gpt` is the special case that Aceso and Metis profile.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from ilp_planner.base.hashing import HashedOnce, hashed_once
from ilp_planner.specs.architecture import (
    Architecture,
    Parameters,
    check_choice,
    check_fields,
    check_positive,
)
from ilp_planner.specs.decoder_parts import CompressedAttention as CompressedAttention
from ilp_planner.specs.decoder_parts import DeltaNet as DeltaNet
from ilp_planner.specs.decoder_parts import Experts as Experts
from ilp_planner.specs.decoder_parts import LatentAttention as LatentAttention
from ilp_planner.specs.decoder_parts import Mamba as Mamba
from ilp_planner.specs.decoder_parts import Rotary as Rotary
from ilp_planner.specs.decoder_parts import SparseAttention as SparseAttention
from ilp_planner.specs.decoder_parts import Window as Window
from ilp_planner.specs.encoder import Encoder as Encoder
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.images import check_images, check_sounds
from ilp_planner.specs.layer_kinds import (
    ATTENTION,
    BY_LETTERS,
    COMPRESSED,
    DELTA,
    EXPERTS,
    FOLLOWING,
    LAYER_KINDS,
    MAMBA,
    MLP,
    LayerKind,
    read_pattern,
)
from ilp_planner.specs.lengths import Lengths
from ilp_planner.specs.sounds import SoundEncoder as SoundEncoder

# Norms, with the learnt vectors of each: scale and shift, scale alone, neither.
NORMS: Mapping[str, int] = {"layernorm": 2, "rmsnorm": 1, "bare-layernorm": 0}
POSITIONS = ("learned", "rope", "none")
ACTIVATIONS = ("gelu", "silu", "quick_gelu", "relu", "relu2")
NORM_PLACES = ("input", "output", "both")
QK_NORMS = ("head", "heads", "l2")
Share = Callable[[int], float]


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder(HashedOnce):
    """Dimensions and choices of a decoder-only transformer.

    sequence: tokens of a sample. vocab: entries of the word embedding, before Megatron pads it.
    ffn: width inside a dense MLP; 0: Megatron's default, 4 * hidden, or 8/3 of it in multiples of
    64 when gated. kv_heads: groups of queries that share keys and values; 0: heads. head: channels
    per head; 0: hidden / heads. gated: two products into the MLP instead of one. activation: inside
    it; empty: SiLU when gated (SwiGLU), else GELU. clamp, offset: limit of what goes into it, and
    what is added to the value that it gates (GPT-OSS); 0: none.
    bias: of every product; qkv_bias, projection_bias: of the attention's first and last product in
    any case; output_bias: of the logits. norm, epsilon: which, and what it adds to a variance.
    one_plus: its scale is learnt as the difference from one. norm_at: norms before attention and
    MLP, after them, or both. parallel_norms: attention and MLP both read the layer's input, through
    this many norms, 1 or 2; 0: one after the other. qk_norm: queries and keys are normed;
    qk_norm_of: each head with one scale for all, all heads at once, or each by its length alone.
    sinks: a learnt number per head in the softmax. attention_softcap, output_softcap: what bounds
    scores and logits; 0: nothing. tied: the word embedding is the output's weight as well. dropout:
    probability after embedding, attention and MLP; it keeps a mask. prediction_layers: multi-token
    prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2). experts_in: one entry per layer,
    overrides `Experts.dense_first` and `every`. pattern: of a hybrid, the kind of each layer, in
    letters (`specs.layer_kinds`): Megatron's of layers with one block each (M Mamba-2, * attention,
    - MLP, E experts, G gated delta net), or words of two letters; empty: attention in all layers.
    mamba, delta: sizes of these layers; None where there are none. attention_gate: the queries'
    product makes a gate of attention's output as well (Qwen3-Next). sparse: the indexer that
    chooses keys of latent attention; None: attention sees all. compressed: attention to pooled
    keys, in all layers of a pattern; None: in none. streams: of hidden states between layers; each
    attention, MLP or experts reads a mixture of them that is learnt, and its output goes to all of
    them, mixed anew (manifold-constrained hyper-connections, arXiv 2512.24880). encoder: of images,
    whose tokens are among those of a sample; None: there is none. sounds: an encoder of sounds,
    likewise.
    outputs: numbers that the output layer gives for a token, as of a classifier or a reward model;
    0: one for every word. lengths: of the documents that samples are made of; None: each sample is
    one of `sequence` tokens.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocab: int
    ffn: int = 0
    kv_heads: int = 0
    head: int = 0
    gated: bool = False
    bias: bool = True
    qkv_bias: bool = False
    norm: str = "layernorm"
    positions: str = "learned"
    max_position_embeddings: int = 0
    tied: bool = True
    dropout: float = 0.1
    qk_norm: bool = False
    latent: LatentAttention | None = None
    experts: Experts | None = None
    experts_in: tuple[bool, ...] = ()
    prediction_layers: int = 0
    activation: str = ""
    clamp: float = 0.0
    offset: float = 0.0
    projection_bias: bool = False
    output_bias: bool = False
    epsilon: float = 1e-5
    one_plus: bool = False
    norm_at: str = "input"
    parallel_norms: int = 0
    qk_norm_of: str = "head"
    sinks: bool = False
    attention_softcap: float = 0.0
    output_softcap: float = 0.0
    rotary: Rotary | None = None
    window: Window | None = None
    pattern: str = ""
    mamba: Mamba | None = None
    delta: DeltaNet | None = None
    attention_gate: bool = False
    sparse: SparseAttention | None = None
    compressed: CompressedAttention | None = None
    streams: int = 1
    encoder: Encoder | None = None
    sounds: SoundEncoder | None = None
    outputs: int = 0
    lengths: Lengths | None = None

    family: ClassVar[str] = "decoder"
    micro_batch_sizes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)

    def __post_init__(self) -> None:
        check_fields(self, "layers", "hidden", "heads", "sequence", "vocab")
        if self.ffn == 0:
            wide = 4 * self.hidden
            self._set("ffn", wide * 2 // 3 // 64 * 64 if self.gated else wide)
        if self.head == 0:
            if self.hidden % self.heads:
                raise ValueError(
                    f"hidden must be divisible by heads ({self.heads}) unless head is given, "
                    f"found {self.hidden}"
                )
            self._set("head", self.hidden // self.heads)
        self._set("kv_heads", self.kv_heads or self.heads)
        self._set("max_position_embeddings", self.max_position_embeddings or self.sequence)
        check_fields(self, "ffn", "head", "kv_heads", "max_position_embeddings")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads ({self.heads}), found {self.kv_heads}")
        if self.max_position_embeddings < self.sequence:
            raise ValueError(
                f"max_position_embeddings must be at least sequence ({self.sequence}), "
                f"found {self.max_position_embeddings}"
            )
        self._set("activation", self.activation or ("silu" if self.gated else "gelu"))
        if self.positions == "rope":
            self._set("rotary", self.rotary or Rotary())
        self._check_choices()
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, found {self.dropout}")
        for name, entries in (
            ("experts_in", self.experts_in),
            ("windowed_in", self.window.windowed_in if self.window else ()),
        ):
            if entries and len(entries) != self.layers:
                raise ValueError(
                    f"{name} must have {self.layers} entries, one per layer, found {len(entries)}"
                )
        if self.pattern:
            self._check_pattern()
        if self.sparse:
            self._check_sparse(self.sparse)
        if self.compressed:
            self._check_compressed(self.compressed)
        check_fields(self, "streams", or_zero=("outputs",))
        if self.streams > 1 and not self.compressed:
            raise ValueError(
                f"streams must be 1 without compressed attention, found {self.streams}"
            )
        if self.outputs and (self.tied or self.prediction_layers):
            raise ValueError(
                f"outputs must be 0 with tied embeddings or prediction layers, found {self.outputs}"
            )
        if self.encoder and self.encoder.image_tokens > self.sequence:
            e = self.encoder
            raise ValueError(
                f"sequence must be at least {e.image_tokens} with images of {e.tokens} tokens each "
                f"(images {e.images}, image_size {e.image_size}), found {self.sequence}"
            )
        if self.sounds and sum(one.image_tokens for one in self.encoders) > self.sequence:
            most, heard = sum(one.image_tokens for one in self.encoders), self.sounds
            beside = " and images" * bool(self.encoder)
            raise ValueError(
                f"sequence must be at least {most} with sounds{beside} of so many tokens "
                f"({heard.seconds} seconds are {heard.image_tokens}), found {self.sequence}"
            )
        if self.encoders and not any(one.images for one in self.encoders):
            first = "images" if self.encoder else "seconds"
            raise ValueError(f"{first} must be at least 1, found 0, or leave the encoder out")
        if self.encoder and self.lengths:
            check_images(self.encoder, self.lengths, alone=self.sounds is None)
        if self.sounds and self.lengths:
            check_sounds(self.sounds, self.lengths, self.encoder)
        if self.lengths and self.lengths.longest > self.sequence:
            raise ValueError(
                f"lengths must be at most sequence ({self.sequence}), found {self.lengths.longest}"
            )

    def _check_pattern(self) -> None:
        """Refuse a pattern of other layers than the model has."""
        kinds = read_pattern(self.pattern)
        if len(kinds) != self.layers:
            raise ValueError(
                f"pattern must have {self.layers} layers, as layers says, found {len(kinds)}"
            )
        if self.experts_in or self.parallel_norms or self.norm_at != "input":
            raise ValueError(
                "experts_in, parallel_norms and norm_at must be left out with a pattern, which "
                "says what each layer has"
            )
        blocks = {block for kind in kinds for block in LAYER_KINDS[kind][3:]}
        pooled = "compressed attention" if blocks.intersection(COMPRESSED) else ""
        for block, part in (
            (MAMBA, self.mamba),
            (DELTA, self.delta),
            (EXPERTS, self.experts),
            ("compressed attention", self.compressed),
        ):
            if (block in {*blocks, pooled}) != (part is not None):
                found = "some" if block in {*blocks, pooled} else "none"
                raise ValueError(
                    f"pattern must have layers of {block} exactly if the model says their sizes, "
                    f"found {found}"
                )

    def _check_sparse(self, sparse: SparseAttention) -> None:
        """Refuse an indexer beside other attention than it is made for."""
        if self.latent is None or not self.latent.query_rank:
            raise ValueError(
                "latent.query_rank must be given with an indexer (sparse), which reads compressed "
                "queries, found none"
            )
        if sparse.head < self.latent.rotary:
            raise ValueError(
                f"sparse.head must be at least latent.rotary ({self.latent.rotary}), found "
                f"{sparse.head}"
            )
        if sparse.top_k > self.max_position_embeddings:
            raise ValueError(
                f"sparse.top_k must be at most max_position_embeddings "
                f"({self.max_position_embeddings}), found {sparse.top_k}"
            )
        for name in ("window", "sinks", "pattern", "bias", "lengths"):
            if getattr(self, name):
                raise ValueError(f"{name} must be left out with an indexer (sparse), found some")

    def _check_compressed(self, compressed: CompressedAttention) -> None:
        """Refuse compressed attention beside parts of other models."""
        if any(LAYER_KINDS[kind].mixer not in COMPRESSED for kind in self.layer_kinds):
            raise ValueError(
                "pattern must have compressed attention in all layers (W, C or H), or in none"
            )
        if compressed.rotary > self.head:
            raise ValueError(
                f"compressed.rotary must be at most head ({self.head}), found {compressed.rotary}"
            )
        if self.heads * self.head % compressed.groups:
            raise ValueError(
                f"compressed.groups must divide heads x head ({self.heads * self.head}), found "
                f"{compressed.groups}"
            )
        for name in ("window", "sinks", "bias", "lengths", "latent", "attention_gate"):
            if getattr(self, name):
                raise ValueError(f"{name} must be left out with compressed attention, found some")
        if self.rotary:
            share = compressed.rotary / self.head
            if self.rotary.share not in (1.0, share):
                raise ValueError(
                    f"rotary.share must be {share:g}, as compressed.rotary says, or be left out, "
                    f"found {self.rotary.share:g}"
                )
            self._set("rotary", replace(self.rotary, share=share))

    def _check_choices(self) -> None:
        """Refuse unknown values, and contradictory ones."""
        for name, options in (
            ("norm", tuple(NORMS)),
            ("positions", POSITIONS),
            ("activation", ACTIVATIONS),
            ("norm_at", NORM_PLACES),
            ("qk_norm_of", QK_NORMS),
        ):
            check_choice(name, getattr(self, name), options)
        check_positive("epsilon", self.epsilon)
        if self.rotary and self.positions != "rope":
            raise ValueError(f"rotary must be left out with positions {self.positions!r}")
        if self.parallel_norms not in (0, 1, 2):
            raise ValueError(f"parallel_norms must be 0, 1 or 2, found {self.parallel_norms}")
        special = self.norm_at == "output" or self.parallel_norms
        if special and (
            self.latent or self.experts or (self.norm_at != "input" and self.parallel_norms)
        ):
            raise ValueError(
                "norm_at and parallel_norms must be input and 0 with latent attention, experts or "
                f"each other, found {self.norm_at!r} and {self.parallel_norms}"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def expert_layers(self) -> tuple[bool, ...]:
        """Return the layers with experts."""
        if self.pattern:
            return tuple(LAYER_KINDS[kind].inner == EXPERTS for kind in self.layer_kinds)
        if self.experts is None:
            return (False,) * self.layers
        if self.experts_in:
            return self.experts_in
        return _every_so_many(self.layers, self.experts.dense_first, self.experts.every)

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Return the kind of each layer, by its number in `LAYER_KINDS`."""
        if self.pattern:
            return read_pattern(self.pattern)
        if not self.shares_keys:
            return self.expert_layers
        assert self.sparse is not None
        kinds = zip(self.expert_layers, self.sparse.follows(self.layers), strict=True)
        return tuple(FOLLOWING[kind] if follows else kind for kind, follows in kinds)

    @property
    def shares_keys(self) -> bool:
        """Tell whether some layers see the keys that an indexer of one before them chose."""
        return self.sparse is not None and self.sparse.every > 1

    @property
    def bound(self) -> tuple[bool, ...]:
        """Return whether each layer has to be on the pipeline stage of what is before it: it sees
        keys that were chosen there, or a table of words says its experts, which takes the tokens
        that the embedding takes."""
        if self.sparse is not None and self.sparse.every > 1:
            return self.sparse.follows(self.layers)
        hashed = self.experts.hashed if self.experts else 0
        return tuple(i < hashed for i in range(self.layers)) if hashed else ()

    @property
    def following(self) -> "Decoder":
        """Return a decoder whose layers all see keys that were chosen before."""
        return _following(self)

    @property
    def scans(self) -> tuple[Mamba | DeltaNet, ...]:
        """Return the mixers that are no attention."""
        return tuple(mixer for mixer in (self.mamba, self.delta) if mixer is not None)

    @property
    def routed_width(self) -> int:
        """Return the width of the tokens that routed experts see."""
        return (self.experts.latent if self.experts else 0) or self.hidden

    @property
    def last_kind(self) -> int:
        """Return the kind of the layer in multi-token prediction: the last one's, of a hybrid
        attention and experts or an MLP; it has an indexer of its own, or no pooled keys."""
        if self.compressed:
            return BY_LETTERS["WE"]
        return int(self.experts is not None) if self.pattern else self.expert_layers[-1]

    def has(self, block: str) -> bool:
        """Tell whether some layers have a mixer, an MLP or experts."""
        return any(block in kind[3:] for kind in self._kinds)

    @property
    def _kinds(self) -> tuple[LayerKind, ...]:
        """Return the kinds of layers."""
        return tuple(LAYER_KINDS[number] for number in sorted(set(self.layer_kinds)))

    @property
    def query_width(self) -> int:
        """Return heads x channels of the queries (and keys)."""
        if self.latent:
            return self.heads * (self.latent.key + self.latent.rotary)
        return self.heads * self.head

    @property
    def value_width(self) -> int:
        """Return heads x channels of attention's output."""
        return self.heads * (self.latent.value if self.latent else self.head)

    @property
    def scored_width(self) -> int:
        """Return the numbers of a token that scores and their product with the values read: of
        keys that an indexer chose, of all heads or of the compressed ones, the fewer."""
        width = self.query_width + self.value_width
        if self.sparse and self.latent:
            return min(width, self.heads * (2 * self.latent.key_value_rank + self.latent.rotary))
        return width

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the chain: each layer an attention and an MLP or experts."""
        chain = ["word-embedding"]
        for number in self.layer_kinds:
            kind = LAYER_KINDS[number].operator
            chain += [f"{kind}-1st-layernorm", f"{kind}-layer"]
        return (*chain, "final-norm", "output")

    @property
    def parameters(self) -> dict[str, Parameters]:
        """Return the parameters of every operator; vocabulary as given, not padded."""
        h = self.hidden
        norm = h * self.norm_vectors
        words = self.vocab * h
        positions = self.max_position_embeddings * h if self.positions == "learned" else 0
        before, after = self.norms_of_layer
        first = min(before, 1)
        table = {
            "word-embedding": Parameters(words, positions + self._encoded),
            "final-norm": Parameters(whole=norm + self.merging),
            "output": Parameters(self.head_width * (h + self.output_bias)),
        }
        for kind in self._kinds:
            own = self.following if kind.follows else self
            blocks = [own._block(block) for block in kind[3:] if block]
            norms = before + after if kind.blocks > 1 else 1
            blocks.append((0, kind.blocks * self.mixing))
            split, whole = (sum(column) for column in zip(*blocks, strict=True))
            table[f"{kind.operator}-1st-layernorm"] = Parameters(whole=first * norm)
            table[f"{kind.operator}-layer"] = Parameters(split, whole + norm * (norms - first))
        return table

    @property
    def mixing(self) -> int:
        """Return the parameters that mix streams around an attention, MLP or experts: a product of
        all their channels, as many numbers added to it, and three that scale them."""
        n = self.streams
        return (n + 2) * n * (n * self.hidden + 1) + 3 if n > 1 else 0

    @property
    def merging(self) -> int:
        """Return the parameters that mix streams to one before the last norm."""
        n = self.streams
        return n * (n * self.hidden + 1) + 1 if n > 1 else 0

    @property
    def encoders(self) -> tuple[Encoder | SoundEncoder, ...]:
        """Return the encoders before the decoder: of images, and of sounds."""
        return tuple(one for one in (self.encoder, self.sounds) if one)

    @property
    def head_width(self) -> int:
        """Return the numbers that the output layer gives for a token."""
        return self.outputs or self.vocab

    @property
    def _encoded(self) -> int:
        """Return the parameters of the encoders."""
        return sum(one.parameters(self.hidden) for one in self.encoders)

    def _block(self, block: str) -> tuple[int, int]:
        """Return (split, whole) parameters of a mixer, an MLP or experts."""
        if block == ATTENTION:
            return self._attention()
        if block == MLP:
            return self._mlp(self.ffn)
        if block == EXPERTS:
            return self._routed()
        if self.compressed:
            a, sizes = self.compressed, (self.heads, self.head)
            others = a.small(block, *sizes) + a.indexer(block, self.hidden)
            return a.products(block, self.hidden, *sizes), others
        mixer = self.mamba if block == MAMBA else self.delta
        assert mixer is not None
        split = self.hidden * (mixer.projected + mixer.inner) + mixer.small
        return split, mixer.value if isinstance(mixer, DeltaNet) else 0  # one norm for all heads

    @property
    def norm_vectors(self) -> int:
        """Return how many vectors of its width a norm learns."""
        return NORMS[self.norm]

    @property
    def norms_of_layer(self) -> tuple[int, int]:
        """Return the norms before attention and MLP, and after them."""
        before = 0 if self.norm_at == "output" else self.parallel_norms or 2
        return before, 0 if self.norm_at == "input" else 2

    @property
    def attention_share(self) -> float:
        """Return the pairs of tokens that attention looks at, as a share of all that causal
        attention does, the mean over the layers."""
        return sum(share * seen for share, seen in self.attention_spans)

    @property
    def attention_spans(self) -> tuple[tuple[float, float], ...]:
        """Return how attention looks: the share of the layers, and of all pairs of tokens that
        causal attention looks at."""
        if self.lengths is None:
            return tuple((layers, share(self.sequence)) for layers, share in self.spans)
        every = self.pairs(_whole)
        return tuple((layers, self.pairs(share) / every) for layers, share in self.spans)

    @property
    def spans(self) -> tuple[tuple[float, Share], ...]:
        """Return how attention looks: the share of the layers, and, of so many tokens, the share of
        all pairs that causal attention looks at."""
        if self.sparse:
            return ((1.0, self.sparse.share),)
        if self.window is None:
            return ((1.0, _whole),)
        windowed = sum(self.window.layers(self.layers)) / self.layers
        spans = ((1 - windowed, _whole), (windowed, self.window.share))
        return tuple(span for span in spans if span[0])

    def pairs(self, share: Share) -> float:
        """Return the pairs of tokens inside of a sample's documents, times a share of each."""
        if self.lengths is None:
            return share(self.sequence) * self.sequence**2
        return self.lengths.pairs(self.sequence, share)

    def _attention(self) -> tuple[int, int]:
        """Return (split, whole) parameters of an attention, norms of its input and output apart."""
        h, bias = self.hidden, self.bias or self.projection_bias
        q, v = self.query_width, self.value_width
        dense = v * h + self.heads * self.sinks
        if self.latent is None:
            keys = self.kv_heads * self.head
            qkv = q * (1 + self.attention_gate) + 2 * keys
            norms = self.norm_vectors * self.qk_norm
            with_bias = self.bias or self.qkv_bias
            split = h * qkv + qkv * with_bias + dense
            split += norms * (q + keys) * (self.qk_norm_of == "heads")
            return split, h * bias + 2 * norms * self.head * (self.qk_norm_of == "head")
        a, scale = self.latent, self.norm_vectors
        down = h * (a.key_value_rank + a.rotary) + a.key_value_rank * scale * self.qk_norm
        up = a.key_value_rank * self.heads * (a.key + a.value)
        if a.query_rank:
            down += h * a.query_rank + a.query_rank * scale * self.qk_norm
            up += a.query_rank * q
        else:
            up += h * q
        if self.sparse:
            down += self.sparse.parameters(h, a.query_rank)
        return up + dense, down + h * bias

    def _attention_products(self) -> int:
        """Return the entries of the matrices that every token is multiplied with."""
        h, dense = self.hidden, self.value_width * self.hidden
        if self.latent is None:
            queries = self.query_width * (1 + self.attention_gate)
            return dense + h * (queries + 2 * self.kv_heads * self.head)
        a = self.latent
        products = dense + h * (a.key_value_rank + a.rotary)
        products += a.key_value_rank * self.heads * (a.key + a.value)
        if not a.query_rank:
            return products + h * self.query_width
        return products + a.query_rank * (h + self.query_width)

    def _mlp(self, width: int, hidden: int = 0) -> tuple[int, int]:
        """Return (split, whole) parameters of an MLP. hidden: what it reads; 0: the model's."""
        first, hidden = width * (2 if self.gated else 1), hidden or self.hidden
        return first * (hidden + self.bias) + width * hidden, hidden * self.bias

    def _routed(self) -> tuple[int, int]:
        """Return (split, whole) parameters of a layer's experts and router."""
        if self.experts is None:
            return 0, 0
        latent = self.experts.latent
        split, whole = self._mlp(self.experts.ffn, latent)
        split, whole = self.experts.count * split, self.experts.count * whole
        if self.experts.shared_ffn:
            more, same = self._mlp(self.experts.shared_ffn)
            split, whole = split + more, whole + same
        whole += self.hidden * self.experts.shared_gate
        whole += 2 * latent * self.hidden + (latent and self.bias * (latent + self.hidden))
        return split, whole + self.experts.count * (self.hidden + self.bias)

    @property
    def flops(self) -> dict[str, int]:
        """Return forward FLOPs per operator and sample; scores of the causal half are counted in
        full, as in Narayanan et al. 2021 (arXiv 2104.04473, appendix), those of pooled keys as they
        are seen, and nothing of an indexer, most of which has no backward pass, nor of what mixes
        streams."""
        s, h, pairs = self.tokens, self.hidden, math.floor(self.pairs(_whole))
        each = 3 if self.gated else 2
        blocks: dict[str, float] = {
            "": 0,
            ATTENTION: 2 * s * self._attention_products() + 2 * pairs * self.scored_width,
            MLP: 2 * s * each * h * self.ffn,
        }
        if e := self.experts:
            width = e.latent or h
            seen = e.top_k * e.ffn * width + e.shared_ffn * h
            blocks[EXPERTS] = 2 * s * each * seen + 2 * s * h * (e.count + 2 * e.latent)
        for name, mixer in ((MAMBA, self.mamba), (DELTA, self.delta)):
            if mixer:
                products = h * (mixer.projected + mixer.inner) + mixer.kernel * mixer.convolved
                blocks[name] = 2 * s * products + s * mixer.scan
        if a := self.compressed:
            for name in COMPRESSED:
                entries = a.products(name, h, self.heads, self.head)
                scored = 4 * a.pairs(name, self.sequence) * self.heads * self.head
                blocks[name] = 2 * s * entries + scored
        table = {"output": math.floor(2 * s * h * self.head_width)}
        for kind in self._kinds:
            found = blocks[kind.mixer] + blocks[kind.inner]
            table[f"{kind.operator}-layer"] = math.floor(found)
        return table

    @property
    def masked_flops(self) -> int:
        """Return half of the scores and of their products with the values, and of the other half
        the part outside of windows, or of keys that no indexer chose."""
        pairs = math.floor(self.pairs(_whole))
        half = self._attentions * pairs * self.scored_width
        some = self.window or self.sparse
        left_out = 0 if some is None else half - math.floor(half * self.attention_share)
        return half + left_out

    @property
    def masked(self) -> dict[str, float]:
        """Return as much of each kind of layer: windows are over the layers of any kind."""
        each = self.masked_flops / max(1, self._attentions)
        return {f"{k.operator}-layer": each if k.mixer == ATTENTION else 0.0 for k in self._kinds}

    @property
    def _attentions(self) -> int:
        """Return the number of layers with attention."""
        return sum(LAYER_KINDS[kind].mixer == ATTENTION for kind in self.layer_kinds)

    def on_ranks(self, cp: int) -> Self:
        """Return the same model with documents as context-parallel ranks have them."""
        found = self.lengths.on_ranks(cp) if self.lengths else None
        return self if found is self.lengths else replace(self, lengths=found)

    @property
    def tokens(self) -> float:
        """Return the tokens of a sample; of documents in it, without padding, in the mean."""
        if self.lengths is None:
            return self.sequence
        return self.lengths.trained(self.sequence)

    @property
    def tensor_parts(self) -> int:
        """Return the parts that tensor parallelism divides: whole heads, columns of the MLP and of
        experts."""
        parts = math.gcd(self.heads, self.ffn)
        if self.latent is None:
            parts = math.gcd(parts, self.kv_heads)
        for mixer in self.scans:
            parts = math.gcd(parts, *mixer.divisors.values())
        if self.experts:
            parts = math.gcd(parts, self.experts.ffn, self.experts.shared_ffn or parts)
        return parts


def _whole(_: int) -> float:
    """Return the share of pairs of tokens that attention without a window looks at."""
    return 1.0


def as_decoder(architecture: Architecture) -> Decoder | None:
    """Return any decoder-only transformer as `Decoder`; None for other families."""
    if isinstance(architecture, Decoder):
        return architecture
    if not isinstance(architecture, Gpt):
        return None
    return Decoder(
        layers=architecture.layers,
        hidden=architecture.hidden,
        heads=architecture.heads,
        sequence=architecture.sequence,
        vocab=architecture.vocab,
        ffn=architecture.ffn,
        max_position_embeddings=architecture.max_position_embeddings,
    )


@lru_cache(maxsize=256)
def _following(model: Decoder) -> Decoder:
    """Return the result of `Decoder.following`."""
    assert model.sparse is not None
    return replace(model, sparse=replace(model.sparse, heads=0, every=1, offset=0))


@lru_cache(maxsize=256)
def _every_so_many(layers: int, first: int, every: int) -> tuple[bool, ...]:
    """Return of so many layers whether each is one of every so many from some on."""
    return tuple(i >= first and (i - first) % every == 0 for i in range(layers))
