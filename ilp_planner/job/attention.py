"""Norms, matrix products, and self-attention: multi-head, grouped-query, multi-head latent, and
latent attention to keys that an indexer chooses."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.quantised import keeps_input_twice, kept_width
from ilp_planner.job.recompute import (
    OF_ATTENTION,
    forget,
    keep_input,
    recomputes,
    recomputing_only,
)
from ilp_planner.job.shard import eager, part, shard_of
from ilp_planner.specs.training import TrainingJob

# ---- norms and matrix products -------------------------------------------------------------------
# Their weights, and their kept activations.


NORMED = "normed"  # what is kept for the gradient of a norm's weight
STATISTIC = 4  # bytes: means and inverse deviations are kept in fp32 whatever the precision


def norm_weights(job: TrainingJob, width: int, prefix: str = "") -> tuple[Weight, ...]:
    """Return scale and, for LayerNorm, shift; nothing for a norm that learns nothing."""
    names = ("weight", "bias")[: job.model.norm_vectors]
    return tuple(Weight(name=f"{prefix}{name}", shape=(width,)) for name in names)


def norm_kept(job: TrainingJob, shape: tuple[int, ...], why: str) -> tuple[Kept, ...]:
    """Return the kept activations of a norm over the last dimension: its input and statistics per
    row.

    The norm's output is kept by the products that read it, not by the norm. One of transformers
    keeps a copy of its input in fp32, and for the gradient of its weight the normed copy
    (`LlamaRMSNorm`).
    """
    if eager(job):
        copy = Kept(name="input", shape=shape, width=STATISTIC, why=f"{why}; a copy in fp32")
        rows = Kept(name="statistics", shape=shape[:-1], width=STATISTIC, why="of each row, fp32")
        why = "before it is weighed"
        return copy, rows, Kept(name=NORMED, shape=shape, width=job.settings.width, why=why)
    numbers = 1 if job.model.norm == "rmsnorm" else 2
    statistics = Kept(
        name="statistics", shape=(numbers, *shape[:-1]), width=STATISTIC, why="of each row, fp32"
    )
    return Kept(name="input", shape=shape, width=job.settings.width, why=why), statistics


def norm_module(
    name: str, job: TrainingJob, shape: tuple[int, ...], *, why: str, output: str = ""
) -> Module:
    """Return a norm of its own, not merged into the product that follows.

    output: why its output is kept, when the products that read it leave that to us.
    """
    kept = norm_kept(job, shape, why)
    if output:
        kept += (Kept(name="output", shape=shape, width=job.settings.width, why=output),)
    return Module(name=name, weights=norm_weights(job, shape[-1]), kept=kept)


def product(name: str, *, rows: int, columns: int, bias: bool, expert: bool = False) -> Module:
    """Return a product y = x W^T + b with the weights as Megatron lays them out."""
    weights = [Weight(name="weight", shape=(rows, columns), expert=expert)]
    if bias:
        weights.append(Weight(name="bias", shape=(rows,), expert=expert))
    return Module(name=name, weights=tuple(weights))


def with_kept(module: Module, *kept: Kept) -> Module:
    """Return the module keeping these as well."""
    return replace(module, kept=(*module.kept, *kept))


def product_input(
    job: TrainingJob, shape: tuple[int, ...], why: str = "", *, exact: bool = False
) -> Kept:
    """Return a product's input, kept for the gradient of its weight.

    exact: in the training precision, for any precision of products.
    """
    width = job.settings.width if exact else kept_width(job)
    return Kept(name="input", shape=shape, width=width, why=why or "for the weight's gradient")


def merges_norm(job: TrainingJob) -> bool:
    """Return whether the norm before a column-parallel product is merged into it.

    Transformer Engine's LayerNormLinear. It keeps the norm's input and its output all the same.
    """
    return job.settings.kernels.implementation == "transformer_engine"


def normed_product(
    job: TrainingJob, module: Module, shape: tuple[int, ...], *, norm: str, why: str
) -> tuple[Module, ...]:
    """Return a norm and the product that alone reads its output, as one or two modules; the product
    alone if nothing is normed before it.

    shape: of the norm's input on this rank. norm: its name if it stands alone.
    """
    read = product_input(job, shard_of(job).column_input(shape[-1]))
    if not job.model.norms_of_layer[0]:
        return (with_kept(module, replace(read, why=why)),)
    if merges_norm(job):
        inner = norm_kept(job, shape, why)
        weights = norm_weights(job, shape[-1], "layer_norm_")
        normed = replace(read, name="norm's output")
        return (
            Module(name=module.name, weights=(*weights, *module.weights), kept=(*inner, normed)),
        )
    return norm_module(norm, job, shape, why=why), with_kept(module, read)


# ---- self-attention ------------------------------------------------------------------------------


MASK = 1  # bytes of an element of a dropout mask
LOW = 1  # bytes of a number that attention in 8 bits reads
LONGEST_FUSED = 4096  # tokens, of core's fused softmax (`is_kernel_available`)
CORE, UP = "core_attn", "mla_up_proj"  # parts that selective recomputation may cover


def attention_modules(job: TrainingJob) -> tuple[Module, ...]:
    """Return a layer's input norm, unless a product has it in it, and its self-attention: the same
    whatever is recomputed of the rest of the layer."""
    return _attention_modules(recomputing_only(job, OF_ATTENTION))


@lru_cache(maxsize=64)
def _attention_modules(job: TrainingJob) -> tuple[Module, ...]:
    if job.model.sparse is not None:
        return _sparse(job)
    if job.model.latent is not None:
        return _latent(job)
    return _grouped(job)


def _grouped(job: TrainingJob) -> tuple[Module, ...]:
    """Return multi-head or grouped-query attention."""
    model, sizes = job.model, shard_of(job)
    q, kv = model.heads * model.head, model.kv_heads * model.head
    leading = (sizes.tokens, sizes.batch)
    query = (*leading, sizes.heads * model.head)
    key = (*leading, sizes.kv_heads * model.head)
    *before, qkv = normed_product(
        job,
        product(
            "linear_qkv",
            rows=part(q * (1 + model.attention_gate) + 2 * kv, job.tp),
            columns=sizes.hidden,
            bias=model.bias or model.qkv_bias,
        ),
        sizes.narrow,
        norm="input_layernorm",
        why="the layer's input; the residual as well",
    )
    strided = reads_strided(job)
    if strided:
        width = query[-1] + 2 * key[-1]
        why = "the product's output, which attention reads in place"
        qkv = with_kept(
            qkv,
            Kept(name="queries, keys, values", shape=(*leading, width), width=sizes.width, why=why),
        )
    elif same_strides(job) and job.settings.passes_on:
        # Queries stay where the product put them, all of its output with them; keys and values go
        # around in a buffer of their own (Transformer Engine's `AttnFuncWithCPAndKVP2P`).
        query = (*leading, query[-1] + 2 * key[-1])
    norms = _head_norms(job, leading) if model.qk_norm else ()
    # Unfused attention repeats keys and values for every query head.
    seen = query if job.settings.kernels.attention == "unfused" else key
    core = _core(job, shapes=(query, seen, seen), copied=not strided, output=query)
    if model.attention_gate:  # times its sigmoid, in a step of its own
        own = (*leading, sizes.heads * model.head)
        names = {"gate": "of attention's output", "gated": "attention's output"}
        gate = (Kept(name=n, shape=own, width=sizes.width, why=w) for n, w in names.items())
        core = with_kept(core, *gate)
    inner = Module(
        name="self_attention", children=(qkv, *norms, core, _projection(job, part(q, job.tp)))
    )
    return (*before, inner)


def uses_package(job: TrainingJob) -> bool:
    """Tell whether attention is asked of the flash-attention package, in the installed version."""
    return job.settings.kernels.flash_package


def reads_strided(job: TrainingJob) -> bool:
    """Return whether attention reads queries, keys and values in place from the product's output.

    Possible if all three lie there in the same strides. Rotated or normed, queries and keys are
    tensors of their own, and Transformer Engine then copies the values to the same layout
    (`get_qkv_layout`); so does context parallelism on its way to other ranks; and the legacy model
    copies all three to the layout of the flash-attention package.
    """
    return same_strides(job) and job.settings.cp == 1 and not legacy(job)


def same_strides(job: TrainingJob) -> bool:
    """Return whether queries, keys and values lie in the product's output alike, unchanged;
    attention in 8 bits reads copies."""
    model = job.model
    plain = model.kv_heads == model.heads and not model.attention_gate
    plain &= not job.settings.kernels.fp8_attention
    return plain and not (model.positions == "rope" or model.qk_norm)


def legacy(job: TrainingJob) -> bool:
    """Return whether the model is Megatron's own of 2023, before Megatron core.

    It alone has flash attention without Transformer Engine: core's local attention is unfused.
    """
    kernels = job.settings.kernels
    return kernels.implementation == "local" and kernels.attention == "flash"


def _head_norms(job: TrainingJob, leading: tuple[int, int]) -> tuple[Module, ...]:
    """Return the norms of queries and keys, one head at a time or all of them at once."""
    model, sizes = job.model, shard_of(job)
    why = "the slice of the product's output, copied"
    found = []
    for letter, heads in (("q", sizes.heads), ("k", sizes.kv_heads)):
        shape = (heads * model.head,) if model.qk_norm_of == "heads" else (heads, model.head)
        module = norm_module(f"{letter}_layernorm", job, (*leading, *shape), why=why)
        found.append(replace(module, weights=()) if model.qk_norm_of == "l2" else module)
    return tuple(found)


def _core(
    job: TrainingJob, *, shapes: tuple[tuple[int, ...], ...], copied: bool, output: tuple[int, ...]
) -> Module:
    """Return the product of scores and values. shapes: of queries, keys and values here. copied:
    they are tensors of their own."""
    model, kernels, sizes = job.model, job.settings.kernels, shard_of(job)
    w, low = sizes.width, kernels.fp8_attention
    why = "rotated, or copied to the layout of attention" if not low else "in 8 bits, for attention"
    kept = [
        Kept(name=name, shape=shape, width=LOW if low else w, why=why)
        for name, shape in zip(("queries", "keys", "values"), shapes, strict=True)
        if copied and (low or not recomputes(job, UP))
    ]
    sinks = (Weight(name="softmax_offset", shape=(sizes.heads,)),) * model.sinks
    if recomputes(job, CORE):
        return Module(name="core_attention", weights=sinks, kept=tuple(kept))
    if kernels.attention == "flash":
        rows = (sizes.batch, sizes.heads, sizes.tokens)
        kept.append(Kept(name="log-sum-exp", shape=rows, width=STATISTIC, why="of the scores"))
        if _relays(job):
            why = "in the layout of attention; the projection reads another"
            kept.append(Kept(name="output", shape=output, width=output_width(job), why=why))
        return Module(name="core_attention", weights=sinks, kept=tuple(kept))
    scores = (sizes.batch, sizes.heads, sizes.tokens, model.sequence)
    exact = STATISTIC if local_softmax(job) else w
    kept.append(Kept(name="softmax", shape=scores, width=exact, why="output of the softmax"))
    if model.dropout:
        kept += [
            Kept(name="dropout mask", shape=scores, width=MASK, why="of attention dropout"),
            Kept(name="dropped softmax", shape=scores, width=w, why="factor of the values"),
        ]
    return Module(name="core_attention", weights=sinks, kept=tuple(kept))


def output_width(job: TrainingJob) -> int:
    """Return bytes of a number of attention's output that its backward pass reads: in 8 bits under
    delayed scaling alone (Transformer Engine, `backends.py: FusedAttnFunc`)."""
    kernels = job.settings.kernels
    low = kernels.fp8_attention and kernels.quantised == "fp8-delayed"
    return LOW if low else shard_of(job).width


def local_softmax(job: TrainingJob) -> bool:
    """Return whether PyTorch computes the softmax of local attention, in fp32.

    `fused_softmax.py`: where the fused kernel is turned off, or the sequence is too long for it.
    """
    kernels = job.settings.kernels
    if kernels.implementation != "local" or kernels.attention == "flash":
        return False
    return not kernels.fused_softmax or job.model.sequence > LONGEST_FUSED


def _relays(job: TrainingJob) -> bool:
    """Return whether attention's output is copied before the projection reads it.

    Context parallelism sends it back or puts it together, except around a ring, if it is added up
    in place. The flash-attention package gives samples first, and the projection needs tokens
    first; with one sample that is the same memory.
    """
    settings, model = job.settings, job.model
    if settings.cp > 1:
        return not settings.passes_on
    # The package has no kernel for values that are narrower than the keys. Samples come first in
    # all of torchtitan.
    package = settings.kernels.flash_package and model.latent is None
    package &= not settings.keeps_gathered
    return (package or legacy(job)) and job.micro_batch > 1


def _projection(job: TrainingJob, columns: int) -> Module:
    sizes = shard_of(job)
    bias = job.model.bias or job.model.projection_bias
    module = product("linear_proj", rows=sizes.hidden, columns=columns, bias=bias)
    shape = (sizes.tokens, sizes.batch, columns)
    if not keeps_input_twice(job):
        return with_kept(module, product_input(job, shape, "output of core attention", exact=True))
    low = product_input(job, shape, "output of core attention, quantised")
    if job.settings.kernels.attention == "unfused" or recomputes(job, CORE):
        return with_kept(module, low)
    why = "fused attention reads its output on the way back"
    return with_kept(
        module, low, Kept(name="output", shape=shape, width=output_width(job), why=why)
    )


def _latent(job: TrainingJob) -> tuple[Module, ...]:
    """Return latent attention: each rank compresses all, then widens to its own heads.

    Megatron's `multi_latent_attention.py`; the norm stands alone because two products read it.
    """
    model, sizes = job.model, shard_of(job)
    a = model.latent
    assert a is not None
    leading = (sizes.tokens, sizes.batch)
    keys = model.heads * (a.key + a.rotary)
    # Transformer Engine's products to the compressed widths are whole on each rank, Megatron's own
    # are split and their outputs gathered.
    ways = job.tp if job.settings.kernels.implementation == "local" else 1
    norm = norm_module(
        "input_layernorm",
        job,
        sizes.narrow,
        why="the layer's input; the residual as well",
        output="read by the products that compress queries, keys and values",
    )
    children: list[Module] = []
    if a.query_rank:
        rows = part(a.query_rank, ways)
        down = product("linear_q_down_proj", rows=rows, columns=sizes.hidden, bias=False)
        children += [down, *_widen(job, "q", part(keys, job.tp), a.query_rank)]
    else:
        children.append(
            product("linear_q_proj", rows=part(keys, job.tp), columns=sizes.hidden, bias=False)
        )
    rank = a.key_value_rank
    rows = part(rank + a.rotary, ways)
    children += [
        product("linear_kv_down_proj", rows=rows, columns=sizes.hidden, bias=False),
        *_widen(job, "kv", part(model.heads * (a.key + a.value), job.tp), rank),
    ]
    query = (*leading, sizes.heads * (a.key + a.rotary))
    value = (*leading, sizes.heads * a.value)
    core = _core(job, shapes=(query, query, value), copied=True, output=value)
    projection = _projection(job, part(model.value_width, job.tp))
    return norm, Module(name="self_attention", children=(*children, core, projection))


def _widen(job: TrainingJob, letter: str, rows: int, columns: int) -> tuple[Module, ...]:
    """Return the product from a compressed width to heads, with its norm when it has one."""
    sizes = shard_of(job)
    shape = (sizes.region, sizes.batch, columns)
    up = product(f"linear_{letter}_up_proj", rows=rows, columns=columns, bias=False)
    if not job.model.qk_norm:
        return (with_kept(up, product_input(job, shape)),)
    why = "compressed, before its norm"
    first, *others = normed_product(job, up, shape, norm=f"{letter}_layernorm", why=why)
    if recomputes(job, UP):
        return keep_input(first), *map(forget, others)
    return first, *others


# ---- sparse attention ----------------------------------------------------------------------------
# `megatron.core` 0.19.0, `transformer/experimental_attention_variant`: `absorbed_mla.py`, `dsa.py`,
# and the kernels of TileLang (`ops/`). Queries go through the keys' half of the product that widens
# keys and values, and attention's output through the values' half; so all heads share one
# compressed key, which is its own value. The indexer's products are whole on every rank.

LEAST_HEADS = 16  # of a rank that the kernels compute (`fused_sparse_mla_absorbed`)
INDEX, ORDER = 4, 8  # bytes of a chosen key's number, and of its place before it was sorted


def chosen_keys(job: TrainingJob) -> int:
    """Return the keys that the kernels look up for a token, seen ones or none."""
    assert job.model.sparse is not None
    return min(job.model.sparse.top_k, job.model.sequence)


def kernel_heads(job: TrainingJob) -> int:
    """Return the heads that a rank's kernels compute, empty ones among them."""
    return max(LEAST_HEADS, shard_of(job).heads)


