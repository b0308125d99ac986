"""Whole layers of a decoder without measurements: times from `job.work` and `job.messages`, memory
from `job.memory`, as for Megatron's training jobs.

For stages with degrees of their own, so nothing is divided among replicas: Adam's states are on
every one, and activations between products on every tensor-parallel rank. A layer profile has one
number of bytes that a micro-batch in flight keeps and one that a running layer needs. Both are of a
stage of this layer alone: the addition of one more micro-batch to its peak, and the rest of it.
Loss and logits are of the second kind, as the last stage's backward pass follows its forward pass
at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.costs.profiles.work import Exchange, exchange_time, kernel_time
from ilp_planner.job.memory import memory_parts, stage_memory
from ilp_planner.job.messages import (
    Messages,
    embedding_messages,
    encoder_messages,
    layer_messages,
    output_messages,
    prediction_messages,
    recomputed_messages,
)
from ilp_planner.job.work import (
    ModuleWork,
    embedding_work,
    encoder_work,
    layer_work,
    output_work,
    prediction_work,
    step_traffic,
)
from ilp_planner.specs.layer_kinds import LAYER_KINDS, PLAIN, ROUTED
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    NOT_RECOMPUTED,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
    usual_kernels,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ilp_planner.base.numerics import Floats
    from ilp_planner.job.modules import Message
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.link import Link


STATES = ("parameters", "gradients", "optimizer")  # terms of the memory that are held throughout


def chain_names(decoder: Decoder) -> tuple[str, ...]:
    """Return the chain that plans of whole layers cut."""
    return ("embedding", *(f"layer {i + 1}" for i in range(decoder.layers)), "head")


@dataclass(frozen=True, eq=False)
class DecoderRows:
    """One replica of so many samples and tensor-parallel ranks; per rank, by layer of the chain.

    state, activation, workspace: bytes, as in `LayerProfile`, for all samples. step: bytes that an
    optimiser step reads and writes. gradients: bytes.
    """

    job: TrainingJob
    state: Floats
    activation: Floats
    workspace: Floats
    step: Floats
    gradients: Floats

    def seconds(self, device: Device, link: Link) -> Floats:
        """Return forward and backward of every layer. link: to the tensor-parallel peers."""
        job = self.job
        kinds = {
            "embedding": _seconds(
                job, device, link, embedding_work(job), {"embedding": embedding_messages(job)}
            ),
            "head": _seconds(job, device, link, output_work(job), output_messages(job)),
        }
        for encoder in job.model.encoders:
            parts = encoder_work(job, encoder), encoder_messages(job, encoder)
            each = zip(*parts, (encoder.layers, 1), strict=True)
            for work, messages, times in each:
                kinds["embedding"] += times * _seconds(job, device, link, work, messages)
        for kind in set(job.model.layer_kinds):
            work, messages = layer_work(job, kind=kind), layer_messages(job, kind)
            again = _seconds_again(job, device, link, kind=kind)
            kinds[_layer(kind)] = _seconds(job, device, link, work, messages) + again
        if job.model.prediction_layers:
            messages = prediction_messages(job, job.model.last_kind)
            more = _seconds(job, device, link, prediction_work(job), messages)
            kinds["head"] += job.model.prediction_layers * more
        return _along(job.model, kinds)


def decoder_rows(
    decoder: Decoder,
    samples: int,
    degree: int,
    precision: str,
    *,
    flash: bool,
    cp: int = 1,
    ep: int = 1,
    etp: int = 0,
    recompute: Recompute = NOT_RECOMPUTED,
) -> DecoderRows:
    """Return the work and memory of every layer. flash: fused attention runs on the devices. cp,
    ep, etp, recompute: as in `Settings`; of the latter, the recomputation of a layer alone."""
    single = precision == "fp32"
    job = TrainingJob(
        model=decoder,
        micro_batch=samples,
        global_batch=samples,
        tp=degree,
        pp=2,  # a tied embedding has a copy beside the output
        layout=split_layout([decoder.layers, 0], prediction_layers=decoder.prediction_layers),
        settings=Settings(
            cp=cp,
            ep=ep,
            etp=etp,
            precision=precision,
            sequence_parallel=degree > 1 and decoder.experts is not None,
            recompute=recompute,
            optimizer=OptimizerSettings(master=0 if single else 4),
            kernels=usual_kernels(flash=flash, experts=decoder.experts is not None),
        ),
    )
    parts = memory_parts(job)
    alone: dict[str, dict[str, Any]] = {
        "embedding": {"layers": 0, "embedding": True},
        "head": {"layers": 0, "output": True, "prediction_layers": decoder.prediction_layers},
    }
    for number in set(decoder.layer_kinds):
        few, some, *others = (int(kind == number) for kind in range(max(PLAIN, number + 1)))
        alone[_layer(number)] = {
            "layers": few,
            "expert_layers": some,
            "others": tuple(others),
        }
    optimizer = job.settings.optimizer
    moved = step_traffic(job.settings)
    rows: dict[str, tuple[float, ...]] = {}
    for name, counts in alone.items():
        once, twice = (stage_memory(parts, **counts, in_flight=n) for n in (1, 2))
        state = float(sum(once.terms[term] for term in STATES))
        kept = float(twice.peak - once.peak)
        rest = float(once.peak) - state - kept
        count = float(once.parameters)
        rows[name] = (state, kept, rest, count * moved, count * optimizer.gradient)
    columns = [{name: row[i] for name, row in rows.items()} for i in range(5)]
    return DecoderRows(job, *(_along(decoder, column) for column in columns))


def _layer(kind: int) -> str:
    return "layer with experts" if kind == ROUTED else LAYER_KINDS[kind].name


def _along(decoder: Decoder, kinds: Mapping[str, float]) -> Floats:
    """Return figures along the chain."""
    layers = (kinds[_layer(kind)] for kind in decoder.layer_kinds)
    return np.array([kinds["embedding"], *layers, kinds["head"]], np.float64)


def _seconds(
    job: TrainingJob, device: Device, link: Link, work: tuple[ModuleWork, ...], messages: Messages
) -> float:
    """Return seconds of modules, forward and backward."""
    precision = job.settings.precision
    kernels = sum(kernel_time(m.forward + m.backward, device, precision) for m in work)
    sent = (message for both in messages.values() for way in both for message in way)
    return kernels + _exchanges(job, link, sent)


def _seconds_again(job: TrainingJob, device: Device, link: Link, *, kind: int) -> float:
    """Return the seconds of a layer's recomputation: all of its forward pass, or the core of its
    attention."""
    recompute, precision = job.settings.recompute, job.settings.precision
    if recompute.granularity == "none":
        return 0.0
    whole = recompute.granularity == "full"
    kernels = sum(
        kernel_time(module.forward, device, precision)
        for module in layer_work(job, kind=kind)
        if whole or module.core
    )
    messages = recomputed_messages(job, kind)
    return kernels + _exchanges(job, link, (m for pair in messages.values() for m in pair[0]))


def _exchanges(job: TrainingJob, link: Link, messages: Iterable[Message]) -> float:
    """Return seconds of messages inside a node; all of them are of the tensor-parallel ranks."""
    total = 0.0
    for message in messages:
        size = float(message.size)
        if message.collective == "all_gather":
            size /= job.tp  # what each rank passes in
        found = Exchange(message.collective, size)
        total += message.times * exchange_time(found, job.tp, link)
    return total
