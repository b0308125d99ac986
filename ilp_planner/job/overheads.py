"""Memory that is neither a model's states nor its activations."""

from typing import Any

from ilp_planner.job.attention import legacy
from ilp_planner.job.modules import Module
from ilp_planner.job.moments import flow, scores_buffer
from ilp_planner.job.shard import shard_of
from ilp_planner.specs.training import TrainingJob

MIB = 2**20

# The thread of the backward pass has a BLAS handle of its own.
HANDLES = 2
# Deterministic: PyTorch insists on `CUBLAS_WORKSPACE_CONFIG`, of which only `:4096:8` is big enough
# for speed: 4096 KiB eight times.
HANDLE_DETERMINISTIC = 32.0 * MIB
# Transformer Engine multiplies groups of experts on so many streams, each with a workspace.
STREAMS = 4

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
    return flow(job).narrow * job.schedule.buffers


def spare_gradients(job: TrainingJob, module: Module) -> dict[tuple[int, ...], float]:
    """Return the stand-ins for weight gradients, bytes by shape.

    A gradient that is added straight into the buffer still needs a tensor for autograd:
    `get_dummy_wgrad` of Transformer Engine, also called by Megatron core, makes one for each shape
    of a product's weight and keeps it. The legacy model does without.
    """
    if not job.settings.kernels.accumulation_fusion or legacy(job):
        return {}
    if module.name in ("word_embeddings", "position_embeddings", "router"):
        return {}
    width = job.settings.width
    found: dict[tuple[int, ...], float] = {}
    for weight in module.weights:
        if len(weight.shape) == 2:
            found[weight.shape] = float(weight.count * width)
    for child in module.children:
        found |= spare_gradients(job, child)
    return found


def outside(job: TrainingJob, peak: Any) -> dict[str, Any]:
    """Return device memory beyond PyTorch's tensors, bytes by name.

    peak: bytes, a number or an array.
    """
    settings = job.settings
    groups = (job.tp, job.pp, job.dp * settings.cp, settings.cp, settings.ep)
    return {
        "CUDA context": CONTEXT,
        "NCCL": COMMUNICATOR * sum(size > 1 for size in groups),
        "fragmentation": FRAGMENTATION * peak,
    }