def _sparse(job: TrainingJob) -> tuple[Module, ...]:
    """Return latent attention to chosen keys, with its input norm."""
    model, sizes = job.model, shard_of(job)
    a, w = model.latent, sizes.width
    assert a is not None
    leading, again = (sizes.tokens, sizes.batch), recomputes(job, UP)
    queries = part(model.heads * (a.key + a.rotary), job.tp)
    compressed = (sizes.region, sizes.batch, a.query_rank)
    kept = "read by the product and by the indexer"
    norm = norm_module(
        "input_layernorm",
        job,
        sizes.narrow,
        why="the layer's input; the residual as well",
        output="read by the products that compress queries, keys and values, and by the indexer",
    )
    why = "compressed, before its norm"
    narrow = (sizes.region, sizes.batch, a.key_value_rank)
    up = product(
        "linear_kv_up_proj",
        rows=part(model.heads * (a.key + a.value), job.tp),
        columns=a.key_value_rank,
        bias=False,
    )
    inputs = [("input", queries, "queries, before the keys' half")]
    if again:
        inputs = [("input", a.key_value_rank, "gathered"), ("rotary keys", a.rotary, "gathered")]
    up = with_kept(
        up, *(Kept(name=n, shape=(*leading, c), width=w, why=why) for n, c, why in inputs)
    )
    children = (
        product("linear_q_down_proj", rows=a.query_rank, columns=sizes.hidden, bias=False),
        norm_module("q_layernorm", job, compressed, why=why, output=kept),
        product("linear_q_up_proj", rows=queries, columns=a.query_rank, bias=False),
        product(
            "linear_kv_down_proj",
            rows=a.key_value_rank + a.rotary,
            columns=sizes.hidden,
            bias=False,
        ),
        norm_module("kv_layernorm", job, narrow, why=why),
        up,
        _sparse_core(job),
        _projection(job, part(model.value_width, job.tp)),
    )
    return norm, Module(name="self_attention", children=children)


