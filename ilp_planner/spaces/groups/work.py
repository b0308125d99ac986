"""A lower bound for every plan with each number of micro-batches, before any table is made.

A stage takes no less than the layers on any of its replicas (`replica_seconds`). With u the slowest
stage, and stages s on replicas r of tp devices with x samples each:

    B micro-batches take at least (B - 1) max_s u_s + sum_s u_s

with a partial last one counted as a fraction.

*Work.* A sample of a layer keeps devices of type k busy for e_k device-seconds at least, for any
tensor degree and the samples of its replica. For any weight p_k of a device-second, all samples X
of all layers weigh no more than all devices during u:

    u sum_k p_k devices_k >= X sum_layers min_k p_k e_k

*Layers.* The replica with the most samples has at least a share X / (all devices / tp). The time of
that on its fastest type bounds every layer; nor do all of them, one after the other. If replicas of
a stage may differ in their degree, one of them has at least tp X / (all devices) samples, tp being
its own degree: otherwise all together would have fewer than X.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.schedule.batches import Batches
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.problem import Problem


def work_bounds(
    problem: Problem[GroupTables], degrees: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Return, for each number of micro-batches, lower bounds in seconds of all plans; NEVER if none
    fits, 0 if the costs have no bounds for replicas.

    Parameters
    ----------
    degrees: tensor-parallel degrees of each device type.
    """
    costs, cluster = problem.costs, problem.cluster
    most = max(problem.micro_batch_sizes)
    devices, layers = np.array(cluster.type_counts, float), len(costs.chain)
    busy = np.full((len(degrees), most, layers), np.inf)  # device-seconds of a sample
    times: dict[int, NDArray[np.float64]] = {}  # by tensor degree: of the fastest type
    for kind, name in enumerate(cluster.type_names):
        for tp in degrees[kind]:
            taken = costs.replica_seconds(name, tp, most)
            if taken is None:
                return dict.fromkeys(problem.micro_batches, 0.0)
            times[tp] = np.minimum(times[tp], taken) if tp in times else taken
            shares = np.arange(1, most + 1)[:, None]
            np.minimum(busy[kind], tp / shares * taken, out=busy[kind])
    busy = np.minimum.accumulate(busy, axis=1)
    found: dict[int, float] = {}
    for batches in problem.micro_batches:
        parted = Batches(problem.global_batch, batches)
        samples = parted.size
        slowest = _work(busy[:, samples - 1], devices, samples)
        single = _single(times, int(devices.sum()), samples, layers, mixed_tp=costs.mixed_tp)
        slowest = max(slowest, float(single.max(initial=0.0)))
        repeated = OneForwardOneBackward(batches, part=parted.part).repeats
        seconds = repeated * slowest + max(slowest, float(single.sum()))
        bound = costs.constant(batches) + seconds * (1 - ROUNDING)
        found[batches] = bound if bound < NEVER else NEVER
    return found


def _work(each: NDArray[np.float64], devices: NDArray[np.float64], samples: int) -> float:
    """Return a lower bound on the busy seconds of all devices. each: device-seconds that a sample
    takes, [types, L]."""
    able = np.isfinite(each)
    whole = each.sum(axis=1, where=able)
    if not (whole > 0).any() or (able.any(axis=1) & (whole == 0)).any():
        return 0.0
    price = np.divide(1.0, whole, out=np.zeros(whole.size), where=whole > 0)
    paid = np.where(able, price[:, None] * np.where(able, each, 0.0), np.inf)
    return float(samples * paid.min(axis=0).sum() / (price @ devices))


def _single(
    times: dict[int, NDArray[np.float64]],
    devices: int,
    samples: int,
    layers: int,
    *,
    mixed_tp: bool,
) -> NDArray[np.float64]:
    """Return the seconds that each layer takes at least in any group, [L]. mixed_tp: replicas of a
    stage may differ in their degree."""
    least = np.full(layers, np.inf)
    for tp, seconds in times.items():
        replicas = devices // tp
        if replicas:
            share = -(-samples * tp // devices) if mixed_tp else -(-samples // replicas)
            least = np.minimum(least, seconds[share - 1 : samples].min(axis=0))
    return least
