"""What the table of GPUs knows of a cluster's devices where its description leaves it out."""

from collections.abc import Iterable

from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.generations import AMPERE, HOPPER
from ilp_planner.specs.gpus import Gpu, gpu, of_family

# Below it neither FlashAttention 2 nor the fused attention of Transformer Engine runs (their
# installation guides).
FLASH = AMPERE


def generation(cluster: ClusterSpec, types: Iterable[str] | None = None) -> int:
    """Return the major compute capability of the oldest device type of a cluster, or of some of its
    types; that of Hopper where no name is known."""
    names = cluster.type_names if types is None else types
    rows = [known_gpu(cluster.device_types[name]) for name in names]
    return min((row.generation for row in rows if row), default=HOPPER)


def known_gpu(device: Device) -> Gpu | None:
    """Return the row of the GPU that a device type names, or that its profile's name or its own
    begins with; None where none is known."""
    if device.gpu:
        return gpu(device.gpu)
    return of_family(device.profile) or of_family(device.name)


def flash_attention(cluster: ClusterSpec) -> bool:
    """Tell whether fused attention runs on every device type of a cluster."""
    return generation(cluster) >= FLASH


def memory_rates(cluster: ClusterSpec) -> dict[str, float]:
    """Return device type -> sustained bytes/s of its memory, for the types where it is known.

    The cluster's own figure, otherwise that of the GPU whose name begins the type's or its
    profile's.
    """
    rates = {}
    for name in cluster.type_names:
        device = cluster.device_types[name]
        row = known_gpu(device)
        bandwidth = device.memory_bandwidth or (row.memory_bandwidth if row else None)
        if bandwidth is not None:
            rates[name] = bandwidth * device.sustained_bandwidth
    return rates
