"""The devices of an analysed job, as far as its cluster is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.specs.data_sheets import architecture_notes, gpu_architecture
from ilp_planner.specs.gpu_architectures import HOPPER, GpuArchitecture
from ilp_planner.specs.recipes import recipes_of

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import ClusterSpec

ASSUMED = "8xH100-80GB"  # GPUs of a job that says none


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a job, as far as known. memory: bytes; count: 0 when not known.
    gpu_architecture: as in `TrainingJob`. recipes: of quantised products that they have; None:
    unknown.
    """

    name: str = ""
    memory: float | None = None
    per_node: int = 8
    count: int = 0
    gpu_architecture: GpuArchitecture = HOPPER
    recipes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def devices_of(spec: ClusterSpec | None, limit: float | None = None) -> Devices:
    """Return the devices of a cluster; of several types, the one with least memory.

    Parameters
    ----------
    limit: bytes of a device that may be used; None: all.
    """
    if spec is None:
        return Devices(memory=limit)
    least = min((spec.device_types[name] for name in spec.type_names), key=lambda d: d.memory)
    sizes = sorted({group.devices for group in spec.nodes})
    notes = [*spec.notes, *architecture_notes(spec)]
    if len(spec.type_names) > 1:
        notes.append(f"of the cluster's device types, {least.name} has the least memory")
    if len(sizes) > 1:
        every = ", ".join(map(str, sizes))
        notes.append(f"nodes have {every} devices; groups are named as if all had {sizes[0]}")
    return Devices(
        name=least.name,
        memory=min(float(least.memory), limit or math.inf),
        per_node=sizes[0],
        count=spec.device_count,
        gpu_architecture=gpu_architecture(spec),
        recipes=recipes_of(least),
        notes=tuple(notes),
    )
