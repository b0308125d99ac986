"""Messages of a rank's modules per micro-batch: tensor, context and expert parallelism.

Shapes are Megatron's, sequence first. Sources of the counts: Korthikanti et al. 2022 (arXiv
2205.05198, sections 4.2.1 and 4.2.2) for tensor and sequence parallelism, `megatron.core` 0.16.1
(tensor_parallel/layers.py, cross_entropy.py, transformer/moe/token_dispatcher.py,
multi_latent_attention.py, multi_token_prediction.py) and Transformer Engine 2 (context_parallel.py)
for the list of messages. Modules are named by their path, `self_attention.linear_qkv`.
"""

import math
from dataclasses import replace

from ilp_planner.job.attention import chosen_keys
from ilp_planner.job.encoder import (
    all_seen,
    encoder_job,
    encoder_kind,
    images_seen,
    recompute_of,
)
from ilp_planner.job.mixers import scan_of
from ilp_planner.job.modules import Message
from ilp_planner.job.operators import shares_again
from ilp_planner.job.shard import of_layer
from ilp_planner.specs.decoder import Decoder, DeltaNet, Experts
from ilp_planner.specs.decoder_parts import LatentAttention, SparseAttention
from ilp_planner.specs.images import AnyEncoder
from ilp_planner.specs.layer_kinds import ATTENTION, DELTA, EXPERTS, LAYER_KINDS, MLP
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import FORWARD_ONLY, TRAINED, trains_input, trains_projector

Pair = tuple[tuple[Message, ...], tuple[Message, ...]]  # forward, backward
Messages = dict[str, Pair]

LOSS_WIDTH = 4  # bytes: cross-entropy is computed in fp32
MASK_WIDTH, COUNT_WIDTH = 1, 8  # bytes: a token's routing to an expert, tokens per expert


