"""Attention to a window and to pooled keys, and the streams of hidden states around it, as one rank
holds them.

Names and tensors are those of `megatron.core` on the branch `dev` (August 2026):
`transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py` and `csa.py` with the
kernels of FlashMLA and cuDNN (`csa_utils/fused_sparse_attention.py`, `fused_compressor.py`), and
`transformer/hyper_connection.py` with `fusions/fused_mhc_kernels.py`. No release has them yet.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.job.attention import norm_module, product, product_input, with_kept
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.recompute import OF_ATTENTION, recomputes, recomputing_only
from ilp_planner.job.shard import shard_of, stream_width
from ilp_planner.specs.layer_kinds import CSA
from ilp_planner.specs.training import MIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.decoder_parts import CompressedAttention
    from ilp_planner.specs.training import TrainingJob

UP = "mla_up_proj"
NUMBER = 4  # bytes of a key's number
SINGLE = 4  # bytes of a number in fp32
AROUND = {"mixer": "self_attention_hyper_connection", "inner": "mlp_hyper_connection"}


def sizes_of(job: TrainingJob) -> CompressedAttention:
    """Return the sizes of a model's compressed attention."""
    assert job.model.compressed is not None
    return job.model.compressed


# ---- attention -----------------------------------------------------------------------------------


