"""The values of settings in a job: how a job has them, and how it gets other ones.

Widths of gradients and moments change the computation: searches try other widths only on request.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.training import (
    BLOCKWISE,
    BLOCKWISE_STEP,
    BOTH_WAYS,
    MUON,
    PAGED,
    STEPPED_IN_FULL,
    Offload,
)
from ilp_planner.specs.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.specs.training import Settings

GRADIENT_BYTES = {"fp32": 4, "bf16": 2}
# Of both together, but for what blocks have besides.
MOMENT_BYTES = {"fp32": 8, "bf16": 4, "fp8": 2, BLOCKWISE: 2, PAGED: 8, BOTH_WAYS: 2}
BY_TRAINER = (BLOCKWISE, PAGED, BOTH_WAYS)  # of moments, those of bitsandbytes
# Way and what of a layer is in graphs: NVIDIA's recipes have attention, with experts what comes
# before their tokens are exchanged as well, and without experts all of a layer or an iteration.
GRAPHED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "attn": ("transformer_engine", ("attn",)),
    "router": ("transformer_engine", ("attn", "moe_router", "moe_preprocess")),
    "layer": ("transformer_engine", ()),
    "full_iteration": ("full_iteration", ()),
}
USUAL_TARGETS = "usual"  # products with adapters where none are named: as the runtime has them
RINGS = "a2a+p2p"  # of ranks, those of one place in every exchange of heads
REMAINDERS = 2  # bytes of a copy that has what a parameter of 16 bits lacks


def _never(settings: Settings, replicated: bool) -> bool:
    return False


class Choice(NamedTuple):
    """read: the value of settings. write: settings with a value; None if there are none. text: how
    names of parts say it. idle: whether it decides nothing in settings of a job, with or without
    replicated parameters. rest: its value there; empty: as in the plainest settings. uncounted: of
    values, the effects that neither time nor memory count. needs: settings without which a value
    other than the usual one cannot be written, as a request has them."""

    read: Callable[[Settings], str]
    write: Callable[[Settings, str], Settings | None]
    text: str
    idle: Callable[[Settings, bool], bool] = _never
    rest: str = ""
    uncounted: Mapping[str, str] = MappingProxyType({})
    needs: str = ""


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


def _with_fp8_attention(settings: Settings, value: str) -> Settings | None:
    """Attention has the recipe of the products."""
    on = value == "on"
    if on and not settings.kernels.quantised:
        return None
    return replace(settings, kernels=replace(settings.kernels, fp8_attention=on))


def _loss(settings: Settings) -> str:
    return settings.kernels.loss or "none"


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
    optimizer = settings.optimizer
    both = optimizer.moments * (2 if optimizer.of_matrices else 1)
    return optimizer.moment_format or _name(MOMENT_BYTES, both)


def _with_moments(settings: Settings, value: str) -> Settings | None:
    """Smaller moments need Megatron's precision-aware optimiser, which keeps the bits of the
    stepped copy that a bf16 parameter lacks (`store_param_remainders`), but with some recipes; or
    bitsandbytes', which steps a copy as it is."""
    if value == "fp32":
        return settings
    if value in BY_TRAINER:
        own = replace(settings.optimizer, moments=MOMENT_BYTES[value], moment_format=value)
        return replace(settings, optimizer=own)
    if settings.precision != "bf16":
        return None
    optimizer = replace(settings.optimizer, moments=MOMENT_BYTES[value])
    if settings.kernels.quantised not in STEPPED_IN_FULL:
        optimizer = replace(optimizer, master=REMAINDERS)
    return replace(settings, optimizer=optimizer)


def _with_optimizer(settings: Settings, value: str) -> Settings | None:
    """Muon keeps momentum in single precision, on the device, of parameters of bf16."""
    own = settings.optimizer
    if value != MUON:
        return settings
    if _moments(settings) != "fp32" or own.moment_format or own.offload:
        return None
    moment = own.moments if own.of_matrices else own.moments // 2
    return replace(settings, optimizer=replace(own, name=MUON, moments=moment))


