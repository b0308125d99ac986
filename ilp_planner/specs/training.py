"""A training job: a model, how it is spread over ranks, and how each rank trains.

Everything here can be said by a launch line of Megatron-LM. `ilp_planner.job` has memory and
messages of a job; `formats` reads and writes it in other tools' words.
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Self

from ilp_planner.base.hashing import HashedOnce, hashed_once
from ilp_planner.schedule.formulas import (
    PIPELINES,
    USUAL,
    Schedule,
    rank_of_stage,
    ranks_of_stages,
    schedule_of,
    stages_of_ranks,
    v_shaped,
)
from ilp_planner.specs.architecture import check_counts, check_fields
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpu_architectures import HOPPER, GpuArchitecture
from ilp_planner.specs.images import Load, image_load
from ilp_planner.specs.lengths import Lengths
from ilp_planner.specs.pipeline_layout import (
    LayoutStage,
    PipelineLayout,
    balanced_layout,
    even_layout,
    with_layers,
    write_layout,
)
from ilp_planner.specs.tuning import TunedLayer, Tuning, kind_of, kinds_of_layers, layer_kinds

GRANULARITIES = ("none", "selective", "full")
METHODS = ("uniform", "block")
RECOMPUTATIONS = ("none", "selective", "full", "block")  # what users call them
# Parts of a layer that Megatron's selective recomputation names.
MIXTURES = "mhc"  # of streams of hidden states, with the norms that read them
RECOMPUTED = (
    "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", MIXTURES,
)  # fmt: skip
# What torchtitan's recomputes of every layer: all but outputs of some operators.
OPERATORS = "operators"
PARTS = (*RECOMPUTED, OPERATORS)  # what selective recomputation can name
SHARDINGS = ("none", "optimizer", "gradients", "parameters")  # ZeRO 0, 1, 2, 3
# Ways to keep Adam's moments beside plain numbers: in blocks of 8 bits, in pages that move between
# the device and the host, or both (bitsandbytes' AdamW8bit, PagedAdamW and PagedAdamW8bit).
BLOCKWISE, PAGED, BOTH_WAYS = "8bit", "paged", "paged-8bit"
# Optimizers with one moment of matrices, which leave tables of words, the output layer and vectors
# to Adam (`optimizer/muon.py: get_megatron_muon_optimizer` of Megatron core).
MUON = "muon"
OF_MATRICES = (MUON, "dist_muon")
# Of matrices that tensor-parallel ranks divide: each rank makes its shard orthogonal, every rank
# the whole matrix, or all of them the whole matrix together (`--muon-tp-mode`).
BLOCKWISE_STEP, DUPLICATED, DISTRIBUTED = MUON_MODES = ("blockwise", "duplicated", "distributed")
LIGER = "liger"  # Liger's cross-entropy with the output layer
MOMENT_FORMATS = ("", BLOCKWISE, PAGED, BOTH_WAYS)
ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
CP_COMMUNICATIONS = ("p2p", "all_gather", "a2a", "a2a+p2p")
PRECISIONS = {"bf16": 2, "fp16": 2, "fp32": 4}  # bytes of a parameter and of an activation
# Recipes of 8- and 4-bit products (Transformer Engine 2) -> their numbers' format.
QUANTISED = {
    "fp8-delayed": "fp8",
    "fp8-current": "fp8",
    "fp8-blockwise": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}
# Recipes with which Megatron itself keeps the copy that is stepped, in full, also for the
# precision-aware optimizer (`OptimizerConfig`: `use_precision_aware_optimizer_no_fp8_or_ds_fp8`).
STEPPED_IN_FULL = ("fp8-current", "fp8-blockwise", "mxfp8")
BITS = {"fp8": 8, "fp4": 4}  # of a quantised number
USUAL_FORMATS = {
    "fp8-delayed": "hybrid",
    "fp8-current": "hybrid",
    "fp8-blockwise": "e4m3",
    "mxfp8": "e4m3",
    "nvfp4": "e2m1",
}
# Modules of a layer whose activations Megatron can move to the host, in their order.
OFFLOADED = (
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act",
)  # fmt: skip
# Megatron's ways of CUDA graphs, and what of a layer they can take.
GRAPHS = ("", "local", "transformer_engine", "full_iteration")
GRAPHED = ("attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess")


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute(HashedOnce):
    """Which activations are forgotten after the forward pass and computed again.

    granularity: `none`, `selective` (parts of every layer: `modules`, in Megatron's names, or
    `operators` alone: all but what `job.operators` keeps) or `full` (whole layers). method: of
    full: `uniform` keeps the input of every `layers` layers, `block` recomputes the first `layers`
    layers of each (virtual) stage one by one. distribute: the kept inputs are divided among the
    tensor-parallel ranks.
    """

    granularity: str = "none"
    modules: tuple[str, ...] = ()
    method: str = ""
    layers: int = 0
    distribute: bool = False

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise ValueError(f"granularity must be one of {GRANULARITIES}, got {self.granularity}")
        if self.granularity == "selective" and not self.modules:
            object.__setattr__(self, "modules", ("core_attn",))
        if OPERATORS in self.modules and len(self.modules) > 1:
            raise ValueError(f"modules must be {OPERATORS} alone or without it, got {self.modules}")
        if self.granularity == "full" and self.method not in METHODS:
            raise ValueError(f"method must be one of {METHODS}, got {self.method!r}")

    def __str__(self) -> str:
        """Return `none`, `core_attn`, `all layers` or `first 4 layers`."""
        if self.granularity == "selective":
            return ", ".join(self.modules)
        if self.granularity == "none":
            return self.granularity
        if self.method == "block":
            return f"first {self.layers} layers" if self.layers > 1 else "first layer"
        return f"all layers, {self.layers} at once" if self.layers > 1 else "all layers"

    @property
    def kind(self) -> str:
        """One of `RECOMPUTATIONS`: `full` of all layers, `block` of the first ones of a stage."""
        return self.method if self.method == "block" else self.granularity


NOT_RECOMPUTED = Recompute()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Which activations wait for the backward pass in the host's memory; nothing: none.

    layers: all large tensors of the first so many layers (Transformer Engine). modules: or of every
    layer those that such modules keep, some of `OFFLOADED`; smallest: numbers of a tensor that is
    moved then.
    """

    layers: int = 0
    modules: tuple[str, ...] = ()
    smallest: int = 2**20

    def __post_init__(self) -> None:
        for name in ("layers", "smallest"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if unknown := set(self.modules) - set(OFFLOADED):
            raise ValueError(f"modules must be some of {OFFLOADED}, got {sorted(unknown)}")
        if self.layers and self.modules:
            raise ValueError(f"modules must be none with layers, got {self.modules}")


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings(HashedOnce):
    """What the optimiser keeps, in bytes per parameter, and how data-parallel ranks share it.

    sharding: nothing, optimiser states (Megatron's distributed optimizer, ZeRO-1), gradients as
    well (ZeRO-2), or parameters as well (ZeRO-3, FSDP). gradient: of the buffer that micro-batches
    add up in. master: the 4-byte copy that is stepped, 0 where parameters have 4 bytes themselves.
    moments: both of Adam's together (0 for plain SGD), or Muon's one of a matrix. muon_tp_mode: of
    matrices that tensor-parallel ranks divide: `blockwise`, `duplicated` or `distributed`.
    muon_steps: turns of the iteration in Muon's step. packed: buffers have a part for each rank's
    whole matrices, so that gradients are scattered; else every rank sums all gradients of Muon.
    moment_format: `8bit` in blocks, `paged` in pages that the host keeps, `paged-8bit` both; empty:
    plain numbers on the device. instances: of the distributed optimizer, or groups of ranks that
    share parameters (hybrid sharding).
    from_master: every micro-batch gathers parameters, layer by layer, from their shards of the
    master copy, beside which no other is kept (torch's `fully_shard`, in torchtitan; with sharding
    `none` a rank's shard is all of it). With sharding `parameters` they are given up after a
    layer's forward pass and gathered again, with `gradients` after its backward pass.
    offload: share of the states that lies in the host's memory, and is stepped there.
    keeps_master: the device keeps the copy that is stepped as well, as without Megatron's
    precision-aware optimizer, and the host steps a copy of it. overlap_offload: gradients go there,
    and parameters come back, while others are stepped.
    """

    name: str = "adam"
    sharding: str = "none"
    gradient: int = 4
    master: int = 4
    moments: int = 8
    moment_format: str = ""
    muon_tp_mode: str = BLOCKWISE_STEP
    muon_steps: int = 5
    packed: bool = True
    instances: int = 1
    from_master: bool = False
    offload: float = 0.0
    keeps_master: bool = False
    overlap_offload: bool = False
    overlap_gradients: bool = False
    overlap_parameters: bool = False

    def __post_init__(self) -> None:
        if self.sharding not in SHARDINGS:
            raise ValueError(f"sharding must be one of {SHARDINGS}, got {self.sharding!r}")
        check_counts(instances=self.instances, muon_steps=self.muon_steps)
        if self.muon_tp_mode not in MUON_MODES:
            raise ValueError(f"muon_tp_mode must be one of {MUON_MODES}, got {self.muon_tp_mode!r}")
        if self.moment_format not in MOMENT_FORMATS:
            raise ValueError(
                f"moment_format must be one of {MOMENT_FORMATS}, got {self.moment_format!r}"
            )
        if self.from_master and self.sharding == "optimizer":
            raise ValueError("from_master must be false with sharding optimizer, got true")
        if not 0 <= self.offload <= 1:
            raise ValueError(f"offload must be a share of at most 1, got {self.offload!r}")

    @property
    def of_matrices(self) -> bool:
        """Whether it is Muon, or one like it, which steps matrices alone."""
        return self.name in OF_MATRICES

    @property
    def scatters(self) -> bool:
        """Whether ranks that share states get gradients of their share alone."""
        return self.packed or not self.of_matrices

    @property
    def mixes_moments(self) -> bool:
        """Whether some tensors have other moments than others."""
        return self.of_matrices or self.moment_format != ""

    @property
    def blockwise(self) -> bool:
        """Whether moments are kept in blocks of 8 bits."""
        return self.moment_format in (BLOCKWISE, BOTH_WAYS)

    @property
    def paged(self) -> bool:
        """Whether moments are kept in pages that move between the device and the host."""
        return self.moment_format in (PAGED, BOTH_WAYS)

    @property
    def by_fsdp(self) -> bool:
        """Whether PyTorch's FSDP shares states."""
        return self.from_master and self.sharding != "none"

    @property
    def divides(self) -> bool:
        """Whether gradients, or parameters as well, are divided, as FSDP does."""
        return self.sharding in ("gradients", "parameters")

    def sharing(self, kind: str) -> Self:
        """Return settings that share something else, one of `SHARDINGS`; only divided gradients or
        parameters are gathered from the stepped copy."""
        whole = kind in ("none", "optimizer")
        return replace(self, sharding=kind, from_master=self.from_master and not whole)


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(HashedOnce):
    """How Megatron computes, as far as it changes what is kept.

    implementation: `transformer_engine`, `local`, or `eager`, PyTorch's operators one by one, as
    transformers has them. attention: `flash` (also TE's fused attention) or `unfused` (keeps scores
    of every pair of tokens). `local` with `flash` is the model code of before Megatron core.
    fused_loss: cross-entropy as one kernel; loss_kernel: whose, `te` (Transformer Engine's, in
    place), `native` (Megatron's default, with a copy in fp32) or `liger` (Liger's, with the output
    layer, in chunks of tokens). fused_dropout, fused_activation, fused_permute, grouped_experts:
    likewise for bias-dropout-add, bias-SwiGLU, token permutation and experts. capacity: a routed
    expert takes at most this many times its even share of tokens; 0: all that come.
    pad_to_capacity: and always exactly so many. imbalance: an assumption: the tokens that come to
    the fullest rank over the average rank's; 1: routed evenly. dispatcher: Megatron's name.
    accumulation_fusion: weight gradients are added straight into the buffer. fused_softmax: of the
    unfused local attention, scaling, mask and softmax in one kernel. deterministic: results are the
    same bit for bit. loader_mask: the data loader makes a mask of every pair of tokens, a byte
    each, although causal attention needs none. flash_package: attention by the flash-attn package,
    which wants samples before tokens; which devices it is chosen on, `memory_parts` knows.
    quantised: recipe of the layers' products, one of `QUANTISED`; empty: they are of the training
    precision. number_format: of the recipe's numbers, in Megatron's words; empty: its usual one.
    quantised_parameters: parameters are kept and gathered quantised, and only the optimizer has
    them in full. exact_first, exact_last: layers at the ends whose products stay in the training
    precision. graphs: CUDA graphs start the layers' kernels, those of `graphed` alone where this
    names some: one of `GRAPHS`, empty for none. compiled: layers and the loss are compiled by
    torch.compile. fp8_attention: attention in 8 bits, as its recipe has them
    (`fp8_dot_product_attention`), with both passes. deferred_output: the last pipeline rank
    computes the weight gradients of the output layer after its last micro-batch. deferral_limit:
    those of so many micro-batches at most; 0: of all. overlap_shared: shared experts compute while
    tokens are exchanged.
    """

    implementation: str = "transformer_engine"
    attention: str = "flash"
    fused_loss: bool = False
    loss_kernel: str = "te"
    fused_dropout: bool = True
    fused_activation: bool = True
    fused_permute: bool = False
    grouped_experts: bool = False
    capacity: float = 0.0
    pad_to_capacity: bool = False
    imbalance: float = 1.0
    dispatcher: str = "allgather"
    accumulation_fusion: bool = True
    fused_softmax: bool = True
    deterministic: bool = False
    loader_mask: bool = False
    flash_package: bool = False
    quantised: str = ""
    number_format: str = ""
    quantised_parameters: bool = False
    fp8_attention: bool = False
    exact_first: int = 0
    exact_last: int = 0
    graphs: str = ""
    graphed: tuple[str, ...] = ()
    compiled: bool = False
    deferred_output: bool = False
    overlap_shared: bool = False
    deferral_limit: int = 0

    @property
    def chunked_loss(self) -> bool:
        """The output layer and the loss run together, a chunk of tokens after the other."""
        return self.loss == LIGER

    @property
    def loss(self) -> str:
        """The kernel of a fused loss; empty: its operators run one by one."""
        return self.loss_kernel if self.fused_loss else ""

    @property
    def fullest(self) -> float:
        """Tokens that the fullest rank's experts take, within a capacity, over the average of those
        that are routed."""
        if not self.capacity:
            return self.imbalance
        return self.capacity if self.pad_to_capacity else min(self.capacity, self.imbalance)

    def __post_init__(self) -> None:
        if self.quantised and self.quantised not in QUANTISED:
            raise ValueError(f"quantised must be one of {tuple(QUANTISED)}, got {self.quantised!r}")
        formats = ("e2m1",) if self.quantised == "nvfp4" else ("e4m3", "hybrid")
        if self.number_format and (not self.quantised or self.number_format not in formats):
            raise ValueError(
                f"number_format must be empty or, with quantised, one of {formats}, "
                f"got {self.number_format!r}"
            )
        if not self.quantised and (
            self.quantised_parameters or self.fp8_attention or self.exact_first or self.exact_last
        ):
            raise ValueError(
                "quantised must name a recipe with quantised_parameters, fp8_attention, "
                "exact_first or exact_last"
            )
        if self.quantised and self.implementation != "transformer_engine":
            raise ValueError(f"quantised must be empty with implementation {self.implementation}")
        if self.graphs not in GRAPHS:
            raise ValueError(f"graphs must be one of {GRAPHS}, got {self.graphs!r}")
        if self.deferred_output and self.deferral_limit < 0:
            raise ValueError(f"deferral_limit must be at least 0, got {self.deferral_limit}")
        if unknown := set(self.graphed) - set(GRAPHED):
            raise ValueError(f"graphed must be some of {GRAPHED}, got {sorted(unknown)}")
        if self.graphed and self.graphs not in ("local", "transformer_engine"):
            raise ValueError(
                "graphed must be empty unless graphs is local or transformer_engine, "
                f"got {self.graphed}"
            )

    @property
    def exact(self) -> Self:
        """The same with all products in the training precision."""
        return replace(
            self,
            quantised="",
            number_format="",
            quantised_parameters=False,
            fp8_attention=False,
            exact_first=0,
            exact_last=0,
        )

    @property
    def gathers_tokens(self) -> bool:
        """Whether ranks gather all tokens for their experts, instead of exchanging them."""
        return self.dispatcher == "allgather"

    @property
    def by_deep_ep(self) -> bool:
        """Whether DeepEP's kernels exchange tokens with experts."""
        return self.dispatcher == "flex"


def usual_kernels(*, flash: bool, experts: bool) -> Kernels:
    """Return Transformer Engine's kernels; for experts the grouped products and the all-to-all that
    Megatron's own recipes use."""
    kernels = Kernels(attention="flash" if flash else "unfused")
    return replace(kernels, grouped_experts=True, dispatcher="alltoall") if experts else kernels


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(HashedOnce):
    """What holds for all ranks alike, besides tp, dp and the pipeline.

    cp, ep: context- and expert-parallel degrees. etp: tensor-parallel degree of experts; 0: tp.
    cp_comm: how attention communicates over cp, in Megatron's words. cp_inner: of `a2a+p2p`, the
    ranks that exchange heads; the others pass keys and values on.
    order: of ranks, fastest first. vocab_multiple: the vocabulary is padded to a multiple of this
    times tp. overlap_tensor, overlap_experts: messages of tensor and of expert parallelism are sent
    while products run. scatter_sends: each tensor-parallel rank sends its share of what passes to
    the next pipeline rank, where they gather it (Megatron until 2023, DeepSpeed); with sequence
    parallelism each has no more than its share. async_tensor: what the backward pass of products
    with divided columns sends travels while their gradients are made (Megatron since 2022).
    keeps_gathered: such products keep the input that sequence parallelism gathered for the gradient
    of their weight (torch's DTensor); otherwise it is gathered again.
    schedule: of the pipeline, one of `PIPELINES`; the usual one is 1F1B, interleaved where ranks
    have several virtual stages.
    turn: micro-batches that pass one virtual stage before the next one's turn; 0: as many as there
    are pipeline ranks. overlap_sends: what passes between virtual stages travels while ranks
    compute; otherwise both ends wait, as they always do without virtual stages.
    encoder_recompute: of layers of encoders: `none`, `core` (of attention) or `full`.
    carried: words of a launch line of Megatron that are not modelled, for an export to write back.
    """

    cp: int = 1
    ep: int = 1
    etp: int = 0
    cp_comm: str = "p2p"
    cp_inner: int = 0
    sequence_parallel: bool = False
    order: str = ORDERS[0]
    precision: str = "bf16"
    vocab_multiple: int = 128
    recompute: Recompute = field(default_factory=Recompute)
    offload: Offload = field(default_factory=Offload)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    kernels: Kernels = field(default_factory=Kernels)
    tuning: Tuning = field(default_factory=Tuning)
    overlap_tensor: bool = False
    overlap_experts: bool = False
    scatter_sends: bool = False
    async_tensor: bool = True
    keeps_gathered: bool = False
    schedule: str = USUAL
    turn: int = 0
    overlap_sends: bool = True
    encoder_recompute: str = "none"
    carried: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_counts(cp=self.cp, ep=self.ep, etp=self.etp or 1, vocab_multiple=self.vocab_multiple)
        if self.schedule not in PIPELINES:
            raise ValueError(f"schedule must be one of {PIPELINES}, got {self.schedule!r}")
        if self.turn < 0:
            raise ValueError(f"turn must be at least 0, got {self.turn}")
        if self.cp_comm not in CP_COMMUNICATIONS:
            raise ValueError(f"cp_comm must be one of {CP_COMMUNICATIONS}, got {self.cp_comm!r}")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {ORDERS}, got {self.order!r}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {tuple(PRECISIONS)}, got {self.precision}")

    @property
    def passes_on(self) -> bool:
        """Whether keys and values go around one ring of all context-parallel ranks."""
        return self.cp > 1 and self.cp_comm == "p2p"

    @property
    def ring(self) -> int:
        """Context-parallel ranks in each ring that keys and values go around; 0: there is none."""
        rings = {"p2p": self.cp, "a2a+p2p": self.cp // (self.cp_inner or 1)}
        return rings.get(self.cp_comm, 0) if self.cp > 1 else 0

    @property
    def exchanging(self) -> int:
        """Context-parallel ranks that exchange heads with one another; 1: none do."""
        ranks = {"a2a": self.cp, "a2a+p2p": min(self.cp_inner or self.cp, self.cp)}
        return ranks.get(self.cp_comm, 1)

    @property
    def gathers_keys(self) -> bool:
        """Whether every context-parallel rank gathers the keys and values of all tokens."""
        return self.cp_comm == "all_gather"

    @property
    def hierarchy(self) -> tuple[int, ...]:
        """Context-parallel ranks that exchange heads, and those in each ring, if there are both."""
        return (self.cp_inner, self.cp // self.cp_inner) if self.cp_inner else ()

    @property
    def width(self) -> int:
        """Bytes of a parameter and of an activation."""
        return PRECISIONS[self.precision]

    @property
    def quantised(self) -> str:
        """Format of the layers' quantised products; empty for none."""
        return QUANTISED.get(self.kernels.quantised, "")

    @property
    def by_trainer(self) -> bool:
        """Whether training systems without adapters, frozen parts, other moments or a loss in
        chunks leave the job to PEFT and Hugging Face's Trainer."""
        return bool(self.tuning or self.optimizer.moment_format or self.kernels.chunked_loss)

    @property
    def bits(self) -> int:
        """Bits of the operands of the layers' products."""
        return BITS.get(self.quantised, 8 * self.width)


def usual_settings(precision: str, kernels: Kernels, *, gathers_keys: bool) -> Settings:
    """Return settings with the distributed optimizer. gathers_keys: every context-parallel rank."""
    return Settings(
        precision=precision,
        cp_comm="all_gather" if gathers_keys else "p2p",
        kernels=kernels,
        optimizer=OptimizerSettings(sharding="optimizer", master=0 if precision == "fp32" else 4),
    )


class Sample(NamedTuple):
    """Tokens of a sample with its padding, and how attention looks at them: the share of the
    layers, and of all pairs of tokens that causal attention looks at."""

    tokens: int
    spans: tuple[tuple[float, float], ...]


@lru_cache(maxsize=4096)
def _slowest(
    model: Decoder,
    lengths: Lengths,
    micro_batch: int,
    micro_batches: int,
    dp: int,
    by_trainer: bool,
) -> Sample:
    """Return the mean sample of the slowest of so many replicas."""
    spans, tokens = [], 0
    for layers, share in model.spans:
        found, pairs = lengths.slowest(
            model.sequence, micro_batch, micro_batches, dp, share, by_trainer=by_trainer
        )
        tokens = math.ceil(found)
        spans.append((layers, pairs / tokens**2))
    return Sample(tokens, tuple(spans))


@hashed_once
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(HashedOnce):
    """One training run, seen from all its ranks.

    micro_batch: samples per data-parallel replica. layout: of the pipeline, pp x virtual stages;
    None: equally many layers everywhere. devices_per_node: for links and group names.
    gpu_architecture: of the oldest GPUs; it decides attention kernels and workspaces.

    Raises
    ------
    ValueError: the layout does not fit the model or pp. Rules of a runtime are not checked here.
    """

    model: Decoder
    micro_batch: int
    global_batch: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    layout: PipelineLayout | None = None
    settings: Settings = field(default_factory=Settings)
    devices_per_node: int = 8
    gpu_architecture: GpuArchitecture = HOPPER

    def __post_init__(self) -> None:
        check_fields(self, "micro_batch", "global_batch", "tp", "pp", "dp", "devices_per_node")
        if self.layout is None:
            even = even_layout(
                self.model.layers, self.pp, prediction_layers=self.model.prediction_layers
            )
            object.__setattr__(self, "layout", even)
        if len(self.stages) % self.pp:
            layers, prediction = self.model.layers, self.model.prediction_layers
            fitting = balanced_layout(layers, self.pp, prediction_layers=prediction)
            raise ValueError(
                f"{len(self.stages)} virtual stages cannot be dealt to {self.pp} ranks (pp); "
                f"layouts of {self.pp}, {2 * self.pp} ... stages can, such as "
                f"{write_layout(fitting)!r}"
            )
        if self.pipeline.layers != self.model.layers:
            fitting = with_layers(self.pipeline, self.model.layers)
            raise ValueError(
                f"a layout must have the model's {self.model.layers} layers, "
                f"found {self.pipeline.layers}; {write_layout(fitting)!r} has them"
            )

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Which kind each layer is of: its number in `LAYER_KINDS`; if some layers are trained and
        others are not, whether it is of another kind than the first one."""
        return layer_kinds(self.model, self.settings.tuning)

    def kind(self, number: int) -> TunedLayer:
        """Return a kind of layers by its number, as `layer_kinds` tells them apart; without layers
        of it, its layers would be trained as others are."""
        return kind_of(self.model, self.settings.tuning, number)

    @property
    def last_kind(self) -> TunedLayer:
        """Return the kind of the layer in multi-token prediction."""
        last = kinds_of_layers(self.model, self.settings.tuning)[-1]
        return last._replace(kind=self.model.last_kind)

    @property
    def pipeline(self) -> PipelineLayout:
        """Return the layout, never None."""
        assert self.layout is not None
        return self.layout

    @property
    def stages(self) -> tuple[LayoutStage, ...]:
        """Return all virtual stages in order."""
        return self.pipeline.stages

    @property
    def virtual(self) -> int:
        """Virtual stages per pipeline rank."""
        return len(self.stages) // self.pp

    @property
    def world(self) -> int:
        """Ranks."""
        return self.tp * self.settings.cp * self.dp * self.pp

    @property
    def expert_tp(self) -> int:
        """Tensor-parallel degree of experts."""
        return self.settings.etp or self.tp

    @property
    def expert_dp(self) -> int:
        """Replicas of each routed expert."""
        return self.world // (self.pp * self.settings.ep * self.expert_tp)

    @property
    def micro_batches(self) -> int:
        """Micro-batches per iteration and replica."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def batching(self) -> str:
        """How samples are made of documents, one of `BATCHINGS`; empty: they are of one length."""
        return self.model.lengths.batching if self.model.lengths else ""

    @property
    def sample(self) -> Sample:
        """A sample as passes see it: of the slowest replica, in the mean of its samples."""
        model, lengths = self.model, self.lengths
        if lengths is None:
            return Sample(model.sequence, model.attention_spans)
        steps, eager = max(1, self.micro_batches), self.settings.kernels.implementation == "eager"
        return _slowest(model, lengths, self.micro_batch, steps, self.dp, eager)

    @property
    def lengths(self) -> Lengths | None:
        """Documents that samples are made of, as context-parallel ranks have them; None: samples
        are of one length."""
        return self.model.lengths and self.model.lengths.on_ranks(self.settings.cp)

    @property
    def loads(self) -> tuple[Load, ...]:
        """Images and pieces of sound of a micro-batch as passes see them, likewise, for each of the
        model's encoders."""
        model, number = self.model, max(1, self.micro_batches)
        return tuple(
            image_load(one, self.lengths, model.sequence, self.micro_batch, number, self.dp)
            for one in model.encoders
        )

    @property
    def schedule(self) -> Schedule:
        """The order in which pipeline ranks run their stages."""
        return schedule_of(
            self.micro_batches,
            ranks=self.pp,
            virtual=self.virtual,
            turn=self.settings.turn,
            name=self.settings.schedule,
        )

    @property
    def padded_vocab(self) -> int:
        """Entries of the word embedding after padding."""
        multiple = self.settings.vocab_multiple * self.tp
        return -(-self.model.vocab // multiple) * multiple

    @property
    def padded_outputs(self) -> int:
        """Numbers that the output layer gives for a token, after padding of a vocabulary."""
        return self.model.outputs or self.padded_vocab

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """Return the numbers of a pipeline rank's virtual stages."""
        return self.stages_of_ranks[pp_rank]

    @property
    def ranks_of_stages(self) -> tuple[int, ...]:
        """The pipeline rank of each (virtual) stage."""
        return ranks_of_stages(self.pp, self.virtual, self.settings.schedule)

    @property
    def stages_of_ranks(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the virtual stages of each pipeline rank."""
        return stages_of_ranks(self.pp, self.virtual, self.settings.schedule)

    def rank_of(self, stage: int) -> int:
        """Return the pipeline rank of a (virtual) stage."""
        return rank_of_stage(stage, self.pp, v_shaped=v_shaped(self.settings.schedule))
