"""Rules between the settings of a job, one named check each: of all systems, and Megatron-LM's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.units import counted
from ilp_planner.schedule.formulas import DIVIDED, USUAL
from ilp_planner.schedule.schedules import SCHEDULES
from ilp_planner.settings.values import CUDA_GRAPHS, FUSED_LOSS, MOMENTS
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.lengths import FULL, PACKED, PADDED
from ilp_planner.specs.training import MIXTURES, OPERATORS, ORDERS, RECOMPUTED, Offload
from ilp_planner.specs.tuning import (
    ADAPTED,
    BRIDGE_NAMES,
    ENDS,
    OF_ENCODER,
    OF_EXPERTS,
    PEFT_NAMES,
    TRAINED,
    adapters_of,
    kinds_of_layers,
    layers_of,
    moves,
    parts_of_layer,
    targets_of,
    trains_encoder,
    trains_input,
    trains_output,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Recompute, Settings, TrainingJob
    from ilp_planner.specs.tuning import Tuning

KINDS = len(LAYER_KINDS)  # of layers that a tuned job has at most
TE = "transformer_engine"
ALONE = ("uniform", 1)  # recomputation of whole layers that hybrids are priced with
OF_ENCODERS = "encoder recompute"
ENCODER_FIELD = "settings.encoder_recompute"
AS_ENCODER = {"none": "none", "selective": "core", "full": "full"}  # recomputation of the decoder
FP8_HEAD = 128  # channels of a head that attention in 8 bits takes at most
OVERLAP, GRAPHS, DEFERRED = "expert overlap", "CUDA graphs", "deferred gradients"
# Recomputed part of a layer -> the part of a graph that it lies in. Dropout excludes both together.
RANDOM = {"core_attn": "attn", "mlp": "mlp", "moe": "moe"}


class Broken(NamedTuple):
    """A rule between settings that a job breaks; have, limit: as shown to the user."""

    rule: str
    have: str
    limit: str


def check_sequence_parallel(job: TrainingJob) -> Iterator[Broken]:
    """Experts and Mamba have tensor parallelism with divided sequences alone."""
    divided = job.model.experts or job.model.mamba
    if job.tp > 1 and divided and not job.settings.sequence_parallel:
        limit = "sequence parallelism, for experts or Mamba with tensor parallelism"
        yield Broken("sequence parallelism", "none", limit)


def check_usual(job: TrainingJob) -> Iterator[Broken]:
    """Backward passes are never divided."""
    if job.schedule.divides:
        yield Broken("schedule", job.schedule.name, USUAL)


def check_context(job: TrainingJob) -> Iterator[Broken]:
    """Context-parallel ranks can exchange what attention needs as `cp_comm` says."""
    for text in context_rules(job):
        yield Broken("degrees", f"cp {job.settings.cp} by {job.settings.cp_comm}", text)


def context_rules(job: TrainingJob) -> Iterator[str]:
    """Yield the requirements of `cp_comm` that a job's attention breaks (Transformer Engine,
    `dot_product_attention/context_parallel.py`)."""
    model, cp, how = job.model, job.settings.cp, job.settings.cp_comm
    if cp == 1:
        return
    yield from _scan_rules(job)
    if model.sparse and how != "all_gather":
        yield "keys that an indexer chooses are gathered, all_gather"
    inner = {"a2a": cp, "a2a+p2p": job.settings.cp_inner}.get(how, 1)  # that exchange heads
    if inner < 1 or cp % inner:
        yield f"the ranks that exchange heads must divide cp, found {inner}"
        return
    if (model.window or model.sinks) and how != "a2a":
        yield "windows and sinks are computed where ranks exchange heads, a2a"
    if inner > 1:
        # Without latent attention a rank has as many query groups as it has whole ones, at least 1.
        groups = model.heads if model.latent else max(model.kv_heads, job.tp)
        for what, count in (("heads", model.heads), ("query groups", groups)):
            if count // job.tp % inner:
                parts = "tp x cp" if inner == cp else f"tp x {inner} of cp"
                yield f"{count} {what} are not divisible by {parts}"


def _scan_rules(job: TrainingJob) -> Iterator[str]:
    """Yield why the heads of a scan are not divided over context-parallel ranks
    (`mamba_context_parallel.py`; `gated_delta_net.py` of `megatron.core` 0.16.1 has none)."""
    mamba, cp = job.model.mamba, job.settings.cp
    if job.model.delta:
        yield "gated delta nets have no context parallelism"
    if mamba is None:
        return
    groups = max(1, mamba.groups // job.tp)
    if mamba.heads // job.tp % cp:
        yield f"{mamba.heads} heads of Mamba are not divisible by tp x cp"
    elif groups % cp and cp % groups:
        yield f"{mamba.groups} groups of Mamba are no multiple or divisor of tp x cp"


def same_pipelines(tp: int, cp: int, ep: int, etp: int) -> bool:
    """Tell whether experts have the pipeline groups of the other parameters, as Megatron demands if
    pipeline ranks come before data-parallel ones.

    From one pipeline rank to the next it is tp x cp ranks, and etp x ep in the grid of experts,
    also in models without experts.
    """
    return (etp or tp) * ep == tp * cp


def check_experts(job: TrainingJob) -> Iterator[Broken]:
    """Expert parallelism divides the experts and the ranks."""
    ep, etp, experts = job.settings.ep, job.expert_tp, job.model.experts
    cp, order = job.settings.cp, job.settings.order
    if order != ORDERS[0] and job.pp > 1 and not same_pipelines(job.tp, cp, ep, etp):
        limit = f"tp x cp, {job.tp * cp}, in the order {order}: one set of pipeline groups"
        yield Broken("rank order", f"etp x ep {etp * ep}", limit)
    if experts is None:
        if ep > 1 or job.settings.etp:
            have = f"ep {ep}, etp {job.settings.etp}"
            yield Broken("degrees", have, "none, as there are no experts")
        return
    if experts.count % ep:
        yield Broken("degrees", f"ep {ep}", f"a divisor of {experts.count} experts")
    if etp > 1 and job.model.bias:
        yield Broken("degrees", f"etp {etp}", "1, for experts with biases")
    if experts.ffn % etp:
        yield Broken("degrees", f"etp {etp}", f"a divisor of {experts.ffn}")
    if job.world % (etp * ep * job.pp):
        have = f"etp x ep x pp {etp * ep * job.pp}"
        yield Broken("degrees", have, f"a divisor of {job.world} ranks")


def check_recompute(job: TrainingJob) -> Iterator[Broken]:
    """No more layers are recomputed than a virtual stage has: Megatron takes more silently; and its
    uniform chunks would reach beyond the last layer."""
    recompute = job.settings.recompute
    yield from _recomputed_parts(job)
    if recompute.granularity != "full":
        return
    counts = [stage.layers for stage in job.stages]
    have = f"{recompute.method} {recompute.layers}"
    if not 1 <= recompute.layers <= max(counts):
        yield Broken("recompute layers", have, f"1 to {max(counts)}")
    elif recompute.method == "uniform" and any(count % recompute.layers for count in counts):
        yield Broken("recompute layers", have, "a divisor of every stage's layers")


def _recomputed_parts(job: TrainingJob) -> Iterator[Broken]:
    """Parts of layers that models do not have, and kept inputs that are divided already
    (`TransformerConfig.__post_init__` of Megatron core; `validate_args`)."""
    recompute, kernels = job.settings.recompute, job.settings.kernels
    for part, there, limit in (
        (
            "mla_up_proj",
            bool(job.model.latent or job.model.compressed),
            "latent or compressed attention with it",
        ),
        (MIXTURES, job.model.streams > 1, "several streams of hidden states with it"),
        ("moe_act", kernels.grouped_experts, "grouped products of experts with it"),
        (OPERATORS, False, f"some of {', '.join(RECOMPUTED)}"),
    ):
        if recompute.granularity == "selective" and part in recompute.modules and not there:
            yield Broken("recompute modules", part, limit)
    if recompute.distribute and (job.tp == 1 or job.settings.sequence_parallel):
        limit = "tensor parallelism without sequence parallelism, where inputs are divided"
        yield Broken("recompute inputs", f"divided with tp {job.tp}", limit)


def check_states(job: TrainingJob) -> Iterator[Broken]:
    """States on the host or of other widths need the precision-aware optimiser, which shards them
    over replicas (Megatron core, `OptimizerConfig`); copies of these divide the replicas, also of
    experts (`parallel_state.initialize_model_parallel`)."""
    optimizer = job.settings.optimizer
    for what, count in (
        ("dp x cp", job.dp * job.settings.cp),
        ("replicas of experts", job.expert_dp),
    ):
        if count % optimizer.instances:
            have = f"states in {optimizer.instances} copies"
            yield Broken("optimizer", have, f"a divisor of {count} {what}")
    if job.settings.kernels.chunked_loss:
        yield Broken("loss", FUSED_LOSS.read(job.settings), "native or none")
    if optimizer.moment_format:
        yield Broken("moments", MOMENTS.read(job.settings), "fp32, bf16 or fp8")
        return
    narrow = optimizer.name == "adam" and (optimizer.moments < 8 or optimizer.master == 2)
    if not optimizer.master and job.settings.width < 4:
        have = f"no copy of {job.settings.precision} parameters that is stepped"
        yield Broken("optimizer", have, "one of 4 bytes, or of 2 for what they lack")
    if optimizer.sharding == "none" and (optimizer.offload or narrow):
        have = (
            "states on the host" if optimizer.offload else f"moments of {optimizer.moments} bytes"
        )
        yield Broken("optimizer", f"{have}, not sharded", "optimizer sharding")


def check_muon(job: TrainingJob) -> Iterator[Broken]:
    """Muon steps whole matrices, which FSDP and copies of the distributed optimizer do not keep, of
    bf16 (`_get_megatron_emerging_optimizer` and `validate_args` of Megatron core 0.19.0)."""
    settings, optimizer = job.settings, job.settings.optimizer
    if not optimizer.of_matrices:
        return
    sharded, experts = optimizer.sharding, job.model.experts
    biased = experts is not None and job.model.bias
    for have, bad, limit in (
        (settings.precision, settings.precision != "bf16", "bf16"),
        (f"{sharded} sharded", sharded not in ("none", "optimizer"), "none or optimizer sharding"),
        (f"states in {optimizer.instances} copies", optimizer.instances > 1, "one"),
        ("states on the host", optimizer.offload > 0, "none there"),
        (f"moments {MOMENTS.read(settings)}", MOMENTS.read(settings) != "fp32", "moments fp32"),
        ("biases of experts, sharded", biased and sharded == "optimizer", "none sharding"),
    ):
        if bad:
            yield Broken("optimizer", f"{optimizer.name} with {have}", limit)


def check_offload(job: TrainingJob) -> Iterator[Broken]:
    """Activations of whole layers go to the host without pipelines and recomputation only, and
    activations of modules with Transformer Engine."""
    offload = job.settings.offload
    have = f"activations of {offload.layers} layers"
    if offload.layers and job.pp > 1:
        yield Broken("offloading", f"{have} with pp {job.pp}", "pp 1")
    if offload.layers and job.settings.recompute.granularity != "none":
        yield Broken("offloading", f"{have} with recomputation", "one of them")
    if offload.layers >= job.model.layers:
        yield Broken("offloading", have, f"at most {job.model.layers - 1}")
    if offload.modules and job.settings.kernels.implementation == "local":
        yield Broken("offloading", "local modules", "transformer_engine")
    if "attn_proj" in offload.modules and "core_attn" not in offload.modules:
        yield Broken("offloading", "attn_proj", "core_attn with it")


def check_schedule(job: TrainingJob) -> Iterator[Broken]:
    """A schedule that divides backward passes has the pipeline that it is made for. The interleaved
    one has several ranks, and takes micro-batches in groups of at least pp, the last one too."""
    name, turn = job.settings.schedule, job.settings.turn
    if name in DIVIDED:
        for have, limit in divided_rules(name, job.pp, job.virtual, job.micro_batches):
            yield Broken(f"schedule {name}", have, limit)
        if turn:
            yield Broken(f"schedule {name}", f"turns of {counted(turn, 'micro-batch')}", "none")
        return
    if job.virtual == 1:
        return
    if job.pp == 1:
        yield Broken("virtual stages", f"{job.virtual} on one rank", "pp at least 2")
        return
    turn, batches = job.settings.turn or job.pp, job.micro_batches
    if turn == job.pp and batches % turn:
        have = counted(batches, "micro-batch")
        yield Broken("virtual stages", have, f"a multiple of pp {job.pp}")
    elif not job.pp <= turn <= batches:
        limit = f"from pp {job.pp} to the number of micro-batches, {batches}"
        yield Broken("virtual stages", f"turns of {counted(turn, 'micro-batch')}", limit)
    elif 0 < batches % turn < job.pp:
        have = f"{counted(batches % turn, 'micro-batch')} left over from turns of {turn}"
        yield Broken("virtual stages", have, f"none, or at least pp {job.pp}")


def divided_rules(name: str, pp: int, virtual: int, batches: int) -> Iterator[tuple[str, str]]:
    """Yield limits of a pipeline that a schedule with divided backward passes breaks, and possible
    values (`torch.distributed.pipelining.schedules`).

    batches: micro-batches per iteration.
    """
    row = SCHEDULES[name]
    if pp == 1:
        yield "one rank", "pp at least 2"
    if row.virtual not in (None, virtual) or virtual == 1:
        yield f"{virtual} virtual stages", f"{row.virtual or 'at least 2'} on each rank"
    if row.virtual is None and batches % pp:
        yield counted(batches, "micro-batch"), f"a multiple of pp {pp}"
    if batches < (least := row.per_stage * pp * virtual):
        yield counted(batches, "micro-batch"), f"at least {least}, as many as virtual stages"


# ---- expert overlap, CUDA graphs, deferred gradients ---------------------------------------------
# `core/transformer/transformer_config.py: TransformerConfig`.


def check_combined(job: TrainingJob) -> Iterator[Broken]:
    """Overlap of expert parallelism, CUDA graphs and deferred gradients have requirements."""
    settings = job.settings
    yield from of_degrees(job)
    yield from of_recomputation(settings, job.model, settings.recompute)
    yield from of_virtual_stages(settings, job.pp, job.virtual)


def of_degrees(job: TrainingJob) -> Iterator[Broken]:
    """Yield requirements of these three that a job breaks in any layout and recomputation."""
    settings, model = job.settings, job.model
    kernels = settings.kernels
    if kernels.deferred_output and job.pp == 1:
        yield Broken(DEFERRED, "pp 1", "a pipeline")
    if kernels.deferred_output and not kernels.accumulation_fusion:
        yield Broken(DEFERRED, "no fused gradient accumulation", "the fusion")
    if settings.overlap_experts:
        if settings.ep == 1:
            yield Broken(OVERLAP, "ep 1", "ep above 1")
        if kernels.gathers_tokens:
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
    """Yield requirements of settings that recomputation breaks: a part that is recomputed inside of
    a graph may draw no random numbers."""
    kernels, names = settings.kernels, again.modules
    mixed = model.pattern or model.shares_keys
    if mixed and again.granularity == "full" and (again.method, again.layers) != ALONE:
        limit = "uniform 1, as layers of a hybrid differ"
        yield Broken("recompute layers", f"{again.method} {again.layers}", limit)
    yield from _pooled_again(model, again)
    if any(one.as_decoder for one in model.encoders) and trains_encoder(model, settings.tuning):
        has, found = AS_ENCODER[again.granularity], settings.encoder_recompute
        if again.granularity == "full" and (again.method, again.layers) != ALONE:
            limit = "uniform 1, as the encoder's are recomputed with the decoder's"
            yield Broken("recompute layers", f"{again.method} {again.layers}", limit)
        elif found != has:
            yield Broken(OF_ENCODERS, found, f"{has}, as the decoder's layers")
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
    """Yield requirements of settings that so many virtual stages per pipeline rank break."""
    if settings.overlap_experts and pp > 1 and virtual == 1:
        yield Broken(OVERLAP, f"pp {pp} without virtual stages", "virtual stages")


def otherwise(job: TrainingJob) -> Iterator[Broken]:
    """Yield settings of a job that Megatron accepts and does not run as they say.

    It turns overlap of tensor parallelism off with latent attention
    (`core/extensions/transformer_engine.py: TELinear`). Heads that all ranks exchange, or none, are
    no ring of exchanges, and copies on every rank share nothing. The host has to ask for the tokens
    of experts, and no graph can, unless there is a capacity. States of Megatron-FSDP do not get to
    the host (Megatron-LM, pull request 4623). flex is DeepEP.
    """
    settings, model = job.settings, job.model
    kernels, own, inner = settings.kernels, settings.optimizer, settings.cp_inner
    if settings.overlap_tensor and model.latent is not None:
        yield Broken("tensor overlap", "on", "off with latent attention, as Megatron turns it")
    ring = settings.cp_comm == "a2a+p2p"
    if (ring and not 1 < inner < settings.cp) or (inner and inner == settings.cp):
        have = f"{inner} of {settings.cp} context-parallel ranks that exchange heads"
        yield Broken("ring of exchanges", have, "several of them, and fewer than all")
    if 1 < own.instances == job.dp * settings.cp:
        yield Broken("optimizer instances", str(own.instances), "fewer than ranks with a parameter")
    padded = kernels.capacity and kernels.pad_to_capacity
    if kernels.graphs and not kernels.graphed and model.experts is not None and not padded:
        limit = "attn or router, as the host asks how many tokens each expert has"
        yield Broken(GRAPHS, f"{CUDA_GRAPHS.read(settings)} with experts", limit)
    if own.offload and own.sharding != "optimizer":
        have = f"states on the host, sharded by {own.sharding}"
        yield Broken("optimizer offload", have, "sharded by optimizer")
    if kernels.by_deep_ep and not job.gpu_architecture.deep_ep:
        have = f"DeepEP on {job.gpu_architecture.name}"
        yield Broken("dispatcher", have, "alltoall or allgather, as DeepEP has no kernels for it")


def _graphs(settings: Settings) -> str:
    return " ".join((settings.kernels.graphs, *settings.kernels.graphed))


# ---- sparse attention ----------------------------------------------------------------------------
# `megatron.core` 0.19.0: `transformer_config.py`, and `experimental_attention_variant/`: the
# conditions of `absorbed_mla.py` and of TileLang's kernels (`ops/tilelang_dsa.py`). Where one does
# not hold, PyTorch's attention copies the chosen keys of every token, which is not modelled.


def check_sparse(job: TrainingJob) -> Iterator[Broken]:
    """Latent attention to chosen keys has kernels for it, and what is around it is modelled."""
    sparse, settings, kernels = job.model.sparse, job.settings, job.settings.kernels
    if sparse is None:
        return
    what, heads = "sparse attention", job.model.heads // job.tp
    follows = sparse.follows(job.model.layers)
    begins = zip(job.stages, job.pipeline.starts, strict=True) if any(follows) else ()
    for stage, start in begins:
        if stage.layers and follows[start]:
            limit = "stages that begin with a layer that has an indexer"
            yield Broken(what, f"a stage that begins with layer {start + 1}", limit)
    gpu = job.gpu_architecture
    for have, bad, limit in (
        (f"layers {kernels.implementation}", kernels.implementation != TE, TE),
        (f"attention {kernels.attention}", kernels.attention != "flash", "flash"),
        (f"products in {kernels.quantised}", bool(kernels.quantised), "products in bf16"),
        (settings.precision, settings.precision != "bf16", "bf16"),
        (f"CUDA graphs {_graphs(settings)}", bool(kernels.graphs), "none"),
        ("activations on the host", settings.offload != Offload(), "none there"),
        ("a part that is trained", bool(settings.tuning), "training of all parameters"),
        (
            f"tp {job.tp} without sequence parallelism",
            job.tp > 1 and not settings.sequence_parallel,
            "sequence parallelism",
        ),
        (f"{heads} heads on a rank", heads & (heads - 1) > 0, "a power of two"),
        (gpu.name, not gpu.sparse_attention, "Hopper or Blackwell, which have its kernels"),
    ):
        if bad:
            yield Broken(what, have, limit)


# ---- attention to pooled keys --------------------------------------------------------------------
# `megatron.core`, branches dev and main of August 2026: `transformer_config.py`,
# `deepseek_v4_hybrid_attention.py` and `csa.py`; no release has them.


def _pooled_again(model: Decoder, again: Recompute) -> Iterator[Broken]:
    """Yield what recomputation does not cover."""
    named = again.granularity == "selective" and "core_attn" in again.modules
    if model.compressed and named:
        yield Broken("compressed attention", "recomputation of core_attn", "of other parts")


def check_compressed(job: TrainingJob) -> Iterator[Broken]:
    """Attention to pooled keys is whole on a rank, and what is around it is modelled."""
    settings, kernels = job.settings, job.settings.kernels
    if job.model.compressed is None:
        return
    yield from _pooled_again(job.model, settings.recompute)
    what, bound = "compressed attention", job.model.bound
    for stage, start in zip(job.stages, job.pipeline.starts, strict=True):
        if bound and job.pp > 1 and stage.layers and bound[start]:
            limit = f"the first {sum(bound)} layers on the stage of the embedding"
            have = f"a stage that begins with layer {start + 1}"
            if not stage.embedding:
                yield Broken("experts that a table of words says", have, limit)
    graphs = kernels.graphs
    for have, bad, limit in (
        (f"layers {kernels.implementation}", kernels.implementation != TE, TE),
        (f"attention {kernels.attention}", kernels.attention != "flash", "flash"),
        (
            f"products in {kernels.quantised}",
            kernels.quantised not in ("", "mxfp8"),
            "products in bf16 or mxfp8",
        ),
        (settings.precision, settings.precision != "bf16", "bf16"),
        (f"tp {job.tp}", job.tp > 1, "tp 1"),
        (f"cp {settings.cp}", settings.cp > 1, "cp 1, but for packed samples, not modelled"),
        (
            f"CUDA graphs {_graphs(settings)}",
            bool(graphs and (graphs != "full_iteration" or kernels.graphed)),
            "full_iteration, or none",
        ),
        ("activations on the host", settings.offload != Offload(), "none there"),
        ("a part that is trained", bool(settings.tuning), "training of all parameters"),
        (
            "overlap of experts with a table of words",
            bool(bound) and settings.overlap_experts,
            "no overlap",
        ),
        (
            job.gpu_architecture.name,
            not job.gpu_architecture.sparse_attention,
            "Hopper or Blackwell, which have its kernels",
        ),
    ):
        if bad:
            yield Broken(what, have, limit)


# ---- fine-tuning ---------------------------------------------------------------------------------


def check_tuning(job: TrainingJob) -> Iterator[Broken]:
    """Something is trained, and adapters are beside products that the model has."""
    settings = job.settings
    for _, broken in tuning_rules(job.model, settings.tuning):
        yield broken
    if settings.tuning.rank and settings.optimizer.name not in ("adam", "sgd"):
        have = f"optimizer {settings.optimizer.name}"
        yield Broken("adapters", have, "adam, as adapters have no step of it")


def tunable(model: Decoder) -> bool:
    """Tell whether parts of a model may stay as they are, by `check_tuning`, `check_sparse` and
    `check_compressed`."""
    return not (model.prediction_layers or model.sparse or model.compressed)


def tuning_rules(model: Decoder, tuning: Tuning) -> Iterator[tuple[str, Broken]]:
    """Yield what a model cannot be tuned like, each with the name of its setting."""
    if not tuning:
        return
    frozen = "frozen parts"
    if tuning.base and not tuning.rank:
        limit = "adapters beside it, as lora 16, as numbers of 4 bits have no gradients"
        yield "qlora", Broken("base in 4 bits", "no adapters", limit)
    if model.prediction_layers:
        have = f"{counted(model.prediction_layers, 'layer')} of multi-token prediction"
        yield "lora" if tuning.rank else "freeze", Broken(frozen, have, "a model without")
    if tuning.rank and not tuning.targets:
        yield "lora_targets", Broken("adapters", "beside nothing", "products of the model")
    possible = targets_of(model)
    for target in tuning.targets if tuning.rank else ():
        if target not in possible:
            limit = f"some of {', '.join(possible)}, which the model has"
            yield "lora_targets", Broken("adapters", target, limit)
    if tuning.rank > model.hidden:
        limit = f"at most the width of the model, {model.hidden}"
        yield "lora", Broken("adapters", f"rank {tuning.rank}", limit)
    if not any(set(tuning.targets) <= {*names} for names in (PEFT_NAMES, BRIDGE_NAMES)):
        found = ", ".join(tuning.targets)
        yield "lora_targets", Broken("adapters", found, "names of one system, which may overlap")
    if tuning.adapters == "fp32" or not {*tuning.targets} <= {*BRIDGE_NAMES}:
        yield from peft_rules(model, tuning)
    parts = (*parts_of_layer(model), *ENDS, *OF_ENCODER * bool(model.encoders))
    for part in tuning.frozen:
        span = layers_of(part)
        if span and span[1] >= model.layers:
            yield "freeze", Broken(frozen, part, f"layers from 0 to {model.layers - 1}")
        if not span and part not in parts:
            yield "freeze", Broken(frozen, part, f"some of {', '.join(parts)}, and layers:0-3")
        if tuning.rank and not span and part not in (*ENDS, *OF_ENCODER):
            limit = "whole layers beside adapters, which have none then"
            yield "freeze", Broken(frozen, part, limit)
    kinds = kinds_of_layers(model, tuning)
    learns = trains_input(model, tuning) or trains_output(model, tuning)
    named = {*tuning.targets} <= {*possible}
    if named and not learns and not any(kind.state in (TRAINED, ADAPTED) for kind in kinds):
        yield "freeze", Broken(frozen, "all parts of the model", "a part that is trained")
    if len(set(kinds)) > KINDS:
        have_kinds = f"{len(set(kinds))} kinds of layers, by their experts and their training"
        yield "freeze", Broken(frozen, have_kinds, f"at most {KINDS}")


def peft_rules(model: Decoder, tuning: Tuning) -> Iterator[tuple[str, Broken]]:
    """Yield what PEFT 0.21 refuses, or does not do as it is told: out_proj of Mamba-2, whose
    kernels read the weight itself (`tuners_utils.py: _check_lora_target_modules_mamba`); products
    that the model has in parts; adapters of experts with dropout, or of some layers alone."""
    names, moved = {*tuning.targets}, moves(model)
    if model.mamba and "out_proj" in names:
        limit = "in_proj alone of Mamba-2, whose kernels read the weight of out_proj themselves"
        yield "lora_targets", Broken("adapters", "out_proj", limit)
    if model.delta and "in_proj" in names:
        limit = ", ".join(name for name in targets_of(model) if name.startswith("in_proj_"))
        yield "lora_targets", Broken("adapters", "in_proj", limit)
    pair = {"gate_proj", "up_proj"}
    if moved and len(names & pair) == 1:
        limit = "gate_proj,up_proj, which are one parameter of routed experts"
        yield "lora_targets", Broken("adapters", "".join(names & pair), limit)
    merged = {
        one.target
        for kind in set(model.layer_kinds)
        for one in adapters_of(model, tuning, kind)
        if one.merged
    }
    twice = merged & pair and "experts.gate_up_proj" in merged
    if twice or {"down_proj", "experts.down_proj"} <= merged:
        limit = "one name of each parameter of routed experts"
        yield "lora_targets", Broken("adapters", ", ".join(sorted(merged)), limit)
    if merged and tuning.dropout:
        limit = "0, as adapters are added to the weights of routed experts"
        yield "lora_dropout", Broken("adapters", f"dropout {tuning.dropout:g}", limit)
    if merged - {*OF_EXPERTS} and any(tuning.frozen_layers(model.layers)):
        limit = f"{', '.join(OF_EXPERTS)} beside frozen layers"
        yield "lora_targets", Broken("adapters", ", ".join(sorted(merged)), limit)


def check_shapes(job: TrainingJob) -> Iterator[Broken]:
    """A graph replays kernels with the shapes that it was captured with, in any training system."""
    if job.settings.kernels.graphs and job.batching in PADDED:
        have = f"{job.batching} samples, of other lengths in each micro-batch"
        yield Broken(GRAPHS, have, f"no graphs, or samples padded to one length ({FULL})")


# What is asked of a job whatever runs it, and what Megatron-LM asks besides.
JOB_RULES = (
    check_sequence_parallel, check_experts, check_offload, check_schedule, check_shapes,
    check_tuning,
)  # fmt: skip


def check_adapters(job: TrainingJob) -> Iterator[Broken]:
    """Adapters have the names of Megatron-Bridge, and layers are Megatron-LM's."""
    if job.settings.kernels.implementation == "eager":
        yield Broken("layers", "eager", "transformer_engine or local")
    for target in job.settings.tuning.targets:
        if target not in BRIDGE_NAMES:
            yield Broken("adapters", target, f"some of {', '.join(BRIDGE_NAMES)}")


