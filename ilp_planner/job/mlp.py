"""The dense MLP of a layer."""

from dataclasses import replace

from ilp_planner.job.attention import legacy
from ilp_planner.job.modules import Kept, Module
from ilp_planner.job.products import normed_product, product, product_input, with_kept
from ilp_planner.job.recompute import forget, keep_input, recomputes
from ilp_planner.job.shard import part, shard_of
from ilp_planner.specs.training import TrainingJob


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
    return job.settings.kernels.fused_activation and not (legacy(job) and job.model.gated)


def activation_kept(
    job: TrainingJob, leading: tuple[int, ...], columns: int, *, fused: bool
) -> tuple[Kept, ...]:
    """Return the bytes that an activation keeps for its derivative.

    Fused, its input, and it recomputes everything else. Unfused SwiGLU keeps the gate after SiLU as
    well, a factor of a product of its own.
    """
    w = job.settings.width
    gates = 2 if job.model.gated else 1
    kept = [
        Kept(name="input", shape=(*leading, gates * columns), width=w, why="output of linear_fc1")
    ]
    if job.model.gated and not fused:
        kept.append(Kept(name="gate", shape=(*leading, columns), width=w, why="SiLU's output"))
    return tuple(kept)