def tokens_shape(job: TrainingJob, *width: int) -> tuple[int, ...]:
    """Return [tokens / cp, micro-batch, width]: the shape over all tensor-parallel ranks."""
    return (job.sample.tokens // job.settings.cp, job.micro_batch, *width)


def embedding_messages(job: TrainingJob) -> Pair:
    """Return the messages of the word embedding: each rank looks up its part of the vocabulary."""
    forward, backward = _embedding(job)
    return forward, backward if trains_input(job.model, job.settings.tuning) else ()


def encoder_messages(job: TrainingJob, encoder: AnyEncoder) -> tuple[Messages, Messages]:
    """Return the messages of a layer of an encoder, and of its projectors: they divide columns and
    rows over tensor-parallel ranks, without sequence parallelism."""
    seen, kind = images_seen(job, encoder), encoder_kind(job)
    own = encoder_job(job, encoder, seen)
    layer, learns = layer_messages(own, *kind), trains_projector(job.model, job.settings.tuning)
    ends: Messages = {}
    if encoder.cp_divided and job.settings.cp > 1:
        whole = (all_seen(job, encoder).tokens, job.model.hidden)
        gather, back = (
            _cp(job, collective, whole, times=1 + encoder.deepstack)
            for collective in ("all_gather", "all_reduce")
        )
        ends["images"] = (gather,), (back,) * (kind.state == TRAINED or learns)
    if own.tp == 1:
        return layer, ends
    if recompute_of(job, encoder).granularity == "full":
        layer = {name: (there, (*there, *back)) for name, (there, back) in layer.items()}
    rows, count = seen.tokens, 1 + encoder.deepstack
    out = replace(_tp(own, "all_reduce", (rows, job.model.hidden)), times=count)
    back = replace(_tp(own, "all_reduce", (rows, encoder.merged)), times=count)
    before = kind.state == TRAINED or (learns and encoder.projector_norm != "none")
    first = "projector_fc1" if encoder.inner else "projector_fc2"
    ends["projector_fc2"] = ((out,), ())
    ends[first] = (ends.get(first, ((), ()))[0], (back,) * before)
    return layer, ends


def _embedding(job: TrainingJob) -> Pair:
    if job.tp == 1:
        return (), ()
    whole = tokens_shape(job, job.model.hidden)
    if not job.settings.sequence_parallel:
        return (_tp(job, "all_reduce", whole),), ()
    # With learned positions the sum is taken first and then divided, as they are of all tokens.
    down = "all_reduce" if job.model.positions == "learned" else "reduce_scatter"
    return (_tp(job, down, whole),), (_tp(job, "all_gather", whole),)


def output_messages(job: TrainingJob) -> Messages:
    """Return the messages of the logits and the cross-entropy over a divided vocabulary."""
    if job.tp == 1:
        return {}
    row = tokens_shape(job)
    fused = bool(job.settings.kernels.loss)
    sums = (row[0], 2 * row[1]) if fused else row
    parts = 1 if fused else 2  # predicted logit, sum of exponentials
    loss = (
        Message(group="tp", collective="all_reduce", shape=row, width=LOSS_WIDTH),
        Message(group="tp", collective="all_reduce", shape=sums, width=LOSS_WIDTH, times=parts),
    )
    return {"output_layer": _column(job, job.model.hidden), "loss": (loss, ())}


def layer_messages(job: TrainingJob, kind: int, state: str = TRAINED) -> Messages:
    """Return the messages of one layer, by module; modules that send nothing are not named.

    kind: its number in `LAYER_KINDS`. state: of its training, as a `TunedLayer` has it.
    """
    found = _layer(job, kind)
    if state == FORWARD_ONLY:
        return {name: (forward, ()) for name, (forward, _) in found.items() if forward}
    return found


def _layer(job: TrainingJob, kind: int) -> Messages:
    found: Messages = {}
    job, own = of_layer(job, kind), LAYER_KINDS[kind]
    if own.mixer == ATTENTION:
        if job.tp > 1:
            found |= _attention(job)
        if job.settings.cp > 1:
            found["self_attention.core_attention"] = _context(job)
    elif own.mixer and not own.attends:  # attention to pooled keys is whole on a rank
        found |= _mixer(job, own.mixer)
    if own.inner == EXPERTS:
        found |= _experts(job)
    elif own.inner and job.tp > 1:
        found |= _mlp(job, "mlp")
    return found


def _mixer(job: TrainingJob, name: str) -> Messages:
    """Return the messages of a mixer that is no attention.

    Its products are divided as attention's are; context-parallel ranks exchange tokens for heads
    before the scan and back after it (`mamba_context_parallel.py`).
    """
    found: Messages = {}
    if job.tp > 1:
        found = {"mixer.in_proj": _column(job, job.model.hidden), "mixer.out_proj": _row(job)}
    if job.settings.cp > 1:
        scan, ways = scan_of(job, name), job.settings.cp
        there = _cp(job, "all_to_all", tokens_shape(job, round(scan.projected * ways)))
        back = _cp(job, "all_to_all", tokens_shape(job, round(scan.inner * ways)))
        found["mixer.scan"] = ((there, back), (back, there))
    return found


def prediction_messages(job: TrainingJob, kind: int) -> Messages:
    """Return the messages of one layer of multi-token prediction, with its embedding and logits."""
    layer = layer_messages(job, kind)
    found = {f"transformer_layer.{name}": pair for name, pair in layer.items()}
    if job.tp == 1:
        return found
    found["embedding.word_embeddings"] = embedding_messages(job)
    forward, backward = _column(job, 2 * job.model.hidden)
    whole = tokens_shape(job, job.model.hidden)
    gathered = (*forward, _tp(job, "all_gather", whole))
    if job.settings.sequence_parallel:
        backward = (_tp(job, "all_gather", whole), *backward)
    return found | {"eh_proj": (gathered, backward)} | output_messages(job)


def recomputed_messages(job: TrainingJob, kind: int) -> Messages:
    """Return the messages that a recomputed layer sends a second time.

    For full recomputation of that layer, and for the modules of selective recomputation.
    """
    recompute = job.settings.recompute
    if recompute.granularity == "none":
        return {}
    again: Messages = {name: (pair[0], ()) for name, pair in layer_messages(job, kind).items()}
    if recompute.granularity == "full":
        if recompute.distribute and job.tp > 1:
            kept = _tp(job, "all_gather", tokens_shape(job, job.model.hidden))
            again["input"] = ((kept,), ())
        return again
    shares = shares_again(job, kind)
    named = [shares[name] for name in recompute.modules if name in shares]
    return {name: pair for name, pair in again.items() if any(share(name) for share in named)}


def unsplit_parameters(job: TrainingJob, kind: int, state: str = TRAINED) -> int:
    """Return a layer's trained parameters that every tensor-parallel rank holds whole and sees only
    a part of the tokens for: their gradients are summed over tp once per iteration. Of layers with
    frozen norms all count as frozen.

    state: of its training, as a `TunedLayer` has it.
    """
    if state != TRAINED or job.settings.tuning.freezes("norms"):
        return 0
    if job.tp == 1:
        return 0
    model, own = of_layer(job, kind).model, LAYER_KINDS[kind]
    scale = model.norm_vectors
    count = _unsplit_heads(model, own.mixer)
    if not job.settings.sequence_parallel:
        return count
    norms = sum(model.norms_of_layer) if own.blocks > 1 else 1
    count += norms * model.hidden * scale
    if own.mixer == ATTENTION:
        count += model.hidden * (model.bias or model.projection_bias)
        if model.latent is not None:
            count += _latent_unsplit(model, scale, job.settings.kernels.implementation)
        if model.sparse and model.latent:
            count += model.sparse.parameters(model.hidden, model.latent.query_rank)
    if own.inner == MLP or not own.inner or model.experts is None:
        return count + model.hidden * (model.bias and bool(own.inner))
    shared = model.hidden * (model.bias * bool(model.experts.shared_ffn))
    shared += model.hidden * model.experts.shared_gate
    if latent := model.experts.latent:
        shared += 2 * latent * model.hidden + model.bias * (latent + model.hidden)
    return count + model.experts.count * (model.hidden + model.bias) + shared


def _unsplit_heads(model: Decoder, mixer: str) -> int:
    """Return the parameters of norms that are the same for all heads of a mixer."""
    if mixer == DELTA:
        assert isinstance(model.delta, DeltaNet)
        return model.delta.value
    each = model.qk_norm and model.qk_norm_of == "head" and model.latent is None
    return 2 * model.head * model.norm_vectors if each and mixer == ATTENTION else 0


def _latent_unsplit(model: Decoder, scale: int, implementation: str) -> int:
    latent = model.latent
    assert latent is not None
    ranks = latent.key_value_rank + latent.query_rank
    norms = ranks * scale if model.qk_norm else 0
    if implementation != "transformer_engine":
        return norms  # the first products are divided by columns there
    return norms + model.hidden * (ranks + latent.rotary)


def _tp(job: TrainingJob, collective: str, shape: tuple[int, ...]) -> Message:
    return _grouped(job, "tp", collective, shape)


def _column(job: TrainingJob, hidden: int) -> Pair:
    """Return the messages of a product with divided columns: its input's gradient is summed; with
    sequence parallelism the input is gathered, and again for the weight's gradient, unless it was
    kept."""
    whole = tokens_shape(job, hidden)
    if not job.settings.sequence_parallel:
        return (), (_tp(job, "all_reduce", whole),)
    gather, scatter = _tp(job, "all_gather", whole), _tp(job, "reduce_scatter", whole)
    return (gather,), (scatter,) if job.settings.keeps_gathered else (gather, scatter)


def _row(job: TrainingJob) -> Pair:
    """Return the messages of a product with divided rows: its output is summed."""
    whole = tokens_shape(job, job.model.hidden)
    if not job.settings.sequence_parallel:
        return (_tp(job, "all_reduce", whole),), ()
    return (_tp(job, "reduce_scatter", whole),), (_tp(job, "all_gather", whole),)


def _mlp(job: TrainingJob, path: str) -> Messages:
    return {f"{path}.linear_fc1": _column(job, job.model.hidden), f"{path}.linear_fc2": _row(job)}


def _attention(job: TrainingJob) -> Messages:
    """Return the messages of attention's products."""
    proj = {"self_attention.linear_proj": _row(job)}
    latent = job.model.latent
    if latent is None:
        return {"self_attention.linear_qkv": _column(job, job.model.hidden)} | proj
    if job.model.sparse is not None:
        return _sparse(job, latent, job.model.sparse) | proj
    found = {"self_attention.linear_kv_up_proj": _column(job, latent.key_value_rank)}
    if latent.query_rank:
        found["self_attention.linear_q_up_proj"] = _column(job, latent.query_rank)
    else:
        found["self_attention.linear_q_proj"] = _column(job, job.model.hidden)
    if job.settings.kernels.implementation == "transformer_engine":
        # The first products are whole on every rank; only the rotary key is gathered.
        if job.settings.sequence_parallel:
            rotary = tokens_shape(job, latent.rotary)
            pair = (_tp(job, "all_gather", rotary),), (_tp(job, "reduce_scatter", rotary),)
            found["self_attention.linear_kv_down_proj"] = pair
        return found | proj
    widths = {"linear_kv_down_proj": latent.key_value_rank + latent.rotary}
    if latent.query_rank:
        widths["linear_q_down_proj"] = latent.query_rank
    for name, width in widths.items():
        forward, backward = _column(job, job.model.hidden)
        forward = (*forward, _tp(job, "all_gather", tokens_shape(job, width)))
        if job.settings.sequence_parallel:
            backward = (_tp(job, "all_gather", tokens_shape(job, width)), *backward)
        found[f"self_attention.{name}"] = (forward, backward)
    return found | proj


def _sparse(job: TrainingJob, latent: LatentAttention, sparse: SparseAttention) -> Messages:
    """Return the messages of latent attention to chosen keys, before its last product.

    Compressed keys and their rotary part are gathered, as every rank's heads read them, and so are
    the inputs of the indexer, which has no gradient for them. Ranks sum the scores of their heads,
    which teach it (`absorbed_mla.py`, `dsa.py`, `ops/tilelang_dsa.py` of `megatron.core` 0.19.0).
    """
    found = {"self_attention.linear_q_up_proj": _column(job, latent.query_rank)}
    read: tuple[Message, ...] = ()
    if job.settings.sequence_parallel:
        shapes = [tokens_shape(job, width) for width in (latent.rotary, latent.key_value_rank)]
        gather, scatter = (
            tuple(_tp(job, way, shape) for shape in shapes)
            for way in ("all_gather", "reduce_scatter")
        )
        found["self_attention.linear_kv_down_proj"] = gather, scatter
        widths = job.model.hidden, latent.query_rank
        each = tuple(_tp(job, "all_gather", tokens_shape(job, width)) for width in widths)
        read = each if sparse.heads else ()
    taught: tuple[Message, ...] = ()
    if sparse.trained:
        shape = tokens_shape(job, chosen_keys(job))
        taught = (replace(_tp(job, "all_reduce", shape), width=LOSS_WIDTH),)
    if read or taught:
        found["self_attention.core_attention.indexer"] = read, taught
    return found


def head_widths(job: TrainingJob) -> tuple[int, int, int]:
    """Return the channels of queries, of keys and values together, and of attention's output that a
    tensor-parallel rank has per token."""
    model, tp = job.model, job.tp
    if model.latent is not None:
        return (
            model.query_width // tp,
            (model.query_width + model.value_width) // tp,
            model.value_width // tp,
        )
    kv_heads = max(model.kv_heads // tp, 1)
    return model.query_width // tp, 2 * kv_heads * model.head, model.value_width // tp


def _context(job: TrainingJob) -> Pair:
    """Return the messages of attention over the context-parallel ranks."""
    if job.model.sparse and job.model.latent:
        return _keys_gathered(job, job.model.latent, job.model.sparse)
    if job.settings.gathers_keys:
        _, kv, _ = head_widths(job)
        shape = (job.sample.tokens, job.micro_batch, kv)
        gather = _cp(job, "all_gather", shape)
        return (gather,), (gather, _cp(job, "reduce_scatter", shape))
    inner = job.settings.exchanging
    before, after = _heads_exchanged(job, inner)
    around, back = _passed_on(job, job.settings.cp // inner, inner)
    # Queries, keys and values are exchanged before the ring and the output after it.
    return (*before[:2], *around, *before[2:]), (*after[:1], *back, *after[1:])


def _keys_gathered(job: TrainingJob, latent: LatentAttention, sparse: SparseAttention) -> Pair:
    """Return the messages by which every rank has the compressed keys of all tokens, and those of
    the indexer (`dsa.py` of `megatron.core` 0.19.0)."""
    widths = latent.key_value_rank + latent.rotary, sparse.head
    shapes = [(job.sample.tokens, job.micro_batch, width) for width in widths]
    shapes = shapes if sparse.heads else shapes[:1]
    back = shapes[: 1 + sparse.trained]
    return (
        tuple(_cp(job, "all_gather", shape) for shape in shapes),
        tuple(_cp(job, "reduce_scatter", shape) for shape in back),
    )


def _cp(job: TrainingJob, collective: str, shape: tuple[int, ...], times: int = 1) -> Message:
    return replace(_grouped(job, "cp", collective, shape), times=times)


def _heads_exchanged(job: TrainingJob, ranks: int) -> Pair:
    """Return the all-to-all of heads against tokens (Jacobs et al. 2023, arXiv 2309.14509).

    Forward: queries, then keys and values, and the output back; backward: the output and its
    gradient, and the gradients of queries, keys and values back.
    """
    if ranks == 1:
        return (), ()
    query, kv, out = (_cp(job, "all_to_all", tokens_shape(job, w)) for w in head_widths(job))
    twice = _cp(job, "all_to_all", out.shape, times=2)
    return (query, kv, out), (twice, query, kv)


def _passed_on(job: TrainingJob, ranks: int, inner: int) -> Pair:
    """Return the ring of keys and values, and of their gradients backward (Liu et al. 2023, arXiv
    2310.01889)."""
    if ranks == 1:
        return (), ()
    _, kv, _ = head_widths(job)
    tokens, samples = tokens_shape(job)
    shape = (tokens * inner, samples, max(kv // inner, 1))
    return (
        (_cp(job, "send_recv", shape, times=ranks - 1),),
        (_cp(job, "send_recv", shape, times=2 * (ranks - 1)),),
    )


def _experts(job: TrainingJob) -> Messages:
    """Return the messages of a layer's routed and shared experts."""
    experts = job.model.experts
    assert experts is not None
    found: Messages = {}
    if job.tp > 1 and experts.shared_ffn:
        found |= _mlp(job, "mlp.shared_experts")
    if job.settings.ep * job.expert_tp == 1:
        return found
    if job.settings.kernels.gathers_tokens:
        return found | _gathered_experts(job, experts)
    if job.settings.kernels.by_deep_ep:
        return found | _flex_experts(job, experts)
    return found | _exchanged_experts(job, experts)


def local_tokens(job: TrainingJob) -> int:
    """Return the tokens of a micro-batch that a rank routes to experts."""
    tokens = job.sample.tokens // job.settings.cp * job.micro_batch
    return tokens // job.tp if job.settings.sequence_parallel else tokens


def _grouped(
    job: TrainingJob, group: str, collective: str, shape: tuple[int, ...], width: int = 0
) -> Message:
    return Message(
        group=group, collective=collective, shape=shape, width=width or job.settings.width
    )


def _gathered_experts(job: TrainingJob, experts: Experts) -> Messages:
    """Return the dispatcher `allgather`: every rank sees all tokens of etp x ep ranks."""
    rows = local_tokens(job) * job.expert_tp * job.settings.ep
    hidden, probabilities = (rows, job.model.routed_width), (rows, experts.count)
    group = "etp-ep"
    gathers = (
        _grouped(job, group, "all_gather", probabilities, MASK_WIDTH),
        _grouped(job, group, "all_gather", probabilities),
        _grouped(job, group, "all_gather", hidden),
    )
    scatters = (
        _grouped(job, group, "reduce_scatter", hidden),
        _grouped(job, group, "reduce_scatter", probabilities),
    )
    return {
        "mlp.dispatch": (gathers, scatters),
        "mlp.combine": (scatters[:1], (_grouped(job, group, "all_gather", hidden),)),
    }


def routed_rows(job: TrainingJob, experts: Experts) -> int:
    """Return the rows that a rank sends to experts: each token top_k times, or padded to the
    capacity (`moe_utils.get_capacity`). An exchange lasts until the fullest rank has all of its
    rows: it counts as if others sent so many as well."""
    rows = local_tokens(job) * experts.top_k
    kernels = job.settings.kernels
    if kernels.capacity and kernels.pad_to_capacity:
        return math.ceil(rows / experts.count * kernels.capacity) * experts.count
    return round(rows * kernels.fullest)


def _exchanged_experts(job: TrainingJob, experts: Experts) -> Messages:
    """Return the dispatcher `alltoall`."""
    rows = routed_rows(job, experts)
    ep, etp, kernels = job.settings.ep, job.expert_tp, job.settings.kernels

    def both(group: str, collective: str, ways: int, count: int) -> list[Message]:
        """Return the messages of tokens and of their weights, if there are several ranks."""
        shapes = (count, job.model.routed_width), (count,)
        return [_grouped(job, group, collective, shape) for shape in shapes if ways > 1]

    counts: list[Message] = []
    if not (kernels.capacity and kernels.pad_to_capacity):
        shape = (etp * ep, experts.count)
        counts.append(_grouped(job, "etp-ep", "all_gather", shape, COUNT_WIDTH))
    exchanged = both("ep", "all_to_all", ep, rows)
    gathered = both("etp", "all_gather", etp, rows * etp)
    scattered = both("etp", "reduce_scatter", etp, rows * etp)
    back = (*reversed(scattered), *reversed(exchanged))
    return {
        "mlp.dispatch": ((*counts, *exchanged, *gathered), back),
        "mlp.combine": (
            (*scattered[:1], *exchanged[:1]),
            (*exchanged[:1], *gathered[:1]),
        ),
    }


def _flex_experts(job: TrainingJob, experts: Experts) -> Messages:
    """Return the dispatcher `flex`: a token goes once to every rank that has one of its experts,
    and between nodes once to every node that has some (DeepSeek-AI, DeepEP, README); as many as in
    a uniform choice of groups, if a token may go to some only, and of top_k experts in them.
    """
    ep, etp = job.settings.ep, job.expert_tp
    sent = local_tokens(job) * job.settings.kernels.fullest
    rows = round(sent * ep * _needed(experts, ep)) * etp
    nodes = min(ep, -(-ep * etp // job.devices_per_node))
    once = nodes * _needed(experts, nodes) / (ep * _needed(experts, ep) * etp)
    tokens = _grouped(job, "etp-ep", "all_to_all", (rows, job.model.routed_width))
    tokens = replace(tokens, once=once)
    return {"mlp.dispatch": ((tokens,), (tokens,)), "mlp.combine": ((tokens,), (tokens,))}


def _needed(experts: Experts, parts: int) -> float:
    """Return how likely one of so many equal parts of the experts has one that a token needs."""
    groups, chosen = experts.groups, experts.top_groups or experts.groups
    size = experts.count // groups
    spanned, held = max(1, groups // parts), min(size, experts.count // parts)
    found, pool = 0.0, chosen * size
    for few in range(1, min(spanned, chosen) + 1):
        ways = math.comb(spanned, few) * math.comb(groups - spanned, chosen - few)
        missed = math.comb(pool - few * held, experts.top_k) / math.comb(pool, experts.top_k)
        found += ways / math.comb(groups, chosen) * (1 - missed)
    return found
