"""Training of a part of a model: adapters, a base in fewer bits, frozen parts.

What of it decides how layers are computed: kinds of layers, and the products beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.layer_kinds import EXPERTS, LAYER_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.decoder import Decoder

# Bytes per number of a base in fewer bits, its scales included. NF4 with double quantisation
# (Dettmers et al. 2023, arXiv 2305.14314): 4 bits, a scale of 8 bits for 64 numbers, and one of
# 4 bytes for 256 of these.
BASES = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256)}
MOST_DROPOUT = 0.9
# Products that adapters may be beside: Megatron's names, and Hugging Face's for parts of them.
TARGETS = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "linear_q_proj",
    "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj",
    "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
    "kv_b_proj", "gate_proj", "up_proj", "down_proj",
)  # fmt: skip
BRIDGE_NAMES = tuple(name for name in TARGETS if name.startswith("linear_"))
PEFT_NAMES = tuple(name for name in TARGETS if name not in BRIDGE_NAMES)
# Those that have adapters where none are named: of Megatron-Bridge 0.3.1 (`peft/lora.py: LoRA`),
# and of PEFT for models like Llama (`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`).
BRIDGE_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
PEFT_TARGETS = ("q_proj", "v_proj")
# Parts of a model that may be frozen by name.
FROZEN = (
    "embedding", "attention", "mlp", "experts", "router", "norms", "output", "encoder", "projector"
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
    own = ADAPTED if tuning.rank else TRAINED
    if own == TRAINED and all(map(tuning.freezes, parts_of_layer(model))):
        own = PASSED
    states = [PASSED if still else own for still in tuning.frozen_layers(model.layers)]
    if not trains_input(model, tuning):
        trained = (i for i, state in enumerate(states) if state != PASSED)
        lowest = next(trained, model.layers)
        states[:lowest] = [FORWARD_ONLY] * lowest
    return tuple(map(TunedLayer, model.layer_kinds, states))


@lru_cache(maxsize=1024)
def layer_kinds(model: Decoder, tuning: Tuning) -> tuple[int, ...]:
    """Return the result of `TrainingJob.layer_kinds`."""
    kinds = kinds_of_layers(model, tuning)
    if len({kind.state for kind in kinds}) == 1:
        return model.layer_kinds
    return tuple(kind != kinds[0] for kind in kinds)


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
    """Tell whether there is an encoder of images, and it is trained; its projector apart."""
    return bool(model.encoder) and not (tuning.rank or tuning.freezes("encoder"))


def trains_projector(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether the projector of an encoder is trained."""
    return bool(model.encoder) and not (tuning.rank or tuning.freezes("projector"))


def trains_input(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether gradients go on below the layers."""
    return any(trains(model, tuning) for trains in (trains_words, trains_encoder, trains_projector))


def trains_output(model: Decoder, tuning: Tuning) -> bool:
    """Tell whether the output layer is trained."""
    still = tuning.freezes("output") or (model.tied and tuning.freezes("embedding"))
    return not (tuning.rank or still)


def parts_of_layer(model: Decoder) -> tuple[str, ...]:
    """Return the parts of `FROZEN` that some layer of a model has."""
    dense, experts = not all(model.expert_layers), any(model.expert_layers)
    norms = bool(model.norm_vectors) or model.qk_norm
    return (
        "attention", *("mlp",) * dense, *("experts", "router") * experts, *("norms",) * norms
    )  # fmt: skip


# ---- adapters ------------------------------------------------------------------------------------


class Adapter(NamedTuple):
    """Two small products beside one of a layer.

    target: one of `TARGETS`. module: the product, in Megatron's names. inner, outer: its width, or
    that of its part, of all tensor-parallel ranks together. rows: it is its inputs that ranks
    divide, and otherwise its outputs.
    """

    target: str
    module: str
    inner: int
    outer: int
    rows: bool = False


@lru_cache(maxsize=256)
def possible_adapters(model: Decoder, experts: bool) -> tuple[Adapter, ...]:
    """Return the adapters that a layer may have: beside products of attention, of a dense MLP, and
    of shared experts. Those of routed experts are not modelled."""
    h = model.hidden
    found: list[Adapter] = []
    if model.latent is None:
        q, kv = model.heads * model.head, model.kv_heads * model.head
        found += [
            Adapter("linear_qkv", "linear_qkv", h, q + 2 * kv),
            Adapter("q_proj", "linear_qkv", h, q),
            Adapter("k_proj", "linear_qkv", h, kv),
            Adapter("v_proj", "linear_qkv", h, kv),
        ]
    else:
        found += _of_latent(model)
    found += _named(("linear_proj", "o_proj"), "linear_proj", model.value_width, h, rows=True)
    width = model.ffn
    if experts:
        assert model.experts is not None
        width = model.experts.shared_ffn
    if not width:
        return tuple(found)
    gates = 2 if model.gated else 1
    found.append(Adapter("linear_fc1", "linear_fc1", h, gates * width))
    found += [Adapter("gate_proj", "linear_fc1", h, width)] * model.gated
    found.append(Adapter("up_proj", "linear_fc1", h, width))
    found += _named(("linear_fc2", "down_proj"), "linear_fc2", width, h, rows=True)
    return tuple(found)


def _named(
    names: tuple[str, str], module: str, inner: int, outer: int, *, rows: bool = False
) -> list[Adapter]:
    """Return the adapter of a product in Megatron's and in Hugging Face's name."""
    return [Adapter(name, module, inner, outer, rows) for name in names]


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
    kinds = set(model.expert_layers)
    every = (one.target for experts in kinds for one in possible_adapters(model, experts))
    return tuple(dict.fromkeys(every))


@lru_cache(maxsize=256)
def adapters_of(model: Decoder, tuning: Tuning, experts: bool) -> tuple[Adapter, ...]:
    """Return the adapters of a layer."""
    every = possible_adapters(model, experts) if tuning.rank else ()
    return tuple(one for one in every if one.target in tuning.targets)
