"""Choices of a job as a whole, besides its degrees and its schedule, and the values that searches
try.

Each choice has the name of a constraint. The widths of gradients and moments change the
computation, and only requested values are tried.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.training import Offload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.specs.training import Settings

GRADIENT_BYTES = {"fp32": 4, "bf16": 2}
MOMENT_BYTES = {"fp32": 8, "bf16": 4, "fp8": 2}  # of both together
# Way and what of a layer is in graphs: NVIDIA's recipes have attention, with experts what comes
# before their tokens are exchanged as well, and without experts all of a layer or an iteration.
CUDA_GRAPHS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "attn": ("transformer_engine", ("attn",)),
    "router": ("transformer_engine", ("attn", "moe_router", "moe_preprocess")),
    "layer": ("transformer_engine", ()),
    "full_iteration": ("full_iteration", ()),
}
REMAINDERS = 2  # bytes of a copy that has what a parameter of 16 bits lacks


def _never(settings: Settings, replicated: bool) -> bool:
    return False


class Choice(NamedTuple):
    """read: the value of settings. write: settings with a value; None if there are none. text: how
    names of parts say it. idle: whether it decides nothing in settings of a job, with or without
    replicated parameters. rest: its value there; empty: as in the plainest settings. uncounted: of
    values, the effects that neither time nor memory count."""

    read: Callable[[Settings], str]
    write: Callable[[Settings, str], Settings | None]
    text: str
    idle: Callable[[Settings, bool], bool] = _never
    rest: str = ""
    uncounted: Mapping[str, str] = MappingProxyType({})


def _with_sharding(settings: Settings, value: str) -> Settings:
    """Only if gradients or parameters are divided, these are gathered from the stepped copy.
    Overlap stays as it is, so that equal choices are equal settings."""
    own, overlap = settings.optimizer, _overlap(settings)
    from_master = own.from_master and value in ("gradients", "parameters")
    settings = replace(settings, optimizer=replace(own, sharding=value, from_master=from_master))
    return _with_overlap(settings, overlap) if overlap == "data" else settings


def _overlap(settings: Settings) -> str:
    optimizer = settings.optimizer
    gathers = optimizer.overlap_parameters or optimizer.sharding == "none"
    return "data" if optimizer.overlap_gradients and gathers else "none"


def _with_overlap(settings: Settings, value: str) -> Settings:
    """Without a distributed optimizer no parameters are gathered (`overlap_param_gather`)."""
    optimizer, on = settings.optimizer, value == "data"
    gathers = on and optimizer.sharding != "none"
    optimizer = replace(optimizer, overlap_gradients=on, overlap_parameters=gathers)
    return replace(settings, optimizer=optimizer)


def _loss(settings: Settings) -> str:
    return settings.kernels.loss_kernel if settings.kernels.fused_loss else "none"


def _with_loss(settings: Settings, value: str) -> Settings:
    fused = value != "none"
    own = settings.kernels.loss_kernel
    kernels = replace(settings.kernels, fused_loss=fused, loss_kernel=value if fused else own)
    return replace(settings, kernels=kernels)


def _name(sizes: Mapping[str, int], size: int) -> str:
    return next((name for name, own in sizes.items() if own == size), f"{size} bytes")


def _gradients(settings: Settings) -> str:
    return _name(GRADIENT_BYTES, settings.optimizer.gradient)


def _with_gradients(settings: Settings, value: str) -> Settings | None:
    """Megatron adds gradients up in 2 bytes if parameters are bf16 (`grad_reduce_in_bf16`)."""
    if value != "fp32" and settings.precision != value:
        return None
    optimizer = replace(settings.optimizer, gradient=GRADIENT_BYTES[value])
    return replace(settings, optimizer=optimizer)


def _moments(settings: Settings) -> str:
    return _name(MOMENT_BYTES, settings.optimizer.moments)


def _with_moments(settings: Settings, value: str) -> Settings | None:
    """Smaller moments need the precision-aware optimiser; it keeps the bits of the stepped copy
    that a bf16 parameter lacks (`store_param_remainders`)."""
    if value == "fp32":
        return settings
    if settings.precision != "bf16":
        return None
    optimizer = replace(settings.optimizer, moments=MOMENT_BYTES[value], master=REMAINDERS)
    return replace(settings, optimizer=optimizer)


def _with_tensor_overlap(settings: Settings, value: str) -> Settings | None:
    """Transformer Engine's buffers for it have numbers of 2 bytes (`comm_gemm_overlap.h`)."""
    if value == "on" and settings.width > 2:
        return None
    return replace(settings, overlap_tensor=value == "on")


