"""The arithmetic of a training job, and what recomputation adds to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.anatomy.operators import shares_again
from ilp_planner.anatomy.recompute import recomputed_layers
from ilp_planner.anatomy.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.anatomy.work import ModuleWork
    from ilp_planner.specs.training import TrainingJob


def extra_flops(job: TrainingJob) -> float:
    """Return what recomputation adds to the arithmetic of an iteration, as a share of it."""
    kinds = {experts: layer_work(job, experts=experts) for experts in set(job.model.expert_layers)}
    base = sum(arithmetic(kinds[experts]) for experts in job.model.expert_layers)
    base += arithmetic(embedding_work(job)) + arithmetic(output_work(job))
    if job.model.prediction_layers:
        base += job.model.prediction_layers * arithmetic(prediction_work(job))
    return _again(job, kinds) / base


def recomputed_flops(job: TrainingJob) -> float:
    """Return the FLOPs of a sample that are computed again, on all ranks together.

    They are counted as those of the model are (`throughput.model_flops`), whatever the kernels run:
    products alone, and scores without what a causal mask makes needless.
    """
    alone = replace(job, tp=1, dp=1, settings=Settings(recompute=job.settings.recompute))
    kinds = {
        experts: layer_work(alone, experts=experts) for experts in set(job.model.expert_layers)
    }
    return _again(alone, kinds) / job.micro_batch


def _again(job: TrainingJob, kinds: Mapping[bool, Sequence[ModuleWork]]) -> float:
    """Return the FLOPs of a micro-batch that are computed again. kinds: work of a layer with and
    without experts."""
    recompute, extra = job.settings.recompute, 0.0
    shares = {experts: shares_again(job, experts) for experts in kinds}
    for k, stage in enumerate(job.stages):
        start, again = job.pipeline.starts[k], recomputed_layers(job, stage.layers)
        for i, experts in enumerate(job.model.expert_layers[start : start + stage.layers]):
            if i < again:
                extra += arithmetic(kinds[experts], backward=False)
            elif named := [s for n, s in shares[experts].items() if n in recompute.modules]:
                extra += sum(
                    max(share(work.name) for share in named) * arithmetic([work], backward=False)
                    for work in kinds[experts]
                )
    return extra


def arithmetic(work: Sequence[ModuleWork], *, backward: bool = True) -> float:
    """Return FLOPs, forward and, if asked, backward."""
    total = 0.0
    for module in work:
        total += sum(kernel.flops for kernel in module.forward)
        if backward:
            total += sum(kernel.flops for kernel in module.backward)
    return total
