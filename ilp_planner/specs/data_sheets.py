"""What is known of well-known GPUs, for clusters whose description leaves it out."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.training import HOPPER


class Sheet(NamedTuple):
    """A GPU. generation: major compute capability (NVIDIA, "CUDA GPUs - Compute Capability").
    bandwidth: of its memory, bytes/s (NVIDIA's data sheets and architecture papers); of variants,
    that in most servers; None where nothing asks for it."""

    generation: int
    bandwidth: float | None = None


SHEETS = {
    "k80": Sheet(3),
    "p100": Sheet(6, 732e9),
    "v100": Sheet(7, 900e9),
    "t4": Sheet(7, 320e9),
    "a10g": Sheet(8, 600e9),
    "a100": Sheet(8, 2039e9),
    "a800": Sheet(8),
    "l4": Sheet(8, 300e9),
    "l40s": Sheet(8, 864e9),
    "h100": Sheet(9, 3350e9),
    "h800": Sheet(9),
    "h200": Sheet(9, 4800e9),
    "b200": Sheet(10, 8000e9),
    "gb200": Sheet(10),
}
# Below it neither FlashAttention 2 nor the fused attention of Transformer Engine runs (their
# installation guides).
FLASH = 8


def generation(cluster: ClusterSpec, types: Iterable[str] | None = None) -> int:
    """Return the major compute capability of the oldest device type of a cluster, or of some of its
    types; that of Hopper where no name is known."""
    names = cluster.type_names if types is None else types
    sheets = [_sheets(cluster.device_types[name]) for name in names]
    return min((known[0].generation for known in sheets if known), default=HOPPER)


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
        known = (sheet.bandwidth for sheet in _sheets(device))
        bandwidth = device.memory_bandwidth or next(filter(None, known), None)
        if bandwidth is not None:
            rates[name] = bandwidth * device.sustained_bandwidth
    return rates


def _sheets(device: Device) -> list[Sheet]:
    """Return the GPUs whose names begin that of a type's profile, or its own."""
    texts = (device.profile, device.name)
    families = [re.split(r"[^a-z0-9]", text.casefold(), maxsplit=1)[0] for text in texts]
    return [SHEETS[family] for family in families if family in SHEETS]
