"""Parts that some decoders have: latent, sparse and compressed attention, experts, rotary
positions, windows, and mixers that are no attention."""

from dataclasses import dataclass, fields

from ilp_planner.specs.architecture import (
    check_choice,
    check_counts,
    check_fields,
    check_positive,
)
from ilp_planner.specs.layer_kinds import CSA, HCA

SCORES = ("softmax", "sigmoid", "sqrtsoftplus")
LOSSES = "sparse", "none"
PROJECTIONS = FEW, MANY = 2, 4  # before a gated delta net, of Qwen3-Next and of Qwen3.5
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
        check_fields(self, "key_value_rank", "key", "rotary", "value", or_zero=("query_rank",))


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAttention:
    """Attention to the keys that an indexer chooses (DeepSeek-V3.2, arXiv 2512.02556, section 2).

    heads: of the indexer's queries, which are made of the compressed ones; all share one key; 0: of
    a layer that sees the keys of one before it. head: channels of one. top_k: keys that a token
    attends to, at most. every: one layer in so many has an indexer, and those after it see its
    keys (GLM-5.2); offset: the layers up to this number all have one. loss: what trains the
    indexer, the divergence of its scores from attention's over the chosen keys, or nothing.
    interleaved: its rotary channels turn in pairs, as those of attention do. rotated: its queries
    and keys go through a Hadamard matrix. epsilon: of the norm of its keys.
    """

    heads: int
    head: int = 128
    top_k: int = 2048
    every: int = 1
    offset: int = 0
    loss: str = "sparse"
    interleaved: bool = False
    rotated: bool = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_fields(self, "head", "top_k", "every", or_zero=("heads", "offset"))
        check_choice("loss", self.loss, LOSSES)
        check_positive("epsilon", self.epsilon)
        if self.every > 1 and not self.offset:
            raise ValueError(
                f"offset must be at least 1 with every {self.every}, as the first layer has an "
                "indexer, found 0"
            )

    @property
    def trained(self) -> bool:
        """Tell whether the indexer learns."""
        return self.loss != "none" and self.heads > 0

    def follows(self, layers: int) -> tuple[bool, ...]:
        """Return whether each of so many layers sees the keys of one before it."""
        return tuple(max(i + 1 - self.offset, 0) % self.every > 0 for i in range(layers))

    @property
    def width(self) -> int:
        """Return heads x channels of its queries."""
        return self.heads * self.head

    def share(self, sequence: int) -> float:
        """Return the pairs of tokens that attention looks at, as a share of all that causal
        attention does: as many as in a window of so many tokens."""
        return Window(size=self.top_k).share(sequence)

    def parameters(self, hidden: int, query_rank: int) -> int:
        """Return the parameters of an indexer: products of compressed queries, of the key and of
        the heads' weights, and a LayerNorm of the key."""
        if not self.heads:
            return 0
        return query_rank * self.width + hidden * (self.head + self.heads) + 2 * self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention to the nearest tokens and to groups of those before, each pooled into one key
    (DeepSeek-V4; `modeling_deepseek_v4.py` of transformers 5.23). Of its three kinds of layers
    WINDOWED has the window alone, CSA an indexer that chooses pooled keys, HCA all of them.

    query_rank: width of the compressed queries. output_rank, groups: attention's output is of so
    many groups of heads, each projected to so many channels before the last product. rotary:
    channels of a head that are turned. window: tokens that one sees as they are, itself included.
    near, far: tokens that a key of CSA and of HCA is pooled from; groups of CSA overlap, each is
    pooled with the one before it. index_heads, index_head: of the indexer's queries, and channels
    of one. top_k: pooled keys that a token of CSA attends to, at most. All heads share one key,
    which is its value; each has a learnt number in the softmax.
    """

    query_rank: int
    output_rank: int
    groups: int = 8
    rotary: int = 64
    window: int = 128
    near: int = 4
    far: int = 128
    index_heads: int = 64
    index_head: int = 128
    top_k: int = 512

    def __post_init__(self) -> None:
        check_fields(self, *(one.name for one in fields(self)))
        if self.index_head < self.rotary:
            raise ValueError(
                f"index_head must be at least rotary ({self.rotary}), found {self.index_head}"
            )

    @property
    def index_width(self) -> int:
        """Return heads x channels of the indexer's queries."""
        return self.index_heads * self.index_head

    def ratio(self, mixer: str) -> int:
        """Return the tokens that a pooled key of a layer is made of; 0: it has none."""
        return {CSA: self.near, HCA: self.far}.get(mixer, 0)

    def pooled(self, mixer: str, head: int) -> int:
        """Return the columns of either product that keys of so many channels are pooled from."""
        return {CSA: 2 * head, HCA: head}.get(mixer, 0)

    def chosen(self, mixer: str, sequence: int) -> int:
        """Return the pooled keys of a sample that attention looks up for each token."""
        ratio = self.ratio(mixer)
        groups = sequence // ratio if ratio else 0
        return min(self.top_k, groups) if mixer == CSA else groups

    def pairs(self, mixer: str, sequence: int) -> float:
        """Return the pairs of tokens and keys of a sample that attention looks at: of the window,
        and of chosen groups that end with a token or before it."""
        near, ratio = min(self.window, sequence), self.ratio(mixer)
        seen = near * (sequence - near) + near * (near + 1) / 2
        most = self.chosen(mixer, sequence)
        return seen + most * (sequence + 1) - ratio * most * (most + 1) / 2

    def products(self, mixer: str, hidden: int, heads: int, head: int) -> int:
        """Return the entries of the matrices that every token is multiplied with, those of the
        indexer aside."""
        width = heads * head
        queries = self.query_rank * (hidden + width)
        output = self.output_rank * (width + self.groups * hidden)
        return queries + output + hidden * (head + 2 * self.pooled(mixer, head))

    def small(self, mixer: str, heads: int, head: int) -> int:
        """Return the parameters that are no product's: norms of compressed queries and of keys,
        a number per head, and of pooled keys a norm and positions inside of a group."""
        pooled = self.pooled(mixer, head)
        return self.query_rank + head + heads + self.ratio(mixer) * pooled + head * (pooled > 0)

    def indexer(self, mixer: str, hidden: int) -> int:
        """Return the parameters of a layer's indexer, which pools keys of its own."""
        if mixer != CSA:
            return 0
        own = self.pooled(mixer, self.index_head)
        products = self.query_rank * self.index_width + hidden * (self.index_heads + 2 * own)
        return products + self.near * own + self.index_head


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
    even. scale: of the weights. latent: width that tokens are projected to before routed experts
    see them, and back from after it; 0: the model's. hashed: leading layers whose experts a table
    of words says instead of the router, which weighs them.
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
    latent: int = 0
    hashed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, "count", "top_k", "ffn", "every", "groups")
        optional = ("shared_ffn", "dense_first", "top_groups", "latent", "hashed")
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
        check_fields(self, or_zero=("none_every", "original"))
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
        check_fields(self, "size", or_zero=("full_every",))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """A Mamba-2 mixer: a scan of states in chunks (Dao and Gu 2024, arXiv 2405.21060, section 7).

    heads: of the scan. head: channels of one. state: numbers of a channel's state. groups: of heads
    that share their input and output matrices. kernel: tokens that the convolution before the scan
    sees. chunk: tokens that are multiplied at once. conv_bias: the convolution adds one.
    """

    heads: int
    head: int = 64
    state: int = 128
    groups: int = 8
    kernel: int = 4
    chunk: int = 128
    conv_bias: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "heads", "head", "state", "groups", "kernel", "chunk")
        if self.heads % self.groups:
            raise ValueError(
                f"groups must divide heads of Mamba ({self.heads}), found {self.groups}"
            )

    @property
    def inner(self) -> int:
        """Return the channels of all heads."""
        return self.heads * self.head

    @property
    def convolved(self) -> int:
        """Return the channels that the convolution sees."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Return the columns of the first product: gate, channels, matrices and time steps."""
        return self.inner + self.convolved + self.heads

    @property
    def small(self) -> int:
        """Return the parameters that are no product's: convolution, three numbers a head, norm."""
        return self.convolved * (self.kernel + self.conv_bias) + 3 * self.heads + self.inner

    @property
    def scan(self) -> int:
        """Return the FLOPs of the scan per token: scores of each group and their product with the
        channels inside a chunk, half of them masked, and the states of chunks, made and read."""
        inside = self.chunk * (self.groups * self.state + self.inner)
        return inside + 4 * self.inner * self.state

    @property
    def divisors(self) -> dict[str, int]:
        """Return the counts that tensor parallelism divides."""
        return {"heads of Mamba": self.heads, "groups of Mamba": self.groups}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet:
    """A gated delta net (Yang et al. 2024, arXiv 2412.06464): linear attention that forgets.

    key_heads: of queries and keys. key: channels of one. value_heads: of values, a multiple of
    those. value: channels of one. kernel: tokens that the convolution before it sees. chunk: tokens
    that are multiplied at once. projections: products of transformers' before the convolution, two
    (Qwen3-Next) or four (Qwen3.5), which may have adapters; elsewhere they are one.
    """

    key_heads: int
    value_heads: int
    key: int = 128
    value: int = 128
    kernel: int = 4
    chunk: int = 64
    projections: int = FEW

    def __post_init__(self) -> None:
        check_fields(self, "key_heads", "value_heads", "key", "value", "kernel", "chunk")
        if self.projections not in PROJECTIONS:
            raise ValueError(f"projections must be one of {PROJECTIONS}, found {self.projections}")
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"key_heads must divide value_heads ({self.value_heads}), found {self.key_heads}"
            )

    @property
    def inner(self) -> int:
        """Return the channels of all values."""
        return self.value_heads * self.value

    @property
    def convolved(self) -> int:
        """Return the channels that the convolution sees: queries, keys and values."""
        return 2 * self.key_heads * self.key + self.inner

    @property
    def projected(self) -> int:
        """Return the columns of the first product: with a gate, and two numbers a head."""
        return self.convolved + self.inner + 2 * self.value_heads

    @property
    def small(self) -> int:
        """Return the divided parameters that are no product's: convolution, two numbers a head."""
        return self.convolved * self.kernel + 2 * self.value_heads

    @property
    def scan(self) -> int:
        """Return the FLOPs of the delta rule per token, every value head with keys of its own:
        products of keys with keys and with queries, the inverse of the former times keys and
        values, scores times values, all inside a chunk; and states, read twice and written."""
        keys = self.value_heads * self.key
        inside = self.chunk * (4 * keys + 2 * keys + 4 * self.inner)
        return inside // 2 + 6 * self.inner * self.key

    @property
    def divisors(self) -> dict[str, int]:
        """Return the counts that tensor parallelism divides."""
        return {
            "key heads of delta nets": self.key_heads,
            "value heads of delta nets": self.value_heads,
        }
