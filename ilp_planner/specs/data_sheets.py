"""What is known of well-known GPUs, for clusters whose description leaves it out."""

import re
from collections.abc import Iterable

from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.training import HOPPER

# bytes/s, NVIDIA's data sheets and architecture papers; of variants, the one in most servers.
MEMORY_BANDWIDTH = {
    "p100": 732e9,
    "v100": 900e9,
    "t4": 320e9,
    "a10g": 600e9,
    "a100": 2039e9,
    "l4": 300e9,
    "l40s": 864e9,
    "h100": 3350e9,
    "h200": 4800e9,
    "b200": 8000e9,
}


# Major compute capability (NVIDIA, "CUDA GPUs - Compute Capability").
GENERATIONS = {
    "k80": 3,
    "p100": 6,
    "v100": 7,
    "t4": 7,
    "a10g": 8,
    "a100": 8,
    "a800": 8,
    "l4": 8,
    "l40s": 8,
    "h100": 9,
    "h800": 9,
    "h200": 9,
    "b200": 10,
    "gb200": 10,
}
# Below it neither FlashAttention 2 nor the fused attention of Transformer Engine runs (their
# installation guides).
FLASH = 8


def generation(cluster: ClusterSpec, types: Iterable[str] | None = None) -> int:
    """Return the major compute capability of the oldest device type of a cluster, or of some of its
    types; that of Hopper where no name is known."""
    names = cluster.type_names if types is None else types
    found = [_generation(cluster.device_types[name]) for name in names]
    return min((number for number in found if number is not None), default=HOPPER)


def _generation(device: Device) -> int | None:
    known = (GENERATIONS.get(_family(text)) for text in (device.profile, device.name))
    return next((number for number in known if number is not None), None)


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
        bandwidth = device.memory_bandwidth or _known(device)
        if bandwidth is not None:
            rates[name] = bandwidth * device.sustained_bandwidth
    return rates


def _known(device: Device) -> float | None:
    for text in (device.profile, device.name):
        if _family(text) in MEMORY_BANDWIDTH:
            return MEMORY_BANDWIDTH[_family(text)]
    return None


def _family(text: str) -> str:
    return re.split(r"[^a-z0-9]", text.casefold(), maxsplit=1)[0]
