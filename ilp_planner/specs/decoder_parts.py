"""Parts that some decoders have: latent attention, experts, rotary positions, windows."""

from dataclasses import dataclass

from ilp_planner.specs.architecture import (
    check_choice,
    check_counts,
    check_fields,
    check_positive,
)

SCORES = ("softmax", "sigmoid")
# Ways to turn angles for longer samples, with the usual bounds of what is turned otherwise.
SCALINGS = {
    "linear": (0.0, 0.0),
    "dynamic": (0.0, 0.0),
    "llama3": (1.0, 4.0),
    "yarn": (1.0, 32.0),
    "longrope": (0.0, 0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    query_rank: width of the compressed queries; 0: they are projected directly. key_value_rank: of
    the compressed keys and values. key, rotary, value: channels per head of the part of a query or
    key without position, of its rotary part (one rotary key for all heads), and of a value.
    """

    key_value_rank: int
    key: int
    rotary: int
    value: int
    query_rank: int = 0

    def __post_init__(self) -> None:
        check_fields(self, "key_value_rank", "key", "rotary", "value")
        check_counts(query_rank=self.query_rank or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture of experts that replaces the MLP of some layers.

    count: routed experts. top_k: of them that see a token. ffn: width inside one. shared_ffn: width
    inside the expert that sees every token; 0: none. dense_first: leading layers that keep their
    MLP. every: of the others, one in so many has experts, the first of each run. groups: equal ones
    of the experts, of which each token may go to `top_groups` (node-limited routing, DeepSeek-V3,
    arXiv 2412.19437, section 2.1.2); 0: to all. shared_gate: a learnt gate weighs the shared
    expert. score: what makes weights of the router's logits. normed: the weights of a token's
    experts sum to one. correction: a bias per expert, which no gradient reaches, keeps the load
    even. scale: of the weights.
    """

    count: int
    top_k: int
    ffn: int
    shared_ffn: int = 0
    dense_first: int = 0
    every: int = 1
    groups: int = 1
    top_groups: int = 0
    shared_gate: bool = False
    score: str = "softmax"
    normed: bool = True
    correction: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "count", "top_k", "ffn", "every", "groups")
        optional = ("shared_ffn", "dense_first", "top_groups")
        check_counts(**{name: getattr(self, name) or 1 for name in optional})
        check_choice("score", self.score, SCORES)
        check_positive("scale", self.scale)
        if self.shared_gate and not self.shared_ffn:
            raise ValueError("shared_gate must be false without shared_ffn, found true")
        if self.top_k > self.count:
            raise ValueError(f"top_k must be at most count ({self.count}), found {self.top_k}")
        if self.count % self.groups or self.top_groups > self.groups:
            raise ValueError(
                f"groups must divide count ({self.count}), and be at least top_groups "
                f"({self.top_groups}), found {self.groups}"
            )
        reached = (self.top_groups or self.groups) * self.count // self.groups
        if self.top_k > reached:
            raise ValueError(
                f"top_groups must have at least top_k ({self.top_k}) experts, found {reached} in "
                f"{self.top_groups}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """Rotary positions (Su et al. 2021, arXiv 2104.09864).

    base: of the angles. share: of the channels of a head that are turned. none_every: one layer in
    so many has no positions, the last of each run; 0: none. windowed_base: of layers with a window;
    0: base. scaling: how angles are changed for samples longer than `original` positions, by
    `factor`; empty: they are not. slow, fast: bounds of the frequencies that change (Llama 3's
    `low_freq_factor` and `high_freq_factor`; YaRN's betas, arXiv 2309.00071). magnitude,
    magnitude_all: of YaRN's attention (`mscale`, `mscale_all_dim`). rounded: YaRN's bounds are
    whole channels.
    """

    base: float = 10000.0
    share: float = 1.0
    none_every: int = 0
    windowed_base: float = 0.0
    scaling: str = ""
    factor: float = 1.0
    original: int = 0
    slow: float = 0.0
    fast: float = 0.0
    magnitude: float = 0.0
    magnitude_all: float = 0.0
    rounded: bool = True

    def __post_init__(self) -> None:
        check_positive("base", self.base)
        check_positive("factor", self.factor)
        check_counts(none_every=self.none_every or 1, original=self.original or 1)
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, found {self.share}")
        if self.scaling:
            check_choice("scaling", self.scaling, tuple(SCALINGS))
            slow, fast = SCALINGS[self.scaling]
            object.__setattr__(self, "slow", self.slow or slow)
            object.__setattr__(self, "fast", self.fast or fast)
        if self.scaling == "linear":  # all positions alike, whatever was trained
            object.__setattr__(self, "original", 0)
        if self.scaling == "yarn":
            object.__setattr__(self, "magnitude", self.magnitude or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Layers whose tokens see the nearest ones only.

    size: tokens that one sees, itself included. full_every: one layer in so many sees all, the last
    of each run; 0: none does. windowed_in: one entry per layer, overrides it. chunked: a token sees
    those of its chunk of so many (Llama 4) instead of the last ones.
    """

    size: int
    full_every: int = 0
    windowed_in: tuple[bool, ...] = ()
    chunked: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "size")
        check_counts(full_every=self.full_every or 1)

    def layers(self, count: int) -> tuple[bool, ...]:
        """Return the layers with the window, of so many."""
        if self.windowed_in:
            return self.windowed_in
        return tuple(not self.full_every or (i + 1) % self.full_every > 0 for i in range(count))

    def share(self, sequence: int) -> float:
        """Return the pairs of tokens that a layer with the window looks at, as a share of all that
        causal attention does."""
        seen = min(1.0, self.size / sequence)
        return seen if self.chunked else 2 * seen - seen**2
