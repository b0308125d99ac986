"""An encoder of sounds: convolutions over a spectrogram, a transformer over what they give, and the
projector that turns its output into tokens of the decoder."""

import math
from dataclasses import dataclass

from ilp_planner.specs.architecture import check_choice, check_fields
from ilp_planner.specs.encoder import ENCODER_NORMS, Stem

FRAMES = 100  # of a spectrogram in a second
KERNEL = 3  # frames, or frames and bins, that a convolution sees
PROJECTOR_RMS = ("none", "inner", "outer")
STRIDES = 3  # convolutions in two dimensions that halve frames and bins each


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundEncoder:
    """Dimensions and choices of an encoder of sounds, and the sound that it hears.

    ffn: width inside an MLP.
    bins: numbers of a frame of the spectrogram, which has 100 a second.
    rate: tokens that a second becomes inside the encoder.
    channels: of three convolutions over frames and bins, which a product joins (Qwen3-Omni); 0: two
        convolutions over frames, as Whisper has them.
    norm, activation: as of a decoder.
    key_bias: keys have a bias as queries and values have.
    positions: numbers of positions that are kept and not trained; 0: they are computed.
    vectors: other learnt vectors of width `hidden`, as the norm after the layers.
    marks: learnt vectors of the decoder's width.
    merge: tokens of the encoder that become one of the decoder.
    joined: they are put side by side; else their mean is taken.
    chunk: seconds of the pieces that sounds are cut into and padded to; 0: a sound is one piece.
    padded: the decoder reads the padding, too.
    window: seconds that an attention window spans; 0: attention hears all of a piece.
    projector_ffn: width inside the projector; 0: it is one product.
    projector_bias: its products add biases.
    projector_gated: one half of what its first product gives is a gate of the other.
    projector_rms: RMS norms of the projector: of its tokens, and of what its second product reads
        (`inner`) or gives (`outer`); `none`.
    seconds: of sound in each sample; 0 of a model that sees images alone in training.
    whole, cp_divided, recomputed: as of an encoder of images; it is a module of transformers in
        Megatron-Bridge and ms-swift, which every tensor-parallel rank computes all of.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    bins: int = 128
    rate: int = 50
    channels: int = 0
    norm: str = "layernorm"
    activation: str = "gelu"
    key_bias: bool = False
    positions: int = 0
    vectors: int = 2
    marks: int = 0
    merge: int = 2
    joined: bool = False
    chunk: int = 0
    padded: bool = False
    window: int = 0
    projector_ffn: int = 0
    projector_bias: bool = True
    projector_gated: bool = False
    projector_rms: str = "none"
    seconds: int = 30
    whole: bool = True
    cp_divided: bool = False
    recomputed: bool = False

    def __post_init__(self) -> None:
        check_fields(
            self, "layers", "hidden", "heads", "ffn", "bins", "rate", "merge",
            or_zero=("seconds", "channels", "positions", "vectors", "marks", "chunk", "window",
                     "projector_ffn"),
        )  # fmt: skip
        check_choice("norm", self.norm, tuple(ENCODER_NORMS))
        check_choice("projector_rms", self.projector_rms, PROJECTOR_RMS)
        if self.projector_gated and (self.projector_ffn % 2 or not self.projector_ffn):
            raise ValueError(
                f"projector_ffn must be even with projector_gated, found {self.projector_ffn}"
            )
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden must be divisible by heads ({self.heads}), found {self.hidden}"
            )
        if self.padded and not self.chunk:
            raise ValueError("padded must be false without chunk, found true")
        if self.positions and self.positions < self.patches:
            raise ValueError(
                f"chunk must be at most {self.positions // self.rate} seconds, as there are "
                f"{self.positions} positions, found {self.chunk or self.seconds}"
            )

    @property
    def images(self) -> int:
        """Pieces of a sample's sound."""
        return math.ceil(self.seconds / self.chunk) if self.chunk else int(self.seconds > 0)

    @property
    def patches(self) -> int:
        """Tokens of a piece inside the encoder."""
        return max(1, self.chunk or self.seconds) * self.rate

    @property
    def image_tokens(self) -> int:
        """Tokens of the decoder that a sample's sound becomes."""
        heard = self.images * self.chunk if self.padded else self.seconds
        found = heard * self.rate
        return -(-found // self.merge) if self.joined else found // self.merge

    @property
    def tokens(self) -> float:
        """Tokens of the decoder that a piece becomes, in the mean."""
        return self.image_tokens / max(1, self.images)

    @property
    def merged(self) -> int:
        """Width of the tokens that become one of the decoder."""
        return self.hidden * (self.merge if self.joined else 1)

    @property
    def inner(self) -> int:
        """Width inside the projector; 0: it is one product."""
        return self.projector_ffn

    @property
    def norm_vectors(self) -> int:
        """Vectors that a norm learns."""
        return ENCODER_NORMS[self.norm]

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Return the share of the layers with each kind of attention, and the pairs of tokens that
        it hears as a multiple of those of causal attention, which hears half of all."""
        heard = min(1.0, self.window * self.rate / self.patches) if self.window else 1.0
        return ((1.0, 2.0 * heard),)

    @property
    def stems(self) -> tuple[Stem, ...]:
        """Return the products before the layers: convolutions, and what joins their channels."""
        h, bins, c = self.hidden, self.bins, self.channels
        if not c:
            frames = round(FRAMES / self.rate)
            return (
                Stem("conv1", KERNEL * bins, h, rows=frames, read=frames * bins, acts=True),
                Stem("conv2", KERNEL * h, h, rows=1, read=frames * h, acts=True),
            )
        side, found, width, read = KERNEL**2, [], 1, 2**STRIDES * bins
        for number in range(1, STRIDES + 1):
            rows = 2 ** (STRIDES - number) * (bins >> number)
            found.append(Stem(f"conv2d{number}", side * width, c, rows=rows, read=read, acts=True))
            width, read = c, rows * c
        wide = c * (bins >> STRIDES)
        return (*found, Stem("conv_out", wide, h, rows=1, read=wide, bias=False))

    # What encoders of images may have besides, and this one has not.

    @property
    def name(self) -> str:
        """Return the name of its module."""
        return "sounds"

    @property
    def as_decoder(self) -> bool:
        """Tell whether its layers are recomputed as the decoder's are."""
        return False

    @property
    def gated(self) -> bool:
        """Tell whether its MLPs have a gate."""
        return False

    @property
    def bias(self) -> bool:
        """Tell whether its products add biases."""
        return True

    @property
    def rotary(self) -> bool:
        """Tell whether it turns queries and keys by their positions."""
        return False

    @property
    def projector_norm(self) -> str:
        """Return the norm before the projector."""
        return "none" if self.projector_rms == "none" else "merged"

    @property
    def projector_vectors(self) -> int:
        """Vectors that a norm of the projector learns."""
        return 1

    @property
    def acted(self) -> int:
        """Width of what the projector's activation gives."""
        return self.inner // 2 if self.projector_gated else self.inner

    def later_norm(self, width: int) -> int:
        """Return the width of the norm after a product of the projector; 0: there is none."""
        return {"none": 0, "inner": self.acted or self.merged, "outer": width}[self.projector_rms]

    @property
    def deepstack(self) -> int:
        """Return the projectors of inner layers."""
        return 0

    @property
    def scales(self) -> int:
        """Return the vectors that scale what a layer adds."""
        return 0

    def parameters(self, width: int) -> int:
        """Return the number of its parameters. width: of the decoder."""
        h, norm = self.hidden, self.norm_vectors * self.hidden
        layer = 4 * h * h + (3 + self.key_bias) * h + 2 * h * self.ffn + self.ffn + h + 2 * norm
        stems = sum(one.parameters for one in self.stems)
        ends = h * (self.positions + self.vectors) + width * self.marks
        return stems + ends + self.layers * layer + self.projectors(width)

    def projectors(self, width: int) -> int:
        """Return the parameters of the projector. width: of the decoder."""
        bias = self.projector_bias
        norms = self.merged + self.later_norm(width) if self.projector_rms != "none" else 0
        if not self.inner:
            return (self.merged + bias) * width + norms
        return (self.merged + bias) * self.inner + (self.acted + bias) * width + norms
