"""Training of a part of a model: adapters, a base in fewer bits, frozen parts.

What of it decides how layers are computed: kinds of layers, and the products beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.decoder_parts import FEW, MANY
from ilp_planner.specs.layer_kinds import ATTENTION, DELTA, EXPERTS, LAYER_KINDS, MAMBA, MLP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.decoder import Decoder

# Bytes per number of a base in fewer bits, its scales included. NF4 with double quantisation
# (Dettmers et al. 2023, arXiv 2305.14314): 4 bits, a scale of 8 bits for 64 numbers, and one of
# 4 bytes for 256 of these.
BASES = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256)}
MOST_DROPOUT = 0.9
# Products that adapters may be beside: Megatron's names, Hugging Face's, and those of both. Of
# Hugging Face's, `experts.` are parameters of all experts of a layer (PEFT's `target_parameters`).
BRIDGE_ONLY = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "linear_q_proj",
    "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj",
)  # fmt: skip
PEFT_ONLY = (
    "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
    "kv_b_proj", "gate_proj", "up_proj", "down_proj", "in_proj_qkvz", "in_proj_ba",
    "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a",
)  # fmt: skip
OF_SCANS = ("in_proj", "out_proj")  # around a Mamba-2 mixer or a gated delta net
OF_EXPERTS = ("experts.gate_up_proj", "experts.up_proj", "experts.down_proj")
OF_EACH = ("experts.linear_fc1", "experts.linear_fc2")  # Megatron's, with an adapter of each expert
BRIDGE_NAMES = (*BRIDGE_ONLY, *OF_EACH, *OF_SCANS)
PEFT_NAMES = (*PEFT_ONLY, *OF_SCANS, *OF_EXPERTS)
TARGETS = (*BRIDGE_ONLY, *OF_EACH, *PEFT_ONLY, *OF_SCANS, *OF_EXPERTS)
# Those that have adapters where none are named: of Megatron-Bridge 0.3.1 (`peft/lora.py: LoRA`),
# and of PEFT for models like Llama (`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`).
BRIDGE_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
PEFT_TARGETS = ("q_proj", "v_proj")
# Parts of a model that may be frozen by name.
FROZEN = (
    "embedding", "attention", "mamba", "delta", "mlp", "experts", "router", "norms", "output",
    "encoder", "projector",
)  # fmt: skip
ENDS, OF_ENCODER = ("embedding", "output"), ("encoder", "projector")  # of them
SPAN = re.compile(r"layers:(0|[1-9][0-9]{0,5})(?:-(0|[1-9][0-9]{0,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What of a model is trained; nothing said: all of it.

    rank: of low-rank adapters beside products of matrices, which alone are trained then (LoRA, Hu
    et al. 2021, arXiv 2106.09685); 0: there are none. targets: products that have them, names of
    `TARGETS`. dropout: of the adapters' inputs. adapters: `fp32` where adapters are of single
    precision and are stepped themselves, as PEFT has them; empty: as other parameters. base: format
    of the other parameters of the layers' products, one of `BASES`; empty: the training precision.
    frozen: parts of the model that are not trained, in their order: some of `FROZEN`, and layers as
    `layers:0-27`.
    """

    rank: int = 0
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    adapters: str = ""
    base: str = ""
    frozen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"rank must be at least 0, got {self.rank}")
        if unknown := [name for name in self.targets if name not in TARGETS]:
            raise ValueError(f"targets must be some of {TARGETS}, got {unknown}")
        if not 0 <= self.dropout <= MOST_DROPOUT:
            raise ValueError(f"dropout must be from 0 to {MOST_DROPOUT}, got {self.dropout}")
        if self.adapters not in ("", "fp32"):
            raise ValueError(f"adapters must be empty or fp32, got {self.adapters!r}")
        if self.base not in ("", *BASES):
            raise ValueError(f"base must be empty or one of {tuple(BASES)}, got {self.base!r}")
        if unknown := [part for part in self.frozen if not frozen_part(part)]:
            raise ValueError(f"frozen must be some of {FROZEN} and layers:0-27, got {unknown}")

    def __bool__(self) -> bool:
        """Tell whether something is not trained as all else."""
        return bool(self.rank or self.base or self.frozen)

    def freezes(self, part: str) -> bool:
        """Tell whether a part of `FROZEN` is frozen."""
        return part in self.frozen

    def frozen_layers(self, layers: int) -> tuple[bool, ...]:
        """Return whether each layer is frozen as a whole."""
        spans = [span for part in self.frozen if (span := layers_of(part))]
        return tuple(any(a <= i <= b for a, b in spans) for i in range(layers))


