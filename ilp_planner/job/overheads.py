"""Memory that is neither a model's states nor its activations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ilp_planner.job.attention import kernel_heads, legacy
from ilp_planner.job.decoder import in_place_loss
from ilp_planner.job.mlp import fuses, keeps_output, routed_tokens
from ilp_planner.job.modules import Module
from ilp_planner.job.quantised import copies_width, kept_width
from ilp_planner.job.recompute import loader_mask
from ilp_planner.job.shard import (
    STREAMS,
    eager,
    loss_chunk,
    part,
    sequence_parallel,
    shard_of,
    stream_width,
)
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import trains_output, trains_words

# ---- momentary memory of a rank above kept activations -------------------------------------------
# Each function returns bytes.
# A peak falls on one of a few moments. Each function here follows the tensors of one of them in the
# order of their creation and release.


SINGLE = 4  # bytes of a number in fp32
IDENTIFIER = 8  # bytes of a token's number


@dataclass(slots=True)
class Tally:
    """Bytes above the kept activations: now, and at most so far."""

    now: float = 0.0
    most: float = 0.0

    def take(self, size: float) -> None:
        """Allocate."""
        self.now += size
        self.most = max(self.most, self.now)

    def give(self, size: float) -> None:
        """Free; kept activations count as well, so the result may be negative."""
        self.now -= size

    def briefly(self, size: float) -> None:
        """Allocate and free again."""
        self.take(size)
        self.give(size)


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes of the tensors that go through a layer on this rank.

    whole: between products, of all tokens. narrow: of this rank's share of them. gathered: by
    sequence parallelism before a product, 0 without it. again: the part that the backward pass
    gathers again for a weight's gradient.
    """

    whole: float
    narrow: float
    gathered: float
    again: float


def flow(job: TrainingJob) -> Flow:
    """Return the sizes of a layer's inputs and outputs."""
    sizes, width = shard_of(job), stream_width(job)
    whole = float(math.prod(sizes.wide) * width)
    narrow = float(math.prod(sizes.narrow) * width)
    gathered = whole if sequence_parallel(job) else 0.0
    return Flow(whole, narrow, gathered, 0.0 if job.settings.keeps_gathered else gathered)


def _weight_gradient(job: TrainingJob, rows: int) -> float:
    """Return the gradient of a product with so many rows, if it is not added up in place."""
    if job.settings.kernels.accumulation_fusion:
        return 0.0
    return float(rows * job.model.hidden * job.settings.width)


def mlp_backward(job: TrainingJob, *, keeps_input: bool = True) -> float:
    """Return the peak of the backward pass of a dense layer's MLP. keeps_input: of its second
    product, as is not needed if that is frozen.

    The gradient of the layer's output stays for the residual. The second product gives the gradient
    of the activation and forgets its input; the activation gives the gradient of its input and
    forgets that. Quantised products first quantise the gradient of their output; gathered tensors
    are quantised then.
    """
    sizes, model = shard_of(job), job.model
    through = flow(job)
    numbers = float(math.prod(sizes.columns(model.ffn)))
    column = numbers * stream_width(job)
    low = copies_width(job)
    gathered = through.whole / sizes.width * low if low else through.gathered
    gates = 2 if model.gated else 1
    tally = Tally()
    tally.take(through.narrow * (2 if model.dropout else 1))
    tally.take(gathered)
    tally.take(column)
    tally.briefly(_weight_gradient(job, part(model.ffn, job.tp)))
    tally.give(gathered + numbers * kept_width(job) * keeps_input)
    if fuses(job) or not model.gated:
        tally.take(gates * column)
        tally.give(column + gates * column)
    else:
        tally.take(2 * column)  # of the gate and of the value that it multiplies
        tally.give(2 * column)
        tally.take(column)  # through SiLU
        tally.give(column)
        tally.take(2 * column)  # side by side
        tally.give(4 * column)
    gathered = through.again / sizes.width * kept_width(job) if low else through.again
    tally.take(gates * numbers * low)
    tally.take(gathered + through.whole)
    tally.briefly(_weight_gradient(job, part(gates * model.ffn, job.tp)))
    return tally.most


def layer_forward(job: TrainingJob, experts: bool) -> float:
    """Return the memory of a layer that keeps nothing: the input and output of its MLP, and what is
    between its products; of experts as in `experts_moment`."""
    sizes, model, through = shard_of(job), job.model, flow(job)
    if experts:
        return through.narrow + _experts_forward(job)
    column = float(math.prod(sizes.columns(model.ffn))) * sizes.width
    return 2 * through.narrow + through.gathered + (2 + model.gated) * column


