"""Training of a part of a model: frozen parameters, low-rank adapters, and a base in fewer bits.

A product with a frozen weight keeps no input, as only the gradient of the weight reads it, and has
one product on its way back instead of two. Norms, activations and attention keep all that they do,
since gradients pass through them to what is trained below. Layers with nothing trained in them or
below have no backward pass, and keep nothing (`torch.autograd` records no graph there).

Kernels of a scan save their operands whatever is trained (`mamba_split_conv1d_scan_combined`,
`chunk_gated_delta_rule`): a frozen mixer with something trained below keeps all of them, and its
two products alone keep less.

An adapter beside a product of n outputs and k inputs has two weights, r x k and n x r. PEFT has one
for each of queries, keys, values, gate and value of an MLP (`peft/tuners/lora/layer.py`). Under
autocast each keeps a copy of its input in 2 bytes, and a mask if it drops out. Megatron-Bridge has
one for each fused product (`bridge/peft/lora.py`), divided over tensor-parallel ranks like it.

bitsandbytes restores a weight of 4 bits to 2 bytes per number right before either product with it
(`autograd/_functions.py: MatMul4Bit`), in memory of a moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.job.attention import NORMED
from ilp_planner.job.mlp import routed_tokens
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.quantised import ADAPTERS, quantised_counts
from ilp_planner.job.recompute import forget, recomputes
from ilp_planner.job.shard import part, shard_of, stream_width, widens
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.tuning import (
    ADAPTED,
    BASES,
    FORWARD_ONLY,
    OF_SCANS,
    PEFT_NAMES,
    ROUTED,
    TRAINED,
    Adapter,
    TunedLayer,
    adapters_of,
    possible_adapters,
    trains_output,
    trains_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.specs.training import TrainingJob

SINGLE = 4  # bytes of a number in fp32
MASK = 1  # bytes of an element of a dropout mask
Path = tuple[str, ...]


# ---- trained parameters and kept activations -----------------------------------------------------


def tuned_layer(job: TrainingJob, layer: Module, kind: TunedLayer) -> Module:
    """Return a layer with its adapters, and without activations that nothing trained needs."""
    if not job.settings.tuning:
        return layer
    walk = _Walk(job, kind)
    found = walk.module(layer, ())
    return forget(found) if kind.state == FORWARD_ONLY else found


def tuned_words(job: TrainingJob, embedding: Module) -> Module:
    """Return the embedding, which keeps nothing if it is frozen."""
    if trains_words(job.model, job.settings.tuning):
        return embedding
    return forget(_frozen(embedding))


def tuned_output(job: TrainingJob, output: Module) -> Module:
    """Return the output layer; frozen, its product keeps no input. The final norm is one of the
    norms."""
    tuning = job.settings.tuning
    if not tuning:
        return output
    children = []
    for child in output.children:
        found = child
        if child.name == "output_layer" and not trains_output(job.model, tuning):
            found = replace(_frozen(child), kept=_cast(job, child))
        if child.name.endswith("layernorm"):
            found = tuned_norm(job, child)
        children.append(found)
    return replace(output, children=tuple(children))


def _cast(job: TrainingJob, product: Module) -> tuple[Kept, ...]:
    """Return the copy of a frozen weight in fp32 that autocast multiplies with, kept for the
    gradient of its input."""
    if not widens(job):
        return ()
    shape = product.weights[0].shape if product.weights else (job.padded_outputs, job.model.hidden)
    return (Kept(name="weight", shape=shape, width=job.settings.width, why="cast from fp32"),)


def tuned_norm(job: TrainingJob, norm: Module) -> Module:
    """Return a norm outside of layers."""
    tuning = job.settings.tuning
    return _unweighed(_frozen(norm)) if tuning.rank or tuning.freezes("norms") else norm


def _unweighed(norm: Module) -> Module:
    """Return a norm without what it keeps for the gradient of its weight."""
    return replace(norm, kept=tuple(kept for kept in norm.kept if kept.name != NORMED))


def _frozen(module: Module) -> Module:
    """Return a module whose weights are not trained."""
    weights = tuple(replace(weight, trained=False) for weight in module.weights)
    return replace(module, weights=weights, children=tuple(map(_frozen, module.children)))


def _beside(job: TrainingJob, module: str, kind: TunedLayer) -> tuple[Adapter, ...]:
    every = adapters_of(job.model, job.settings.tuning, kind.kind)
    return tuple(one for one in every if one.module == module)


class _Walk(NamedTuple):
    """Through the modules of a layer of a kind."""

    job: TrainingJob
    kind: TunedLayer

    def module(self, module: Module, path: Path) -> Module:
        """Return a module and those in it. path: of names, below the layer."""
        weights = tuple(
            replace(weight, trained=self._trains(part_of(self.kind, path, weight)))
            for weight in module.weights
        )
        children = tuple(self.module(child, (*path, child.name)) for child in module.children)
        if path == ("mlp", "experts") and self.kind.state == ADAPTED:
            children += tuple(_of_experts(self.job, self.kind))
        found = replace(module, weights=weights, children=children)
        if _is_product(module):
            found = self._product(found, path)
        elif module.name.endswith("layernorm") and not self._reads(path):
            found = replace(found, kept=tuple(k for k in found.kept if k.name != "output"))
        if not self._trains("norms"):
            found = _unweighed(found)
        return found

    def _trains(self, part: str) -> bool:
        return self.kind.state == TRAINED and not self.job.settings.tuning.freezes(part)

    def _reads(self, path: Path) -> bool:
        """Tell whether a trained product reads the output of a norm that keeps it for several."""
        names = READERS.get(path[-1], ())
        parts = {part_of(self.kind, name, None) for name in names}
        adapted = self.kind.state == ADAPTED and any(
            _beside(self.job, name[-1], self.kind) for name in names
        )
        again = any(recomputes(self.job, name) for name in ("moe", "mla_up_proj"))
        return adapted or again or any(map(self._trains, parts))

    def _product(self, module: Module, path: Path) -> Module:
        """Return a product: a frozen one keeps no input, unless it is computed again from it, or
        attention reads it as its own output."""
        tuning = self.job.settings.tuning
        rest = module.kept
        heavy = next(weight for weight in module.weights if len(weight.shape) == 2)
        if not heavy.trained and not self._again(path):
            rest = tuple(kept for kept in module.kept if not self._for_weight(module, kept))
        if self.kind.state != ADAPTED:
            return replace(module, kept=rest)
        if "experts" in path:
            own = _beside(self.job, ROUTED + module.name, self.kind)
            return module if any(one.merged for one in own) else replace(module, kept=rest)
        own = _beside(self.job, module.name, self.kind)
        if not own:
            return replace(module, kept=rest)
        held = rest if module.name == "linear_proj" and not tuning.dropout else ()
        shared = any(kept.name == "input" for kept in held)
        inner = tuple(adapter_modules(self.job, own, shared=shared))
        return replace(module, kept=rest, children=(*module.children, *inner))

    def _again(self, path: Path) -> bool:
        """Tell whether a product is computed again from what it keeps."""
        names = {"linear_fc1": "mlp", "linear_q_up_proj": "mla_up_proj"}
        names["linear_kv_up_proj"] = "mla_up_proj"
        return path[-1] in names and recomputes(self.job, names[path[-1]])

    def _for_weight(self, module: Module, kept: Kept) -> bool:
        """Tell whether a kept tensor is for the weight's gradient alone."""
        if any(other.name == "statistics" for other in module.kept):
            return kept.name == "norm's output"
        flash = self.job.settings.kernels.attention == "flash"
        whole = not any(other.name == "output" for other in module.kept)
        reads = flash and whole and not recomputes(self.job, "core_attn")
        return kept.name == "input" and not (module.name == "linear_proj" and reads)


