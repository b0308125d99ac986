"""A vision encoder: a transformer over patches of images, and the projector that turns its output
into tokens of the decoder."""

from dataclasses import dataclass
from typing import NamedTuple

from ilp_planner.specs.architecture import check_choice, check_fields

ENCODER_NORMS = {"layernorm": 2, "rmsnorm": 1}  # -> vectors that it learns
PROJECTOR_NORMS = ("none", "patch", "merged")
CHANNELS = 3  # of a pixel: red, green and blue


class Stem(NamedTuple):
    """A product before the layers of an encoder.

    inner, outer: its width and its outputs. rows: of it, for a token of the encoder. read: numbers
    that it reads for one. bias: it adds one. acts: an activation is after it.
    """

    name: str
    inner: int
    outer: int
    rows: int
    read: int
    bias: bool = True
    acts: bool = False

    @property
    def parameters(self) -> int:
        """Return the number of its parameters."""
        return (self.inner + self.bias) * self.outer


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Dimensions and choices of a vision encoder, and the images that it sees.

    ffn: width inside an MLP.
    patch: pixels of the side of a patch.
    frames: video frames that a patch spans; a still image is repeated.
    merge: patches along each side that become one token of the decoder.
    gated, bias, norm, activation: as of a decoder.
    patch_bias: the product that embeds patches adds a bias.
    positions: learnt position embeddings; 0: rotary ones, or none.
    vectors: other learnt vectors of width `hidden`, as the class token and norms besides those of
        the layers.
    scales: learnt vectors of each layer that scale what attention and MLP add.
    class_token: attention sees one token besides the patches.
    window: pixels of the side of an attention window; 0: attention sees the whole image.
    full_layers: layers whose attention sees the whole image in spite of a window.
    projector_ffn: width inside the projector; 0: that of the merged patches.
    projector_norm: norm before the projector: `none`, of each `patch`, or of `merged` patches.
    deepstack: projectors of inner layers, each with a norm of merged patches (Qwen3-VL).
    images: number in each sample; 0 of a model that hears sounds alone in training.
    image_size: pixels of the side of an image.
    fixed_size: the encoder takes images of no other size.
    whole: every tensor-parallel rank computes all of the encoder, as a module of transformers does
        (ms-swift, Megatron-Bridge's Qwen2.5-VL). False: the ranks divide it as they divide the
        decoder (Megatron-LM, Pai-Megatron-Patch, Megatron-Bridge's Qwen3-VL).
    cp_divided: context-parallel ranks divide the images of a micro-batch, and gather what the
        decoder reads (`vision_dp_when_cp` of Megatron-Bridge). False: each computes all of them.
    recomputed: the backward pass computes its layers again, whatever the decoder's do.
    as_decoder: its layers are recomputed as the decoder's are (`get_vision_model_config` of
        Megatron-Bridge's Qwen3-VL copies recomputation): all of them, or the core of attention.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    patch: int
    frames: int = 1
    merge: int = 1
    gated: bool = False
    bias: bool = True
    norm: str = "layernorm"
    activation: str = "gelu"
    patch_bias: bool = True
    positions: int = 0
    vectors: int = 0
    scales: int = 0
    class_token: bool = False
    window: int = 0
    full_layers: int = 0
    projector_ffn: int = 0
    projector_norm: str = "none"
    deepstack: int = 0
    images: int = 1
    image_size: int = 448
    fixed_size: bool = False
    whole: bool = False
    cp_divided: bool = False
    recomputed: bool = False
    as_decoder: bool = False

    def __post_init__(self) -> None:
        check_fields(
            self, "layers", "hidden", "heads", "ffn", "patch", "frames", "merge", "image_size",
            or_zero=(
                "images",
                "positions", "vectors", "scales", "window", "full_layers", "projector_ffn",
                "deepstack",
            ),
        )  # fmt: skip
        check_choice("norm", self.norm, tuple(ENCODER_NORMS))
        check_choice("projector_norm", self.projector_norm, PROJECTOR_NORMS)
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden must be divisible by heads ({self.heads}), found {self.hidden}"
            )
        if self.full_layers > self.layers:
            raise ValueError(
                f"full_layers must be at most layers ({self.layers}), found {self.full_layers}"
            )
        if 0 < self.window < self.token_side:
            raise ValueError(
                f"window must be 0 or at least {self.token_side} pixels, the side of a token, "
                f"found {self.window}"
            )
        if self.as_decoder and (self.whole or self.recomputed):
            other = "whole" if self.whole else "recomputed"
            raise ValueError(
                f"as_decoder must be false with {other}, found true: a module of transformers "
                "does not see what the decoder recomputes"
            )
        if self.image_size % self.token_side:
            near = max(1, round(self.image_size / self.token_side)) * self.token_side
            raise ValueError(
                f"image_size must be a multiple of {self.token_side} pixels, the side of a token "
                f"({self.patch} x {self.merge}), found {self.image_size}; {near} would do"
            )

    @property
    def token_side(self) -> int:
        """Pixels of the side of the square that becomes one token of the decoder."""
        return self.patch * self.merge

    @property
    def patches(self) -> int:
        """Tokens of an image inside the encoder."""
        return (self.image_size // self.patch) ** 2 + self.class_token

    @property
    def tokens(self) -> int:
        """Tokens of the decoder that an image becomes."""
        return (self.image_size // self.token_side) ** 2

    @property
    def image_tokens(self) -> int:
        """Tokens of the decoder that the images of a sample become."""
        return self.images * self.tokens

    @property
    def pixels(self) -> int:
        """Numbers that a patch consists of."""
        return CHANNELS * self.frames * self.patch**2

    @property
    def stems(self) -> tuple[Stem, ...]:
        """Return the product that embeds patches."""
        wide = self.pixels
        return (Stem("patch_embed", wide, self.hidden, rows=1, read=wide, bias=self.patch_bias),)

    @property
    def name(self) -> str:
        """Return the name of its module."""
        return "encoder"

    @property
    def rotary(self) -> bool:
        """Tell whether it turns queries and keys by their positions."""
        return not self.positions

    @property
    def marks(self) -> int:
        """Return the learnt vectors of the decoder's width."""
        return 0

    @property
    def projector_bias(self) -> bool:
        """Tell whether the projector's products add biases."""
        return True

    @property
    def merged(self) -> int:
        """Width of the patches of a token, side by side."""
        return self.hidden * self.merge**2

    @property
    def inner(self) -> int:
        """Width inside the projector."""
        return self.projector_ffn or self.merged

    @property
    def acted(self) -> int:
        """Width of what the projector's activation gives."""
        return self.inner

    @property
    def projector_vectors(self) -> int:
        """Vectors that a norm of the projector learns."""
        return self.norm_vectors

    def later_norm(self, width: int) -> int:
        """Return the width of the norm after a product of the projector; 0: there is none."""
        return 0

    @property
    def norm_vectors(self) -> int:
        """Vectors that a norm learns."""
        return ENCODER_NORMS[self.norm]

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Return the share of the layers with each kind of attention, and the pairs of patches that
        it sees as a multiple of those of causal attention, which sees half of all."""
        side = min(self.window or self.image_size, self.image_size) // self.patch
        seen = min(1.0, side**2 / self.patches) if self.window else 1.0
        full = self.full_layers / self.layers if self.window else 1.0
        rows = ((full, 2.0), (1 - full, 2.0 * seen))
        return tuple(row for row in rows if row[0])

    def parameters(self, width: int) -> int:
        """Return the number of its parameters. width: of the decoder."""
        h, b, norm = self.hidden, self.bias, self.norm_vectors * self.hidden
        gates = 2 if self.gated else 1
        attention = 4 * h * h + b * 4 * h
        mlp = (gates + 1) * h * self.ffn + b * (gates * self.ffn + h)
        layer = attention + mlp + 2 * norm + self.scales * h
        ends = h * (self.pixels + self.patch_bias + self.positions + self.vectors)
        return ends + self.layers * layer + self.projectors(width)

    def projectors(self, width: int) -> int:
        """Return the parameters of all projectors. width: of the decoder."""
        one = (self.merged + 1) * self.inner + (self.inner + 1) * width
        norms = {"none": 0, "patch": self.hidden, "merged": self.merged}[self.projector_norm]
        norms += self.deepstack * self.merged
        return (1 + self.deepstack) * one + norms * self.norm_vectors
