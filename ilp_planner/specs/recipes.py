"""Recipes of quantised products on devices, and the meaning of a precision for a job."""

from dataclasses import replace

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.gpu_architectures import HOPPER, first_with
from ilp_planner.specs.training import PRECISIONS, QUANTISED, Kernels

# NVIDIA's recipes of Megatron-Bridge gather parameters quantised, save with these.
GATHERED_IN_FULL = ("fp8-blockwise", "nvfp4")
NAMES = (*PRECISIONS, *QUANTISED)


def precision_of(asked: str, model: str) -> tuple[str, str]:
    """Return the training precision and the recipe, empty for none, of a request.

    model: the precision of its file.

    Raises
    ------
    UsageError: an unknown precision, or it does not go with the model's.
    """
    if not asked:
        return model, ""
    if asked in PRECISIONS:
        return asked, ""
    if asked not in QUANTISED:
        raise UsageError(f"precision: found {asked!r}, expected one of {', '.join(NAMES)}")
    if PRECISIONS[model] > PRECISIONS["bf16"]:
        raise UsageError(
            f"precision: found {asked} for a model in {model}, expected one in bf16 or fp16, which "
            "products that are not quantised stay in"
        )
    return model, asked


def quantised_kernels(kernels: Kernels, recipe: str) -> Kernels:
    """Return the kernels with a recipe, if any, and parameters as NVIDIA's recipes gather them."""
    if not recipe:
        return kernels
    low = recipe not in GATHERED_IN_FULL
    return replace(kernels, quantised=recipe, quantised_parameters=low)


def check_recipe(cluster: ClusterSpec, recipe: str) -> None:
    """See that every device type multiplies in a recipe's format, as far as is known.

    Raises
    ------
    SpecError: one does not; with the precisions that it has.
    """
    if not recipe:
        return
    for name in cluster.type_names:
        device = cluster.device_types[name]
        able = recipes_of(device)
        if able is not None and recipe not in able:
            peak = ", ".join(device.peak or {})
            others = f" (precision {', '.join(able)})" if able else ""
            raise SpecError(
                f"precision: found {recipe} on device {name!r} of cluster {cluster.name!r}, which "
                f"has {peak}{others}, expected a peak in {_needs(device, recipe)}"
            )


def recipes_of(device: Device) -> tuple[str, ...] | None:
    """Return the recipes that a device has; None if its peaks are not known."""
    if device.peak is None:
        return None
    row = known_gpu(device)
    return tuple(
        recipe
        for recipe, number in QUANTISED.items()
        if number in device.peak and (row is None or recipe in row.architecture.recipes)
    )


def _needs(device: Device, recipe: str) -> str:
    """Return what a device lacks for a recipe."""
    number, row = QUANTISED[recipe], known_gpu(device)
    own = row.architecture if row else HOPPER
    if recipe in own.recipes:
        return number
    first = first_with(recipe, own.vendor)
    if first is None:
        return f"{number} and blocks with its scales, which no GPU of {own.vendor} has"
    return f"{number} and blocks with scales, from {first.name} on"
