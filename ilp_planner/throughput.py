"""What an iteration time is worth: tokens per second, shares of the peak, and what physics allows.

A model's FLOPs are those of its matrix products and convolutions, forward and backward; what a
causal mask makes needless and what is computed again are not counted ("model FLOPs utilisation",
Chowdhery et al. 2022, arXiv 2204.02311, appendix B, which counts the masked half).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.specs.architecture import Architecture
    from ilp_planner.specs.cluster import Device

PASSES = 3  # forward, and two backward: gradients of the input and of the weights
# 3 x 3 convolutions need as few products by F(4 x 4, 3 x 3), of those that they are counted with
# (Lavin and Gray 2016, arXiv 1509.09308). Nothing else that GPUs run needs fewer.
WINOGRAD = 4.0


class Throughput(NamedTuple):
    """What a plan does per second.

    samples, tokens: of all devices; tokens: 0 where samples have none. devices: that the plan uses.
    flops: model FLOP/s of one of them. utilisation: share of the peak of the training precision;
    None where a device type has no figure. busy: share of the iteration in which the slowest rank
    runs its stages.
    """

    samples: float
    tokens: float
    devices: int
    flops: float
    utilisation: float | None
    busy: float


def model_flops(architecture: Architecture) -> float:
    """Return the FLOPs of a sample, forward and backward."""
    table = architecture.flops
    forward = sum(table.get(name, 0) for name in architecture.operators)
    return PASSES * float(forward - architecture.masked_flops)


def physical_seconds(
    architecture: Architecture, devices: Iterable[Device], precisions: Iterable[str], samples: int
) -> float:
    """Return seconds that no iteration of so many samples on these devices undercuts, however it is
    planned: all products at the peak of the data sheet, and nothing else.

    Parameters
    ----------
    devices: every one of them. precisions: that products may have; the fastest counts.

    Returns
    -------
    0.0 where a device has no figure.
    """
    names, total = tuple(precisions), 0.0
    for device in devices:
        peaks = [rate for name, rate in (device.peak or {}).items() if name in names]
        if not peaks:
            return 0.0
        total += max(peaks)
    needed = model_flops(architecture)
    return samples * (needed if architecture.tokens else needed / WINOGRAD) / total


def physical_bound(problem: Problem[Any]) -> float:
    """Return seconds that no run of a problem undercuts; 0.0 where that cannot be said."""
    spec, cluster = problem.spec, problem.cluster
    if spec is None:
        return 0.0
    devices = (cluster.device_types[name] for name in cluster.type_of)
    names = precisions(problem)
    return physical_seconds(spec.architecture, devices, names, problem.global_batch)


def precisions(problem: Problem[Any]) -> tuple[str, ...]:
    """Return the precisions that products of a problem's plans may have, the fastest last."""
    settings = getattr(problem.costs, "settings", None)
    if settings is None:
        return () if problem.spec is None else (problem.spec.precision,)
    return tuple(filter(None, (settings.precision, settings.quantised)))


def throughput(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Throughput | None:
    """Return what a plan does per second; None where the model's dimensions are not known."""
    spec, seconds, cluster = problem.spec, evaluation.iteration_time, problem.cluster
    if spec is None or not 0 < seconds < float("inf"):
        return None
    types = [cluster.device_types[cluster.type_of[device]] for device in plan.used]
    peaks = [(device.peak or {}).get(spec.precision, 0.0) for device in types]
    flops = model_flops(spec.architecture) * plan.global_batch / seconds
    loads = plan.per_rank([stage.time for stage in evaluation.stages])
    return Throughput(
        samples=plan.global_batch / seconds,
        tokens=plan.global_batch * spec.architecture.tokens / seconds,
        devices=len(types),
        flops=flops / len(types),
        utilisation=flops / sum(peaks) if all(peaks) else None,
        busy=min(1.0, plan.micro_batches * max(loads) / seconds),
    )