def experts_moment(job: TrainingJob, *, keeps_input: bool = True) -> float:
    """Return the peak of a layer's experts, in their forward or their backward pass.

    keeps_input: of their second product.
    """
    return max(_experts_forward(job), _experts_backward(job, keeps_input=keeps_input))


def _experts_forward(job: TrainingJob) -> float:
    """Return the memory when the experts are done.

    The tokens, in every order that they pass (`moe_layer.py`, `token_dispatcher.py`), because the
    callers still refer to them: permuted, exchanged, gathered over the experts' tensor-parallel
    ranks; and after the experts, before and after they are put back in order. The last one on the
    way in is kept by the first product. The shared expert's output waits for them.
    """
    experts, settings = job.model.experts, job.settings
    assert experts is not None
    through = flow(job)
    routed = float(routed_tokens(job) * job.model.routed_width * settings.width)
    here = routed / job.expert_tp
    local = part(experts.count, settings.ep)
    if settings.kernels.gathers_tokens:
        before = through.narrow * settings.ep * job.expert_tp
        after = routed + before
    else:
        steps = [here]
        if settings.ep > 1:
            steps.append(here)
        if job.expert_tp > 1:
            steps.append(routed)
        if local == 1:
            steps.pop()
        before, after = sum(steps), routed * (2 if local > 1 else 1)
    if not settings.kernels.grouped_experts and local > 1:
        after += routed  # one by one, then side by side
    if keeps_output(job):
        after -= routed  # it is among what is kept
    return before + after + through.narrow * (experts.shared_ffn > 0)


def _experts_backward(job: TrainingJob, *, keeps_input: bool) -> float:
    """Return the memory of the way back: each step's input and output, then the experts'
    gradients."""
    model = job.model
    assert model.experts is not None
    through, w = flow(job), job.settings.width
    tokens = routed_tokens(job)
    routed = float(tokens * model.hidden * w)
    numbers = float(tokens * part(model.experts.ffn, job.expert_tp))
    column, low = numbers * w, copies_width(job)
    gates = 2 if model.gated else 1
    quantised = tokens * model.hidden * low
    tally = Tally()
    tally.take(through.narrow * (2 if model.dropout else 1))
    tally.take(routed)
    tally.briefly(routed)
    tally.take(quantised + column)
    tally.give(quantised + routed + numbers * kept_width(job) * keeps_input)
    tally.take(gates * column)
    tally.take(gates * numbers * low)
    return tally.most


def attention_backward(job: TrainingJob) -> float:
    """Return the peak of the backward pass of attention; the MLP is forgotten by then.

    Flash attention adds up the gradient of the queries in fp32 (Dao 2023, arXiv 2307.08691, section
    3.1); the unfused one has the gradient of all scores, before and after dropout or softmax.
    """
    model, sizes, kernels = job.model, shard_of(job), job.settings.kernels
    through = flow(job)
    if model.sparse is not None:
        return _sparse_backward(job)
    rows = sizes.tokens * sizes.batch
    query = float(rows * part(model.query_width, job.tp) * sizes.width)
    value = float(rows * part(model.value_width, job.tp) * sizes.width)
    if model.latent:
        inputs = 2 * query + value
    else:
        inputs = query + 2.0 * rows * sizes.kv_heads * model.head * sizes.width
    tally = Tally()
    tally.take(through.narrow * (2 if model.dropout else 1))
    tally.take(through.gathered + value)
    tally.give(through.gathered)
    if kernels.attention == "flash":
        tally.take(inputs)
        tally.briefly(query / sizes.width * SINGLE)
    else:
        scores = float(rows * sizes.heads * model.sequence * sizes.width)
        tally.take(2 * scores)
        tally.give((3 if model.dropout else 2) * scores)
        tally.take(inputs)
    tally.give(value + inputs)
    tally.take(inputs + through.again + through.whole)
    return tally.most


def _sparse_backward(job: TrainingJob) -> float:
    """Return the same of latent attention to chosen keys: its output is computed again, gradients
    of the keys of all tokens are summed in fp32 (`ops/sparse_mla.py` of `megatron.core` 0.19.0)."""
    a, sizes, through = job.model.latent, shard_of(job), flow(job)
    assert a is not None
    rows, width = sizes.tokens * sizes.batch, sizes.width
    heads, one = kernel_heads(job), a.key_value_rank + a.rotary
    value = float(rows * part(job.model.value_width, job.tp) * width)
    query = float(rows * part(job.model.query_width, job.tp) * width)
    latent, absorbed = (float(rows * heads * n * width) for n in (a.key_value_rank, one))
    keys = float(job.model.sequence * sizes.batch * one)
    tally = Tally()
    tally.take(through.narrow * (2 if job.model.dropout else 1))
    tally.take(through.gathered + value)
    tally.give(through.gathered)
    tally.take(latent)
    tally.give(value)
    tally.briefly(latent)
    tally.take(absorbed + keys * (SINGLE + width))
    tally.give(latent + keys * SINGLE)
    tally.take(query)
    tally.give(absorbed)
    tally.take(through.again + through.whole)
    return tally.most