def compressed_modules(job: TrainingJob, mixer: str) -> tuple[Module, ...]:
    """Return a layer's input norm and its attention. mixer: one of `COMPRESSED`."""
    job = recomputing_only(job, OF_ATTENTION)
    model, sizes, a = job.model, shard_of(job), sizes_of(job)
    leading, again = (sizes.tokens, sizes.batch), recomputes(job, UP)
    width, w, low = model.heads * model.head, sizes.width, a.groups * a.output_rank
    read = "read by the products that compress queries, make keys and pool them"
    norm = norm_module(
        "input_layernorm", job, sizes.narrow, why="one mixture of the streams", output=read
    )
    up = product("linear_q_up_proj", rows=width, columns=a.query_rank, bias=False)
    keys = norm_module("kv_layernorm", job, (*leading, model.head), why="keys, before their norm")
    if again:
        keys = replace(keys, kept=())
    else:
        up = with_kept(
            up,
            Kept(name="queries", shape=(*leading, width), width=w, why="before their norm"),
            Kept(name="deviations", shape=(*leading, model.heads), width=w, why="of each head"),
        )
    turned = "attention's output, turned back: a copy, as attention keeps its own"
    grouped = Module(
        name="linear_o_group_proj",
        weights=(Weight(name="weight", shape=(low, width // a.groups)),),
        kept=(Kept(name="input", shape=(*leading, width), width=w, why=turned),),
    )
    children = (
        product("linear_q_down_proj", rows=a.query_rank, columns=sizes.hidden, bias=False),
        norm_module(
            "q_layernorm",
            job,
            (*leading, a.query_rank),
            why="compressed, before its norm",
            output="read by the product" + " and by the indexer" * (mixer == CSA),
        ),
        up,
        product("linear_kv_proj", rows=model.head, columns=sizes.hidden, bias=False),
        keys,
        _core(job, mixer, again=again),
        grouped,
        with_kept(
            product("linear_proj", rows=sizes.hidden, columns=low, bias=False),
            product_input(job, (*leading, low), "output of the groups of heads", exact=True),
        ),
    )
    return norm, Module(name="self_attention", children=children)


def _core(job: TrainingJob, mixer: str, *, again: bool) -> Module:
    """Return attention to the window and to pooled keys. again: its operands are made again."""
    model, sizes, a = job.model, shard_of(job), sizes_of(job)
    leading, width, w = (sizes.tokens, sizes.batch), model.heads * model.head, sizes.width
    pooled = a.ratio(mixer) > 0
    chosen = a.window + a.chosen(mixer, model.sequence)
    kept = []
    if not again:
        kept.append(Kept(name="queries", shape=(*leading, width), width=w, why="normed, turned"))
    if pooled or not again:  # with pooled keys behind them they are a copy
        groups = model.sequence // a.ratio(mixer) if pooled else 0
        shape = (sizes.tokens + groups, sizes.batch, model.head)
        kept.append(Kept(name="keys", shape=shape, width=w, why="of tokens, and pooled ones"))
    kept += [
        Kept(name="chosen keys", shape=(*leading, chosen), width=NUMBER, why="their numbers"),
        Kept(name="output", shape=(*leading, width), width=w, why="of attention"),
        Kept(name="log-sum-exp", shape=(*leading, model.heads), width=SINGLE, why="of the scores"),
    ]
    children = (*_pooling(job, mixer, "compressor", model.head), *_indexer(job, mixer))
    sinks = (Weight(name="attn_sink", shape=(model.heads,)),)
    return Module(name="core_attention", weights=sinks, kept=tuple(kept), children=children)


def _pooling(job: TrainingJob, mixer: str, name: str, head: int) -> Iterator[Module]:
    """Yield what pools keys of so many channels, if a layer does: two products, whose outputs stay
    (`csa_compressor`), positions inside of a group, and a norm of each pooled key."""
    sizes, a = shard_of(job), sizes_of(job)
    columns, ratio = a.pooled(mixer, head), a.ratio(mixer)
    if not columns:
        return
    shape = (sizes.tokens, sizes.batch, columns)
    groups = (job.model.sequence // ratio, sizes.batch, head)
    products = tuple(
        with_kept(
            product(one, rows=columns, columns=sizes.hidden, bias=False),
            Kept(name="output", shape=shape, width=sizes.width, why=why),
        )
        for one, why in (("linear_wkv", "keys to pool"), ("linear_wgate", "their weights"))
    )
    places = Module(name="ape", weights=(Weight(name="weight", shape=(ratio, columns)),))
    norm = norm_module("norm", job, groups, why="pooled keys")
    yield Module(name=name, children=(*products, places, norm))


def _indexer(job: TrainingJob, mixer: str) -> Iterator[Module]:
    """Yield the indexer of a layer, if it has one: it keeps gradients that its loss has given it in
    the forward pass (`FusedCSAIndexerSparseAttnFunc`)."""
    model, sizes, a = job.model, shard_of(job), sizes_of(job)
    if mixer != CSA:
        return
    leading, w = (sizes.tokens, sizes.batch), sizes.width
    groups = (model.sequence // a.near, sizes.batch)
    why = "given by its loss"
    kept = tuple(
        Kept(name=f"gradient of {name}", shape=shape, width=w, why=why)
        for name, shape in (
            ("queries", (*leading, a.index_width)),
            ("keys", (*groups, a.index_head)),
            ("weights", (*leading, a.index_heads)),
        )
    )
    products = (
        product("linear_wq_b", rows=a.index_width, columns=a.query_rank, bias=False),
        product("linear_weights_proj", rows=a.index_heads, columns=model.hidden, bias=False),
    )
    pooling = tuple(_pooling(job, mixer, "compressor", a.index_head))
    yield Module(name="indexer", kept=kept, children=(*products, *pooling))


def compressed_backward(job: TrainingJob, mixer: str) -> float:
    """Return the peak of the backward pass of attention above kept activations: gradients of its
    output, turned and not, of queries before and after their norm, and of keys in fp32."""
    model, sizes, a = job.model, shard_of(job), sizes_of(job)
    rows, w = sizes.tokens * sizes.batch, sizes.width
    wide, low = (float(rows * n * w) for n in (model.heads * model.head, a.groups * a.output_rank))
    ratio = a.ratio(mixer)
    groups = model.sequence // ratio if ratio else 0
    keys = float((sizes.tokens + groups) * sizes.batch * model.head * SINGLE)
    narrow = float(math.prod(sizes.narrow) * stream_width(job))
    grouped = narrow + low + wide
    return max(grouped, narrow + 2 * wide, narrow + 2 * wide + keys, narrow + 3 * wide)


def index_scores(job: TrainingJob) -> float:
    """Return the scores of pooled keys by an indexer, in fp32, which are there while the largest
    are found."""
    sizes, a = shard_of(job), sizes_of(job)
    return float(sizes.tokens * sizes.batch * (job.model.sequence // a.near) * SINGLE)


# ---- streams -------------------------------------------------------------------------------------


def streams_shape(job: TrainingJob) -> tuple[int, int, int]:
    """Return the shape of the hidden states between layers, all streams side by side."""
    tokens, batch, hidden = shard_of(job).narrow
    return tokens, batch, hidden * job.model.streams


def mixing_module(job: TrainingJob, block: str) -> tuple[Module, ...]:
    """Return what mixes the streams before a block and after it, if there are several. block: a key
    of `AROUND`.

    The product with all channels of a token, the mixture and the addition read the same streams;
    the addition reads the block's output as well. Numbers of a token that mix streams are few.
    Recomputed, a layer keeps the streams that it was given, and makes those after attention again.
    """
    n, sizes = job.model.streams, shard_of(job)
    if n == 1:
        return ()
    numbers, w = (n + 2) * n, stream_width(job)
    rows, whole = sizes.narrow[:2], streams_shape(job)
    weights = (
        Weight(name="mapping_proj.weight", shape=(numbers, whole[-1])),
        Weight(name="bias", shape=(numbers,)),
        Weight(name="alpha", shape=(3,)),
    )
    streams = Kept(name="streams", shape=whole, width=w, why="mixed before and after the block")
    again = block == "inner" and recomputes(job, MIXTURES)
    kept = (
        *(streams,) * (not again),
        Kept(name="output", shape=sizes.narrow, width=w, why="of the block"),
        Kept(name="mixing", shape=(*rows, 2 * numbers + n * n), width=SINGLE, why="in fp32"),
        Kept(name="mixing, rounded", shape=(*rows, numbers), width=w, why="factors of streams"),
    )
    return (Module(name=AROUND[block], weights=weights, kept=kept),)


def merging_module(job: TrainingJob) -> tuple[Module, ...]:
    """Return what mixes the streams to one before the last norm, if there are several."""
    n = job.model.streams
    if n == 1:
        return ()
    whole = streams_shape(job)
    weights = (
        Weight(name="hc_head_fn", shape=(n, whole[-1])),
        Weight(name="hc_head_base", shape=(n,)),
        Weight(name="hc_head_scale", shape=(1,)),
    )
    why = "the last layer's output"
    kept = Kept(name="streams", shape=whole, width=stream_width(job), why=why)
    return (Module(name="hc_head", weights=weights, kept=(kept,)),)


def more_streams(job: TrainingJob) -> float:
    """Return the bytes of all streams but one: of the hidden states between layers, or of their
    gradient."""
    return float(math.prod(shard_of(job).narrow) * stream_width(job) * (job.model.streams - 1))