def _graphs(settings: Settings) -> str:
    kernels = settings.kernels
    found = (kernels.graphs, kernels.graphed)
    named = (name for name, graphs in CUDA_GRAPHS.items() if graphs == found)
    return next(named, " ".join((kernels.graphs, *kernels.graphed))) if kernels.graphs else "none"


def _with_graphs(settings: Settings, value: str) -> Settings:
    graphs, graphed = CUDA_GRAPHS.get(value, ("", ()))
    kernels = replace(settings.kernels, graphs=graphs, graphed=graphed)
    return replace(settings, kernels=kernels)


def _with_offload(settings: Settings, value: str) -> Settings | None:
    """States on the host are of single precision, those of the device beside them likewise
    (`hybrid_optimizer.py`); transfers overlap with steps, as its authors advise."""
    optimizer, share = settings.optimizer, float(value)
    if share and optimizer.moments != MOMENT_BYTES["fp32"]:
        return None
    optimizer = replace(optimizer, offload=share, overlap_offload=share > 0)
    return replace(settings, optimizer=optimizer)


def _activations(settings: Settings) -> str:
    offload = settings.offload
    return str(offload.layers) if offload.layers else "+".join(offload.modules) or "none"


def _with_activations(settings: Settings, value: str) -> Settings:
    if value.isdigit():
        return replace(settings, offload=Offload(layers=int(value)))
    modules = () if value == "none" else tuple(value.split("+"))
    return replace(settings, offload=Offload(modules=modules))


def _has_experts(settings: Settings) -> bool:
    """Tell whether a job has experts: their products are always grouped."""
    return settings.kernels.grouped_experts


def _with_dispatcher(settings: Settings, value: str) -> Settings:
    if not _has_experts(settings):
        return settings
    return replace(settings, kernels=replace(settings.kernels, dispatcher=value))


def _with_fused_permute(settings: Settings, value: str) -> Settings:
    return replace(settings, kernels=replace(settings.kernels, fused_permute=value == "on"))


def _with_compile(settings: Settings, value: str) -> Settings:
    return replace(settings, kernels=replace(settings.kernels, compiled=value == "on"))


def _switch(on: bool) -> str:
    return "on" if on else "off"


CHOICES = {
    "sharding": Choice(
        lambda s: s.optimizer.sharding,
        _with_sharding,
        "{} sharded",
        idle=lambda s, replicated: not replicated,
    ),
    "sharding_copies": Choice(
        lambda s: str(s.optimizer.instances),
        lambda s, v: replace(s, optimizer=replace(s.optimizer, instances=int(v))),
        "in {} copies",
        idle=lambda s, replicated: not replicated or s.optimizer.sharding == "none",
        rest="1",
    ),
    "cp_comm": Choice(
        lambda s: s.cp_comm,
        lambda s, v: replace(s, cp_comm=v, cp_inner=0),
        "cp by {}",
        idle=lambda s, _: s.cp == 1,
        rest="p2p",
    ),
    "overlap": Choice(_overlap, _with_overlap, "overlap {}"),
    "fused_loss": Choice(_loss, _with_loss, "fused loss {}"),
    "gradients": Choice(_gradients, _with_gradients, "gradients {}"),
    "moments": Choice(_moments, _with_moments, "moments {}"),
    # What sequence parallelism sends: `--tp-comm-overlap`, torchtitan's async tensor parallelism.
    "tensor_overlap": Choice(
        lambda s: _switch(s.overlap_tensor),
        _with_tensor_overlap,
        "tensor overlap {}",
        idle=lambda s, _: not s.sequence_parallel,
        rest="off",
        uncounted={"on": "userbuffers or symmetric memory, which are none of PyTorch's allocator"},
    ),
    "expert_overlap": Choice(
        lambda s: _switch(s.overlap_experts),
        lambda s, v: replace(s, overlap_experts=v == "on"),
        "expert overlap {}",
        idle=lambda s, _: s.ep == 1,
        rest="off",
        uncounted={"on": "memory of the second micro-batch in flight"},
    ),
    "cuda_graphs": Choice(
        _graphs,
        _with_graphs,
        "CUDA graphs {}",
        uncounted=dict.fromkeys(CUDA_GRAPHS, "memory of graphs, whose buffers stay"),
    ),
    "optimizer_offload": Choice(
        lambda s: f"{s.optimizer.offload:g}",
        _with_offload,
        "{} of the states on the host",
    ),
    "activation_offload": Choice(_activations, _with_activations, "{} on the host"),
    # Flex needs several ranks (`token_dispatcher.py`); alone, ranks exchange nothing.
    "dispatcher": Choice(
        lambda s: s.kernels.dispatcher,
        _with_dispatcher,
        "dispatcher {}",
        idle=lambda s, _: s.ep * s.etp <= 1,
        rest="alltoall",
        uncounted={"flex": "DeepEP's buffers, which are none of PyTorch's"},
    ),
    "fused_permute": Choice(
        lambda s: _switch(s.kernels.fused_permute),
        _with_fused_permute,
        "fused permute {}",
        idle=lambda s, _: not _has_experts(s),
        rest="off",
    ),
    "compile": Choice(
        lambda s: _switch(s.kernels.compiled),
        _with_compile,
        "compile {}",
        uncounted={"on": "what torch.compile makes of kernels, in seconds and in bytes"},
    ),
}