def tuned(tuning: Tuning, targets: tuple[str, ...], adapters: str) -> Tuning:
    """Return a tuning as a system has it. targets: of adapters, where none are named. adapters:
    their precision."""
    if not tuning.rank:
        return tuning
    return replace(tuning, targets=tuning.targets or targets, adapters=adapters)


def layers_of(part: str) -> tuple[int, int] | None:
    """Return the first and the last layer that `layers:0-27` or `layers:5` names; None for another
    text."""
    match = SPAN.fullmatch(part)
    return (int(match[1]), int(match[2] or match[1])) if match else None


def frozen_part(part: str) -> bool:
    """Tell whether a text names a part that may be frozen."""
    span = layers_of(part)
    return part in FROZEN or bool(span and span[0] <= span[1])


# ---- kinds of layers -----------------------------------------------------------------------------


class TunedLayer(NamedTuple):
    """Layers that are computed and trained alike. kind: number in `LAYER_KINDS`. state: one of
    `STATES`."""

    kind: int
    state: str

    @property
    def routed(self) -> bool:
        """Tell whether they have experts."""
        return LAYER_KINDS[self.kind].inner == EXPERTS


# Training of a layer: its parameters, but for parts frozen by name; adapters alone; nothing, with
# gradients for layers below; nothing, and nothing below, so that it has no backward pass.
STATES = TRAINED, ADAPTED, PASSED, FORWARD_ONLY = "trained", "adapted", "passed", "forward only"


@lru_cache(maxsize=1024)
def kinds_of_layers(model: Decoder, tuning: Tuning) -> tuple[TunedLayer, ...]:
    """Return the kind of every layer of a model.

    The backward pass ends at the lowest layer with a trained parameter, or at the embedding.
    """
    own = {kind: _state(model, tuning, kind) for kind in set(model.layer_kinds)}
    pairs = zip(tuning.frozen_layers(model.layers), model.layer_kinds, strict=True)
    states = [PASSED if still else own[kind] for still, kind in pairs]
    if not trains_input(model, tuning):
        trained = (i for i, state in enumerate(states) if state != PASSED)
        lowest = next(trained, model.layers)
        states[:lowest] = [FORWARD_ONLY] * lowest
    return tuple(map(TunedLayer, model.layer_kinds, states))


def _state(model: Decoder, tuning: Tuning, kind: int) -> str:
    """Return the training of a kind of layers, where none is frozen as a whole."""
    if tuning.rank:
        beside = adapters_of(model, tuning, kind) or not tuning.targets
        return ADAPTED if beside else PASSED
    return PASSED if all(map(tuning.freezes, parts_of_kind(model, kind))) else TRAINED


@lru_cache(maxsize=1024)
def layer_kinds(model: Decoder, tuning: Tuning) -> tuple[int, ...]:
    """Return the result of `TrainingJob.layer_kinds`."""
    kinds = kinds_of_layers(model, tuning)
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    if len(numbers) == len({kind.kind for kind in kinds}):
        return model.layer_kinds
    return tuple(numbers[kind] for kind in kinds)


@lru_cache(maxsize=1024)
def kind_of(model: Decoder, tuning: Tuning, number: int) -> TunedLayer:
    """Return the result of `TrainingJob.kind`."""
    kinds = kinds_of_layers(model, tuning)
    numbers = layer_kinds(model, tuning)
    found = (kind for kind, own in zip(kinds, numbers, strict=True) if own == number)
    return next(found, TunedLayer(number, kinds[-1].state))


