"""What is known of well-known GPUs, for clusters whose description leaves it out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import ClusterSpec, Device

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


# Compute capability below 8.0: neither FlashAttention 2 nor the fused attention of Transformer
# Engine runs on them (their installation guides).
WITHOUT_FLASH = ("p100", "v100", "t4", "k80")


def flash_attention(cluster: ClusterSpec) -> bool:
    """Tell whether fused attention runs on every device type of a cluster."""
    types = [cluster.device_types[name] for name in cluster.type_names]
    return not any(_family(text) in WITHOUT_FLASH for d in types for text in (d.profile, d.name))


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
