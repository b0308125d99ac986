"""Matrix products: their weights, and the input that they keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.anatomy.modules import Kept, Module, Weight
from ilp_planner.anatomy.norms import norm_kept, norm_module, norm_weights

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob


def product(name: str, *, rows: int, columns: int, bias: bool, expert: bool = False) -> Module:
    """Return a product y = x W^T + b with the weights as Megatron lays them out."""
    weights = [Weight(name="weight", shape=(rows, columns), expert=expert)]
    if bias:
        weights.append(Weight(name="bias", shape=(rows,), expert=expert))
    return Module(name=name, weights=tuple(weights))


def with_kept(module: Module, *kept: Kept) -> Module:
    """Return the module keeping these as well."""
    return replace(module, kept=(*module.kept, *kept))


def product_input(job: TrainingJob, shape: tuple[int, ...], why: str = "") -> Kept:
    """Return a product's input, kept for the gradient of its weight."""
    return Kept(
        name="input", shape=shape, width=job.settings.width, why=why or "for the weight's gradient"
    )


def merges_norm(job: TrainingJob) -> bool:
    """Return whether the norm before a column-parallel product is merged into it.

    Transformer Engine's LayerNormLinear. It keeps the norm's input and its output all the same.
    """
    return job.settings.kernels.implementation == "transformer_engine"


def normed_product(
    job: TrainingJob, module: Module, shape: tuple[int, ...], *, norm: str, why: str
) -> tuple[Module, ...]:
    """Return a norm and the product that alone reads its output, as one or two modules.

    shape: of the norm's input on this rank. norm: its name where it stands alone.
    """
    read = product_input(job, shape)
    if merges_norm(job):
        inner = norm_kept(job, shape, why)
        weights = norm_weights(job, shape[-1], "layer_norm_")
        normed = replace(read, name="norm's output")
        return (
            Module(name=module.name, weights=(*weights, *module.weights), kept=(*inner, normed)),
        )
    return norm_module(norm, job, shape, why=why), with_kept(module, read)
