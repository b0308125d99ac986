"""A layer's MLP: dense, or a mixture of experts with router, routed experts and shared expert."""

import math
from dataclasses import replace
from functools import lru_cache

from ilp_planner.job.attention import (
    legacy,
    norm_module,
    normed_product,
    product,
    product_input,
    with_kept,
)
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.quantised import keeps_input_twice
from ilp_planner.job.recompute import forget, keep_input, norms_again, recomputes
from ilp_planner.job.shard import eager, part, sequence_parallel, shard_of, stream_width
from ilp_planner.specs.training import TrainingJob

# ---- the dense MLP of a layer --------------------------------------------------------------------


def mlp_modules(job: TrainingJob) -> tuple[Module, ...]:
    """Return the norm before the MLP, unless its first product has it in it, and the MLP."""
    model, sizes = job.model, shard_of(job)
    first, activation, second = mlp_products(job, model.ffn)
    if model.parallel_norms:
        *before, first = _beside_attention(job, first)
    else:
        why = "attention's output added to the layer's input; the residual as well"
        *before, first = normed_product(job, first, sizes.narrow, norm="pre_mlp_layernorm", why=why)
    if recomputes(job, "mlp"):
        # With the norm merged into the product, the norm is forgotten as well.
        first, activation, second = keep_input(first), forget(activation), forget(second)
    return (*before, Module(name="mlp", children=(first, activation, second)))


def _beside_attention(job: TrainingJob, first: Module) -> tuple[Module, ...]:
    """Return the first product, and its norm if it is its own, if attention reads the same input:
    it is kept there, and so is the norm's output with one norm for both."""
    if job.model.parallel_norms == 1:
        return (first,)
    why = "the layer's input; kept by attention's norm"
    *before, first = normed_product(
        job, first, shard_of(job).narrow, norm="pre_mlp_layernorm", why=why
    )
    normed = (*before, first)
    return tuple(
        replace(module, kept=tuple(kept for kept in module.kept if kept.why != why))
        for module in normed
    )


def mlp_products(job: TrainingJob, width: int) -> tuple[Module, Module, Module]:
    """Return first product, activation and second product of an MLP of this total width.

    The input of the first is left to the caller: norms and experts bring it in different ways.
    """
    model, sizes = job.model, shard_of(job)
    columns = part(width, job.tp)
    leading = (sizes.tokens, sizes.batch)
    gates = 2 if model.gated else 1
    first = product(
        "linear_fc1", rows=part(gates * width, job.tp), columns=sizes.hidden, bias=model.bias
    )
    activation = Module(
        name="activation_func", kept=activation_kept(job, leading, columns, fused=fuses(job))
    )
    second = with_kept(
        product("linear_fc2", rows=sizes.hidden, columns=columns, bias=model.bias),
        product_input(job, (*leading, columns), "output of the activation"),
    )
    return first, activation, second


def fuses(job: TrainingJob) -> bool:
    """Return whether bias and activation are one kernel; the legacy model fuses GeLU only."""
    fused = job.settings.kernels.fused_activation and not eager(job)
    return fused and not (legacy(job) and job.model.gated)


def activation_kept(
    job: TrainingJob, leading: tuple[int, ...], columns: int, *, fused: bool
) -> tuple[Kept, ...]:
    """Return the bytes that an activation keeps for its derivative.

    Fused, its input, and it recomputes everything else. Unfused SwiGLU keeps the gate after SiLU as
    well, a factor of a product of its own.
    """
    w = stream_width(job)
    gates = 2 if job.model.gated else 1
    kept = [
        Kept(name="input", shape=(*leading, gates * columns), width=w, why="output of linear_fc1")
    ]
    if job.model.gated and not fused:
        kept.append(Kept(name="gate", shape=(*leading, columns), width=w, why="SiLU's output"))
    return tuple(kept)


# ---- a layer's mixture of experts ----------------------------------------------------------------


ROUTING = 4  # bytes: probabilities are computed in fp32 (`topk_routing_with_score_function`)
INDEX = 4  # bytes of a row's number
MAP = 1  # bytes of an element of the routing map, a boolean


