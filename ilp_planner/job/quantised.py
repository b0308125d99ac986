"""Weights and kept activations of quantised products: Transformer Engine's recipes of 8 and 4 bits.

A product's input is kept for its weight's gradient in the quantised format, by columns alone
(`linear.py`, `layernorm_linear.py`: `update_usage(rowwise_usage=False)`). A weight is quantised
once per iteration and stays so until the next one, by rows for the forward and by columns for the
backward pass; if the products of a device read either way (data-center Blackwell, one scale per
tensor), once. Scales are counted, the history of maxima is not: 1024 numbers per tensor at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.job.modules import Module
    from ilp_planner.specs.training import TrainingJob

ADAPTERS = "adapters"  # low-rank ones beside a product
EXACT = (
    "word_embeddings",
    "position_embeddings",
    "router",
    "output_layer",
    "eh_proj",
    "e_proj",
    "h_proj",
    "linear_o_group_proj",
    "compressor",
    "linear_weights_proj",
    "self_attention_hyper_connection",
    "mlp_hyper_connection",
    "hc_head",
    "encoder",
    "sounds",
    ADAPTERS,
)
SINGLE = 4  # bytes of a scale in fp32


class Width(NamedTuple):
    """Bytes per number with its scale: of a product's input, and of one copy of a weight."""

    kept: float
    copy: float


# Scales: one per tensor; one in fp32 per 128 numbers, of weights per 128 x 128; one byte per 32
# numbers (OCP Microscaling Formats 1.0, 2023); one byte per 16 (`NVFP4BlockScaling`).
WIDTHS = {
    "fp8-delayed": Width(1.0, 1.0),
    "fp8-current": Width(1.0, 1.0),
    "fp8-blockwise": Width(1.0 + SINGLE / 128, 1.0 + SINGLE / 128**2),
    "mxfp8": Width(1.0 + 1 / 32, 1.0 + 1 / 32),
    "nvfp4": Width(0.5 + 1 / 16, 0.5 + 1 / 16),
}
ONE_SCALE = ("fp8-delayed", "fp8-current")  # per tensor
# Recipes whose parameters are gathered in the training precision, and quantised on arrival
# (`param_and_grad_buffer.py`: in the buffer of the gradients, which are not there then).
GATHERED_EXACTLY = ("mxfp8", "nvfp4")

# Variables without which ROCm's Transformer Engine refuses a recipe (`quantization.py:
# check_mxfp8_support`).
ON_ROCM = {"mxfp8": {"NVTE_ROCM_ENABLE_MXFP8": "1"}}


def recipe_variables(job: TrainingJob) -> dict[str, str]:
    """Return the variables that Transformer Engine reads for the recipe on AMD's GPUs."""
    return ON_ROCM.get(job.settings.kernels.quantised, {})


def kept_width(job: TrainingJob) -> float:
    """Return bytes per number of a product's input."""
    recipe = job.settings.kernels.quantised
    return WIDTHS[recipe].kept if recipe else job.settings.width


def keeps_input_twice(job: TrainingJob) -> bool:
    """Return whether a product's input that others keep unquantised is kept quantised as well.

    Attention's output and the norm before shared experts: Megatron tells the product to keep the
    input itself, save under delayed scaling (`attention.py`: `set_save_original_input`).
    """
    return job.settings.kernels.quantised == "fp8-delayed"


def copies_width(job: TrainingJob) -> float:
    """Return bytes per number of all quantised copies of a weight; 0 without."""
    return copies(job).copy if job.settings.kernels.quantised else 0.0


def copies(job: TrainingJob) -> Width:
    """Return bytes per number of all copies that products read: of an input or a gradient, and of a
    weight."""
    recipe = job.settings.kernels.quantised
    count = 1 if recipe in ONE_SCALE and job.gpu_architecture.either_way else 2
    return Width(*(count * width for width in WIDTHS[recipe]))


def weight_width(job: TrainingJob, ways: int) -> float:
    """Return bytes per number of a quantised weight on a rank.

    ways: ranks that its own bytes are divided among; copies of divided ones are of the layers in
    use (`gathered_width`).
    """
    settings = job.settings
    if not settings.kernels.quantised_parameters:
        return settings.width / ways + (copies_width(job) if ways == 1 else 0.0)
    if ways > 1:
        return WIDTHS[settings.kernels.quantised].copy / ways
    return copies_width(job)


def gathered_width(job: TrainingJob) -> float:
    """Return bytes per number of a layer's parameters that are gathered to be used."""
    own = 0.0 if job.settings.kernels.quantised_parameters else job.settings.width
    return own + copies_width(job)


def sent_width(job: TrainingJob) -> float:
    """Return bytes per number of a quantised weight that replicas gather."""
    kernels = job.settings.kernels
    if not kernels.quantised_parameters or kernels.quantised in GATHERED_EXACTLY:
        return job.settings.width
    return 1.0


def most_saved(job: TrainingJob) -> float:
    """Return bytes per parameter that quantised parameters save at most."""
    return max(0.0, job.settings.width - weight_width(job, 1))


def quantised_counts(modules: Iterable[Module]) -> tuple[int, int]:
    """Return the numbers in weights of products that are quantised: all, and routed experts'."""
    total = routed = 0
    for module in modules:
        if module.name in EXACT:
            continue
        found = [weight for weight in module.weights if len(weight.shape) == 2]
        inner, inner_routed = quantised_counts(module.children)
        total += module.repeat * (sum(weight.count for weight in found) + inner)
        own = sum(weight.count for weight in found if weight.expert)
        routed += module.repeat * (own + inner_routed)
    return total, routed
