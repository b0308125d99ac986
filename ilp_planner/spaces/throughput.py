"""Rates of an iteration time: tokens per second, shares of the peak, and the physical bound.

A model's FLOPs are its matrix products and convolutions, forward and backward; masked products and
recomputation are not counted ("model FLOPs utilisation", MFU, Chowdhery et al. 2022, arXiv
2204.02311, appendix B, counting the masked half). With recomputation of the same products, they are
the hardware's ("hardware FLOPs utilisation", HFU, Korthikanti et al. 2022, arXiv 2205.05198,
counting the masked half too): recomputation raises HFU without a token more per second.

The bubble is the share of the iteration in which a pipeline rank, in the mean of all, is at work on
no micro-batch while some rank still is: by the order of operations if the judge runs that, by the
formula of the schedule if the time is by it. In 1F1B with p equal stages and m micro-batches it is
(p - 1) / (m + p - 1) of the pipeline's seconds; shares of an iteration have gradients and the
optimiser's step besides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.tuning import (
    FORWARD_ONLY,
    TRAINED,
    kinds_of_layers,
    parts_of_kind,
    trains_output,
    trains_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.architecture import Architecture
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.tuning import Tuning

PASSES = 3  # forward, and two backward: gradients of the input and of the weights
# 3 x 3 convolutions need as few products by F(4 x 4, 3 x 3), of those that they are counted with
# (Lavin and Gray 2016, arXiv 1509.09308). Nothing else that GPUs run needs fewer.
WINOGRAD = 4.0


class Throughput(NamedTuple):
    """The rates of a plan.

    samples, tokens: of all devices; tokens: 0 if samples have none. devices: that the plan uses.
    flops: model FLOP/s of one of them. mfu, hfu: shares of the peak of the training precision that
    the model's and the hardware's FLOPs are; None if a device type has no figure, hfu also if plans
    do not state recomputation. bubble: of the iteration, above; None if the cost model does not
    tell the time of micro-batches. busy: share of the slowest rank's work in the iteration.
    padding: share of tokens that are none of documents; None where samples have one length. host:
    share of the iteration by which it would be shorter if the host started all kernels at once;
    None where that is not told. graphs: value of CUDA graphs that would hide it; empty if there is
    none, or some are there.
    """

    samples: float
    tokens: float
    devices: int
    flops: float
    mfu: float | None
    hfu: float | None
    bubble: float | None
    busy: float
    padding: float | None = None
    host: float | None = None
    graphs: str = ""


@lru_cache(maxsize=64)  # of a cluster with thousands of sets of nodes it is asked for each
def model_flops(architecture: Architecture, tuning: Tuning | None = None) -> float:
    """Return the FLOPs of a sample, forward and backward.

    tuning: what is trained; None: all of the model. A frozen product has no gradient of its
    weights, and layers below all that is trained have no backward pass. Of layers with frozen parts
    only gradients of inputs are counted, also of attention's scores, and nothing of adapters: no
    training undercuts that.
    """
    table = architecture.flops
    model = as_decoder(architecture) if tuning else None
    if tuning is None or model is None:
        forward = sum(table.get(name, 0) for name in architecture.operators)
        return PASSES * float(forward - architecture.masked_flops)
    whole, most = 0.0, 0
    for layer in kinds_of_layers(model, tuning):
        parts = parts_of_kind(model, layer.kind)
        passes = _passes(layer.state, whole=not any(map(tuning.freezes, parts)))
        whole += passes * model.flops[f"{LAYER_KINDS[layer.kind].operator}-layer"]
        most = max(most, passes)
    below = most > 1 or trains_words(model, tuning)
    whole += (1 + below + trains_output(model, tuning)) * model.flops["output"]
    return float(whole - most * model.masked_flops)


def _passes(state: str, *, whole: bool) -> int:
    """Return how often the products of a layer are computed. whole: all of its parts are trained
    where it is."""
    if state == FORWARD_ONLY:
        return 1
    return PASSES if state == TRAINED and whole else PASSES - 1


def least_flops(problem: Problem[Any]) -> float:
    """Return the FLOPs of a sample of the plan of a problem that has the fewest."""
    assert problem.spec is not None
    choices = getattr(problem.costs, "choices", ())
    tunings = {getattr(choice, "tuning", None) for choice in choices} or {None}
    return min(model_flops(problem.spec.architecture, tuning) for tuning in tunings)


def physical_seconds(
    architecture: Architecture,
    devices: Iterable[Device],
    precisions: Iterable[str],
    samples: int,
    flops: float | None = None,
) -> float:
    """Return seconds that no iteration of so many samples on these devices undercuts, however it is
    planned: all products at the peak of the data sheet, or at the rate that was measured above it,
    and nothing else.

    Parameters
    ----------
    devices: every one of them. precisions: that products may have; the fastest counts. flops: of a
        sample; None: those of training all of the model.

    Returns
    -------
    0.0 if a device has no figure.
    """
    names, total = tuple(precisions), 0.0
    for device in devices:
        above = above_data_sheet(device)
        peaks = [rate * above for name, rate in (device.peak or {}).items() if name in names]
        if not peaks:
            return 0.0
        total += max(peaks)
    needed = model_flops(architecture) if flops is None else flops
    return samples * (needed if architecture.tokens else needed / WINOGRAD) / total


def above_data_sheet(device: Device) -> float:
    """Return the rate that products reached, of the data sheet's peak, where cards run above its
    clock; 1 of others."""
    return 1.0 if device.kernels is None else max(1.0, device.kernels.products["bf16"].e)


def physical_bound(problem: Problem[Any]) -> float:
    """Return seconds that no run of a problem undercuts; 0.0 if that is unknown."""
    spec, cluster = problem.spec, problem.cluster
    if spec is None:
        return 0.0
    devices = (cluster.device_types[name] for name in cluster.type_of)
    names = precisions(problem)
    flops = least_flops(problem)
    return physical_seconds(spec.architecture, devices, names, problem.global_batch, flops)


def precisions(problem: Problem[Any]) -> tuple[str, ...]:
    """Return the precisions that products of a problem's plans may have, the fastest last."""
    settings = getattr(problem.costs, "settings", None)
    if settings is None:
        return () if problem.spec is None else (problem.spec.precision,)
    return tuple(filter(None, (settings.precision, settings.quantised)))