def trains_words(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether the embedding is trained; tied to the output layer, they are one."""
    still = tuning.freezes("embedding") or (model.tied and tuning.freezes("output"))
    return not (tuning.rank or still)


def trains_encoder(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether there are encoders of images or sounds, and they are trained; their projectors
    apart."""
    return bool(model.encoders) and not (tuning.rank or tuning.freezes("encoder"))


def trains_projector(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether the projectors of encoders are trained."""
    return bool(model.encoders) and not (tuning.rank or tuning.freezes("projector"))


def trains_input(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether gradients go on below the layers."""
    return any(trains(model, tuning) for trains in (trains_words, trains_encoder, trains_projector))


def trains_output(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether the output layer is trained."""
    still = tuning.freezes("output") or (model.tied and tuning.freezes("embedding"))
    return not (tuning.rank or still)


def parts_of_layer(model: Decoder) -> tuple[str, ...]:
    """Return the parts of `FROZEN` that some layer of a model has."""
    every = {part for kind in set(model.layer_kinds) for part in parts_of_kind(model, kind)}
    return tuple(part for part in FROZEN if part in every)


def parts_of_kind(model: Decoder, kind: int) -> tuple[str, ...]:
    """Return the parts of `FROZEN` that a kind of layers has."""
    own = LAYER_KINDS[kind]
    norms = bool(model.norm_vectors) or (model.qk_norm and own.mixer == ATTENTION)
    routed = own.inner == EXPERTS
    found = (own.mixer, own.inner, "router" * routed, "norms" * norms)
    return tuple(part for part in found if part)


# ---- adapters ------------------------------------------------------------------------------------


class Adapter(NamedTuple):
    """Two small products beside one of a layer.

    target: one of `TARGETS`. module: the product, in Megatron's names; of routed experts it begins
    with `ROUTED`. inner, outer: its width, or that of its part, of all tensor-parallel ranks
    together. rows: it is its inputs that ranks divide, and otherwise its outputs.
    """

    target: str
    module: str
    inner: int
    outer: int
    rows: bool = False

    @property
    def routed(self) -> bool:
        """Tell whether it is beside routed experts."""
        return self.module.startswith(ROUTED)

    @property
    def merged(self) -> bool:
        """Tell whether every expert has one of its own, which PEFT adds to the experts' weights
        (`tuners/lora/layer.py: ParamWrapper`)."""
        return self.routed and self.target in PEFT_NAMES

    @property
    def each(self) -> bool:
        """Tell whether every expert has one of its own beside its product, as in ms-swift
        (`LoraParallelLinear`). Megatron-Bridge has one for all experts of a rank (`peft/lora.py`),
        or of each where `share_expert_adapters` of 0.6 is false."""
        return self.target in OF_EACH


ROUTED = "experts."


@lru_cache(maxsize=256)
def possible_adapters(model: Decoder, kind: int) -> tuple[Adapter, ...]:
    """Return the adapters that a kind of layers may have."""
    own = LAYER_KINDS[kind]
    found = list(_MIXERS[own.mixer](model)) if own.mixer in _MIXERS else []
    if own.inner == MLP:
        found += _of_mlp(model, model.ffn, peft=not moves(model))
    elif own.inner == EXPERTS:
        found += _of_experts(model)
    return tuple(found)


def moves(model: Decoder) -> bool:
    """Tell whether PEFT takes the products of an MLP for those of routed experts.

    It does so in models whose experts were modules before release 5 of transformers, with a gate,
    and then has none beside dense MLPs and shared experts
    (`utils/transformers_weight_conversion.py: _convert_peft_config_moe`). Nemotron's and Qwen3.5's
    are none of these.
    """
    later = model.delta is not None and model.delta.projections == MANY
    return model.gated and model.experts is not None and not later


def _of_mlp(model: Decoder, width: int, *, peft: bool) -> Iterator[Adapter]:
    """Yield those of a dense MLP or of shared experts. peft: PEFT has them too."""
    h, gates = model.hidden, 2 if model.gated else 1
    yield Adapter("linear_fc1", "linear_fc1", h, gates * width)
    yield Adapter("linear_fc2", "linear_fc2", width, h, rows=True)
    if peft:
        yield from _named(("gate_proj",) * model.gated + ("up_proj",), "linear_fc1", h, width)
        yield Adapter("down_proj", "linear_fc2", width, h, rows=True)


def _of_experts(model: Decoder) -> Iterator[Adapter]:
    """Yield those of routed and of shared experts.

    Megatron-Bridge's names are of both. PEFT's for all experts of a layer are parameters; names of
    modules that it takes for these are of the same shapes, since it doubles the rank of gate and
    value together.
    """
    e, h = model.experts, model.routed_width
    assert e is not None
    first, last, wide = f"{ROUTED}linear_fc1", f"{ROUTED}linear_fc2", e.ffn * (1 + model.gated)
    whole = "experts.gate_up_proj" if model.gated else "experts.up_proj"
    moved = moves(model)
    names = ("linear_fc1", OF_EACH[0], whole, *("gate_proj", "up_proj") * moved)
    yield from _named(names, first, h, wide)
    names = ("linear_fc2", OF_EACH[1], "experts.down_proj", *("down_proj",) * moved)
    yield from _named(names, last, e.ffn, h, rows=True)
    if e.shared_ffn:
        yield from _of_mlp(model, e.shared_ffn, peft=not moved)


def _named(
    names: tuple[str, ...], module: str, inner: int, outer: int, *, rows: bool = False
) -> list[Adapter]:
    """Return the adapter of a product by the names that it has."""
    return [Adapter(name, module, inner, outer, rows) for name in names]


def _of_attention(model: Decoder) -> Iterator[Adapter]:
    """Yield those of attention; a gate of its output is made with the queries."""
    h = model.hidden
    if model.latent is None:
        kv = model.kv_heads * model.head
        q = model.heads * model.head * (1 + model.attention_gate)
        yield Adapter("linear_qkv", "linear_qkv", h, q + 2 * kv)
        yield Adapter("q_proj", "linear_qkv", h, q)
        yield Adapter("k_proj", "linear_qkv", h, kv)
        yield Adapter("v_proj", "linear_qkv", h, kv)
    else:
        yield from _of_latent(model)
    yield from _named(("linear_proj", "o_proj"), "linear_proj", model.value_width, h, rows=True)


def _of_mamba(model: Decoder) -> Iterator[Adapter]:
    assert model.mamba is not None
    yield Adapter("in_proj", "in_proj", model.hidden, model.mamba.projected)
    yield Adapter("out_proj", "out_proj", model.mamba.inner, model.hidden, rows=True)


def _of_delta(model: Decoder) -> Iterator[Adapter]:
    """Yield those of a gated delta net: one product before it in Megatron, two in transformers'
    Qwen3-Next, four in its Qwen3.5."""
    d, h = model.delta, model.hidden
    assert d is not None
    yield Adapter("in_proj", "in_proj", h, d.projected)
    if d.projections == FEW:
        yield Adapter("in_proj_qkvz", "in_proj", h, d.convolved + d.inner)
        yield Adapter("in_proj_ba", "in_proj", h, 2 * d.value_heads)
    else:
        yield Adapter("in_proj_qkv", "in_proj", h, d.convolved)
        yield Adapter("in_proj_z", "in_proj", h, d.inner)
        yield from _named(("in_proj_b", "in_proj_a"), "in_proj", h, d.value_heads)
    yield Adapter("out_proj", "out_proj", d.inner, h, rows=True)


_MIXERS = {ATTENTION: _of_attention, MAMBA: _of_mamba, DELTA: _of_delta}


def _of_latent(model: Decoder) -> Iterator[Adapter]:
    a, h = model.latent, model.hidden
    assert a is not None
    keys = model.heads * (a.key + a.rotary)
    if a.query_rank:
        yield from _named(("linear_q_down_proj", "q_a_proj"), "linear_q_down_proj", h, a.query_rank)
        yield from _named(("linear_q_up_proj", "q_b_proj"), "linear_q_up_proj", a.query_rank, keys)
    else:
        yield from _named(("linear_q_proj", "q_proj"), "linear_q_proj", h, keys)
    rank, wide = a.key_value_rank, model.heads * (a.key + a.value)
    yield from _named(
        ("linear_kv_down_proj", "kv_a_proj_with_mqa"), "linear_kv_down_proj", h, rank + a.rotary
    )
    yield from _named(("linear_kv_up_proj", "kv_b_proj"), "linear_kv_up_proj", rank, wide)


def targets_of(model: Decoder) -> tuple[str, ...]:
    """Return the names of products of a model that may have adapters."""
    kinds = sorted(set(model.layer_kinds))
    every = (one.target for kind in kinds for one in possible_adapters(model, kind))
    return tuple(dict.fromkeys(every))


@lru_cache(maxsize=256)
def adapters_of(model: Decoder, tuning: Tuning, kind: int) -> tuple[Adapter, ...]:
    """Return the adapters of a kind of layers; where each expert has one, all share none."""
    every = possible_adapters(model, kind) if tuning.rank else ()
    found = [one for one in every if one.target in tuning.targets]
    own = {one.module for one in found if one.each}
    return tuple(one for one in found if one.each or one.module not in own)
