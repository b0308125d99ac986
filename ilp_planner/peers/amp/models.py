"""The models of AMP's experiments, as its cost model and its programs have them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import ENTRIES, LAYERS
from ilp_planner.specs.toml_reader import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats


class Group(NamedTuple):
    """Blocks of TransGAN's generator of one size.

    narrower: divisor of the model's width. behind: layers before the first block that are no
    blocks, as AMP's program counts them.
    """

    name: str
    narrower: int
    behind: int


GROUPS = (
    Group("block", 1, 3),
    Group("second", 1, 7),
    Group("third", 1, 9),
    Group("quarter", 4, 15),
    Group("sixteenth", 16, 22),
    Group("small", 64, 29),
)
OTHERS = 32  # layers of the generator that are no blocks
LATENT = 512  # numbers that an image is made from, in AMP's trials
HEADS = 4  # of TransGAN's attention: its program's own default, whatever the file says of heads
WHOLE = 3  # groups whose attention is over the whole image; then over windows, of the second's side
TENSOR_BYTES = 2  # fp16 activations


class GptShape(NamedTuple):
    """Dimensions that a GPT's activations follow from."""

    hidden: int
    heads: int
    sequence: int


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpMemory:
    """Memory and messages of layers; AMP has no model of these; float64 [L].

    parameters: numbers that tensor-parallel ranks divide. repeated: numbers that each of them has.
    divided: bytes per sample kept for the backward pass and divided among ranks. kept: likewise,
    that each of them keeps. sent: bytes per sample that leave a layer.
    """

    parameters: Floats
    repeated: Floats
    divided: Floats
    kept: Floats
    sent: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpModel:
    """A model in AMP's cost model, with L layers that can be cut between.

    layers: names. sent: float64 [L], numbers per sample that leave a layer. split: bool [L], each
        tensor-parallel rank sends its share only, not all of them.
    parameters: float64 [L]. tied: bool [L], layers that share one table of tied_parameters, which a
        stage with any of them reduces once.
    rows: of the profile, for each layer. shape: None if the model is no GPT. memory: None where
        nobody said what the layers hold.
    """

    name: str
    layers: tuple[str, ...]
    sent: Floats
    split: NDArray[np.bool_]
    parameters: Floats
    tied: NDArray[np.bool_]
    tied_parameters: float
    rows: tuple[int, ...]
    profiled: int
    shape: GptShape | None = None
    memory: AmpMemory | None = None


