"""The arithmetic of a training job, and the addition of recomputation."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.job.operators import shares_again
from ilp_planner.job.recompute import recomputed_layers
from ilp_planner.job.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.specs.training import Settings, TrainingJob
from ilp_planner.specs.tuning import FORWARD_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.job.work import ModuleWork
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.gpu_architectures import GpuArchitecture


class Again(NamedTuple):
    """FLOPs of a layer's forward pass that are recomputed. whole: all of it; parts: by the names of
    selective recomputation."""

    whole: float
    parts: float


def extra_flops(job: TrainingJob) -> float:
    """Return the addition of recomputation to the arithmetic of an iteration, as a share."""
    kinds = _layers(job)
    base = sum(arithmetic(kinds[number]) for number in job.layer_kinds)
    base += arithmetic(embedding_work(job)) + arithmetic(output_work(job))
    if job.model.prediction_layers:
        base += job.model.prediction_layers * arithmetic(prediction_work(job))
    return _again(job, _of_layers(job, kinds)) / base


def _layers(job: TrainingJob) -> Mapping[int, Sequence[ModuleWork]]:
    """Return the work of a layer of each kind that a job has."""
    found = {}
    for number in set(job.layer_kinds):
        kind, state = job.kind(number)
        found[number] = layer_work(job, kind=kind, state=state)
    return found


def recomputed_flops(job: TrainingJob) -> float:
    """Return the FLOPs of a sample that are recomputed, on all ranks together.

    They are counted like the model's (`throughput.model_flops`), for any kernels: products alone,
    and scores without the part that a causal mask makes needless.
    """
    recompute = replace(job.settings.recompute, layers=min(1, job.settings.recompute.layers))
    settings = Settings(recompute=recompute, tuning=job.settings.tuning)
    each = _of_model(
        job.model, job.micro_batch, settings, job.devices_per_node, job.gpu_architecture
    )
    return _again(job, each) / job.micro_batch


@lru_cache(maxsize=256)
def _of_model(
    model: Decoder,
    micro_batch: int,
    settings: Settings,
    devices_per_node: int,
    gpu: GpuArchitecture,
) -> Mapping[int, Again]:
    """Return the recomputation of layers of an undivided model."""
    alone = TrainingJob(
        model=model,
        micro_batch=micro_batch,
        global_batch=micro_batch,
        settings=settings,
        devices_per_node=devices_per_node,
        gpu_architecture=gpu,
    )
    return _of_layers(alone, _layers(alone))


def _of_layers(job: TrainingJob, kinds: Mapping[int, Sequence[ModuleWork]]) -> Mapping[int, Again]:
    """Return the recomputation of layers. kinds: work of a layer of each kind."""
    names, found = job.settings.recompute.modules, {}
    for number, layer in kinds.items():
        kind, state = job.kind(number)
        if state == FORWARD_ONLY:
            found[number] = Again(0.0, 0.0)
            continue
        named = [share for n, share in shares_again(job, kind).items() if n in names]
        parts = 0.0
        if named:
            parts = sum(
                max(share(work.name) for share in named) * arithmetic([work], backward=False)
                for work in layer
            )
        found[number] = Again(arithmetic(layer, backward=False), parts)
    return found


def _again(job: TrainingJob, each: Mapping[int, Again]) -> float:
    """Return the FLOPs of a micro-batch that are recomputed. each: of a layer of each kind."""
    extra, kinds = 0.0, job.layer_kinds
    for stage, start in zip(job.stages, job.pipeline.starts, strict=True):
        again = recomputed_layers(job, stage.layers)
        for i, number in enumerate(kinds[start : start + stage.layers]):
            extra += each[number].whole if i < again else each[number].parts
    return extra


def arithmetic(work: Sequence[ModuleWork], *, backward: bool = True) -> float:
    """Return FLOPs, forward and, if asked, backward."""
    total = 0.0
    for module in work:
        total += sum(kernel.flops for kernel in module.forward)
        if backward:
            total += sum(kernel.flops for kernel in module.backward)
    return total
