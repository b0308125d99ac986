"""The encoder of images as a job of its own, on the ranks that hold the embedding of words.

Megatron-LM's `LLaVAModel`, Megatron-Bridge and Pai-Megatron-Patch build it on the first pipeline
rank, in front of the embedding, without sequence and context parallelism (`get_vision_model_config`
sets both off): every context-parallel rank computes all images of a micro-batch. Its layers are a
decoder's in memory, messages and work, but that attention sees all patches of an image, or of a
window. They are of the training precision where the decoder's products have fewer bits.
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
from ilp_planner.specs.training import NOT_RECOMPUTED, Offload, TrainingJob
from ilp_planner.specs.tuning import FORWARD_ONLY, TRAINED, TunedLayer, Tuning, trains_encoder

if TYPE_CHECKING:
    from ilp_planner.specs.encoder import Encoder

NAME = "encoder"  # of its module
FROZEN = Tuning(frozen=("embedding",))  # of layers that are passed through


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower(Decoder):
    """The layers of an encoder. looks: as `Decoder.attention_spans` has them."""

    looks: tuple[tuple[float, float], ...] = ((1.0, 2.0),)

    @property
    def attention_spans(self) -> tuple[tuple[float, float], ...]:
        """Return how attention looks."""
        return self.looks


def encoder_of(job: TrainingJob) -> Encoder:
    """Return the encoder of a job's model, which has one."""
    assert job.model.encoder is not None
    return job.model.encoder


@lru_cache(maxsize=1024)
def encoder_job(job: TrainingJob) -> TrainingJob:
    """Return the job of the encoder's layers: a sample is an image."""
    encoder, settings = encoder_of(job), job.settings
    kernels = replace(
        settings.kernels,
        quantised="", number_format="", quantised_parameters=False, exact_first=0, exact_last=0,
        graphs="", graphed=(), deferred_output=False, overlap_shared=False, loader_mask=False,
        capacity=0.0, imbalance=1.0,
    )  # fmt: skip
    tower = Tower(
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        sequence=encoder.patches,
        vocab=1,
        ffn=encoder.ffn,
        gated=encoder.gated,
        bias=encoder.bias,
        norm=encoder.norm,
        activation=encoder.activation,
        positions="none" if encoder.positions else "rope",
        dropout=0.0,
        looks=encoder.spans,
    )
    return replace(
        job,
        model=tower,
        micro_batch=job.micro_batch * encoder.images,
        global_batch=job.global_batch * encoder.images,
        tp=1 if encoder.whole else job.tp,
        pp=1,
        layout=None,
        settings=replace(
            settings,
            cp=1, cp_inner=0, ep=1, etp=0, sequence_parallel=False, turn=0,
            recompute=NOT_RECOMPUTED, offload=Offload(), kernels=kernels,
            tuning=Tuning() if trains_encoder(job.model, settings.tuning) else FROZEN,
        ),
    )  # fmt: skip


def encoder_kind(job: TrainingJob) -> TunedLayer:
    """Return the kind of the encoder's layers."""
    trained = trains_encoder(job.model, job.settings.tuning)
    return TunedLayer(0, TRAINED if trained else FORWARD_ONLY)


def encoder_module(job: TrainingJob, layer: Module) -> Module:
    """Return the encoder with its projectors. layer: one of its layers."""
    encoder, own = encoder_of(job), encoder_job(job)
    h, sizes = encoder.hidden, shard_of(own)
    first = [Weight(name="weight", shape=(h, encoder.pixels))]
    first += [Weight(name="bias", shape=(h,))] * encoder.patch_bias
    if others := encoder.positions + encoder.vectors:
        first.append(Weight(name="positions", shape=(others * h,)))
    if encoder.scales:
        first.append(Weight(name="scales", shape=(encoder.layers * encoder.scales * h,)))
    pixels = product_input(own, (sizes.tokens, sizes.batch, encoder.pixels), "patches")
    found = Module(
        name=NAME,
        children=(
            Module(name="patch_embed", weights=tuple(first), kept=(pixels,)),
            replace(layer, name="layers").times(encoder.layers),
            *_projectors(job),
        ),
    )
    if encoder_kind(job).state == TRAINED:
        return found
    return forget(_still(found))


def _still(module: Module) -> Module:
    """Return a module whose weights are not trained."""
    weights = tuple(replace(weight, trained=False) for weight in module.weights)
    return replace(module, weights=weights, children=tuple(map(_still, module.children)))


def _projectors(job: TrainingJob) -> tuple[Module, ...]:
    """Return the projectors: a norm, and two products with an activation between."""
    encoder, own = encoder_of(job), encoder_job(job)
    rows, tp = encoder.tokens * own.micro_batch, own.tp
    inner = part(encoder.inner, tp)
    merged = (encoder.tokens, own.micro_batch, encoder.merged)
    second = product("projector_fc2", rows=job.model.hidden, columns=inner, bias=True)
    column = product_input(own, (rows, inner), "activated")
    products = (
        with_kept(
            product("projector_fc1", rows=inner, columns=encoder.merged, bias=True),
            product_input(own, merged, "merged patches"),
            Kept(name="output", shape=(rows, inner), width=own.settings.width, why="activated"),
        ),
        with_kept(second, column),
    )
    patch = (encoder.patches, own.micro_batch, encoder.hidden)
    shapes = {"none": (), "patch": (patch,), "merged": (merged,)}[encoder.projector_norm]

    def one(norms: tuple[tuple[int, ...], ...]) -> Module:
        children = tuple(
            Module(
                name="projector_norm",
                weights=(Weight(name="weight", shape=(encoder.norm_vectors * shape[-1],)),),
                kept=norm_kept(own, shape, "patches"),
            )
            for shape in norms
        )
        return Module(name="projector", children=(*children, *products))

    deep = (one((merged,)).times(encoder.deepstack),) if encoder.deepstack else ()
    return (one(shapes), *deep)
