"""The encoders of a model, of images or sounds, as jobs of their own on the ranks of the first
pipeline stage.

Megatron-LM's `LLaVAModel`, Megatron-Bridge and Pai-Megatron-Patch build the encoder in front of the
word embedding. They switch sequence and context parallelism off in it (`get_vision_model_config`),
so each context-parallel rank computes all images of a micro-batch.

A layer of the encoder has the memory, messages and work of a decoder's layer, with two differences:
attention is not causal, and products have the training precision even if those of the decoder have
fewer bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ilp_planner.job.attention import norm_kept, product, product_input, with_kept
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.recompute import forget
from ilp_planner.job.shard import part, shard_of
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.images import SOUNDS, AnyEncoder, Load, image_load
from ilp_planner.specs.training import NOT_RECOMPUTED, Offload, Recompute, TrainingJob
from ilp_planner.specs.tuning import (
    FORWARD_ONLY,
    TRAINED,
    TunedLayer,
    Tuning,
    trains_encoder,
    trains_projector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

AGAIN = {
    "none": NOT_RECOMPUTED,
    "core": Recompute(granularity="selective"),
    "full": Recompute(granularity="full", method="uniform", layers=1),
}
FROZEN = Tuning(frozen=("embedding",))  # not all trains: `encoder_kind` says what the layers do


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower(Decoder):
    """The layers of an encoder as those of a decoder. seen: their `attention_spans`, in place of
    those of causal attention."""

    seen: tuple[tuple[float, float], ...]

    @property
    def attention_spans(self) -> tuple[tuple[float, float], ...]:
        """Return the shares of layers, and the pairs of patches that their attention sees."""
        return self.seen


def recompute_of(job: TrainingJob, encoder: AnyEncoder) -> Recompute:
    """Return what layers of an encoder compute again: nothing of those that are not trained."""
    if encoder_kind(job).state != TRAINED:
        return NOT_RECOMPUTED
    if encoder.recomputed:
        return AGAIN["full"]
    return AGAIN[job.settings.encoder_recompute]


def most_images(job: TrainingJob, encoder: AnyEncoder) -> Load:
    """Return the images, or pieces of sound, of a micro-batch that has the most."""
    model = job.model
    found = image_load(encoder, job.lengths, model.sequence, job.micro_batch)
    return _divided(job, encoder, found)


def images_seen(job: TrainingJob, encoder: AnyEncoder) -> Load:
    """Return the images, or pieces of sound, of a micro-batch as passes of a rank see them."""
    return _divided(job, encoder, all_seen(job, encoder))


def all_seen(job: TrainingJob, encoder: AnyEncoder) -> Load:
    """Return those of all context-parallel ranks together."""
    return job.loads[job.model.encoders.index(encoder)]


def _divided(job: TrainingJob, encoder: AnyEncoder, load: Load) -> Load:
    """Return the images of the context-parallel rank that has the most of them."""
    if not encoder.cp_divided:
        return load
    images = -(-load.images // job.settings.cp)
    return load._replace(images=images, tokens=-(-load.tokens * images // load.images))


@lru_cache(maxsize=1024)
def encoder_job(job: TrainingJob, encoder: AnyEncoder, load: Load) -> TrainingJob:
    """Return the job that trains an encoder's layers; each of its samples is one image, or a piece
    of sound. load: images of a micro-batch, for memory those of `most_images`."""
    settings, again = job.settings, recompute_of(job, encoder)
    if again.granularity == "full":
        again = NOT_RECOMPUTED  # of all its activations
    kernels = replace(
        settings.kernels.exact,
        graphs="", graphed=(), deferred_output=False, overlap_shared=False, loader_mask=False,
        capacity=0.0, imbalance=1.0,
    )  # fmt: skip
    tower = Tower(
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        sequence=load.patches,
        vocab=1,
        ffn=encoder.ffn,
        gated=encoder.gated,
        bias=encoder.bias,
        norm=encoder.norm,
        activation=encoder.activation,
        positions="rope" if encoder.rotary else "none",
        dropout=0.0,
        seen=load.spans,
    )
    return replace(
        job,
        model=tower,
        micro_batch=load.images,
        global_batch=load.images * max(1, job.micro_batches) * job.dp,
        tp=1 if encoder.whole else job.tp,
        pp=1,
        layout=None,
        settings=replace(
            settings,
            cp=1, cp_inner=0, ep=1, etp=0, sequence_parallel=False, turn=0,
            recompute=again, offload=Offload(), kernels=kernels,
            tuning=Tuning() if trains_encoder(job.model, settings.tuning) else FROZEN,
        ),
    )  # fmt: skip


def encoder_kind(job: TrainingJob) -> TunedLayer:
    """Return what layers of encoders do: train, or compute the forward pass alone."""
    trained = trains_encoder(job.model, job.settings.tuning)
    return TunedLayer(0, TRAINED if trained else FORWARD_ONLY)


def encoder_module(job: TrainingJob, encoder: AnyEncoder, layer: Module) -> Module:
    """Return the module of an encoder and its projectors. layer: the module of one layer."""
    inner: tuple[Module, ...] = (
        *_stems(job, encoder),
        replace(layer, name="layers").times(encoder.layers),
    )
    projectors, trained = _projectors(job, encoder), encoder_kind(job).state == TRAINED
    if not trained:
        inner = tuple(forget(_frozen(module)) for module in inner)
    if not trains_projector(job.model, job.settings.tuning):
        still = map(_frozen, projectors)
        projectors = tuple(still if trained else map(forget, still))
    return Module(name=encoder.name, children=(*inner, *projectors))


def _stems(job: TrainingJob, encoder: AnyEncoder) -> Iterator[Module]:
    """Yield the products before the layers, the last with all learnt vectors. A product keeps what
    it reads for its weight's gradient, and an activation its input."""
    own, h = encoder_job(job, encoder, most_images(job, encoder)), encoder.hidden
    sizes = shard_of(own)
    rows = (sizes.tokens, sizes.batch)
    stems = encoder.stems
    for stem in stems:
        weights = [Weight(name="weight", shape=(stem.outer, stem.inner))]
        weights += [Weight(name="bias", shape=(stem.outer,))] * stem.bias
        kept = [product_input(own, (*rows, stem.read), "patches")]
        if stem.acts:
            shape = (*rows, stem.rows * stem.outer)
            kept.append(Kept(name="output", shape=shape, width=own.settings.width, why="activated"))
        if stem is stems[-1]:
            learnt = encoder.name != SOUNDS  # sounds have fixed positions
            if encoder.positions and not learnt:
                fixed = (encoder.positions * h,)
                weights.append(Weight(name="fixed positions", shape=fixed, trained=False))
            others = encoder.positions * learnt + encoder.vectors
            if count := others * h + encoder.marks * job.model.hidden:
                weights.append(Weight(name="positions", shape=(count,)))
            if encoder.scales:
                scales = (encoder.layers * encoder.scales * h,)
                weights.append(Weight(name="scales", shape=scales))
        yield Module(name=stem.name, weights=tuple(weights), kept=tuple(kept))


