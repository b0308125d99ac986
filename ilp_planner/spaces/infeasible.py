"""Why no plan exists: the layer that fits nowhere and by how many bytes, memory, or the profile."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.layers import LayerCosts
from ilp_planner.result import Status
from ilp_planner.solvers.base import Limits
from ilp_planner.spaces.metis.costs import MetisCosts
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from ilp_planner.group_problem import GroupProblem

UNLIMITED = 1e18  # bytes
ANY_PLAN = Limits(seconds=2.0, gap=0.999)


def explain_layers(problem: GroupProblem) -> str:
    """Return one line where layers fit or do not fit a device by themselves."""
    if problem.memory_rule == "device":
        text = misfit(problem)
        if text:
            return text
    if exists_without_limits(problem) is False:
        return unprofiled(problem)
    return too_little_memory(problem)


def too_little_memory(problem: GroupProblem) -> str:
    """Return one line that blames memory."""
    limits = ", ".join(
        f"{name} {format_bytes(limit)}" for name, limit in problem.memory_limits.items()
    )
    if problem.memory_rule == "metis":
        return (
            "in every plan the devices of some stage would need more memory, by Metis's rule, than "
            f"they have together ({limits} each)"
        )
    return f"in every plan some device would need more memory than it has ({limits})"


def misfit(problem: GroupProblem) -> str:
    """Say which layer fits no device by itself and how much is missing where it is nearest to
    fitting, for the layer that misses most; nothing when each one fits somewhere."""
    costs = problem.costs
    if not isinstance(costs, LayerCosts | MetisCosts):
        return ""
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
        f"layer {layer} ({costs.layers[layer]}) fits no device: at least it needs "
        f"{format_bytes(bytes_needed)} on each {device} (tp {tp}), {format_bytes(missing)} more "
        f"than the limit of {format_bytes(float(limit[best]))}"
    )


def exists_without_limits(problem: GroupProblem) -> bool | None:
    """Tell whether there would be a plan if memory had no end; None when that was not found out."""
    from ilp_planner.search.group_solve import solve_groups

    costs = problem.costs
    if not isinstance(costs, LayerCosts | MetisCosts):
        return None
    limits = dict.fromkeys(problem.memory_limits, UNLIMITED)
    if limits == dict(problem.memory_limits):
        return False
    endless = dataclasses.replace(problem, costs=costs.with_limits(limits), memory_limits=limits)
    result = solve_groups(endless, limits=ANY_PLAN)
    if result.plan is not None:
        return True
    return False if result.status is Status.INFEASIBLE else None


def unprofiled(problem: GroupProblem) -> str:
    """Say that what is missing is in the profile, not memory."""
    sizes = sorted({problem.global_batch // count for count in problem.micro_batches})
    asked = f"{', '.join(map(str, sizes[:3]))}{', ...' if len(sizes) > 3 else ''}"
    known = []
    for device, degrees in problem.costs.degrees().items():
        usable = [str(tp) for tp in degrees if tp <= problem.max_tp]
        known.append(f"{device} tp {', '.join(usable) or 'none'}")
    text = f"no group of devices is profiled for micro-batches of {asked} samples, whatever its "
    text += f"memory: {problem.profile_source} has {'; '.join(known)}"
    if isinstance(problem.costs, MetisCosts):
        most = problem.costs.formulas.largest_samples
        text += f", up to {most} samples per replica"
    return text
