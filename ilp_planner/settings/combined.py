"""Settings that exclude expert overlap, CUDA graphs or deferred gradients in Megatron-LM:
`core/transformer/transformer_config.py: TransformerConfig`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Recompute, Settings, TrainingJob

OVERLAP, GRAPHS, DEFERRED = "expert overlap", "CUDA graphs", "deferred gradients"
# Part of a layer that is computed again -> what of it a graph may have, where numbers are dropped.
RANDOM = {"core_attn": "attn", "mlp": "mlp", "moe": "moe"}


class Broken(NamedTuple):
    """A rule between settings that a job breaks; have, limit: as shown to the user."""

    rule: str
    have: str
    limit: str


def check_combined(job: TrainingJob) -> Iterator[Broken]:
    """Overlap of expert parallelism, CUDA graphs and deferred gradients have requirements."""
    settings = job.settings
    yield from of_degrees(job)
    yield from of_recomputation(settings, job.model, settings.recompute)
    yield from of_virtual_stages(settings, job.pp, job.virtual)


def of_degrees(job: TrainingJob) -> Iterator[Broken]:
    """Yield settings of a job that exclude them, in any layout and recomputation."""
    settings, model = job.settings, job.model
    kernels = settings.kernels
    if kernels.deferred_output and job.pp == 1:
        yield Broken(DEFERRED, "pp 1", "a pipeline")
    if kernels.deferred_output and not kernels.accumulation_fusion:
        yield Broken(DEFERRED, "no fused gradient accumulation", "the fusion")
    if settings.overlap_experts:
        if settings.ep == 1:
            yield Broken(OVERLAP, "ep 1", "ep above 1")
        if kernels.dispatcher == "allgather":
            yield Broken(OVERLAP, "dispatcher allgather", "alltoall or flex")
        if settings.width > 2:
            yield Broken(OVERLAP, settings.precision, "bf16 or fp16")
        if model.prediction_layers > 1 or (model.prediction_layers and job.pp == 1):
            have = f"{model.prediction_layers} layers of multi-token prediction, pp {job.pp}"
            yield Broken(OVERLAP, have, "at most one, in a pipeline")
        inside = {"moe", "mlp"}.intersection(kernels.graphed)
        if kernels.graphs and (kernels.graphs != "transformer_engine" or inside):
            yield Broken(OVERLAP, f"graphs {_graphs(settings)}", "none of moe and mlp")
    if not kernels.graphs:
        return
    if settings.offload.layers:
        yield Broken(GRAPHS, f"{settings.offload.layers} layers on the host", "none")
    routed = {"moe", "moe_router", "moe_preprocess"}.intersection(kernels.graphed)
    if routed and model.experts is None:
        yield Broken(GRAPHS, f"{_graphs(settings)} without experts", "attn or mlp")
    if "moe" in routed and not (kernels.capacity and kernels.pad_to_capacity):
        yield Broken(GRAPHS, "moe without padding to a capacity", "moe_router")


def of_recomputation(settings: Settings, model: Decoder, again: Recompute) -> Iterator[Broken]:
    """Yield why settings exclude recomputation: inside of a graph, nothing may draw random numbers
    then."""
    kernels, names = settings.kernels, again.modules
    if settings.overlap_experts:
        if again.granularity == "full":
            yield Broken(OVERLAP, "full recomputation", "selective or none")
        if "moe" in names:
            yield Broken(OVERLAP, "recomputation of moe", "of other parts")
    if not kernels.graphs:
        return
    if again.granularity == "full" and kernels.graphs != "full_iteration":
        limit = "selective or none, or a graph of the full iteration"
        yield Broken(GRAPHS, "full recomputation with graphs of layers", limit)
    if "moe" in names and "moe_router" in kernels.graphed:
        yield Broken(GRAPHS, "recomputation of moe with moe_router", "one of them")
    for name, inside in RANDOM.items():
        graphed = not kernels.graphed or inside in kernels.graphed
        if name in names and graphed and model.dropout:
            have = f"dropout {model.dropout} with {name} computed again in a graph"
            yield Broken(GRAPHS, have, "0")


def of_virtual_stages(settings: Settings, pp: int, virtual: int) -> Iterator[Broken]:
    """Yield why settings do not go with so many virtual stages per pipeline rank."""
    if settings.overlap_experts and pp > 1 and virtual == 1:
        yield Broken(OVERLAP, f"pp {pp} without virtual stages", "virtual stages")


def does_otherwise(job: TrainingJob) -> bool:
    """Tell whether Megatron accepts settings of a job that it does not run as they say.

    It turns overlap of tensor parallelism off with latent attention
    (`core/extensions/transformer_engine.py: TELinear`). Heads that all ranks exchange, or none, are
    no ring of exchanges, and copies on every rank share nothing. The host has to ask for the tokens
    of experts, and no graph can, unless there is a capacity. States of Megatron-FSDP do not get to
    the host (Megatron-LM, pull request 4623). flex is DeepEP.
    """
    settings, model = job.settings, job.model
    kernels, inner = settings.kernels, settings.cp_inner
    padded = kernels.capacity and kernels.pad_to_capacity
    graphs_all = kernels.graphs and not kernels.graphed
    return bool(
        (settings.overlap_tensor and model.latent is not None)
        or (inner and inner == settings.cp)
        or (settings.cp_comm == "a2a+p2p" and not 1 < inner < settings.cp)
        or 1 < settings.optimizer.instances == job.dp * settings.cp
        or (graphs_all and model.experts is not None and not padded)
        or (settings.optimizer.offload and settings.optimizer.sharding != "optimizer")
        or (kernels.dispatcher == "flex" and not job.gpu_architecture.deep_ep)
    )


def _graphs(settings: Settings) -> str:
    return " ".join((settings.kernels.graphs, *settings.kernels.graphed))