def expert_modules(job: TrainingJob) -> tuple[Module, ...]:
    """Return the norm before the experts with many readers, and router, experts, shared expert."""
    sizes = shard_of(job)
    experts = job.model.experts
    assert experts is not None
    why = "attention's output added to the layer's input; the residual as well"
    read = "read by the router, the dispatcher and the shared expert"
    norm = norm_module("pre_mlp_layernorm", job, sizes.narrow, why=why, output=read)
    children = [_router(job), _routed(job)]
    if experts.shared_ffn:
        first, *others = mlp_products(job, experts.shared_ffn)
        if job.settings.kernels.overlap_shared and sequence_parallel(job):
            # Without messages of their own the products read what was gathered for them
            # (`shared_experts.py`), and keep that.
            first = with_kept(first, product_input(job, sizes.wide, "gathered beforehand"))
        elif keeps_input_twice(job) and not norms_again(job):
            first = with_kept(first, product_input(job, sizes.narrow, "the norm's, quantised"))
        gate = (Weight(name="gate_weight", shape=(1, sizes.hidden)),) * experts.shared_gate
        shared = Module(name="shared_experts", weights=gate, children=(first, *others))
        if recomputes(job, "shared_experts"):
            shared = forget(shared)
        children.append(shared)
    if experts.latent:
        children += _latent(job, experts.latent)
    inner = Module(name="mlp", children=tuple(children))
    if recomputes(job, "moe"):
        inner = forget(inner)
    return norm, inner


def _latent(job: TrainingJob, width: int) -> list[Module]:
    """Return the products to the width of routed experts and back; every rank has them whole."""
    sizes = shard_of(job)
    first = product("fc1_latent_proj", rows=width, columns=sizes.hidden, bias=job.model.bias)
    last = product("fc2_latent_proj", rows=sizes.hidden, columns=width, bias=job.model.bias)
    seen = (sizes.region, sizes.batch, width)
    return [first, with_kept(last, product_input(job, seen, "what the experts give"))]


def _router(job: TrainingJob) -> Module:
    """Return the router; every rank has it whole."""
    sizes, experts = shard_of(job), job.model.experts
    assert experts is not None
    weights = [Weight(name="weight", shape=(experts.count, sizes.hidden))]
    if job.model.bias:
        weights.append(Weight(name="bias", shape=(experts.count,)))
    seen = (sizes.region * sizes.batch, experts.count)
    # Fused, Transformer Engine's map of rows: for every expert a row and whose it is, and a count.
    rows = 2 * experts.count + 1 if job.settings.kernels.fused_permute else 2 * experts.top_k
    kept = (
        Kept(name="scores", shape=seen, width=ROUTING, why="softmax of the logits, fp32"),
        Kept(name="probabilities", shape=seen, width=ROUTING, why="zero but for the chosen"),
        Kept(name="routing map", shape=seen, width=MAP, why="which expert sees which token"),
        Kept(name="order", shape=(seen[0], rows), width=INDEX, why="where each token is sent to"),
    )
    return Module(name="router", weights=tuple(weights), kept=(*kept, *_gathered(job, seen)))


def _gathered(job: TrainingJob, seen: tuple[int, int]) -> tuple[Kept, ...]:
    """Return the other ranks' routing that the all-gather dispatcher keeps.

    It gathers probabilities and map over the experts' ranks and refers to them until its next use
    (`MoEAllGatherTokenDispatcher`).
    """
    sources = job.settings.ep * job.expert_tp
    if not job.settings.kernels.gathers_tokens or sources == 1:
        return ()
    shape = (seen[0] * sources, seen[1])
    why = "of all ranks whose tokens are gathered"
    return (
        Kept(name="gathered probabilities", shape=shape, width=ROUTING, why=why),
        Kept(name="gathered map", shape=shape, width=MAP, why=why),
    )


def keeps_output(job: TrainingJob) -> bool:
    """Return whether the routed experts' output is kept.

    Tokens are put back in order with `index_add_` if results must be the same bit for bit
    (`moe_utils.py: unpermute`), and PyTorch's derivative of that refers to the addend, though it
    needs its shape only.
    """
    kernels = job.settings.kernels
    return kernels.deterministic and not kernels.fused_permute


