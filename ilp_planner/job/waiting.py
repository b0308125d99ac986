"""Tensors that wait for gradients of weights: of a schedule that divides backward passes, or of an
output layer whose gradients are deferred.

PyTorch's first part (`stage_backward_input` of `torch.distributed.pipelining._backward`) stops at
every operation with weights, and keeps the gradient of its output: of products and norms. It
retains the graph, so that all that the forward pass kept stays as well until the second part has
ended (`stage_backward_weight`). The first stage has no first part: only the gradient of its output
waits (`backward_one_chunk` of `stage.py`).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from ilp_planner.job.shard import shard_of
from ilp_planner.job.work import Product, layer_work, output_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.job.modules import Module
    from ilp_planner.job.work import ModuleWork
    from ilp_planner.specs.training import TrainingJob


def gradients_waiting(job: TrainingJob, kind: str, module: Module) -> float:
    """Return the bytes of gradients per micro-batch that wait in a part of a model, by its name in
    `job.parts.KINDS`; 0 if nothing is divided, and for parts of first stages only."""
    if not job.schedule.divides:
        return 0.0
    if kind in ("layer", "expert layer"):
        work = layer_work(job, experts=kind == "expert layer")
    elif kind == "output":
        work = output_work(job)
    else:
        return 0.0
    return (sum(_norms(module)) + _products(work)) * job.settings.width


def deferred_output(job: TrainingJob) -> float:
    """Return the bytes that the output layer keeps until the pipeline flushes, if its weight
    gradients are deferred: its input, divided as sequence parallelism divides it, and the gradient
    of the logits, of every deferred micro-batch (Megatron's `ColumnParallelLinear`,
    `drain_embedding_wgrad_compute`)."""
    kernels = job.settings.kernels
    if not kernels.deferred_output or job.pp == 1:
        return 0.0
    sizes = shard_of(job)
    numbers = math.prod(sizes.columns(job.padded_vocab)) + math.prod(sizes.narrow)
    count = min(job.micro_batches, kernels.deferral_limit or job.micro_batches)
    return float(count * numbers * sizes.width)


def _products(work: Iterable[ModuleWork]) -> float:
    """Return how many numbers the products with weights give."""
    return sum(
        kernel.shape.m * kernel.shape.n * kernel.shape.copies
        for one in work
        for kernel in one.forward
        if one.of_weights and isinstance(kernel.shape, Product)
    )


def _norms(module: Module) -> Iterator[float]:
    """Yield how many numbers each norm of a module gives: as many as it keeps of its input, before
    the statistics of that."""
    for tensor, following in pairwise(module.kept):
        if following.name == "statistics":
            yield math.prod(tensor.shape)
    for child in module.children:
        yield from _norms(child)