def _with_tensor_overlap(settings: Settings, value: str) -> Settings | None:
    """Transformer Engine's buffers for it have numbers of 2 bytes (`comm_gemm_overlap.h`)."""
    if value == "on" and settings.width > 2:
        return None
    return replace(settings, overlap_tensor=value == "on")


def _graphs(settings: Settings) -> str:
    kernels = settings.kernels
    found = (kernels.graphs, kernels.graphed)
    named = (name for name, graphs in GRAPHED.items() if graphs == found)
    return next(named, " ".join((kernels.graphs, *kernels.graphed))) if kernels.graphs else "none"


def _with_graphs(settings: Settings, value: str) -> Settings:
    graphs, graphed = GRAPHED.get(value, ("", ()))
    kernels = replace(settings.kernels, graphs=graphs, graphed=graphed)
    return replace(settings, kernels=kernels)


def _with_offload(settings: Settings, value: str) -> Settings | None:
    """States on the host are of single precision, those of the device beside them likewise
    (`hybrid_optimizer.py`); transfers overlap with steps, as its authors advise."""
    optimizer, share = settings.optimizer, float(value)
    if share and _moments(settings) != "fp32":
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


def with_inner(settings: Settings, ranks: int) -> tuple[Settings, ...]:
    """Return settings with every possible number of inner ranks, if attention is computed by
    `a2a+p2p`."""
    sizes = divisors(ranks)[1:-1] if settings.cp_comm == RINGS else ()
    return tuple(replace(settings, cp_inner=size) for size in sizes) or (settings,)


def with_inner_ranks(settings: Settings, count: int) -> Settings:
    """Return settings with so many inner ranks, if there are any."""
    return replace(settings, cp_inner=count if settings.cp_comm == RINGS else 0)


def _with_rank(settings: Settings, value: str) -> Settings:
    """Adapters leave only parts of a model to be frozen; without any, they have nothing else."""
    rank, own = int(value), settings.tuning
    tuning = replace(own, rank=rank) if rank else Tuning(base=own.base, frozen=own.frozen)
    return replace(settings, tuning=tuning)


def _targets(settings: Settings) -> str:
    return "+".join(settings.tuning.targets) or USUAL_TARGETS


def _with_targets(settings: Settings, value: str) -> Settings | None:
    if not settings.tuning.rank and value != USUAL_TARGETS:
        return None
    targets = () if value == USUAL_TARGETS else tuple(value.split("+"))
    return replace(settings, tuning=replace(settings.tuning, targets=targets))


def _with_dropout(settings: Settings, value: str) -> Settings | None:
    if not settings.tuning.rank and float(value):
        return None
    return replace(settings, tuning=replace(settings.tuning, dropout=float(value)))


def _with_base(settings: Settings, value: str) -> Settings:
    base = "nf4" if value == "on" else ""
    return replace(settings, tuning=replace(settings.tuning, base=base))


def _with_frozen(settings: Settings, value: str) -> Settings:
    frozen = () if value == "none" else tuple(value.split("+"))
    return replace(settings, tuning=replace(settings.tuning, frozen=frozen))


def _has_experts(settings: Settings) -> bool:
    """Tell whether a job has experts: their products are always grouped."""
    return settings.kernels.grouped_experts


def _with_dispatcher(settings: Settings, value: str) -> Settings:
    if not _has_experts(settings):
        return settings
    return replace(settings, kernels=replace(settings.kernels, dispatcher=value))


def _switch(on: bool) -> str:
    return "on" if on else "off"