# Norms with several readers -> paths of the products that read their output.
READERS: dict[str, tuple[Path, ...]] = {
    "input_layernorm": (
        ("self_attention", "linear_q_down_proj"),
        ("self_attention", "linear_q_proj"),
        ("self_attention", "linear_kv_down_proj"),
    ),
    "pre_mlp_layernorm": (("mlp", "router"), ("mlp", "shared_experts", "linear_fc1")),
}
PRODUCTS = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "linear_q_proj", "linear_q_down_proj",
    "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", *OF_SCANS,
)  # fmt: skip


def _is_product(module: Module) -> bool:
    return module.name in PRODUCTS and any(len(weight.shape) == 2 for weight in module.weights)


def part_of(kind: TunedLayer, path: Path, weight: Weight | None) -> str:
    """Return the part of `FROZEN` that a layer's weight is of. path: of names, below the layer."""
    name = weight.name if weight else ""
    if path[-1].endswith(("layernorm", "norm")) or name.startswith("layer_norm"):
        return "norms"
    own = LAYER_KINDS[kind.kind]
    if path[0] in ("self_attention", "mixer"):
        return own.mixer
    return "router" if "router" in path else own.inner


def trained_part(name: str, kind: TunedLayer) -> str:
    """Return the part of `FROZEN` of a layer's product, by its name in `job.work`."""
    own = LAYER_KINDS[kind.kind]
    if name.startswith("linear_") or name in OF_SCANS:
        return own.mixer
    return "router" if name == "router" else own.inner


