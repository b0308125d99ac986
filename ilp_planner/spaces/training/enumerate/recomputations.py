"""The recomputations that a search tries, besides the first layers of each stage."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, combinations, product
from typing import TYPE_CHECKING

from ilp_planner.job.recompute import OF_DENSE, OF_EXPERTS
from ilp_planner.specs.layer_kinds import ATTENTION, MLP
from ilp_planner.specs.training import MIXTURES, OPERATORS, Recompute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Kernels

NOTHING = Recompute()
SELECTIVE = Recompute(granularity="selective")
BY_OPERATORS = Recompute(granularity="selective", modules=(OPERATORS,))
FULL = Recompute(granularity="full", method="uniform", layers=1)


def whole_recomputations(
    model: Decoder, kernels: Kernels, asked: Constraints
) -> tuple[Recompute, ...]:
    """Return the ones without a number of layers: none, parts of every layer, all of it.

    Of parts, the requested ones in every combination; otherwise the core of attention alone, and
    norms or mixtures of streams, MLPs or activations of experts, or experts, and projections up
    from latents in every combination, as NVIDIA's recipes have them.
    """
    every = _every(model, kernels, asked.modules)
    return tuple(one for one in every if asked.recomputes(one))


@lru_cache(maxsize=256)  # all parts of a search have one of a few kernels
def _every(model: Decoder, kernels: Kernels, modules: tuple[str, ...]) -> tuple[Recompute, ...]:
    """Return the result of `whole_recomputations`. modules: that are named, none: the usual
    ones."""
    able = frozenset(recomputable(model, kernels))
    sets = _subsets([n for n in modules if n in able]) if modules else _usual(model, able)
    selective = [
        Recompute(granularity="selective", modules=names)
        for names in sets
        if not {"layernorm", MIXTURES} <= {*names}  # mixtures are computed again with their norms
    ]
    return tuple(dict.fromkeys((NOTHING, SELECTIVE, *selective, FULL)))


def whole_stages(plan: GroupPlan) -> bool:
    """Tell whether blocks that are recomputed are all there is: the same as `full`."""
    settings = plan.settings
    if settings is None or settings.recompute.method != "block":
        return False
    count = len(plan.stages) - 1
    layers = [s.stop - s.start - (k == 0) - (k == count) for k, s in enumerate(plan.stages)]
    return settings.recompute.layers >= max(layers)


def recomputable(model: Decoder, kernels: Kernels) -> Iterator[str]:
    """Yield the parts that layers of a model can recompute."""
    if model.has(ATTENTION):
        yield "core_attn"
    norms = kernels.quantised != "fp8-delayed"
    if norms:
        yield "layernorm"
    if norms and model.streams > 1:
        yield MIXTURES
    if model.latent is not None or model.compressed is not None:
        yield "mla_up_proj"
    if model.has(MLP):
        yield from OF_DENSE
    if model.experts is not None:
        has = {
            "moe_act": norms and kernels.grouped_experts,
            "shared_experts": model.experts.shared_ffn,
        }
        yield from (name for name in OF_EXPERTS if has.get(name, True))


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, n) for n in range(1, len(names) + 1))


def _usual(model: Decoder, able: frozenset[str]) -> Iterator[tuple[str, ...]]:
    wide: list[tuple[str, ...]] = [("mlp",)] if model.experts is None else [("moe_act",), ("moe",)]
    if model.experts is not None and "mlp" in able:  # of the first layers, which have no experts
        wide += [("mlp", "moe")]
    norms = [(), ("layernorm",), (MIXTURES,)]
    for first, second, third in product(norms, [(), ("mla_up_proj",)], [(), *wide]):
        names = (*first, *second, *third)
        if names and able.issuperset(names):
            yield names
