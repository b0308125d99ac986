"""The work of each module of a rank for one micro-batch: arithmetic and memory traffic.

A product of m x k and k x n matrices has 2 m k n FLOPs and reads and writes its three matrices; its
backward pass has two of them (Narayanan et al. 2021, arXiv 2104.04473, appendix). Flash attention
skips the half of the scores that causality hides, and recomputes them in its backward pass: five
products for the two forward (Dao 2023, arXiv 2307.08691, section 3.1). Everything else is memory
traffic: bytes read and written once by a fused kernel. Tokens are assumed to be routed to all
experts alike.

All counts are of one rank of the tensor- and context-parallel group. Messages of ranks are in
`messages`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ilp_planner.job.attention import chosen_keys, kernel_heads
from ilp_planner.job.encoder import encoder_job, images_seen, recompute_of
from ilp_planner.job.mixers import mixer_of, scan_of
from ilp_planner.job.quantised import copies
from ilp_planner.job.shard import eager, loss_chunk, of_layer, product_streams, stream_width, widens
from ilp_planner.job.tuning import base_width, trained_part
from ilp_planner.specs.images import AnyEncoder
from ilp_planner.specs.kernel_constants import DSA, SPARSE
from ilp_planner.specs.layer_kinds import (
    ATTENTION,
    COMPRESSED,
    CSA,
    EXPERTS,
    LAYER_KINDS,
    LayerKind,
)
from ilp_planner.specs.training import Settings, TrainingJob
from ilp_planner.specs.tuning import (
    ADAPTED,
    FORWARD_ONLY,
    OF_SCANS,
    ROUTED,
    TRAINED,
    Adapter,
    TunedLayer,
    adapters_of,
    trains_encoder,
    trains_output,
    trains_projector,
    trains_words,
)

SINGLE = 4  # bytes of a number in single precision
EXACT = (  # products that stay in the training precision
    "router", "output_layer", "join", "pooled_keys", "pooled_weights", "index_weights",
    "index_pooled_keys", "index_pooled_weights", "linear_o_group_proj",
)  # fmt: skip
# Reads and writes in single precision per channel of a clamped SwiGLU, each way: bias, limits,
# sigmoid, products and the router's weight as kernels of their own (Megatron's unfused path). By so
# much, 3.2 MB per token and layer, published runs of GPT-OSS take longer than a fused one would.
CLAMPED = (22, 46)
READS = {"nvfp4": 2}  # of numbers to cast, where not one
SCAN_BACKWARD = 3.5  # products of a scan's backward pass, its states once more, to its forward ones
FLASH_BACKWARD = 2.5  # products of flash attention's backward pass to those of its forward pass


class Product(NamedTuple):
    """Shape of a matrix product: `copies` times m x k by k x n, on this rank.

    summed: bytes per number of the accumulated gradient that it is added to; 0: none. grouped: the
    products of experts. batched: each of `count` has operands of its own, as scores of heads have.
    quantised: in the job's 8- or 4-bit precision, if it has one. streams: of grouped products, each
    a kernel of its own, so many run side by side; 0: they are one kernel.
    """

    m: float
    n: float
    k: float
    copies: float = 1.0
    summed: float = 0.0
    grouped: bool = False
    batched: bool = False
    quantised: bool = False
    streams: int = 0


# Of attention: the flash-attention package in the version that is installed, PyTorch's
# FlexAttention, cuDNN's in 8 bits, and of attention to chosen keys TileLang's kernels, and those of
# FlashMLA and cuDNN.
PACKAGE, FLEX, IN_8_BITS = "package", "flex", "fp8"
LIBRARIES = (PACKAGE, FLEX, IN_8_BITS, SPARSE, DSA)
# Heads whose attention to chosen keys takes as long as that of fewer, which waits for the keys:
# 1.81 ms of 2,119 tokens with 8 heads and 2,048 keys on H200 (InternLM/lmdeploy, pull request
# 4904), 1.58 ms as counted here.
WAITED = 64


class FusedAttention(NamedTuple):
    """Flash attention over so many tokens, with heads of so many channels. backward: its backward
    pass. library: empty for the one that was measured on the GPU, or one of `LIBRARIES`."""

    length: float
    head: float
    backward: bool = False
    library: str = ""


class Streamed(NamedTuple):
    """Kernels of a scan: of small products inside chunks, and of the states between these. They
    move bytes at a rate of their own."""

    backward: bool = False


class Kernel(NamedTuple):
    """One kernel, or a few small ones. flops: arithmetic; traffic: bytes read and written; shape:
    of kernels beyond memory traffic, if it is known."""

    flops: float
    traffic: float
    shape: Product | FusedAttention | Streamed | None = None

    @property
    def products(self) -> float:
        """Products that the host starts one by one for it; 0: it is a single kernel."""
        return self.shape.copies if isinstance(self.shape, Product) and self.shape.streams else 0.0


class Passes(NamedTuple):
    """Traffic of a module's kernels that move bytes, relative to one fused kernel each way."""

    forward: float = 1.0
    backward: float = 1.0