def _frozen(module: Module) -> Module:
    """Return the same module with weights that are not trained."""
    weights = tuple(replace(weight, trained=False) for weight in module.weights)
    return replace(module, weights=weights, children=tuple(map(_frozen, module.children)))


def _projectors(job: TrainingJob, encoder: AnyEncoder) -> tuple[Module, ...]:
    """Return the projectors of the last and of inner layers: norms, and two products with an
    activation between them, or one product."""
    most = most_images(job, encoder)
    own = encoder_job(job, encoder, most)
    bias, learns = encoder.projector_bias, trains_projector(job.model, job.settings.tuning)
    rows, merged = most.tokens, (most.tokens, encoder.merged)
    inner = part(encoder.inner or encoder.merged, own.tp)
    read = part(encoder.acted or encoder.merged, own.tp)
    second = product("projector_fc2", rows=job.model.hidden, columns=read, bias=bias)
    column = product_input(own, (rows, read), "activated")
    inputs = product_input(own, merged, "merged patches"), column
    # They are for gradients of weights.
    before, after = ([one] * learns for one in inputs)
    products: tuple[Module, ...] = (with_kept(second, *after),)
    if encoder.inner:
        first = product("projector_fc1", rows=inner, columns=encoder.merged, bias=bias)
        activated = Kept(
            name="output", shape=(rows, inner), width=own.settings.width, why="activated"
        )
        products = (with_kept(first, *before, activated), *products)
    patch = (most.patches, most.images, encoder.hidden)
    shapes = {"none": (), "patch": (patch,), "merged": (merged,)}[encoder.projector_norm]
    later = encoder.later_norm(job.model.hidden)
    shapes += ((rows, later),) if later else ()

    def one(norms: tuple[tuple[int, ...], ...]) -> Module:
        children = tuple(
            Module(
                name="projector_norm",
                weights=(Weight(name="weight", shape=(encoder.projector_vectors * shape[-1],)),),
                kept=norm_kept(own, shape, "patches"),
            )
            for shape in norms
        )
        return Module(name="projector", children=(*children, *products))

    deep = (one((merged,)).times(encoder.deepstack),) if encoder.deepstack else ()
    return (one(shapes), *deep)
