"""A lower bound for all plans of a training job, before any part of the space is examined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.spaces.throughput import least_flops

ARITHMETIC = "arithmetic"  # what proves such bounds, and those of single parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts


def work_bound(problem: Problem[MegatronCosts], nodes: Iterable[int]) -> float:
    """Return a lower bound in seconds of plans: the model's products of all samples, at the rates
    that no kernel exceeds, on all devices at once.

    For any degrees, the ranks of a replica together have all products of a sample; padding,
    repetition and recomputation only add. A device takes its own one after the other.

    Parameters
    ----------
    nodes: the numbers of the usable ones.

    Returns
    -------
    0.0 if times are a profile's, and may be anything, or a device has no figures.
    """
    total = 0.0
    for device, count in problem.cluster.count_types(nodes).items():
        rate = _fastest(problem, device)
        if not rate:
            return 0.0
        total += count * rate
    flops = problem.global_batch * least_flops(problem)
    return flops / total * (1 - ROUNDING)


def sample_seconds(problem: Problem[MegatronCosts]) -> float:
    """Return a lower bound in seconds of a sample's products on one device, of any type; 0.0 as
    `work_bound` has it."""
    rates = [_fastest(problem, device) for device in problem.cluster.type_names]
    if not all(rates):
        return 0.0
    return least_flops(problem) / max(rates) * (1 - ROUNDING)


def _fastest(problem: Problem[MegatronCosts], device: str) -> float:
    """Return the rate of a device type that no kernel exceeds; 0.0 if there is no figure, or times
    are a profile's, and may be anything."""
    costs = problem.costs
    if costs.profile is not None or problem.spec is None:
        return 0.0
    names = {name for s in costs.choices for name in (s.precision, s.quantised) if name}
    of = problem.cluster.device_types[device]
    return max(
        (rates_of(of).fastest(name) for name in names if name in (of.peak or {})), default=0.0
    )