class Iteration(NamedTuple):
    """The time of an iteration. samples: in it. seconds: of it. again: FLOPs of a sample that are
    recomputed; None: not known. bubble, busy: as `Throughput` has them. micro_batch: samples of a
    replica. tuning: what is trained. host, graphs: as `Throughput` has them."""

    samples: int
    seconds: float
    again: float | None
    bubble: float | None
    busy: float
    tuning: Tuning | None = None
    micro_batch: int = 1
    host: float | None = None
    graphs: str = ""


def rates_of(
    architecture: Architecture, precision: str, devices: Sequence[Device], done: Iteration
) -> Throughput:
    """Return the rates of devices.

    Parameters
    ----------
    precision: of training; shares are of its peak. devices: every one that is used.
    """
    peak_of = {id(one): (one.peak or {}).get(precision, 0.0) for one in devices}
    peaks = [peak_of[id(one)] for one in devices]
    rate, needed = done.samples / done.seconds, model_flops(architecture, done.tuning)
    mfu = needed * rate / sum(peaks) if all(peaks) else None
    return Throughput(
        samples=rate,
        tokens=rate * architecture.tokens,
        devices=len(devices),
        flops=needed * rate / len(devices),
        mfu=mfu,
        hfu=None if mfu is None or done.again is None else mfu * (1 + done.again / needed),
        bubble=done.bubble,
        busy=min(1.0, done.busy),
        padding=_padding(architecture, done.micro_batch),
        host=done.host,
        graphs=done.graphs,
    )


def _padding(architecture: Architecture, micro_batch: int) -> float | None:
    """Return the share of padding in samples of documents of different lengths."""
    model = as_decoder(architecture)
    if model is None or model.lengths is None:
        return None
    return model.lengths.padding(model.sequence, micro_batch)


def throughput(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Throughput | None:
    """Return the rates of a plan; None if the model's dimensions are not known."""
    spec, seconds, cluster = problem.spec, evaluation.iteration_time, problem.cluster
    if spec is None or not 0 < seconds < float("inf"):
        return None
    loads = plan.per_rank([stage.time for stage in evaluation.stages])
    done = Iteration(
        samples=plan.global_batch,
        seconds=seconds,
        again=problem.space.recomputed_flops(problem, plan),
        bubble=bubble(plan, evaluation),
        busy=plan.micro_batches * max(loads) / seconds,
        tuning=getattr(getattr(plan, "settings", None), "tuning", None),
        micro_batch=plan.micro_batch_size // getattr(plan.stages[0], "dp", 1),
        host=problem.space.host_share(problem, plan, seconds),
        graphs=problem.space.graphs_beside(problem, plan),
    )
    devices = [cluster.device_types[name] for name in map(cluster.type_of.__getitem__, plan.used)]
    settings, architecture = getattr(plan, "settings", None), spec.architecture
    if settings is not None and isinstance(architecture, Decoder):
        architecture = architecture.on_ranks(settings.cp)
    return rates_of(architecture, spec.precision, devices, done)


def bubble(plan: AnyPlan, evaluation: Evaluation) -> float | None:
    """Return the waiting share of an iteration, in the mean of pipeline ranks; None if the cost
    model does not tell the time of micro-batches."""
    cost = evaluation.cost
    if cost is None or not cost.passing or not 0 < cost.iteration_time < float("inf"):
        return None
    loads = plan.per_rank([stage.time for stage in cost.stages])
    working = plan.schedule.counted * sum(loads) / len(loads)
    passing = sum(cost.terms[name] for name in cost.passing)
    return waiting_share(passing, working, cost.iteration_time)


def waiting_share(passing: float, working: float, seconds: float) -> float:
    """Return the waiting share of an iteration's seconds; rounding of a single rank counts as none.

    passing: seconds that micro-batches are in the pipeline. working: seconds in which a rank runs
    its stages, in the mean of all.
    """
    waiting = passing - working
    return waiting / seconds if waiting > ROUNDING * working else 0.0