def choices(
    base: Settings, tried: Mapping[str, tuple[str, ...]], asked: Constraints
) -> tuple[Settings, ...]:
    """Return the settings of whole jobs that are tried, the plainest first.

    Parameters
    ----------
    tried: values by names of `CHOICES`, if others than the base's own are tried without being asked
        for.
    """
    values = (
        getattr(asked, name) or tried.get(name) or (choice.read(base),)
        for name, choice in CHOICES.items()
    )
    return _every(base, tuple(values))


@lru_cache(maxsize=256)
def _every(base: Settings, values: tuple[tuple[str, ...], ...]) -> tuple[Settings, ...]:
    """Return settings with every combination of values, in the order of `CHOICES`."""
    found = [base]
    for choice, each in zip(CHOICES.values(), values, strict=True):
        every = (choice.write(one, value) for value in each for one in found)
        found = [one for one in every if one is not None]
    return tuple(found)


def with_inner(settings: Settings, ranks: int) -> tuple[Settings, ...]:
    """Return settings with every possible number of inner ranks, if attention is computed by
    `a2a+p2p`."""
    sizes = divisors(ranks)[1:-1] if settings.cp_comm == "a2a+p2p" else ()
    return tuple(replace(settings, cp_inner=size) for size in sizes) or (settings,)


def values_of(settings: Settings) -> dict[str, str]:
    """Return the values of settings, by the names of `CHOICES`."""
    return {name: choice.read(settings) for name, choice in CHOICES.items()}


def settled(settings: Settings, plainest: Settings, *, replicated: bool) -> Settings:
    """Return settings of a job with idle choices at rest.

    replicated: several ranks have the same parameters. plainest: settings with the rest values of
    choices that have none of their own.
    """
    for choice in CHOICES.values():
        if choice.idle(settings, replicated):
            rest = choice.rest or choice.read(plainest)
            if choice.read(settings) != rest:
                settings = choice.write(settings, rest) or settings
    return settings


def decided(settings: Settings, *, replicated: bool) -> dict[str, str]:
    """Return the values of `values_of` that decide something: not the attention of a single
    context-parallel rank, nor the sharding of parameters that no two ranks have."""
    return {
        name: choice.read(settings)
        for name, choice in CHOICES.items()
        if not choice.idle(settings, replicated)
    }


@lru_cache(maxsize=4096)
def different(settings: Settings, plainest: Settings) -> tuple[str, ...]:
    """Return the differences of settings from the plainest ones, as in `parameters sharded`:
    thousands of parts have the same ones."""
    values = ((choice, choice.read(settings)) for choice in CHOICES.values())
    found = tuple(
        choice.text.format(value) for choice, value in values if value != choice.read(plainest)
    )
    if settings.cp_inner == plainest.cp_inner:
        return found
    return (*found, f"heads exchanged by {settings.cp_inner}")


def uncounted(asked: Constraints, names: Collection[str]) -> Iterator[str]:
    """Yield a note on every value of some choices that was asked for and is not counted whole."""
    for name in names:
        for value in getattr(asked, name):
            if what := CHOICES[name].uncounted.get(value):
                yield f"{name.replace('_', ' ')} {value}: not counted: {what}"