def adapter_modules(
    job: TrainingJob, own: tuple[Adapter, ...], *, shared: bool
) -> Iterator[Module]:
    """Yield the adapters beside a product, with what they keep.

    shared: the product keeps the input that they read.
    """
    tuning, sizes = job.settings.tuning, shard_of(job)
    alone = tuning.adapters == "fp32"  # each has a copy of its own
    leading = sizes.tokens, sizes.batch
    for number, one in enumerate(own):
        inner = part(one.inner, job.tp) if one.rows else one.inner
        first = (tuning.rank, inner) if one.rows else (part(tuning.rank, job.tp), inner)
        second = (part(one.outer, job.tp), tuning.rank)
        kept = [Kept(name="narrow", shape=(*leading, tuning.rank), width=sizes.width)]
        shape = (*leading, inner) if one.rows else sizes.column_input(inner)
        if alone or (number == 0 and not (shared and not tuning.dropout)):
            why = "of the first product, cast" if alone else "of the first products"
            kept.append(Kept(name="input", shape=shape, width=sizes.width, why=why))
        if tuning.dropout and (alone or number == 0):
            kept.append(Kept(name="dropout mask", shape=shape, width=MASK))
        weights = (Weight(name="lora_A", shape=first), Weight(name="lora_B", shape=second))
        yield Module(name=ADAPTERS, weights=weights, kept=tuple(kept))


def _of_experts(job: TrainingJob, kind: TunedLayer) -> Iterator[Module]:
    """Yield the adapters of routed experts.

    PEFT has one of each expert, and adds them to the experts' weights; the sum, and the factors in
    the training precision, are kept, and so is the product's input, as the sum has a gradient.
    Megatron-Bridge has one for all experts of a rank, or of each where these are modules; ms-swift
    has one of each.
    """
    every = adapters_of(job.model, job.settings.tuning, kind.kind)
    for module in dict.fromkeys(one.module for one in every if one.routed):
        own = [one for one in every if one.module == module]
        yield _merged(job, own) if own[0].merged else _by_rank(job, own[0])


def _held(job: TrainingJob) -> int:
    """Return the routed experts of a rank."""
    assert job.model.experts is not None
    return part(job.model.experts.count, job.settings.ep)


def _merged(job: TrainingJob, own: list[Adapter]) -> Module:
    """Return the adapters of all experts of a rank beside one of their products."""
    held, rank, width = _held(job), len(own) * job.settings.tuning.rank, job.settings.width
    one = own[0]
    shapes = {"lora_A": (held * rank, one.inner), "lora_B": (one.outer, held * rank)}
    factors = (Kept(name=name, shape=shape, width=width) for name, shape in shapes.items())
    whole = (held, one.outer, one.inner)
    kept = Kept(name="sum", shape=whole, width=width, why="of the experts' weights and adapters")
    weights = tuple(Weight(name=name, shape=shape) for name, shape in shapes.items())
    return Module(name=ADAPTERS, weights=weights, kept=(kept, *factors))