def _sparse_core(job: TrainingJob) -> Module:
    """Return the indexer, and attention to the keys that it chose (`SparseMLA`).

    Its operands are copies where samples have to come first, heads to be filled up, or keys to be
    gathered. Those stay where the originals are made again, and replace them where they are not.
    """
    sizes = shard_of(job)
    a, w, again = job.model.latent, sizes.width, recomputes(job, UP)
    assert a is not None
    heads, core = kernel_heads(job), recomputes(job, CORE)
    copied = not core and sizes.batch > 1
    filled = not core and (copied or heads > sizes.heads)
    gathered = not core and (copied or job.settings.cp > 1)
    leading, one = (sizes.tokens, sizes.batch), a.key_value_rank + a.rotary
    keys = job.model.sequence if gathered else sizes.tokens
    why = "compressed, with the rotated part"
    shape = (*leading, (heads if filled else sizes.heads) * one)
    kept = []
    if filled or not again:
        kept.append(Kept(name="queries", shape=shape, width=w, why=why))
    if gathered or not again:
        kept.append(Kept(name="keys", shape=(keys, sizes.batch, one), width=w, why=why))
    if core:
        return Module(name="core_attention", kept=tuple(kept), children=_indexer(job, ()))
    columns = heads * a.key_value_rank
    chooses = bool(job.model.sparse and job.model.sparse.heads)  # others see the same numbers
    for name, width, count, why in (
        ("chosen keys", INDEX, chosen_keys(job) * chooses, "their numbers"),
        ("heads with keys", MASK, heads, "a boolean each"),
        ("output", w, columns, "compressed, before the values' half"),
    ):
        kept += [Kept(name=name, shape=(*leading, count), width=width, why=why)] * (count > 0)
    indexer = _indexer(job, tuple(_index_kept(job)))
    return Module(name="core_attention", kept=tuple(kept), children=indexer)