def check_encoders(job: TrainingJob) -> Iterator[Broken]:
    """Nothing of an encoder is computed again where none is trained, or where all of it is."""
    found = job.settings.encoder_recompute
    if found == "none":
        return
    if not trains_encoder(job.model, job.settings.tuning):
        yield Broken(OF_ENCODERS, found, "none without an encoder that is trained")
    elif all(one.recomputed for one in job.model.encoders):
        yield Broken(OF_ENCODERS, found, "none, as the encoder is always recomputed")


def with_followed(settings: Settings, model: Decoder) -> Settings:
    """Return settings with the values that follow from others in a model: encoders whose layers are
    recomputed as the decoder's are, if they are trained."""
    if not that_follow(model):
        return settings
    trained = trains_encoder(model, settings.tuning)
    value = AS_ENCODER[settings.recompute.granularity] if trained else "none"
    return replace(settings, encoder_recompute=value)


def that_follow(model: Decoder) -> dict[str, tuple[str, ...]]:
    """Return the values of settings that follow from others in a model, by their names."""
    follows = any(one.as_decoder for one in model.encoders)
    return {"encoder_recompute": tuple(AS_ENCODER.values())} if follows else {}


def check_packs(job: TrainingJob) -> Iterator[Broken]:
    """Attention reads all of a micro-batch of packed samples as one row."""
    if job.batching == PACKED and job.micro_batch > 1:
        yield Broken("micro-batch", f"{job.micro_batch} packed samples", "1")
    if job.batching == PACKED and job.settings.kernels.attention == "unfused":
        yield Broken("attention", "unfused", "flash, for packed samples")


