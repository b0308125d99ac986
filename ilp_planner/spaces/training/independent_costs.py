"""Figures of a model, a device and settings from which the checker computes what layers take.

`ilp_planner/checker/costs.py` reads them; docs/reference/costs.md has its formulas.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.training.job import uncounted_settings
from ilp_planner.settings.table import OF_MUON
from ilp_planner.specs.kernel_constants import DSA
from ilp_planner.specs.layer_kinds import LAYER_KINDS, PLAIN

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.gpu_architectures import GpuArchitecture
    from ilp_planner.specs.training import Settings

OF_MODEL = (
    "layers", "hidden", "heads", "kv_heads", "head", "sequence", "vocab", "ffn",
    "max_position_embeddings", "outputs", "gated", "bias", "qkv_bias",
    "projection_bias", "output_bias", "tied", "qk_norm", "sinks", "attention_gate", "norm",
    "norm_at", "positions", "qk_norm_of", "dropout", "clamp",
)  # fmt: skip
OF_EXPERTS = ("count", "top_k", "ffn", "shared_ffn", "groups", "top_groups", "latent",
              "shared_gate")  # fmt: skip
PARTS = ("optimizer", "kernels")  # of settings


def uncounted(problem: Problem[MegatronCosts]) -> str:
    """Return why the checker cannot compute what layers take; empty if it can."""
    costs, cluster = problem.costs, problem.cluster
    model = costs.model
    reasons = {
        "measured layers": costs.profile is not None,
        "samples of documents": model.lengths is not None,
        "encoders of images or sounds": bool(model.encoders),
        "attention to keys that an indexer chooses": model.sparse is not None,
        "attention to pooled keys": model.compressed is not None,
        "a clamp without an offset": model.clamp > 0 and not model.offset,
        "layers of a hybrid": bool(set(model.layer_kinds) - set(range(PLAIN))),
        "layers that predict further tokens": model.prediction_layers > 0,
        "attention beside the MLP": model.parallel_norms > 0,
        "switches without room for all": cluster.shares_uplinks or cluster.fabric.rail_only,
        "links that nodes decide": not cluster.symmetric,
        "devices of several types": len(cluster.type_names) > 1,
    }
    own = next((text for text, holds in reasons.items() if holds), "")
    return own or uncounted_settings((*costs.choices, costs.settings))


def form_of(degrees: MegatronDegrees) -> str:
    """Return what of degrees decides the settings of a choice: which of them are more than one."""
    d = degrees
    holds = {
        "r": d.replicated,
        "p": d.pp > 1,
        "t": d.tp > 1,
        "c": d.cp > 1,
        "e": d.ep > 1,
        "x": d.ep * d.etp > 1,
    }
    return "".join(letter for letter, one in holds.items() if one)


def counted_job(problem: Problem[MegatronCosts], settings: list[Settings]) -> dict[str, Any]:
    """Return the figures of a problem's jobs, with settings that cases name by number."""
    costs, cluster = problem.costs, problem.cluster
    name = cluster.type_names[0]
    inside, between = cluster.within.get(name, cluster.intra_node), cluster.type_link(name, name)
    return {
        "model": _model(costs.model),
        "device": _device(cluster.device_types[name], costs.gpu_architecture(cluster)),
        "links": {
            "inside": {
                "bandwidth": inside.bandwidth,
                "latency": inside.latency,
                "collectives": [list(pair) for pair in inside.collectives.items()],
            },
            "between": {"bandwidth": between.bandwidth, "latency": between.latency},
        },
        "settings": [_settings(one) for one in settings],
    }


def _model(model: Decoder) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(model, name) for name in OF_MODEL}
    e, a, window = model.experts, model.latent, model.window
    routed = any(model.expert_layers)
    runs = [[LAYER_KINDS[kind].inner, len([*of])] for kind, of in groupby(model.layer_kinds)]
    return {
        **found,
        "pattern": runs if len({*model.layer_kinds}) > 1 else None,
        "rotary_share": model.rotary.share if model.rotary else 1.0,
        "experts": {name: getattr(e, name) for name in OF_EXPERTS} if e and routed else None,
        "latent": None if a is None else asdict(a),
        "window": None
        if window is None
        else {
            "size": window.size,
            "layers": sum(window.layers(model.layers)),
            "chunked": window.chunked,
        },
    }


def _device(device: Device, architecture: GpuArchitecture) -> dict[str, Any]:
    kernels, found = device.kernels, None
    if kernels is not None:
        found = {
            "launch": kernels.launch,
            "grouped": kernels.grouped,
            "concurrent": kernels.concurrent,
            "products": {name: asdict(one) for name, one in kernels.products.items()},
            "attention": asdict(kernels.attention),
            "flash": {name: asdict(one) for name, one in kernels.flash.items() if name != DSA},
            "curves": [
                [name, ranks, [list(point) for point in curve]]
                for name, of in kernels.curves.items()
                for ranks, curve in of.items()
            ],
        }
    machine = asdict(device.machine)
    return {
        "memory_bandwidth": device.memory_bandwidth or 0.0,
        "sustained": device.sustained or 0.0,
        "sustained_bandwidth": device.sustained_bandwidth,
        "launch": device.launch,
        "processors": device.processors or 1,
        "peak": dict(device.peak or {}),
        "own_attention": architecture.own_attention,
        "own_attention_repeats": architecture.own_attention_repeats,
        "blas_workspace": architecture.blas_workspace,
        "engine_workspace": architecture.engine_workspace,
        "machine": machine,
        "kernels": found,
    }


def _settings(settings: Settings) -> dict[str, Any]:
    """Return every number, word and switch of settings, but for those of Muon, which no checked job
    has (`uncounted`)."""
    without = {field.rpartition(".")[2] for field in OF_MUON}
    every = (settings, *(getattr(settings, part) for part in PARTS))
    return {
        one.name: value
        for of in every
        for one in fields(of)
        if one.name not in without
        and isinstance(value := getattr(of, one.name), str | bool | int | float)
    }