def with_fields(settings: Settings, values: dict[str, Any]) -> Settings:
    """Return settings with other values of fields, by names such as `kernels.graphs`."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        group, _, field = name.rpartition(".")
        if group:
            inner.setdefault(group, {})[field] = value
        else:
            own[field] = value
    parts = {group: replace(getattr(settings, group), **v) for group, v in inner.items()}
    return replace(settings, **own, **parts)


# Demands that PEFT and the Trainer meet, with values of all other jobs.
OF_TRAINER = {"lora": ("0",), "freeze": ("none",), "moments": ("fp32", "bf16", "fp8")}


def trainer_alone(told: Callable[[str], Sequence[str]]) -> bool:
    """Tell whether PEFT and the Trainer run all jobs that are demanded. told: the values of a
    setting, by its name; none: it is not demanded."""
    each = ((told(name), others) for name, others in OF_TRAINER.items())
    return any(values and not {*values} & {*others} for values, others in each)


def by_peft_trained(settings: Settings) -> Settings:
    """Return settings of a job of PEFT and the Trainer that any model may have; it has no quantised
    products."""
    return (
        settings if settings.quantised else replace(settings, tuning=Tuning(frozen=("embedding",)))
    )


def as_transformers(settings: Settings) -> Settings:
    """Return settings with layers as models of transformers have them."""
    kernels = replace(
        settings.kernels, implementation="eager", accumulation_fusion=False, flash_package=False
    )
    return replace(settings, kernels=kernels)


def switch(field: str, text: str, **others: Any) -> Choice:
    """Return the choice of a field of settings that is true or false: `on` or `off`.

    field: by its name, such as `kernels.fused_permute`. text, others: as of `Choice`.
    """
    read = attrgetter(field)

    def write(settings: Settings, value: str) -> Settings:
        return with_fields(settings, {field: value == "on"})

    return Choice(lambda settings: _switch(read(settings)), write, text, **others)


SHARDING = Choice(
    lambda s: s.optimizer.sharding,
    _with_sharding,
    "{} sharded",
    idle=lambda s, replicated: not replicated,
)
SHARDING_COPIES = Choice(
    lambda s: str(s.optimizer.instances),
    lambda s, v: replace(s, optimizer=replace(s.optimizer, instances=int(v))),
    "in {} copies",
    idle=lambda s, replicated: not replicated or s.optimizer.sharding == "none",
    rest="1",
)
CP_COMM = Choice(
    lambda s: s.cp_comm,
    lambda s, v: replace(s, cp_comm=v, cp_inner=0),
    "cp by {}",
    idle=lambda s, _: s.cp == 1,
    rest="p2p",
)
OVERLAP = Choice(_overlap, _with_overlap, "overlap {}")
FUSED_LOSS = Choice(_loss, _with_loss, "fused loss {}")
GRADIENTS = Choice(_gradients, _with_gradients, "gradients {}", needs="`precision=bf16`")
MOMENTS = Choice(_moments, _with_moments, "moments {}", needs="`precision=bf16`")
OPTIMIZER = Choice(
    lambda s: s.optimizer.name,
    _with_optimizer,
    "optimizer {}",
    needs="`precision=bf16` and `moments=fp32`",
)
MUON_TP_MODE = Choice(
    lambda s: s.optimizer.muon_tp_mode,
    lambda s, v: with_fields(s, {"optimizer.muon_tp_mode": v}),
    "Muon {} over tp",
    idle=lambda s, _: not s.optimizer.of_matrices,
    rest=BLOCKWISE_STEP,
)
MUON_PACKING = switch(
    "optimizer.packed",
    "Muon's buffers packed {}",
    idle=lambda s, _: not (s.optimizer.of_matrices and s.optimizer.sharding == "optimizer"),
    rest="on",
)
MUON_STEPS = Choice(
    lambda s: str(s.optimizer.muon_steps),
    lambda s, v: with_fields(s, {"optimizer.muon_steps": int(v)}),
    "{} turns of Muon",
    idle=lambda s, _: not s.optimizer.of_matrices,
    rest="5",
)
# Of the messages of sequence parallelism: `--tp-comm-overlap`, async tensor parallelism.
TENSOR_OVERLAP = Choice(
    lambda s: _switch(s.overlap_tensor),
    _with_tensor_overlap,
    "tensor overlap {}",
    idle=lambda s, _: not s.sequence_parallel,
    rest="off",
    uncounted={"on": "userbuffers or symmetric memory, which are none of PyTorch's allocator"},
    needs="`precision=bf16` or `precision=fp16`",
)
EXPERT_OVERLAP = switch(
    "overlap_experts",
    "expert overlap {}",
    idle=lambda s, _: s.ep == 1,
    rest="off",
    uncounted={"on": "memory of the second micro-batch in flight"},
)
CUDA_GRAPHS = Choice(
    _graphs,
    _with_graphs,
    "CUDA graphs {}",
    uncounted=dict.fromkeys(GRAPHED, "memory of graphs beside their pools"),
)
FP8_ATTENTION = Choice(
    lambda s: _switch(s.kernels.fp8_attention),
    _with_fp8_attention,
    "attention in 8 bits {}",
    rest="off",
    uncounted={"on": "messages of attention over cp in 8 bits, which are sent in 16 here"},
    needs="a recipe of 8 bits, as `precision=fp8-current`",
)
OPTIMIZER_OFFLOAD = Choice(
    lambda s: f"{s.optimizer.offload:g}",
    _with_offload,
    "{} of the states on the host",
    needs="`moments=fp32`",
)
ACTIVATION_OFFLOAD = Choice(_activations, _with_activations, "{} on the host")
# Flex needs several ranks (`token_dispatcher.py`); alone, ranks exchange nothing.
DISPATCHER = Choice(
    lambda s: s.kernels.dispatcher,
    _with_dispatcher,
    "dispatcher {}",
    idle=lambda s, _: s.ep * s.etp <= 1,
    rest="alltoall",
    uncounted={"flex": "DeepEP's buffers, which are none of PyTorch's"},
)
ENCODER_RECOMPUTE = Choice(
    lambda s: s.encoder_recompute,
    lambda s, v: replace(s, encoder_recompute=v),
    "encoder recompute {}",
)
FUSED_PERMUTE = switch(
    "kernels.fused_permute",
    "fused permute {}",
    idle=lambda s, _: not _has_experts(s),
    rest="off",
)
COMPILE = switch(
    "kernels.compiled",
    "compile {}",
    uncounted={"on": "what torch.compile makes of the loss, in seconds and in bytes"},
)
DEFER_EMBEDDING_WGRAD = switch(
    "kernels.deferred_output",
    "deferred output gradients {}",
    uncounted={"on": "the time of products that the end of the pipeline hides"},
)
LORA = Choice(lambda s: str(s.tuning.rank), _with_rank, "adapters of rank {}")
LORA_TARGETS = Choice(
    _targets,
    _with_targets,
    "adapters beside {}",
    idle=lambda s, _: not s.tuning.rank,
    rest=USUAL_TARGETS,
    needs="`lora=16`",
)
LORA_DROPOUT = Choice(
    lambda s: f"{s.tuning.dropout:g}",
    _with_dropout,
    "adapters with dropout {}",
    idle=lambda s, _: not s.tuning.rank,
    rest="0",
    needs="`lora=16`",
)
QLORA = Choice(lambda s: _switch(bool(s.tuning.base)), _with_base, "base in 4 bits {}")
FREEZE = Choice(lambda s: "+".join(s.tuning.frozen) or "none", _with_frozen, "frozen {}")


def as_demanded(
    base: Settings, tried: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    """Return the values that are tried: where a base's context-parallel ranks attend otherwise, as
    its model demands, so alone. tried: by the names of settings."""
    how = base.cp_comm
    return tried if how in tried.get("cp_comm", (how,)) else {**tried, "cp_comm": (how,)}
