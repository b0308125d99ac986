"""Figures of the table of GPUs for a cluster's devices, if its description lacks them."""

from collections.abc import Iterable

from ilp_planner.specs.cluster import ClusterSpec, Device
from ilp_planner.specs.gpu_architectures import HOPPER, GpuArchitecture, oldest
from ilp_planner.specs.gpus import Gpu, gpu, nearest, of_family


def gpu_architecture(cluster: ClusterSpec, types: Iterable[str] | None = None) -> GpuArchitecture:
    """Return the architecture of the oldest device type of a cluster, or of some of its types; for
    types without a known GPU that of the others, else Hopper, as `architecture_notes` say."""
    every = cluster.type_names
    for names in (every if types is None else types, every):
        rows = [known_gpu(cluster.device_types[name]) for name in names]
        if known := [row.architecture for row in rows if row]:
            return oldest(known)
    return HOPPER


def known_gpu(device: Device) -> Gpu | None:
    """Return the row of the GPU that a device type names, or that its profile's name or its own
    begins with; None if none is known."""
    if device.gpu:
        return gpu(device.gpu)
    return of_family(device.profile) or of_family(device.name)


def architecture_notes(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a note on device types without a known GPU: the assumption of `gpu_architecture`, and
    how a cluster file names them."""
    types = cluster.device_types
    unknown = [name for name in cluster.type_names if known_gpu(types[name]) is None]
    if not unknown:
        return ()
    taken, s = gpu_architecture(cluster), "s" * (len(unknown) > 1)
    fused = "with" if taken.flash_attention else "without"
    known = len(unknown) < len(cluster.type_names)
    of = "the oldest type that is known here" if known else "H100"
    like = next((row for name in unknown for row in nearest(name)), "H100-80GB")
    return (
        f"device type{s} {', '.join(unknown)}: found no GPU of the table by this name; the "
        f"architecture {taken.name}, as of {of}, {fused} fused attention is assumed; gpu = "
        f'"..." in [devices.{unknown[0]}] of the cluster file says what it is, as in gpu = '
        f'"{like}"',
    )


def flash_notes(cluster: ClusterSpec) -> tuple[str, ...]:
    """Return a note on device types for which the flash-attention package has several versions, as
    no launch line says the installed one."""
    found = []
    for name in cluster.type_names:
        device, row = cluster.device_types[name], known_gpu(cluster.device_types[name])
        others = sorted({*row.architecture.flash} - {device.flash_attention}) if row else []
        if others and device.kernels is not None:
            found.append(
                f"attention of the flash-attention package takes as long as version "
                f"{device.flash_attention} does on {name}; flash_attention = {others[-1]} in "
                f"[devices.{name}] of the cluster file says that version {others[-1]} is installed"
            )
    return tuple(found)


def memory_rates(cluster: ClusterSpec) -> dict[str, float]:
    """Return device type -> sustained bytes/s of its memory, for the types with a known one.

    The cluster's own figure, otherwise that of the GPU with a name that begins the type's or its
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