def routed_tokens(job: TrainingJob) -> int:
    """Return the tokens of a micro-batch that the routed experts of the fullest rank take.

    Without a capacity factor these are as many as its tensor- and expert-parallel group sends on
    average, or more by the assumed imbalance. With one, an expert takes at most `capacity` tokens
    from each rank, and exactly as many when it is padded.
    """
    sizes, settings, experts = shard_of(job), job.settings, job.model.experts
    assert experts is not None
    sent = sizes.region * sizes.batch * experts.top_k
    sources = settings.ep * job.expert_tp  # whose tokens are exchanged or gathered
    local = part(experts.count, settings.ep)
    factor = settings.kernels.capacity
    come = math.ceil(sent * sources * local / experts.count * settings.kernels.imbalance)
    if factor:
        taken = math.ceil(sent / experts.count * factor)  # Megatron's `get_capacity`
        most = taken * local * sources
        return most if settings.kernels.pad_to_capacity else min(most, come)
    return come


def _routed(job: TrainingJob) -> Module:
    """Return a rank's routed experts, as Megatron's three implementations of them name them.

    They keep the same: one by one, each keeps its share of the tokens.
    """
    model, kernels = job.model, job.settings.kernels
    experts = model.experts
    assert experts is not None
    local = part(experts.count, job.settings.ep)
    columns = part(experts.ffn, job.expert_tp)
    rows = part((2 if model.gated else 1) * experts.ffn, job.expert_tp)
    width = model.routed_width
    shapes = {"linear_fc1": (rows, width), "linear_fc2": (width, columns)}
    first, activation, second = _routed_kept(job, columns)
    if not kernels.grouped_experts:
        one = Module(
            name="local_experts",
            children=tuple(
                product(name, rows=shape[0], columns=shape[1], bias=model.bias, expert=True)
                for name, shape in shapes.items()
            ),
            repeat=local,
        )
        return Module(name="experts", kept=(*first, *activation, *second), children=(one,))
    if kernels.implementation == "local":
        # Two weights for all, transposed (`GroupedMLP`).
        merged = (width, local * rows), (local * columns, width)
        weights = tuple(
            Weight(name=f"weight{i}", shape=shape, expert=True) for i, shape in enumerate(merged, 1)
        )
        return Module(name="experts", weights=weights, kept=(*first, *activation, *second))
    return Module(
        name="experts",
        children=(
            Module(
                name="linear_fc1",
                weights=_each(job.model.bias, shapes["linear_fc1"], local),
                kept=first,
            ),
            Module(name="activation_func", kept=activation),
            Module(
                name="linear_fc2",
                weights=_each(job.model.bias, shapes["linear_fc2"], local),
                kept=second,
            ),
        ),
    )


@lru_cache(maxsize=256)
def _each(biased: bool, shape: tuple[int, int], local: int) -> tuple[Weight, ...]:
    """Return the weights of a grouped product: one, and a bias, for each expert."""
    weights = [Weight(name=f"weight{i}", shape=shape, expert=True) for i in range(local)]
    if biased:
        weights += [Weight(name=f"bias{i}", shape=shape[:1], expert=True) for i in range(local)]
    return tuple(weights)


def _routed_kept(
    job: TrainingJob, columns: int
) -> tuple[tuple[Kept, ...], tuple[Kept, ...], tuple[Kept, ...]]:
    """Return the activations kept by first product, activation and second product of the routed
    experts."""
    w = job.settings.width
    tokens = routed_tokens(job)
    first = product_input(job, (tokens, job.model.routed_width), "tokens sent to this rank, sorted")
    weights = Kept(name="weights", shape=(tokens,), width=ROUTING, why="the router's, per token")
    activation = (*activation_kept(job, (tokens,), columns, fused=fuses(job)), weights)
    if not fuses(job):
        # Multiplied by the router's weights in a step of its own, which keeps both factors.
        activation += (Kept(name="output", shape=(tokens, columns), width=w, why="unweighted"),)
    second = product_input(job, (tokens, columns), "output of the activation")
    last: tuple[Kept, ...] = () if recomputes(job, "moe_act") else (second,)
    if keeps_output(job):
        why = "added up in the tokens' order, deterministically"
        last += (Kept(name="output", shape=(tokens, job.model.routed_width), width=w, why=why),)
    return (first,), activation, last
