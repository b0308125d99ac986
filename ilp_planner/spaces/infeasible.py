"""Why no plan exists: the layer that fits nowhere and by how many bytes, memory, or the profile."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.units import format_bytes
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solvers.base import Limits

if TYPE_CHECKING:
    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.inputs.problem import Problem

UNLIMITED = 1e18  # bytes
ANY_PLAN = Limits(seconds=2.0, gap=0.999)


def explain_layers(problem: Problem[GroupTables], memory: str, *, alone: bool = True) -> str:
    """Return one line on the layer that fits nowhere, on the profile, or else on memory.

    Parameters
    ----------
    memory: a remark on memory in sum. alone: every device by itself has to hold its layers.
    """
    return (alone and misfit(problem)) or (
        unprofiled(problem) if exists_without_limits(problem) is False else memory
    )


def misfit(problem: Problem[GroupTables]) -> str:
    """Say the layer that fits no device by itself, and the missing bytes on the best device, for
    the worst layer; nothing when each one fits somewhere."""
    costs = problem.costs
    cluster = problem.cluster
    there = dict(zip(cluster.type_names, cluster.type_counts, strict=True))
    places, needs = [], []
    for device, degrees in costs.degrees().items():
        for tp in degrees:
            need = costs.layer_memory(device, tp)
            if need is not None and tp <= min(problem.max_tp, there.get(device, 0)):
                places.append((device, tp))
                needs.append(need)
    if not places:
        return ""
    limit = np.array([problem.memory_limits[device] for device, _ in places])
    shares = np.array(needs) / limit[:, None]
    layer = int(shares.min(axis=0).argmax())
    best = int(shares[:, layer].argmin())
    (device, tp), bytes_needed = places[best], float(needs[best][layer])
    missing = bytes_needed - float(limit[best])
    if missing <= 0:
        return ""
    return (
        f"layer {layer} ({costs.chain[layer]}) fits no device: at least it needs "
        f"{format_bytes(bytes_needed)} on each {device} (tp {tp}), {format_bytes(missing)} more "
        f"than the limit of {format_bytes(float(limit[best]))}"
    )


def exists_without_limits(problem: Problem[GroupTables]) -> bool | None:
    """Tell whether there would be a plan if memory had no end; None when that was not found out."""
    from ilp_planner.optimize.solve import solve

    limits = dict.fromkeys(problem.memory_limits, UNLIMITED)
    if limits == dict(problem.memory_limits):
        return False
    endless = dataclasses.replace(
        problem, costs=problem.costs.with_limits(limits), memory_limits=limits
    )
    result = solve(endless, limits=ANY_PLAN)
    if result.plan is not None:
        return True
    return False if result.status is Status.INFEASIBLE else None


def unprofiled(problem: Problem[GroupTables]) -> str:
    """Say that the profile lacks rows, not the devices memory."""
    sizes = sorted({problem.global_batch // count for count in problem.micro_batches})
    asked = f"{', '.join(map(str, sizes[:3]))}{', ...' if len(sizes) > 3 else ''}"
    known = []
    for device, degrees in problem.costs.degrees().items():
        usable = [str(tp) for tp in degrees if tp <= problem.max_tp]
        known.append(f"{device} tp {', '.join(usable) or 'none'}")
    text = f"no group of devices is profiled for micro-batches of {asked} samples, whatever its "
    text += f"memory: {problem.profile_source} has {'; '.join(known)}"
    most = problem.costs.largest_samples
    if most is not None:
        text += f", up to {most} samples per replica"
    return text