def read_model(root: Table, name: str) -> AmpModel:
    """Return a model of a file: a TransGAN if it has a `depth`, else a GPT.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    table = child(root, name)
    return _transgan(root, table, name) if "depth" in table.values else _gpt(table, name)


def _gpt(table: Table, name: str) -> AmpModel:
    """Return the pipeline of Megatron's GPT under DeepSpeed: embedding, transposition, blocks,
    transposition, final norm, logits, conversion to fp32."""
    blocks, hidden, heads, sequence, vocabulary = (
        dimension(table, key) for key in ("layers", "hidden", "heads", "seq", "vocab_padded")
    )
    names = ("embed", "transpose", *(f"block{i}" for i in range(blocks)))
    layers = (*names, "transpose", "norm", "logits", "to_fp32")
    count = len(layers)
    logits = np.arange(count) >= count - 2
    is_block = np.array([layer.startswith("block") for layer in layers])
    sent = sequence * np.where(logits, float(vocabulary), float(hidden))
    parameters = np.where(is_block, 12.0 * hidden**2, 0.0)
    tied, shape = np.isin(layers, ("embed", "logits")), GptShape(hidden, heads, sequence)
    table_size = float(hidden * vocabulary)
    return AmpModel(
        name=name,
        layers=layers,
        sent=sent,
        split=logits,
        parameters=parameters,
        tied=tied,
        tied_parameters=table_size,
        rows=tuple(range(count)),
        profiled=count,
        shape=shape,
        memory=_gpt_memory(shape, is_block, logits, sent, parameters + table_size * tied),
    )


def _gpt_memory(
    shape: GptShape,
    is_block: NDArray[np.bool_],
    logits: NDArray[np.bool_],
    sent: Floats,
    parameters: Floats,
) -> AmpMemory:
    """Return the memory of the layers of a GPT, without recomputation.

    A block keeps s h (10 + 24 / tp + 5 a s / (h tp)) bytes per sample (Korthikanti et al. 2022,
    table 2), the logits themselves and their fp32 copy, any other layer its input.
    """
    hidden, heads, sequence = shape
    width = float(sequence * hidden)
    inside = width * (24 + 5 * heads * sequence / hidden)
    return AmpMemory(
        parameters=parameters,
        repeated=np.zeros(len(sent)),
        divided=np.where(logits, 2 * TENSOR_BYTES * sent, np.where(is_block, inside, 0.0)),
        kept=np.where(logits, 0.0, np.where(is_block, 10 * width, TENSOR_BYTES * width)),
        sent=TENSOR_BYTES * sent,
    )


def _transgan(root: Table, table: Table, name: str) -> AmpModel:
    """Return the blocks of TransGAN's generator that AMP cuts between.

    Six groups of blocks; the image has twice the side from one to the next, and the width falls
    from the fourth on. AMP charges every cut with the output of the first group. Blocks are placed
    in the profile as in AMP's program, unless the file has a list of its own
    (`NAME_units.dp_units_to_ds_layer`).
    """
    depth = table.values.get("depth")
    if not isinstance(depth, list) or len(depth) != len(GROUPS) or not all(map(_is_count, depth)):
        raise table.error(
            f"depth must be a list of {len(GROUPS)} numbers of blocks, found {depth!r:.60}"
        )
    width, bottom = dimension(table, "gf_dim"), dimension(table, "bottom_width")
    if sum(depth) > LAYERS:
        raise table.error(f"depth must add up to at most {LAYERS} blocks, found {depth!r:.60}")
    listed = f"{name}_units" in root.values
    rows = _units(root, name, 1 + sum(depth)) if listed else _placed(depth)
    groups = [group for group, count in zip(GROUPS, depth, strict=True) for _ in range(count)]
    numbers = [number for count in depth for number in range(count)]
    widths = np.array([0.0, *(width / group.narrower for group in groups)])
    names = (f"{group.name}{i}" for group, i in zip(groups, numbers, strict=True))
    return AmpModel(
        name=name,
        layers=("first", *names),
        sent=np.full(len(rows), float(width * bottom**2)),
        split=np.zeros(len(rows), bool),
        parameters=12.0 * widths**2,
        tied=np.zeros(len(rows), bool),
        tied_parameters=0.0,
        rows=rows,
        profiled=0 if listed else OTHERS + sum(depth),
        memory=_transgan_memory(depth, width, bottom),
    )


def _transgan_memory(depth: Sequence[int], width: int, bottom: int) -> AmpMemory:
    """Return the memory of the layers of a TransGAN, counted in AMP's program, without
    recomputation.

    A block of T tokens and width w keeps, in fp16 and for each token, its input, that of both norms
    and of the products behind them (8 w bytes); queries, keys, values and the output of attention
    (8 w), and the wide part of the feed-forward layer four times, as its activation is written out
    (32 w), divided among tensor-parallel ranks; and for each head the shares of all tokens of its
    window, undivided: every rank has all heads, narrower ones. The first layer is one product, and
    each group adds a table of positions to its input, whole on every rank.
    """
    groups = np.repeat(np.arange(len(GROUPS)), depth)
    sides = bottom * 2.0 ** np.arange(len(GROUPS))
    tokens, seen = sides**2, np.append(sides[:WHOLE], [sides[1]] * (len(GROUPS) - WHOLE)) ** 2
    widths = width / np.array([group.narrower for group in GROUPS])
    each = tokens * (8 * widths + TENSOR_BYTES * HEADS * seen)
    repeated = np.zeros(1 + len(groups))
    repeated[0] = (LATENT + 1) * tokens[0] * width
    follows = 1 + np.searchsorted(groups, np.arange(len(GROUPS)))  # a group's table stands before
    np.add.at(repeated, np.minimum(follows, len(groups)), tokens * widths)
    return AmpMemory(
        parameters=np.append(0.0, 12 * widths[groups] ** 2),
        repeated=repeated,
        divided=np.append(0.0, (40 * tokens * widths)[groups]),
        kept=np.append(TENSOR_BYTES * LATENT, each[groups]),
        sent=np.append(TENSOR_BYTES * tokens[0] * width, (TENSOR_BYTES * tokens * widths)[groups]),
    )


def _placed(depth: Sequence[int]) -> tuple[int, ...]:
    """Return the places of the first layer and the blocks in AMP's program, by DeepSpeed's
    numbers."""
    before = itertools.accumulate(depth, initial=0)
    starts = [group.behind + blocks for group, blocks in zip(GROUPS, before, strict=False)]
    spans = (range(start, start + count) for start, count in zip(starts, depth, strict=True))
    return (0, *itertools.chain.from_iterable(spans))


def _units(root: Table, name: str, wanted: int) -> tuple[int, ...]:
    """Return a file's places of the first layer and the blocks."""
    rows = child(root, f"{name}_units").values.get("dp_units_to_ds_layer")
    place = f"{root.file}: {name}_units: dp_units_to_ds_layer"
    if not isinstance(rows, list) or len(rows) != wanted:
        found = f"{len(rows)}" if isinstance(rows, list) else repr(rows)
        raise SpecError(
            f"{place} must list {wanted} layers (the first one and the blocks), found {found}"
        )
    if not all(map(_is_count, rows)) or rows != sorted(set(rows)):
        raise SpecError(f"{place} must be ascending layer numbers, found {rows!r:.60}")
    return tuple(rows)


def dimension(table: Table, key: str) -> int:
    """Return a whole number of at least 1 that no model exceeds."""
    value = table.whole(key)
    if value > ENTRIES:
        raise table.error(f"{key} must be at most {ENTRIES}, found {value!r:.60}")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ENTRIES


def child(table: Table, key: str) -> Table:
    """Return the object under a key."""
    where = f"{table.where}.{key}" if table.where else key
    value = table.values.get(key)
    if not isinstance(value, dict):
        found = "nothing" if key not in table.values else f"{value!r:.60}"
        raise table.error(f"{key} must be an object, found {found}")
    return Table(value, file=table.file, where=where)
