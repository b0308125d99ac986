"""A vision encoder before a decoder: a transformer over patches of images, and the projector that
makes tokens of the decoder of them."""

from dataclasses import dataclass

from ilp_planner.specs.architecture import check_choice, check_counts, check_fields

ENCODER_NORMS = {"layernorm": 2, "rmsnorm": 1}  # -> learnt vectors
PROJECTOR_NORMS = ("none", "patch", "merged")
CHANNELS = 3  # of a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Dimensions and choices of a vision encoder, and the images that it sees.

    ffn: width inside its MLPs. patch: pixels of a patch's side. frames: images that a patch spans;
    a still image is repeated. merge: patches of each side that make one token. gated, bias, norm,
    activation: as of a decoder. patch_bias: of the product with patches. positions: learnt ones; 0:
    rotary or none. vectors: learnt of its width besides, as class tokens and further norms. scales:
    learnt vectors that scale what each layer adds. class_token: one more token of attention.
    window: pixels of the side of a window that attention is divided into; full_layers: so many
    layers attend to all patches then. projector_ffn: width inside the projector; 0: of the merged
    patches. projector_norm: before it `none`, of each `patch` or of what is `merged`. deepstack:
    projectors of inner layers, with norms of what is merged (Qwen3-VL).
    images: of a sample. image_size: pixels of an image's side. fixed_size: it takes no other.
    whole: every tensor-parallel rank computes all of it, as where it is a module of transformers
    (ms-swift, Megatron-Bridge's Qwen2.5-VL); otherwise ranks divide it as they do the decoder
    (Megatron-LM, Pai-Megatron-Patch, Megatron-Bridge's Qwen3-VL). recomputed: its layers are
    computed again in the backward pass.
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
    recomputed: bool = False

    def __post_init__(self) -> None:
        check_fields(
            self, "layers", "hidden", "heads", "ffn", "patch", "frames", "merge", "images",
            "image_size",
        )  # fmt: skip
        check_counts(
            positions=self.positions or 1,
            window=self.window or 1,
            projector_ffn=self.projector_ffn or 1,
        )
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
        if self.image_size % self.token_side:
            near = max(1, round(self.image_size / self.token_side)) * self.token_side
            raise ValueError(
                f"image_size must be a multiple of {self.token_side} pixels, the side of a token "
                f"({self.patch} x {self.merge}), found {self.image_size}; {near} would do"
            )

    @property
    def token_side(self) -> int:
        """Pixels of a token's side."""
        return self.patch * self.merge

    @property
    def patches(self) -> int:
        """Tokens of the encoder in an image."""
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
        """Numbers of a patch."""
        return CHANNELS * self.frames * self.patch**2

    @property
    def merged(self) -> int:
        """Width of merged patches."""
        return self.hidden * self.merge**2

    @property
    def inner(self) -> int:
        """Width inside the projector."""
        return self.projector_ffn or self.merged

    @property
    def norm_vectors(self) -> int:
        """Vectors that a norm learns."""
        return ENCODER_NORMS[self.norm]

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Return how attention looks: the share of the layers, and of twice the pairs of patches
        that causal attention of an image looks at."""
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
