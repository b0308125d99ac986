"""Kinds of layers: a mixer of tokens, an MLP or experts, or one of each after the other.

A kind is its number in `LAYER_KINDS`. The first two are those of a plain transformer, so that
`layer_kinds` of one without a pattern are its flags `expert_layers`.
"""

from functools import lru_cache
from typing import NamedTuple

ATTENTION, MAMBA, DELTA = "attention", "mamba", "delta"
COMPRESSED = WINDOWED, CSA, HCA = "windowed", "csa", "hca"  # of `CompressedAttention`
MLP, EXPERTS = "mlp", "experts"
# Letters of Megatron's hybrid patterns (`hybrid_layer_allocation.py` of `megatron.core`).
MIXERS = {"*": ATTENTION, "M": MAMBA, "G": DELTA, "W": WINDOWED, "C": CSA, "H": HCA}
INNERS = {"-": MLP, "E": EXPERTS}
FOLLOWS = "F"  # attention to the keys that a layer before it chose; no pattern says it


class LayerKind(NamedTuple):
    """A kind of layer.

    name: of its part of memory (`job.parts`). letters: in a pattern. operator: in the names of the
    chain. mixer, inner: what it has of `MIXERS` and `INNERS`; empty: none.
    """

    name: str
    letters: str
    operator: str
    mixer: str = ""
    inner: str = ""

    @property
    def follows(self) -> bool:
        """Tell whether its attention sees the keys that a layer before it chose."""
        return self.letters.startswith(FOLLOWS)

    @property
    def attends(self) -> bool:
        """Tell whether its mixer has scores of tokens."""
        return self.mixer == ATTENTION or self.mixer in COMPRESSED

    @property
    def blocks(self) -> int:
        """Return how many blocks it has, each with a norm before it and an addition after it."""
        return bool(self.mixer) + bool(self.inner)


def _kind(name: str, letters: str, operator: str) -> LayerKind:
    seen = letters.replace(FOLLOWS, "*")
    found = (table[one] for table in (MIXERS, INNERS) for one in seen if one in table)
    blocks = {"mixer" if one in MIXERS.values() else "inner": one for one in found}
    return LayerKind(name, letters, operator, **blocks)


LAYER_KINDS: tuple[LayerKind, ...] = (
    _kind("layer", "*-", "mlp"),
    _kind("expert layer", "*E", "experts"),
    _kind("attention", "*", "attention"),
    _kind("MLP", "-", "mlp-alone"),
    _kind("experts", "E", "experts-alone"),
    _kind("Mamba", "M", "mamba"),
    _kind("delta net", "G", "delta"),
    _kind("delta layer", "G-", "delta-mlp"),
    _kind("delta expert layer", "GE", "delta-experts"),
    _kind("following layer", "F-", "follow-mlp"),
    _kind("following expert layer", "FE", "follow-experts"),
    _kind("windowed expert layer", "WE", "window-experts"),
    _kind("CSA expert layer", "CE", "csa-experts"),
    _kind("HCA expert layer", "HE", "hca-experts"),
)
PLAIN = 2  # of them are a plain transformer's
DENSE, ROUTED = range(PLAIN)
BY_LETTERS = {kind.letters: n for n, kind in enumerate(LAYER_KINDS) if not kind.follows}
# Kind of a plain transformer's layer -> that of one with keys that a layer before it chose.
FOLLOWING = tuple(
    next(n for n, kind in enumerate(LAYER_KINDS) if kind.follows and kind.inner == plain.inner)
    for plain in LAYER_KINDS[:PLAIN]
)
BY_NAME = {kind.name: number for number, kind in enumerate(LAYER_KINDS)}
EXPECTED = "layers of " + ", ".join(map(repr, BY_LETTERS))


@lru_cache(maxsize=256)
def read_pattern(pattern: str) -> tuple[int, ...]:
    """Return the kinds of the layers of a pattern: words are layers, or, of a single word, letters.

    Raises
    ------
    ValueError: a layer is of no kind.
    """
    words = pattern.split()
    found = []
    for number, letters in enumerate(words if len(words) > 1 else "".join(words), 1):
        if letters not in BY_LETTERS:
            raise ValueError(f"pattern must have {EXPECTED}, found {letters!r} as layer {number}")
        found.append(BY_LETTERS[letters])
    return tuple(found)


def write_pattern(kinds: tuple[int, ...]) -> str:
    """Return the pattern of layers."""
    letters = [LAYER_KINDS[kind].letters for kind in kinds]
    return (" " if any(len(one) > 1 for one in letters) else "").join(letters)