INDEXED = 8192  # tokens whose scores of all keys are there at once (`fused_indexer_block_size`)


def index_forward(job: TrainingJob) -> float:
    """Return the scores of an indexer, in fp32, which are there while the largest are found."""
    if job.model.sparse is None or not job.model.sparse.heads:
        return 0.0
    return float(min(INDEXED, shard_of(job).tokens) * job.model.sequence * SINGLE)


def ring_forward(job: TrainingJob) -> float:
    """Return the memory of attention's forward pass when keys and values go around a ring.

    Transformer Engine's `AttnFuncWithCPAndKVP2P` has the output of every step until all are done,
    and the keys and values in use beside arriving ones.
    """
    settings, sizes = job.settings, shard_of(job)
    if not settings.ring:
        return 0.0
    rows = sizes.tokens * sizes.batch * settings.width
    output = float(rows * part(job.model.value_width, job.tp))
    return settings.ring * output + 4.0 * rows * sizes.kv_heads * job.model.head


def scores_buffer(job: TrainingJob) -> float:
    """Return the buffer that Megatron core's unfused attention keeps for products of scores.

    `dot_product_attention.py` takes it from the global memory buffer, once for all layers.
    """
    kernels, sizes = job.settings.kernels, shard_of(job)
    if kernels.attention == "flash" or kernels.implementation != "local":
        return 0.0
    rows = sizes.tokens * sizes.batch * sizes.heads
    return float(rows * job.model.sequence * sizes.width)


def loss_moment(job: TrainingJob) -> float:
    """Return the memory of the last stage around the loss, besides the kept activations of the
    output.

    In place, the loss keeps its gradient if the logits were, and the moment is the product's
    backward pass: the gradient of its input and, sequence parallel, the gathered input and the
    share of the gradient that stays. Otherwise it is the softmax in fp32 with the logits, or with
    their gradient. The data loader's batch is there in the forward pass only.

    Fused, Megatron's own loss is compiled (`fused_cross_entropy.py`): its steps do not write over
    their input, so the logits in fp32 are there beside the softmax. The logits of multi-token
    prediction, computed before the others, are referred to until the forward pass returns.

    Liger's is the logits of one chunk of tokens and the loss of every token, in the forward pass.
    """
    sizes = shard_of(job)
    if job.settings.kernels.chunked_loss:
        chunk = loss_chunk(job) * job.padded_outputs * sizes.width
        return float(chunk + math.prod(sizes.narrow[:2]) * SINGLE) + loader_batch(job)
    through = flow(job)
    numbers = math.prod(sizes.columns(job.padded_outputs))
    logits = float(numbers * sizes.width)
    product = through.whole + (through.again + through.narrow) * (through.gathered > 0)
    if trains_output(job.model, job.settings.tuning):
        product += _weight_gradient(job, part(job.padded_outputs, job.tp))
    if in_place_loss(job):
        return max(product, loader_batch(job))
    softmax = float(numbers * SINGLE)
    if legacy(job):
        # `output.float()`, and less the largest of each row in a third tensor, which is kept.
        return logits + softmax
    if job.settings.keeps_gathered or eager(job):
        return max(_entropy(job, logits, softmax), logits + product - softmax)
    before = loader_batch(job) + through.again + logits * (job.model.prediction_layers > 0)
    compiled = softmax if job.settings.kernels.loss else 0.0
    if sizes.width == SINGLE:
        return max(product, before + compiled)  # in place: the logits are in fp32 already
    return max(logits + before + compiled, logits + product - softmax)


def _entropy(job: TrainingJob, logits: float, softmax: float) -> float:
    """Return the bytes of PyTorch's own cross-entropy besides the logarithms of the softmax.

    Its operators run one by one, and none writes over its input: forward the logits in both
    precisions; backward the gradients of these logarithms and of the logits in fp32. Divided over
    tensor-parallel ranks it has one tensor more at either time: the shifted logits, and the softmax
    (`torch/distributed/tensor/parallel/loss.py`). torchtitan's releases compile it or do not; as
    they did not when their memory was published, it counts so with compiled layers as well.
    """
    more = softmax * (job.tp > 1)
    forward = softmax + more + (logits if shard_of(job).width < SINGLE else 0.0)
    return max(2 * softmax + more, forward + loader_batch(job))


