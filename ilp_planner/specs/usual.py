"""Unusual features of decoders, for tools that know the usual ones only."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ilp_planner.specs.decoder import Decoder

# Field -> value of the usual models, which change what is computed or learnt.
USUAL = {
    "clamp": 0.0,
    "offset": 0.0,
    "projection_bias": False,
    "output_bias": False,
    "one_plus": False,
    "norm_at": "input",
    "parallel_norms": 0,
    "qk_norm_of": "head",
    "sinks": False,
    "attention_softcap": 0.0,
    "output_softcap": 0.0,
    "pattern": "",
    "attention_gate": False,
}


IMPLIED = {"activation": "", "rotary": None}  # fields that are filled in, as they are left out


def is_implied(model: object, name: str) -> bool:
    """Tell whether a field of an architecture need not be said: left out, it is the same."""
    if name not in IMPLIED or not isinstance(model, Decoder):
        return False
    without: dict[str, Any] = {name: IMPLIED[name]}
    return replace(model, **without) == model


def unusual(model: Decoder) -> Iterator[tuple[str, object, object]]:
    """Yield unusual features: key of the model, its value, and the usual one."""
    for name, usual in USUAL.items():
        if (found := getattr(model, name)) != usual:
            yield name, found, usual
    common = "silu" if model.gated else "gelu"
    if model.activation != common:
        yield "activation", model.activation, common
    if not model.norm_vectors:
        yield "norm", model.norm, "layernorm"
    if model.window:
        yield "window", f"{model.window.size} tokens", "none"
    if model.sparse:
        yield "sparse", f"{model.sparse.top_k} keys that an indexer chooses", "none"
    if model.streams > 1:
        yield "streams", model.streams, 1
    if model.experts and model.experts.hashed:
        yield "experts.hashed", f"{model.experts.hashed} layers", "none"
    if model.experts and model.experts.latent:
        yield "experts.latent", model.experts.latent, 0
    if model.experts and model.experts.shared_gate:
        yield "experts.shared_gate", True, False
