"""Norms and matrix products: their weights, and their kept activations."""

from dataclasses import replace

from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.quantised import kept_width
from ilp_planner.job.shard import shard_of
from ilp_planner.specs.training import TrainingJob

STATISTIC = 4  # bytes: means and inverse deviations are kept in fp32 whatever the precision


def norm_weights(job: TrainingJob, width: int, prefix: str = "") -> tuple[Weight, ...]:
    """Return scale and, for LayerNorm, shift; nothing for a norm that learns nothing."""
    names = ("weight", "bias")[: job.model.norm_vectors]
    return tuple(Weight(name=f"{prefix}{name}", shape=(width,)) for name in names)


def norm_kept(job: TrainingJob, shape: tuple[int, ...], why: str) -> tuple[Kept, ...]:
    """Return the kept activations of a norm over the last dimension: its input and statistics per
    row.

    The norm's output is kept by the products that read it, not by the norm.
    """
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