def check_recipe_beside(asked: Mapping[str, str], recipe: str) -> None:
    """See that what goes with a recipe of quantised products alone has one.

    asked: values of settings by their names, as the user wrote them.

    Raises
    ------
    UsageError: the precision has none.
    """
    said = asked.get("fp8_attention", "")
    if "on" in said.split(",") and not recipe:
        raise UsageError(
            f"`fp8_attention={said}`: found no recipe of products in 8 bits, which attention "
            "takes, expected `precision=fp8-delayed` (Blackwell: or fp8-current, mxfp8) beside it"
        )


def check_fp8_attention(job: TrainingJob) -> Iterator[Broken]:
    """cuDNN has attention in 8 bits for some recipes and heads, of samples that are one row each,
    without windows and sinks (Transformer Engine, `get_attention_backend`)."""
    kernels, model, gpu = job.settings.kernels, job.model, job.gpu_architecture
    if not kernels.fp8_attention:
        return
    rule = "attention in 8 bits"
    if kernels.quantised not in gpu.fp8_attention_recipes:
        limit = " or ".join(gpu.fp8_attention_recipes) or "off"
        yield Broken(rule, f"{kernels.quantised} on {gpu.name}", limit)
        return
    if kernels.attention != "flash" or kernels.flash_package:
        yield Broken(rule, "another attention", "cuDNN's, as --attention-backend auto takes it")
    if job.batching == PACKED:
        yield Broken(rule, "packed samples", "samples that are one row each")
    if model.window or model.sinks:
        yield Broken(rule, "windows or sinks", "attention without them")
    latent = model.latent
    heads = (latent.key + latent.rotary, latent.value) if latent else (model.head,)
    known = gpu.fp8_attention_heads
    if any(head not in known if known else head % 16 or head > FP8_HEAD for head in heads):
        limit = f"{known[0]} on {gpu.name}" if known else f"16 to {FP8_HEAD}, by 16"
        yield Broken(rule, f"heads of {' and '.join(map(str, heads))} channels", limit)


MEGATRON_RULES = (
    check_usual,
    check_encoders,
    check_packs,
    check_context,
    check_recompute,
    check_states,
    check_muon,
    check_combined,
    check_adapters,
    check_sparse,
    check_compressed,
    check_fp8_attention,
)