def loader_batch(job: TrainingJob) -> float:
    """Return the data loader's batch of one micro-batch on the first and the last stage.

    Tokens, labels and positions, weights of the loss, and a mask of every pair of tokens.
    """
    sizes = shard_of(job)
    rows = float(sizes.batch * sizes.tokens * (3 * IDENTIFIER + SINGLE))
    return rows + sum(kept.size for kept in loader_mask(job))


def embedding_moment(job: TrainingJob) -> float:
    """Return the memory of the last step of a backward pass, or the first of a forward pass.

    The dense gradient of all words; the loader's mask, cut by context parallelism after its arrival
    (`get_batch_on_this_cp_rank`).
    """
    sizes = shard_of(job)
    through = flow(job)
    words = trains_words(job.model, job.settings.tuning)
    table = float(part(job.padded_vocab, job.tp) * sizes.hidden * sizes.width) * words
    cp = job.settings.cp
    mask = sum(kept.size for kept in loader_mask(job)) * (1 + cp * (cp > 1))
    return max(table + through.gathered + through.narrow, mask)


# ---- workspaces, handles, and memory outside of PyTorch's allocator ------------------------------


MIB = 2**20

# The thread of the backward pass has a BLAS handle of its own.
HANDLES = 2
# Deterministic: PyTorch insists on `CUBLAS_WORKSPACE_CONFIG`, of which only `:4096:8` is big enough
# for speed: 4096 KiB eight times.
HANDLE_DETERMINISTIC = 32.0 * MIB

# Outside what PyTorch counts. Assumptions for "does it fit", no part of the peak.
CONTEXT = 600 * MIB  # CUDA context and kernels
COMMUNICATOR = 250 * MIB  # NCCL's buffers for one group of ranks
FRAGMENTATION = 0.05  # of the peak: what the caching allocator holds and cannot use


def workspace(job: TrainingJob) -> float:
    """Return bytes of every rank's workspaces in PyTorch's allocator."""
    kernels = job.settings.kernels
    engine = job.gpu_architecture.engine_workspace
    experts = job.model.experts is not None
    if kernels.implementation == "local":
        # Routers use Transformer Engine's products wherever it is there (`moe_utils.py`).
        return handles(job) + scores_buffer(job) + engine * experts
    # Transformer Engine has a workspace for each of the streams of grouped products.
    return (1 + STREAMS * (experts and kernels.grouped_experts)) * engine


def handles(job: TrainingJob) -> float:
    """Return bytes of PyTorch's own workspaces, on a rank that multiplies with it.

    With Transformer Engine's layers only the output layer and routers do.
    """
    if job.settings.kernels.deterministic:
        return HANDLES * HANDLE_DETERMINISTIC
    return HANDLES * job.gpu_architecture.blas_workspace


def tables(job: TrainingJob) -> float:
    """Return bytes of the angles of rotary embedding: one per position and channel here, fp32."""
    model = job.model
    if model.rotary is None or legacy(job):
        return 0.0
    channels = model.latent.rotary if model.latent else int(model.head * model.rotary.share)
    return 4.0 * shard_of(job).tokens * channels


def between_stages(job: TrainingJob) -> float:
    """Return a rank's buffers for its neighbours, besides kept inputs."""
    if job.pp == 1:
        return 0.0
    return flow(job).narrow * job.model.streams * job.schedule.buffers


def spare_gradients(job: TrainingJob, module: Module) -> dict[tuple[int, ...], float]:
    """Return the stand-ins for weight gradients, bytes by shape.

    A gradient that is added straight into the buffer still needs a tensor for autograd:
    `get_dummy_wgrad` of Transformer Engine, also called by Megatron core, makes one for each shape
    of a product's weight and keeps it. The legacy model does without.
    """
    settings = job.settings
    if not settings.kernels.accumulation_fusion or legacy(job) or settings.keeps_gathered:
        return {}
    if module.name in ("word_embeddings", "position_embeddings", "router"):
        return {}
    width = job.settings.width
    found: dict[tuple[int, ...], float] = {}
    for weight in module.weights:
        if len(weight.shape) == 2 and weight.trained:
            found[weight.shape] = float(weight.count * width)
    for child in module.children:
        found |= spare_gradients(job, child)
    return found


def outside(
    job: TrainingJob, peak: Any, reserved: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return device memory beyond PyTorch's tensors, bytes by name.

    peak: bytes, a number or an array. reserved: likewise, for tensors of other moments.
    """
    settings = job.settings
    groups = (job.tp, job.pp, job.dp * settings.cp, settings.cp, settings.ep)
    return {
        "CUDA context": CONTEXT,
        "NCCL": COMMUNICATOR * sum(size > 1 for size in groups),
        "fragmentation": FRAGMENTATION * peak,
        **reserved,
    }