# PyTorch's operators one by one, in training of 2 bytes: bytes that each reads and writes per
# number, over those of the fused kernel. A norm squares, averages, scales, rounds and weighs a copy
# in fp32 (36 for 4 bytes, and 68 for 8 on the way back); rotation multiplies complex numbers of
# fp32 (20 for 4 each way); the activation and its product are kernels of their own (10 for 6, and
# 18 for 10).
FUSED = Passes()
EAGER = {"norm": Passes(9.0, 8.5), "rope": Passes(5.0, 5.0), "activation": Passes(5 / 3, 1.8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleWork:
    """The work of one module for a micro-batch. of_weights: the kernels of the backward pass that
    make gradients of weights alone; nothing else waits for them. core: it is the attention's scores
    and their product with the values, repeated by Megatron's selective recomputation."""

    name: str
    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    of_weights: tuple[Kernel, ...] = ()
    core: bool = False

    @property
    def ways(self) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
        """Forward and backward."""
        return self.forward, self.backward


def layer_work(job: TrainingJob, *, kind: int, state: str = TRAINED) -> tuple[ModuleWork, ...]:
    """Return the modules of one layer.

    kind: its number in `LAYER_KINDS`. state: of its training, as a `TunedLayer` has it.
    """
    found = _layer(_Share(of_layer(job, kind), TunedLayer(kind, state)), LAYER_KINDS[kind])
    if state == FORWARD_ONLY:
        return tuple(replace(module, backward=(), of_weights=()) for module in found)
    return found


def _layer(share: "_Share", kind: LayerKind) -> tuple[ModuleWork, ...]:
    if kind.blocks == 1:
        name, last = ("input_norm", "attention") if kind.mixer else ("mlp_norm", "mlp")
        inner = share.mixer(kind.mixer) if kind.mixer else share.inner(kind.inner)
        return (share.norm(name), *inner, share.residual(f"{last}_residual"))
    return _whole_layer(share, kind)


def _whole_layer(share: "_Share", kind: LayerKind) -> tuple[ModuleWork, ...]:
    """Return the modules of a layer with a mixer, and an MLP or experts."""
    model, inner = share.model, share.inner(kind.inner)
    before, after = model.norms_of_layer
    if model.streams > 1:
        return (
            *share.mixing("attention"),
            share.norm("input_norm"),
            *share.mixer(kind.mixer),
            *share.mixing("mlp"),
            share.norm("mlp_norm"),
            *inner,
        )
    beside = model.parallel_norms > 0  # one addition of both to the layer's input
    return (
        *(share.norm("input_norm"),) * (before > 0),
        *share.mixer(kind.mixer),
        *(share.norm("attention_output_norm"),) * (after > 0),
        *(share.residual("attention_residual"),) * (not beside),
        *(share.norm("mlp_norm"),) * (before > 1),
        *inner,
        *(share.norm("mlp_output_norm"),) * (after > 0),
        share.residual("mlp_residual"),
    )


def embedding_work(job: TrainingJob) -> tuple[ModuleWork, ...]:
    """Return the embedding: tokens are looked up, positions added, dropout applied.

    The gradient of the table is dense: written once in full and added to the accumulated one; there
    is none of a frozen one.
    """
    share, model = _Share(job), job.model
    row = share.tokens * model.hidden * share.width
    after = row / share.sequence_parts
    passes = 2 * row + 3 * after * (model.positions == "learned") + 2 * after * (model.dropout > 0)
    table = job.padded_vocab * model.hidden / share.tp
    gradient = table * (2 * share.width + 2 * job.settings.optimizer.gradient)
    return (
        ModuleWork(
            name="embedding",
            forward=(Kernel(0.0, passes),),
            backward=(Kernel(0.0, 2 * row + gradient),) * trains_words(model, job.settings.tuning),
        ),
    )


def encoder_work(
    job: TrainingJob, encoder: AnyEncoder
) -> tuple[tuple[ModuleWork, ...], tuple[ModuleWork, ...]]:
    """Return a layer of an encoder, and what is before and after its layers: the product with
    patches, whose input has no gradient, or convolutions, and the projectors."""
    seen = images_seen(job, encoder)
    own = encoder_job(job, encoder, seen)
    share, tuning = _Share(own), job.settings.tuning
    trained, learns = trains_encoder(job.model, tuning), trains_projector(job.model, tuning)
    layer = layer_work(own, kind=0)
    if (again := recompute_of(job, encoder).granularity) != "none":
        whole = again == "full"
        layer = tuple(
            replace(one, backward=(*one.forward, *one.backward)) if whole or one.core else one
            for one in layer
        )
    stems: tuple[ModuleWork, ...] = ()
    for stem in encoder.stems:
        rows = share.tokens * stem.rows
        stems += (share.linear(stem.name, rows, stem.inner, stem.outer),)
        if stem.acts:
            moved = rows * stem.outer * own.settings.width
            stems += (share.streaming(f"{stem.name}_act", 2 * moved, 3 * moved, "activation"),)
    rows, inner = seen.tokens, (encoder.inner or encoder.merged) / own.tp
    read = (encoder.acted or encoder.merged) / own.tp
    later = encoder.later_norm(job.model.hidden)
    wide, column, half, after = (
        rows * width * own.settings.width for width in (encoder.merged, inner, read, later)
    )
    projector: tuple[ModuleWork, ...] = (
        share.streaming("projector_norm", 2 * wide, 4 * wide, "norm"),
        share.linear("projector_fc1", rows, encoder.merged, inner),
        share.streaming("projector_activation", column + half, 2 * column + half, "activation"),
        share.linear("projector_fc2", rows, read, job.model.hidden),
    )
    if not encoder.inner:
        projector = projector[:1] + projector[-1:]
    if later:
        projector += (share.streaming("projector_later_norm", 2 * after, 4 * after, "norm"),)
    lowest = "projector_fc1" if encoder.inner else "projector_fc2"
    stems = (replace(stems[0], backward=stems[0].of_weights), *stems[1:])
    if not trained:
        layer, stems = _forward_only(layer), _forward_only(stems)
        if encoder.projector_norm == "none" and learns:  # nothing is before its first product
            projector = tuple(
                replace(one, backward=one.of_weights) if one.name == lowest else one
                for one in projector
            )
    if not learns:
        projector = tuple(map(_of_input, projector)) if trained else _forward_only(projector)
    return layer, (*stems, *(1 + encoder.deepstack) * projector)


def _forward_only(work: tuple[ModuleWork, ...]) -> tuple[ModuleWork, ...]:
    """Return the same without a backward pass."""
    return tuple(replace(one, backward=(), of_weights=()) for one in work)


def _of_input(work: ModuleWork) -> ModuleWork:
    """Return the same without gradients of weights."""
    count = len(work.backward) - len(work.of_weights)  # they are the last ones
    return replace(work, backward=work.backward[:count], of_weights=())


def output_work(job: TrainingJob) -> tuple[ModuleWork, ...]:
    """Return the last norm, the logits and their loss.

    Unfused, the loss converts the logits to single precision, searches, shifts, exponentiates, sums
    and divides them one after the other; fused, it reads them twice and writes them once. Liger's
    computes everything in the forward pass: the products of every chunk of tokens, both ways.
    """
    share = _Share(job)
    logits = share.tokens * job.padded_outputs / share.tp
    half, single = logits * share.width, logits * SINGLE
    fused = job.settings.kernels.loss
    loss = ModuleWork(
        name="loss",
        forward=(Kernel(0.0, 3 * half if fused else half + 9 * single),),
        backward=(Kernel(0.0, 2 * half if fused else half + 3 * single),),
    )
    width = job.model.hidden
    if job.settings.kernels.chunked_loss:
        return (share.norm("final_norm"), share.chunked(loss_chunk(job)))
    return (
        *share.merging(),
        share.norm("final_norm"),
        share.linear("output_layer", share.tokens, width, job.padded_outputs / share.tp),
        loss,
    )


def prediction_work(job: TrainingJob) -> tuple[ModuleWork, ...]:
    """Return one layer of multi-token prediction: two norms, a product that joins two hidden
    states, a transformer layer of the last kind, and the output again (DeepSeek-V3, arXiv
    2412.19437, section 2.2)."""
    share, hidden, streams = _Share(job), job.model.hidden, job.model.streams
    joins = [share.linear("join", share.tokens, 2 * hidden, hidden / share.tp)]
    if streams > 1:
        joins = [
            share.linear("join", share.tokens, hidden, hidden),
            share.linear("join", streams * share.tokens, hidden, hidden),
        ]
    return (
        share.norm("embedding_norm"),
        *streams * (share.norm("hidden_norm"),),
        *joins,
        *layer_work(job, kind=job.model.last_kind),
        *output_work(job),
    )


def step_traffic(settings: Settings) -> float:
    """Return the bytes per parameter that an optimiser step reads and writes; with Muon, of a
    parameter that it leaves to Adam.

    Adam reads the gradient, reads and writes both moments and the master copy, and then copies this
    one into the parameter; without one it steps the parameter itself.
    """
    optimizer = settings.optimizer
    stepped = 3 * optimizer.master + settings.width if optimizer.master else 2 * settings.width
    moments = 2 * SINGLE if optimizer.of_matrices else optimizer.moments
    return optimizer.gradient + 2 * moments + stepped


class HostStep(NamedTuple):
    """Bytes per parameter that is stepped on the host. sent, returned: to the host and from it.
    traffic: that the host reads and writes."""

    sent: float
    traffic: float
    returned: float


def host_step(settings: Settings) -> HostStep:
    """Return the traffic of a step of Megatron's optimiser on the host.

    Everything there is in single precision. A copy between devices converts at its source:
    gradients are widened before they go, and stepped parameters rounded before they come back,
    unless the device keeps a copy in single precision to be written over. PyTorch's fused step
    reads the gradient, and reads and writes the parameter and its moments.
    """
    optimizer = settings.optimizer
    width = SINGLE if optimizer.keeps_master else settings.width
    moments = 2 * SINGLE if optimizer.name == "adam" else optimizer.moments
    rounded = SINGLE + width if width < SINGLE else 0
    return HostStep(SINGLE, SINGLE + 2 * SINGLE + 2 * moments + rounded, width)


class _Share:
    """One rank's share of a micro-batch."""

    def __init__(self, job: TrainingJob, kind: TunedLayer | None = None) -> None:
        settings, self.kind = job.settings, kind
        self.job, self.model, self.kernels = job, job.model, settings.kernels
        self.width = settings.width
        self.tp = job.tp
        self.sample = job.sample
        self.tokens = job.micro_batch * self.sample.tokens / settings.cp
        self.sequence_parts = job.tp if settings.sequence_parallel else 1

    def linear(
        self, name: str, tokens: float, inner: float, outer: float, copies: float = 1.0
    ) -> ModuleWork:
        """Return a product with weights: its backward pass adds the weights' gradient to the
        accumulated one, in a kernel of its own unless that is fused. copies: of the weights, each
        for its share of the tokens."""
        trained, own = self._trained(name), self._adapters(name)
        flops = 2.0 * tokens * inner * outer
        weights = inner * outer * copies
        moved = (tokens * (inner + outer) + weights) * self.width
        rows, grouped = tokens / copies, copies > 1
        streams = grouped * product_streams(self.job)
        quantised = bool(self.kernels.quantised) and name not in EXACT
        width = float(self.job.settings.optimizer.gradient)
        fused = self.kernels.accumulation_fusion
        gradient = tokens * (inner + outer) * self.width
        gradient += weights * (2 * width if fused else self.width)
        added = () if fused else (Kernel(0.0, weights * (self.width + 2 * width)),)
        forward, back, summed = (
            Product(m, n, k, copies, grouped=grouped, quantised=quantised, streams=streams)
            for m, n, k in ((rows, outer, inner), (rows, inner, outer), (inner, outer, rows))
        )
        casts, casts_back = (
            (self.casts(tokens * inner, weights * trained), self.casts(tokens * outer))
            if quantised
            else ((), ())
        )
        product = Kernel(flops, gradient, summed._replace(summed=width if fused else 0.0))
        of_weights = (product, *added) if trained else ()
        if own and own[0].merged:
            return self._with_sum(name, (rows, inner, outer, copies), len(own))
        restored = self._restored(name, weights, tokens * (inner + outer))
        found = ModuleWork(
            name=name,
            forward=(*casts, *restored, Kernel(flops, moved, forward)),
            backward=(*casts_back, *restored, Kernel(flops, moved, back), *of_weights),
            of_weights=of_weights,
        )
        for one in own:
            found = self._beside(found, one, tokens, copies)
        return found

    def chunked(self, tokens: int) -> ModuleWork:
        """Return the output layer with Liger's loss. tokens: of a chunk, whose logits are read
        twice, and once written over by their gradient."""
        outputs = self.job.padded_outputs

        def chunk(tokens: float) -> tuple[Kernel, ...]:
            one = self.linear("output_layer", tokens, self.job.model.hidden, outputs)
            loss = Kernel(0.0, 3.0 * tokens * outputs * self.width)
            return (*one.forward, loss, *one.backward)

        count, rest = divmod(self.tokens, tokens)
        every = chunk(tokens) * int(count) + (chunk(rest) if rest else ())
        return ModuleWork(name="loss", forward=every, backward=())

    def _with_sum(
        self, name: str, shape: tuple[float, float, float, float], count: int
    ) -> ModuleWork:
        """Return the product of experts whose adapters are added to their weights: the sum is made
        before it, and has a gradient, of which both factors have theirs.

        Parameters
        ----------
        shape: tokens, width and outputs of an expert, and how many experts there are. count: of
            adapters of each.
        """
        rows, inner, outer, copies = shape
        rank = count * self.job.settings.tuning.rank
        grouped, streams = copies > 1, (copies > 1) * product_streams(self.job)
        weights, factors = copies * inner * outer, copies * rank * (inner + outer)
        flops, small = 2.0 * rows * weights, 2.0 * rank * weights
        moved = (copies * rows * (inner + outer) + weights) * self.width
        forward, back, of_sum = (
            Kernel(flops, moved, Product(m, n, k, copies, grouped=grouped, streams=streams))
            for m, n, k in ((rows, outer, inner), (rows, inner, outer), (inner, outer, rows))
        )
        cast = Kernel(0.0, factors * (SINGLE + self.width))
        made, first, second = (
            Kernel(small, (times * weights + factors) * self.width, product)
            for times, product in (
                (2, Product(outer, inner, rank, copies, batched=True)),
                (1, Product(rank, inner, outer, copies, batched=True)),
                (1, Product(outer, rank, inner, copies, batched=True)),
            )
        )
        of_weights = (of_sum, first, second, cast)
        return ModuleWork(
            name=name,
            forward=(cast, made, *self._restored(name, weights, 0.0), forward),
            backward=(back, *of_weights),
            of_weights=of_weights,
        )

    def _trained(self, name: str) -> bool:
        """Tell whether a product's weight is trained."""
        tuning = self.job.settings.tuning
        if not tuning or self.kind is None:
            return name != "output_layer" or trains_output(self.model, tuning)
        return self.kind.state == TRAINED and not tuning.freezes(trained_part(name, self.kind))

    def _adapters(self, name: str) -> tuple[Adapter, ...]:
        """Return the adapters beside a product."""
        if self.kind is None or self.kind.state != ADAPTED:
            return ()
        whole = name.startswith("linear_") or name in OF_SCANS
        module = name if whole else f"linear_{name.rpartition('_')[2]}"
        module = ROUTED * name.startswith("experts_") + module
        every = adapters_of(self.model, self.job.settings.tuning, self.kind.kind)
        return tuple(one for one in every if one.module == module)

    def _restored(self, name: str, weights: float, around: float) -> tuple[Kernel, ...]:
        """Return the kernel that brings a weight in fewer bits into the training precision, and the
        casts of input and output where hidden states have another type (`Linear4bit`).

        around: numbers of input and output.
        """
        if not self.job.settings.tuning.base or name in EXACT:
            return ()
        if name.startswith("experts_"):  # of the same type as all else, and cast
            own = stream_width(self.job)
            return (Kernel(0.0, weights * (own + self.width)),) * widens(self.job)
        restored = Kernel(0.0, weights * (base_width(self.job) + self.width))
        cast = Kernel(0.0, around * (stream_width(self.job) + self.width))
        return (restored, cast) if widens(self.job) else (restored,)

    def _beside(self, module: ModuleWork, one: Adapter, tokens: float, copies: float) -> ModuleWork:
        """Return a product with an adapter: its input is dropped out, or cast, and multiplied
        twice; the result is scaled and added. Backward the gradients of both weights, and of the
        input, which is added to the product's own. copies: of the product, which have one adapter,
        or as many where they are modules of their own, or each is to have one."""
        tuning, rank = self.job.settings.tuning, self.job.settings.tuning.rank
        ways = self.job.expert_tp if one.routed else self.tp
        inner = one.inner / ways if one.rows else float(one.inner)
        outer = float(one.outer) if one.rows else one.outer / ways
        parts = 1.0 if self.kernels.grouped_experts and not one.each else copies
        rows = tokens / parts
        first = self._small(rows, rank, inner, parts), self._small(rows, outer, rank, parts)
        back = self._small(rows, rank, outer, parts), self._small(rows, inner, rank, parts)
        weights = self._small(inner, rank, rows, parts), self._small(rank, outer, rows, parts)
        alone = tuning.adapters == "fp32"
        around = 2 * SINGLE if alone else 0  # to single precision and back
        around += (2 * (SINGLE if alone else self.width) + 1) if tuning.dropout else 0
        moved = Kernel(0.0, tokens * (inner * around + 5 * outer * self.width))
        sums = inner * (around + 3 * self.width) + 2 * outer * self.width
        returned = Kernel(0.0, tokens * sums)
        return replace(
            module,
            forward=(*module.forward, *first, moved),
            backward=(*module.backward, *back, returned, *weights),
            of_weights=(*module.of_weights, *weights),
        )

    def _small(self, m: float, n: float, k: float, copies: float = 1.0) -> Kernel:
        """Return a product of an adapter, in the training precision."""
        moved = copies * (m * k + k * n + m * n) * self.width
        grouped, streams = copies > 1, (copies > 1) * product_streams(self.job)
        product = Product(m, n, k, copies, grouped=grouped, streams=streams)
        return Kernel(2.0 * m * n * k * copies, moved, product)

    def casts(self, numbers: float, weights: float = 0.0) -> tuple[Kernel, ...]:
        """Return the kernels that bring so many numbers into the format of quantised products.

        They are read once, and written in every copy that products read (`quantised.copies`); NVFP4
        reads them once more to find their maximum. Scaling by the current maximum has it from the
        kernel before (Transformer Engine's norms and activations). Weights are cast once per
        iteration, frozen ones once for all.
        """
        written = copies(self.job)
        each = READS.get(self.kernels.quantised, 1) * self.width
        weights /= self.job.micro_batches
        moved = (each + written.kept) * numbers + (each + written.copy) * weights
        return (Kernel(0.0, moved),)

    def passes(self, kind: str) -> Passes:
        """Return the passes of a kind of module in `EAGER`: where torchtitan compiles layers, or
        the runtime has kernels for them, they are fused."""
        settings = self.job.settings
        apart = settings.keeps_gathered or eager(self.job)
        apart = apart and not self.kernels.compiled and self.width < SINGLE
        return EAGER[kind] if apart else FUSED

    def streaming(self, name: str, forward: float, backward: float, kind: str = "") -> ModuleWork:
        """Return a kernel each way that only moves bytes. kind: in `EAGER`."""
        if kind:
            passes = self.passes(kind)
            forward, backward = forward * passes.forward, backward * passes.backward
        return ModuleWork(
            name=name, forward=(Kernel(0.0, forward),), backward=(Kernel(0.0, backward),)
        )

    def hidden(self) -> float:
        """Return the bytes of the hidden state that this rank holds."""
        return self.tokens * self.model.hidden * stream_width(self.job) / self.sequence_parts

    def norm(self, name: str) -> ModuleWork:
        """Return a norm: reads and writes; backward it reads its input and two gradients."""
        return self.streaming(name, 2 * self.hidden(), 4 * self.hidden(), "norm")

    def residual(self, name: str) -> ModuleWork:
        """Return bias, dropout and residual addition."""
        size = self.hidden()
        passes = 3.0 if self.kernels.fused_dropout or not self.model.dropout else 7.0
        return self.streaming(name, passes * size, 2 * size)

    def mixer(self, name: str) -> tuple[ModuleWork, ...]:
        """Return a mixer, by its name in `LayerKind`."""
        if name in COMPRESSED:
            return self.compressed_attention(name)
        if name != ATTENTION:
            return self.scanned(name)
        if self.model.sparse is not None:
            return self.sparse_attention()
        return self.attention() if self.model.latent is None else self.latent_attention()

    def inner(self, name: str) -> tuple[ModuleWork, ...]:
        """Return an MLP or experts."""
        if name == EXPERTS:
            return self.experts()
        return self.mlp("mlp", self.tokens, self.model.ffn / self.tp)

    def scanned(self, name: str) -> tuple[ModuleWork, ...]:
        """Return a mixer with a scan, as `job.mixers` has it.

        The convolution reads and writes its channels; backward it gives them once more, and reads
        and writes gradients beside them. The scan reads them for every chunk's states and for the
        output, writes states in fp32, passes them on, and reads them; its products are small.
        Backward both are made again, and states, products and channels have gradients.
        """
        scan, mixer = scan_of(self.job, name), mixer_of(self.model, name)
        tokens, width = self.job.micro_batch * self.sample.tokens, self.width
        ways = self.tp * self.job.settings.cp
        channels, inner = tokens * scan.convolved * width, tokens * scan.inner * width
        states, scores = tokens * scan.state * SINGLE, tokens * scan.scores * SINGLE
        moved = 2 * channels + 2 * inner + 3.5 * states + 2 * scores
        flops = tokens * mixer.scan / ways
        back = 2 * moved + 3 * channels + 4 * inner + 3.5 * states + 3 * scores
        own = self.tokens * mixer.inner / self.tp * width
        copied = tokens * scan.projected * width * (2 if self.job.micro_batch > 1 else 0)
        return (
            self.linear("in_proj", self.tokens, self.model.hidden, mixer.projected / self.tp),
            self.streaming("conv1d", 2 * channels + copied, 5 * channels + copied),
            ModuleWork(
                name="scan",
                forward=(Kernel(flops, moved, Streamed()),),
                backward=(Kernel(SCAN_BACKWARD * flops, back, Streamed(backward=True)),),
            ),
            self.streaming("gated_norm", 3 * own, 5 * own, "norm"),
            self.linear("out_proj", self.tokens, mixer.inner / self.tp, self.model.hidden),
        )

    def attention(self) -> tuple[ModuleWork, ...]:
        """Return the projections and the core of an attention with groups of queries."""
        m, tokens = self.model, self.tokens
        queries = m.query_width / self.tp
        keys = max(m.kv_heads / self.tp, 1) * m.head  # fewer groups than ranks are repeated
        gate = queries * m.attention_gate
        modules = [self.linear("linear_qkv", tokens, m.hidden, queries + gate + 2 * keys)]
        turned = 2 * tokens * (queries + keys) * self.width
        if m.qk_norm:
            modules.append(self.streaming("qk_norm", turned, 2 * turned, "norm"))
        if m.positions == "rope":
            modules.append(self.streaming("rope", turned, turned, "rope"))
        modules.append(self.core(queries, keys, queries))
        if gate:
            moved = tokens * gate * self.width
            modules.append(self.streaming("output_gate", 3 * moved, 5 * moved))
        modules.append(self.linear("linear_proj", tokens, queries, m.hidden))
        return tuple(modules)

    def latent_attention(self) -> tuple[ModuleWork, ...]:
        """Return multi-head latent attention: every rank makes the compressed vectors of its tokens
        with all of the first products' weights."""
        m, tokens = self.model, self.tokens
        a = m.latent
        assert a is not None
        own = tokens / self.sequence_parts
        queries, values = m.query_width / self.tp, m.value_width / self.tp
        modules = []
        if a.query_rank:
            modules.append(self.linear("linear_q_down_proj", own, m.hidden, a.query_rank))
            modules.append(self.linear("linear_q_up_proj", tokens, a.query_rank, queries))
        else:
            modules.append(self.linear("linear_q_proj", tokens, m.hidden, queries))
        down, up = a.key_value_rank + a.rotary, m.heads * (a.key + a.value) / self.tp
        modules.append(self.linear("linear_kv_down_proj", own, m.hidden, down))
        modules.append(self.linear("linear_kv_up_proj", tokens, a.key_value_rank, up))
        turned = 2 * tokens * 2 * queries * self.width  # rotated, joined with the part without
        modules.append(self.streaming("rope", turned, turned, "rope"))
        modules.append(self.core(queries, queries, values))
        modules.append(self.linear("linear_proj", tokens, values, m.hidden))
        return tuple(modules)

    def sparse_attention(self) -> tuple[ModuleWork, ...]:
        """Return latent attention to keys that an indexer chooses, as `job.attention` has it: all
        heads read the same compressed keys."""
        m, tokens, a = self.model, self.tokens, self.model.latent
        assert a is not None
        own, heads = tokens / self.sequence_parts, m.heads / self.tp
        queries, one = m.query_width / self.tp, a.key_value_rank + a.rotary
        moved = 2 * tokens * heads * (one + a.key_value_rank + a.rotary) * self.width
        return (
            self.linear("linear_q_down_proj", own, m.hidden, a.query_rank),
            self.linear("linear_q_up_proj", tokens, a.query_rank, queries),
            self.linear("linear_kv_down_proj", own, m.hidden, a.key_value_rank + a.rotary),
            self.absorbed("linear_kv_up_proj", a.key, a.key_value_rank),
            self.streaming("rope", moved, moved, "rope"),
            *self.indexer(),
            self.chosen(),
            self.absorbed("core_attention_values", a.key_value_rank, a.value),
            self.linear("linear_proj", tokens, m.value_width / self.tp, m.hidden),
        )

    def absorbed(self, name: str, inner: float, outer: float) -> ModuleWork:
        """Return a product of every head with a weight of its own; its result is copied, as heads
        come first. inner, outer: channels of a head."""
        heads, tokens = self.model.heads / self.tp, self.tokens
        flops, weights = 2.0 * tokens * heads * inner * outer, heads * inner * outer
        moved = (tokens * heads * (inner + outer) + weights) * self.width
        forward, back, of_weight = (
            Kernel(flops, moved, Product(m, n, k, heads, batched=True))
            for m, n, k in (
                (tokens, outer, inner), (tokens, inner, outer), (inner, outer, tokens)
            )
        )  # fmt: skip
        added = Kernel(0.0, weights * (self.width + 2 * self.job.settings.optimizer.gradient))
        copied = Kernel(0.0, 2 * tokens * heads * outer * self.width)
        of_weights = (of_weight, added)
        return ModuleWork(
            name=name,
            forward=(forward, copied),
            backward=(copied, back, *of_weights),
            of_weights=of_weights,
        )

    def indexer(self) -> tuple[ModuleWork, ...]:
        """Return the indexer, which every rank computes for all heads. It scores all keys before a
        token, and of all those scores, in fp32, the largest are found. What it learns from is
        computed for the chosen keys alone; its products have no gradient of their inputs. The
        forward pass computes the loss, which is counted as backward: checkpoints leave it out of
        their first pass (`ops/tilelang_dsa.py` of `megatron.core` 0.19.0)."""
        s, a, m, tokens = self.model.sparse, self.model.latent, self.model, self.tokens
        assert s is not None
        assert a is not None
        if not s.heads:
            return ()
        seen, chosen = self.sample.tokens, chosen_keys(self.job)
        heads = max(WAITED, m.heads / self.tp)
        numbers = tokens * (s.width + s.head)
        turned = (6 if s.rotated else 4) * numbers * self.width  # cut, rotated, joined, multiplied
        logits, picked = tokens * seen * SINGLE, tokens * chosen * (SINGLE + SINGLE)
        operands = (numbers + tokens * s.heads) * self.width
        shape = FusedAttention(seen, s.head)
        forward = (
            Kernel(tokens * seen * float(s.width), operands + logits, shape),
            Kernel(0.0, 2 * logits + 3 * picked),  # cleaned, read by the search
        )
        one = a.key_value_rank + a.rotary
        target = FusedAttention(chosen, one, library=SPARSE)
        back = FusedAttention(chosen, s.head, backward=True, library=SPARSE)
        learnt = (
            Kernel(2.0 * tokens * chosen * heads * one, tokens * heads * one * self.width, target),
            Kernel(0.0, 4 * picked),
            Kernel(6.0 * tokens * chosen * s.width, 2 * operands + picked, back),
        )
        products = (
            ("core_attention_queries", a.query_rank, s.width),
            ("core_attention_key", m.hidden, s.head),
            ("core_attention_weights", m.hidden, s.heads),
        )
        found = [
            *(self.linear(name, tokens, inner, outer) for name, inner, outer in products),
            self.streaming("core_attention_turned", turned, turned),
            ModuleWork(name="core_attention_scores", forward=forward, backward=learnt),
        ]
        return tuple(
            replace(one, backward=one.of_weights or one.backward)
            if s.trained
            else replace(one, backward=(), of_weights=())
            for one in found
        )

    def chosen(self) -> ModuleWork:
        """Return attention to chosen keys, all of them looked up for every token, also those that
        there are none of yet. The backward pass computes the output again."""
        a, tokens, heads = self.model.latent, self.tokens, max(WAITED, kernel_heads(self.job))
        assert a is not None
        keys, one = chosen_keys(self.job), a.key_value_rank + a.rotary
        flops = 2.0 * tokens * keys * heads * (one + a.key_value_rank)
        numbers = tokens * heads * (one + a.key_value_rank) + self.job.micro_batch * (
            self.sample.tokens * one
        )
        operands = numbers * self.width + tokens * keys * SINGLE
        shape = FusedAttention(keys, (one + a.key_value_rank) / 2, library=SPARSE)
        again = Kernel(flops, operands, shape)
        back = Kernel(FLASH_BACKWARD * flops, 2 * operands, shape._replace(backward=True))
        return ModuleWork(
            name="core_attention", forward=(again,), backward=(again, back), core=True
        )

    def compressed_attention(self, mixer: str) -> tuple[ModuleWork, ...]:
        """Return attention to a window and to pooled keys, as `job.compressed` has it. Its last
        but one product is of each group of heads; its output is turned back in a copy."""
        m, tokens, a = self.model, self.tokens, self.model.compressed
        assert a is not None
        width = m.heads * m.head
        wide, turned = tokens * width * self.width, tokens * m.heads * a.rotary * self.width
        grouped = self.linear("linear_o_group_proj", tokens * a.groups, width / a.groups,
                              a.output_rank, a.groups)  # fmt: skip
        return (
            self.linear("linear_q_down_proj", tokens, m.hidden, a.query_rank),
            self.linear("linear_q_up_proj", tokens, a.query_rank, width),
            self.streaming("query_norm", 2 * wide, 3 * wide, "norm"),
            self.linear("linear_kv_proj", tokens, m.hidden, m.head),
            self.streaming("rope", 2 * turned, 2 * turned, "rope"),
            *self.pooling(mixer, "pooled", m.head),
            *self.pooled_indexer(mixer),
            self.nearest(mixer),
            self.streaming("output_turned", 2 * wide, 2 * wide, "rope"),
            _batched(grouped),
            self.linear("linear_proj", tokens, a.groups * a.output_rank, m.hidden),
        )

    def pooling(self, mixer: str, name: str, head: int) -> tuple[ModuleWork, ...]:
        """Return what pools keys of so many channels: their weights are a softmax over a group."""
        a, tokens, hidden = self.model.compressed, self.tokens, self.model.hidden
        assert a is not None
        columns, ratio = a.pooled(mixer, head), a.ratio(mixer)
        if not columns:
            return ()
        read, made = (tokens * n * self.width for n in (2 * columns, head / ratio))
        return (
            self.linear(f"{name}_keys", tokens, hidden, columns),
            self.linear(f"{name}_weights", tokens, hidden, columns),
            self.streaming(f"{name}_softmax", read + 5 * made, 2 * read + 7 * made),
        )

    def pooled_indexer(self, mixer: str) -> tuple[ModuleWork, ...]:
        """Return the indexer of pooled keys. It scores all that end before a token, and the largest
        are found; it learns from attention to the chosen ones. Its products have no gradient of
        their inputs. Its loss and gradients are computed in the forward pass, and counted as
        backward, as `indexer` counts them."""
        a, m, tokens = self.model.compressed, self.model, self.tokens
        assert a is not None
        if mixer != CSA:
            return ()
        seen = self.sample.tokens / a.near
        chosen = a.chosen(mixer, m.sequence)
        numbers = tokens * (a.index_width + a.index_head / a.near)
        turned = 6 * numbers * self.width
        logits, picked = tokens * seen * SINGLE, tokens * chosen * (SINGLE + SINGLE)
        operands = (numbers + tokens * a.index_heads) * self.width
        forward = (
            Kernel(tokens * seen * float(a.index_width), operands + logits,
                   FusedAttention(seen, a.index_head)),
            Kernel(0.0, 2 * logits + 3 * picked),
        )  # fmt: skip
        target = FusedAttention(chosen, m.head, library=DSA)
        back = FusedAttention(chosen, a.index_head, backward=True, library=DSA)
        width = m.heads * m.head
        learnt = (
            Kernel(2.0 * tokens * chosen * width, tokens * width * self.width, target),
            Kernel(0.0, 4 * picked),
            Kernel(6.0 * tokens * chosen * a.index_width, 2 * operands + picked, back),
        )
        found = (
            self.linear("index_queries", tokens, a.query_rank, a.index_width),
            self.linear("index_weights", tokens, m.hidden, a.index_heads),
            *self.pooling(mixer, "index_pooled", a.index_head),
            self.streaming("index_turned", turned, turned),
            ModuleWork(name="index_scores", forward=forward, backward=learnt),
        )
        return tuple(replace(one, backward=one.of_weights or one.backward) for one in found)

    def nearest(self, mixer: str) -> ModuleWork:
        """Return attention to the window and to pooled keys, all of them looked up for every
        token, also those that there are none of yet."""
        m, tokens, a = self.model, self.tokens, self.model.compressed
        assert a is not None
        keys = a.window + a.chosen(mixer, m.sequence)
        flops = 4.0 * tokens * keys * max(WAITED, m.heads) * m.head
        operands = tokens * (2 * m.heads + 2) * m.head * self.width + tokens * keys * SINGLE
        shape = FusedAttention(keys, m.head, library=DSA)
        back = Kernel(FLASH_BACKWARD * flops, 2 * operands, shape._replace(backward=True))
        return ModuleWork(
            name="core_attention",
            forward=(Kernel(flops, operands, shape),),
            backward=(back,),
            core=True,
        )

    def mixing(self, block: str) -> tuple[ModuleWork, ...]:
        """Return what mixes streams before a block and after it (`fused_mhc_kernels.py`): a product
        of all channels in fp32, which reads them, and a mixture that reads them again; after the
        block they are read with its output, and written. Backward each reads them and their
        gradients, and all three gradients are summed."""
        n, tokens = self.model.streams, self.tokens
        if n == 1:
            return ()
        numbers, narrow = (n + 2) * n, self.hidden()
        flops, whole = 2.0 * tokens * numbers * n * self.model.hidden, n * narrow
        mapped = (Kernel(2 * flops, 2 * whole), Kernel(0.0, 4 * whole))
        mixed = (Kernel(0.0, 2 * whole + narrow),)
        after = Kernel(0.0, 2 * whole + narrow)
        after_back = Kernel(0.0, 3 * whole + 2 * narrow)
        return (
            ModuleWork(name=f"{block}_mapping", forward=(Kernel(flops, whole),), backward=mapped),
            ModuleWork(
                name=f"{block}_mixture", forward=(Kernel(0.0, whole + narrow),), backward=mixed
            ),
            ModuleWork(name=f"{block}_streams", forward=(after,), backward=(after_back,)),
        )

    def merging(self) -> tuple[ModuleWork, ...]:
        """Return what mixes the streams to one before the last norm."""
        n, narrow = self.model.streams, self.hidden()
        if n == 1:
            return ()
        flops = 2.0 * self.tokens * n * n * self.model.hidden
        return (
            ModuleWork(
                name="merged_streams",
                forward=(Kernel(flops, (2 * n + 1) * narrow),),
                backward=(Kernel(2 * flops, (4 * n + 1) * narrow),),
            ),
        )

    def core(self, queries: float, keys: float, values: float) -> ModuleWork:
        """Return scores and their product with the values. Arguments: numbers per token."""
        seen = self.sample.tokens
        flops = 2.0 * self.tokens * seen * (queries + values)
        operands = self.tokens * (queries + 2 * keys + values) * self.width
        channels = (queries + values) / 2 * self.tp / self.model.heads
        if self.kernels.attention == "flash":
            sizes = self.tokens * queries * self.width, self.tokens * keys * self.width
            return self.fused_core(flops / 2, operands, channels, *sizes)
        scores = self.tokens * seen * self.model.heads / self.tp * self.width
        dropout = scores * (2 + 1 / self.width) if self.model.dropout else 0.0
        heads = self.job.micro_batch * self.model.heads / self.tp
        each = self.tokens / self.job.micro_batch
        batched = Product(each, seen, channels, heads, batched=True)
        product = Kernel(flops / 2, operands / 2 + scores, batched)
        forward = [product, Kernel(0.0, 2 * scores), product]
        backward = [product, product, Kernel(0.0, 3 * scores), product, product]
        if dropout:
            forward.append(Kernel(0.0, dropout))
            backward.append(Kernel(0.0, dropout))
        return ModuleWork(
            name="core_attention", forward=tuple(forward), backward=tuple(backward), core=True
        )

    def fused_core(
        self, flops: float, operands: float, channels: float, queries: float, keys: float
    ) -> ModuleWork:
        """Return flash attention; layers with and without a window count by their shares.

        Around a ring of context-parallel ranks each part of the keys has a kernel of its own. In 8
        bits, inputs are cast to them and the output back, forward and backward (Transformer Engine,
        `backends.py: FusedAttnFunc`).

        Parameters
        ----------
        flops: of causal attention that sees all tokens. operands: bytes. channels: of a head.
            queries, keys: bytes of a rank.
        """
        settings = self.job.settings
        # What torchtitan has in the package's place.
        package = FLEX if settings.keeps_gathered else PACKAGE
        library = package if self.kernels.flash_package else ""
        library = IN_8_BITS if self.kernels.fp8_attention else library
        steps = settings.cp if settings.passes_on else 1
        forward, backward = map(list, _merges(steps, queries, keys))
        if self.kernels.fp8_attention:
            cast = (self.width + 1) / self.width  # bytes read and written, of those of 16 bits
            each = Kernel(0.0, (queries + 2 * keys) * cast), Kernel(0.0, queries * cast)
            forward += each
            backward += each
        for layers, seen in self.sample.spans:
            shape = FusedAttention(self.sample.tokens * seen / steps, channels, library=library)
            part, moved = layers * seen * flops / steps, layers * operands / steps
            forward += steps * [Kernel(part, moved, shape)]
            back = shape._replace(backward=True)
            backward += steps * [Kernel(FLASH_BACKWARD * part, 2 * moved, back)]
        return ModuleWork(
            name="core_attention", forward=tuple(forward), backward=tuple(backward), core=True
        )

    def mlp(
        self, name: str, tokens: float, inner: float, copies: float = 1.0, hidden: int = 0
    ) -> tuple[ModuleWork, ...]:
        """Return two products with an activation between them. inner: width here. hidden: of its
        tokens; 0: the model's."""
        hidden, wide = hidden or self.model.hidden, 2 if self.model.gated else 1
        first = tokens * inner * wide * stream_width(self.job)
        second = tokens * inner * stream_width(self.job)
        forward, backward = first + second, 2 * first + second
        if self.model.clamp and self.model.offset and self.model.gated:
            forward, backward = (tokens * inner * SINGLE * each for each in CLAMPED)
        return (
            self.linear(f"{name}_fc1", tokens, hidden, wide * inner, copies),
            self.streaming(f"{name}_activation", forward, backward, "activation"),
            self.linear(f"{name}_fc2", tokens, inner, hidden, copies),
        )

    def experts(self) -> tuple[ModuleWork, ...]:
        """Return router, permutation, routed experts and the shared one.

        A rank of the expert grid holds count / ep experts, each over etp ranks, and sees the tokens
        of etp / tp replicas, each top_k times. The fullest rank counts, within a capacity.
        """
        e, job = self.model.experts, self.job
        assert e is not None
        own = self.tokens / self.sequence_parts
        held = e.count / job.settings.ep
        seen = self.tokens * e.top_k * job.expert_tp / self.tp
        seen *= self.kernels.fullest
        width = self.model.routed_width
        moved = 2 * own * e.top_k * width * self.width
        permutations = 2 if self.kernels.fused_permute else 4
        routed = self.mlp("experts", seen, e.ffn / job.expert_tp, held, width)
        if not self.kernels.grouped_experts:
            routed = tuple(_one_by_one(module, int(held)) for module in routed)
        if e.latent:
            routed = (
                self.linear("latent_in", own, self.model.hidden, width),
                *routed,
                self.linear("latent_out", own, width, self.model.hidden),
            )
        wide = e.shared_ffn / self.tp
        shared = self.mlp("shared_experts", self.tokens, wide) if wide else ()
        return (
            self.linear("router", own, self.model.hidden, e.count),
            self.streaming("permute", permutations / 2 * moved, permutations / 2 * moved),
            *routed,
            *shared,
            self.streaming("unpermute", permutations / 2 * moved, permutations / 2 * moved),
        )


def _batched(module: ModuleWork) -> ModuleWork:
    """Return a module's products as products side by side, each of operands of its own."""

    def batched(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(
            one._replace(shape=one.shape._replace(grouped=False, streams=0, batched=True))
            if isinstance(one.shape, Product)
            else one
            for one in kernels
        )

    return replace(
        module,
        forward=batched(module.forward),
        backward=batched(module.backward),
        of_weights=batched(module.of_weights),
    )


def _merges(steps: int, queries: float, keys: float) -> tuple[tuple[Kernel, ...], ...]:
    """Return what attention around a ring does between its kernels, forward and backward, as the
    last rank: each output is scaled and added to those before, gradients of queries, and of keys
    and values, likewise, and half of the keys and values is copied (`AttnFuncWithCPAndKVP2P` of
    Transformer Engine 2, `context_parallel.py`).

    queries, keys: bytes.
    """
    if steps == 1:
        return (), ()
    merged, copied = 3 * queries, 2 * keys
    summed = merged + 3 * keys + copied
    return (
        (Kernel(0.0, 2 * queries), *(steps - 1) * (Kernel(0.0, merged + copied),)),
        (steps - 1) * (Kernel(0.0, summed),),
    )


def _one_by_one(module: ModuleWork, count: int) -> ModuleWork:
    """Return the same work as so many equal modules, one after the other."""

    def parts(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return tuple(_part(kernel, count) for kernel in kernels) * count

    return replace(
        module,
        forward=parts(module.forward),
        backward=parts(module.backward),
        of_weights=parts(module.of_weights),
    )


def _part(kernel: Kernel, count: int) -> Kernel:
    """Return one of so many equal parts of a grouped kernel, alone."""
    shape = kernel.shape
    if isinstance(shape, Product):
        shape = shape._replace(copies=1.0, grouped=False, streams=0)
    return Kernel(kernel.flops / count, kernel.traffic / count, shape)