def _indexer(job: TrainingJob, kept: tuple[Kept, ...]) -> tuple[Module, ...]:
    """Return the indexer with what it keeps, if the layer has one."""
    s, a, hidden = job.model.sparse, job.model.latent, job.model.hidden
    assert s is not None
    assert a is not None
    if not s.heads:
        return ()
    norm = tuple(Weight(name=name, shape=(s.head,)) for name in ("weight", "bias"))
    products = (
        product("linear_wq_b", rows=s.width, columns=a.query_rank, bias=False),
        product("linear_wk", rows=s.head, columns=hidden, bias=False),
        Module(name="k_norm", weights=norm),
        product("linear_weights_proj", rows=s.heads, columns=hidden, bias=False),
    )
    return (Module(name="indexer", kept=kept, children=products),)


def _index_kept(job: TrainingJob) -> Iterator[Kept]:
    """Yield what an indexer that learns keeps: inputs of its products and its scores, and of every
    chosen key the gradient, its number, whether it is one, and, where ranks share heads, its place
    (`fused_qk_topk_lighting_with_streaming_sparse_kl`)."""
    s, a, sizes = job.model.sparse, job.model.latent, shard_of(job)
    assert s is not None
    assert a is not None
    if not s.trained:
        return
    leading, chosen, w = (sizes.tokens, sizes.batch), chosen_keys(job), sizes.width
    if sizes.region < sizes.tokens:  # else they are the outputs of norms
        yield Kept(name="input", shape=sizes.wide, width=w, why="gathered")
        yield Kept(name="queries", shape=(*leading, a.query_rank), width=w, why="gathered")
    yield Kept(name="key", shape=(*leading, s.head), width=w, why="before its norm")
    rows = (2, *leading)
    yield Kept(name="statistics", shape=rows, width=STATISTIC, why="of each row, fp32")
    yield Kept(name="index queries", shape=(*leading, s.width), width=w, why="rotated")
    shape = (job.model.sequence, sizes.batch, s.head)
    yield Kept(name="index keys", shape=shape, width=w, why="rotated, of all ranks")
    yield Kept(name="weights", shape=(*leading, s.heads), width=STATISTIC, why="of heads, fp32")
    for name, width in (("gradients", STATISTIC), ("numbers", INDEX), ("mask", MASK)):
        yield Kept(name=name, shape=(*leading, chosen), width=width, why="of chosen keys")
    if job.tp > 1:
        why = "of chosen keys, before they were sorted"
        yield Kept(name="places", shape=(*leading, chosen), width=ORDER, why=why)