def _by_rank(job: TrainingJob, one: Adapter) -> Module:
    """Return the adapter of a rank's experts beside one of their products, or one of each."""
    tuning, ways = job.settings.tuning, job.expert_tp
    apart = not job.settings.kernels.grouped_experts
    held = _held(job) if one.each and not apart else 1  # in one module
    inner = part(one.inner, ways) if one.rows else one.inner
    first = (tuning.rank, inner) if one.rows else (part(tuning.rank, ways), inner)
    second = (part(one.outer, ways), tuning.rank)
    tokens, width = part(routed_tokens(job), _held(job) if apart else 1), job.settings.width
    kept = [Kept(name="narrow", shape=(tokens, tuning.rank), width=width)]
    if not apart:  # experts one by one keep their inputs in the module of all
        kept.append(Kept(name="input", shape=(tokens, inner), width=width, why="of the first"))
    if tuning.dropout:
        kept.append(Kept(name="dropout mask", shape=(tokens, inner), width=MASK))
    shapes = {"lora_A": first, "lora_B": second}
    weights = tuple(
        Weight(name=name, shape=(held * rows, columns), expert=True)
        for name, (rows, columns) in shapes.items()
    )
    found = Module(name=ADAPTERS, weights=weights, kept=tuple(kept))
    return found.times(_held(job)) if apart else found


def keeps_second_input(layer: Module) -> bool:
    """Tell whether the second product of a layer's MLP keeps its input, or has an adapter that
    does."""
    inner = (child for child in layer.children if child.name == "mlp")
    every = (one for child in inner for one in _modules(child))
    found = [one for one in every if one.name == "linear_fc2" and _is_product(one)]
    if not found:
        return True  # experts one by one, in a module that keeps all of theirs
    return any(kept.name == "input" for one in found for own in _modules(one) for kept in own.kept)


def _modules(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children:
        yield from _modules(child)


# ---- bytes ---------------------------------------------------------------------------------------


def base_width(job: TrainingJob) -> float:
    """Return bytes per number of a base in fewer bits; of the training precision without one."""
    return BASES.get(job.settings.tuning.base, job.settings.width)


def other_width(job: TrainingJob) -> int:
    """Return bytes per number of parameters that are neither trained nor of a base in 4 bits."""
    return stream_width(job)


def gathered_saved(job: TrainingJob, others: float, low: float) -> float:
    """Return the numbers of the training precision that take the bytes by which frozen parameters
    are smaller. others, low: parameters in other widths, and in fewer bits."""
    width = job.settings.width
    return low * (1 - base_width(job) / width) - others * (other_width(job) / width - 1)


def base_numbers(job: TrainingJob, module: Module) -> tuple[int, int]:
    """Return the numbers of a layer that are kept in fewer bits, all and routed experts'.

    bitsandbytes quantises modules of one product each. Routed experts of transformers 5 are
    parameters of many, and stay in the precision of all else (`integrations/bitsandbytes.py`).
    """
    if not job.settings.tuning.base:
        return 0, 0
    total, routed = quantised_counts((module,))
    return (total - routed, 0) if job.settings.tuning.adapters == "fp32" else (total, routed)


def adapter_numbers(module: Module) -> int:
    """Return the parameters of adapters in a module; those that are divided as routed experts are
    not among them."""
    if module.name == ADAPTERS:
        return module.parameters - module.expert_parameters
    return module.repeat * sum(map(adapter_numbers, module.children))


def tuning_moment(job: TrainingJob, kind: TunedLayer) -> float:
    """Return the bytes of a moment in a layer's passes: a weight of the base in the training
    precision, of an adapter its input in single precision, dropped out, and the gradient of the sum
    of an adapter and the weights of experts."""
    tuning = job.settings.tuning
    if not tuning or kind.state == FORWARD_ONLY:
        return 0.0
    found = 0.0
    sizes = shard_of(job)
    if tuning.base:
        found += max(_largest(job, kind), default=0.0) * sizes.width / job.tp
    if kind.state == ADAPTED and tuning.adapters == "fp32":
        own = adapters_of(job.model, tuning, kind.kind)
        widest = max((one.inner for one in own if not one.merged), default=0)
        copies = 2 if tuning.dropout else 1
        found += copies * float(sizes.tokens * sizes.batch * widest) * SINGLE
        sums = (_held(job) * one.inner * one.outer for one in own if one.merged)
        found += max(sums, default=0) * sizes.width
    return found


def _largest(job: TrainingJob, kind: TunedLayer) -> Iterator[float]:
    """Yield the numbers of a layer's products, as transformers has them."""
    model = job.model
    for one in possible_adapters(model, kind.kind):
        if one.target in PEFT_NAMES and not one.routed:
            yield float(one.inner * one.outer)
