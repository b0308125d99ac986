"""A decoder as one rank holds it: embedding, layers, output, with weights and kept activations.

Names are as in Megatron core's modules. Sizes are of one rank of the job; kept activations are for
one micro-batch.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from ilp_planner.job.attention import (
    MASK,
    attention_modules,
    norm_module,
    product,
    product_input,
    with_kept,
)
from ilp_planner.job.compressed import (
    compressed_modules,
    merging_module,
    mixing_module,
    streams_shape,
)
from ilp_planner.job.encoder import (
    encoder_job,
    encoder_kind,
    encoder_module,
    most_images,
    recompute_of,
)
from ilp_planner.job.mixers import mixer_modules
from ilp_planner.job.mlp import expert_modules, mlp_modules
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.operators import outputs_kept
from ilp_planner.job.recompute import (
    checkpoint,
    forget,
    loader_mask,
    norms_again,
    recomputed_layers,
    recomputes,
    remembering,
    without,
)
from ilp_planner.job.shard import of_layer, part, shard_of, stream_width
from ilp_planner.job.tuning import tuned_layer, tuned_norm, tuned_output, tuned_words
from ilp_planner.settings.values import FUSED_LOSS
from ilp_planner.specs.images import AnyEncoder
from ilp_planner.specs.layer_kinds import ATTENTION, COMPRESSED, EXPERTS, LAYER_KINDS
from ilp_planner.specs.training import MIXTURES, OPERATORS, TrainingJob
from ilp_planner.specs.tuning import FORWARD_ONLY, TRAINED, TunedLayer, trains_output

BEFORE = ("input_layernorm", "pre_mlp_layernorm")  # norms whose output the next product reads
IDENTIFIER = 8  # bytes of a token's number


def embedding_module(job: TrainingJob) -> Module:
    """Return the embedding of words and learnt positions, and the encoders before it.

    The sum itself is the first layer's input and counted there.
    """
    model, sizes = job.model, shard_of(job)
    children = [_words(job)]
    if model.positions == "learned":
        weight = Weight(name="weight", shape=(model.max_position_embeddings, sizes.hidden))
        children.append(Module(name="position_embeddings", weights=(weight,)))
    kept = _dropout_mask(job) + _arguments(job)
    words = tuned_words(job, Module(name="embedding", kept=kept, children=tuple(children)))
    if not model.encoders:
        return words
    return replace(words, children=(*words.children, *_encoders(job)))


def _encoders(job: TrainingJob) -> Iterator[Module]:
    """Yield the encoders of images and sounds."""
    for encoder in job.model.encoders:
        own, again = (
            encoder_job(job, encoder, most_images(job, encoder)),
            encoder_recomputes(job, encoder),
        )
        layer = layer_module(own, *encoder_kind(job), recomputed=again)
        yield encoder_module(job, encoder, layer)


def encoder_recomputes(job: TrainingJob, encoder: AnyEncoder) -> bool:
    """Tell whether layers of an encoder keep their input only."""
    return recompute_of(job, encoder).granularity == "full"


def encoder_layer(job: TrainingJob, encoder: AnyEncoder) -> Module:
    """Return a layer of an encoder, with all that its backward pass needs."""
    own = encoder_job(job, encoder, most_images(job, encoder))
    return layer_module(remembering(own), *encoder_kind(job))


def _arguments(job: TrainingJob) -> tuple[Kept, ...]:
    """Return the activations that recomputed layers keep besides their input, together."""
    return loader_mask(job) if job.settings.recompute.granularity == "full" else ()


def _words(job: TrainingJob) -> Module:
    sizes = shard_of(job)
    weight = Weight(name="weight", shape=(part(job.padded_vocab, job.tp), sizes.hidden))
    identifiers = Kept(
        name="tokens",
        shape=(sizes.batch, sizes.tokens),
        width=IDENTIFIER,
        why="whose rows the gradient goes to",
    )
    return Module(name="word_embeddings", weights=(weight,), kept=(identifiers,))


def _dropout_mask(job: TrainingJob) -> tuple[Kept, ...]:
    if not job.model.dropout:
        return ()
    shape = shard_of(job).narrow
    return (Kept(name="dropout mask", shape=shape, width=MASK, why="one byte per element"),)


def layer_module(
    job: TrainingJob, kind: int, state: str = TRAINED, *, recomputed: bool = False
) -> Module:
    """Return a layer.

    kind: its number in `LAYER_KINDS`. state: of its training, as a `TunedLayer` has it.
    recomputed: it keeps its input only.
    """
    job = of_layer(job, kind)
    children: list[Module] = []
    own, after = LAYER_KINDS[kind], job.model.norms_of_layer[1]
    blocks: list[tuple[str, str, tuple[Module, ...]]] = []
    if own.mixer:
        mixer = (*mixing_module(job, "mixer"), *_mixer(job, own.mixer))
        blocks.append(("self_attn_bda", "post_self_attn_layernorm", mixer))
    if own.inner:
        inner = expert_modules(job) if own.inner == EXPERTS else mlp_modules(job)
        inner = (*mixing_module(job, "inner"), *inner)
        blocks.append(("mlp_bda", "post_mlp_layernorm", inner))
    for name, post, group in blocks:
        children += group
        if after:
            why = "what attention or MLP gives, before it is added"
            children.append(norm_module(post, job, shard_of(job).narrow, why=why))
        # Of adding a bias, dropping out and adding the residual only the mask: the sum is the next
        # norm's input, and a sum needs nothing to be differentiated.
        if kept := _dropout_mask(job):
            children.append(Module(name=name, kept=kept))
    if norms_again(job):
        children = list(_without_output(tuple(children)))
    if recomputes(job, MIXTURES):
        children = [_drop(one, "input") if one.name in BEFORE else one for one in children]
    layer = tuned_layer(
        job, Module(name="decoder.layers", children=tuple(children)), TunedLayer(kind, state)
    )
    if state == FORWARD_ONLY:
        return layer
    if recomputed:
        return forget(layer, checkpoint(job))
    if recomputes(job, OPERATORS):
        return forget(layer, *outputs_kept(job, kind))
    return layer


def _mixer(job: TrainingJob, name: str) -> tuple[Module, ...]:
    """Return a layer's input norm and its mixer, by its name in `LayerKind.mixer`."""
    if name == ATTENTION:
        return attention_modules(job)
    return compressed_modules(job, name) if name in COMPRESSED else mixer_modules(job, name)


def _without_output(children: tuple[Module, ...]) -> tuple[Module, ...]:
    """Return a layer's modules without the recomputed outputs of its norms.

    Only of norms that stand alone: one merged into a product is not asked (`transformer_layer.py`).
    A norm's output is kept either with it or with the product that alone reads it.
    """
    found: list[Module] = []
    for child in children:
        if child.name.endswith("_layernorm"):
            found.append(_drop(child, "output"))
        elif found and found[-1].name in BEFORE and child.children:
            first, *others = child.children
            if first.name in ("linear_qkv", "linear_fc1"):
                first = _drop(first, "input")
            found.append(replace(child, children=(first, *others)))
        else:
            found.append(child)
    return tuple(found)


def _drop(module: Module, name: str) -> Module:
    return replace(module, kept=tuple(kept for kept in module.kept if kept.name != name))


def final_norm_module(job: TrainingJob) -> Module:
    """Return the norm after the last layer."""
    why = "the last layer's output, residual added"
    norm = norm_module("decoder.final_layernorm", job, shard_of(job).narrow, why=why)
    norm = replace(norm, children=merging_module(job))
    return tuned_norm(job, norm)


def has_final_norm(job: TrainingJob, number: int) -> bool:
    """Tell whether a (virtual) stage has the norm after the last layer.

    It is with the output, but in models that predict further tokens it is with the last layer, as
    the prediction layers read it (`transformer_block.py: has_final_layernorm_in_this_stage`).
    """
    stage = job.stages[number]
    if not job.model.prediction_layers:
        return stage.loss
    return stage.layers > 0 and job.pipeline.starts[number] + stage.layers == job.model.layers


def output_module(job: TrainingJob) -> Module:
    """Return the last norm, if no prediction layers read it first, the product with the vocabulary
    and the loss.

    Tied to the embedding, the product has no weight of its own on a single pipeline stage, and a
    copy of the embedding's on the last of several.
    """
    model, sizes = job.model, shard_of(job)
    columns, read = part(job.padded_outputs, job.tp), sizes.column_input(sizes.hidden)
    rows = product("output_layer", rows=columns, columns=sizes.hidden, bias=model.output_bias)
    if model.tied and job.pp == 1:
        rows = replace(rows, weights=rows.weights[1:])
    if not job.settings.kernels.chunked_loss:
        rows = with_kept(rows, product_input(job, read, "the last norm's output", exact=True))
    norm = () if model.prediction_layers else (final_norm_module(job),)
    output = Module(
        name="output",
        kept=_arguments(job) if job.pp > 1 else (),
        children=(*norm, rows, Module(name="loss", kept=loss_kept(job))),
    )
    return tuned_output(job, output)


def loss_kept(job: TrainingJob) -> tuple[Kept, ...]:
    """Return the bytes that the cross-entropy keeps until the backward pass, right after it.

    Unfused, the softmax in fp32 (`tensor_parallel/cross_entropy.py`). Transformer Engine's fused
    kernel writes the gradient over the logits. Liger's computes the gradients of its input and of
    the output layer's weight in the forward pass (`ops/fused_linear_cross_entropy.py`).
    """
    sizes = shard_of(job)
    if job.settings.kernels.chunked_loss:
        width = stream_width(job)
        found = [
            Kept(name="gradient", shape=sizes.narrow, width=width, why="of the last hidden state")
        ]
        if trains_output(job.model, job.settings.tuning):
            table = (job.padded_outputs, sizes.hidden)
            found.append(Kept(name="weight gradient", shape=table, width=sizes.width))
        return tuple(found)
    shape = sizes.columns(job.padded_outputs)
    if in_place_loss(job):
        why = "the gradient is written over the logits"
        return (Kept(name="logits", shape=shape, width=sizes.width, why=why),)
    return (
        Kept(name="softmax", shape=shape, width=4, why="fp32; the gradient is written over it"),
    )


def in_place_loss(job: TrainingJob) -> bool:
    """Return whether the loss is Transformer Engine's kernel, without an fp32 copy."""
    engine = job.settings.kernels.implementation == "transformer_engine"
    return engine and FUSED_LOSS.read(job.settings) == "te"


def prediction_module(job: TrainingJob) -> Module:
    """Return one multi-token-prediction layer (`multi_token_prediction.py`).

    Two norms, a product from twice the width, a layer like the last of the decoder, and a norm. Its
    logits are computed with the output layer's weight. Of several streams each is normed and goes
    through a product of its own width, the embedding is added to all of them, and they are mixed
    to one before the last norm, and none are computed again
    (`_proj_and_transformer_layer` hands no manager of recomputation on).
    """
    model, sizes = job.model, shard_of(job)
    joined, read = sizes.column_input(2 * sizes.hidden), sizes.column_input(sizes.hidden)
    rows = part(sizes.hidden, job.tp)
    eh = product("eh_proj", rows=rows, columns=2 * sizes.hidden, bias=False)
    joins = [with_kept(eh, product_input(job, joined, "both, side by side", exact=True))]
    if model.streams > 1:
        words, states = (
            product(name, rows=sizes.hidden, columns=sizes.hidden, bias=False)
            for name in ("e_proj", "h_proj")
        )
        every = streams_shape(job)
        joins = [
            with_kept(words, product_input(job, read, "the embedding, normed", exact=True)),
            with_kept(states, product_input(job, every, "the streams, normed", exact=True)),
        ]
    layer = layer_module(without(job, MIXTURES), model.last_kind)
    logits = tuple(
        replace(kept, why="its own loss is differentiated with the main one")
        for kept in loss_kept(job)
    )
    return Module(
        name="mtp.layers",
        children=(
            norm_module("enorm", job, sizes.narrow, why="embedding of the token to come"),
            _state_norm(job),
            *joins,
            replace(layer, name="transformer_layer"),
            *merging_module(job),
            norm_module("final_layernorm", job, sizes.narrow, why="the layer's output"),
            Module(
                name="loss",
                kept=(product_input(job, read, "of the output layer", exact=True), *logits),
            ),
        ),
    )


def _state_norm(job: TrainingJob) -> Module:
    """Return the norm of what the layer before a predicting one gives, each stream by itself."""
    tokens, batch, hidden = shard_of(job).narrow
    shape = (tokens, batch, hidden)
    if job.model.streams > 1:
        shape = (tokens, batch * job.model.streams, hidden)
    return norm_module("hnorm", job, shape, why="state of the layer before")


def rank_modules(job: TrainingJob, pp_rank: int) -> tuple[Module, ...]:
    """Return everything that a rank of this pipeline stage holds, virtual stages one after another.

    Equal layers in a row are one module that repeats.
    """
    found: list[Module] = []
    for number in job.stages_of(pp_rank):
        found += stage_modules(job, number)
    return tuple(found)


def stage_modules(job: TrainingJob, number: int) -> tuple[Module, ...]:
    """Return the modules of one (virtual) stage."""
    stage = job.stages[number]
    start = job.pipeline.starts[number]
    kinds = job.layer_kinds[start : start + stage.layers]
    again = recomputed_layers(job, stage.layers)
    found: list[Module] = []
    if stage.embedding:
        found.append(embedding_module(job))
    marks = [(kind, i < again) for i, kind in enumerate(kinds)]
    for (kind, recomputed), run in groupby(marks):
        count = sum(1 for _ in run)
        found.append(layer_module(job, *job.kind(kind), recomputed=recomputed).times(count))
    if job.model.prediction_layers and has_final_norm(job, number):
        found.append(final_norm_module(job))
    if stage.prediction_layers:
        if not stage.embedding and job.pp > 1:
            # The embedding of the tokens to come is looked up here, in a copy of the first stage's.
            found.append(Module(name="embedding", children=(_words(job),)))
        found.append(prediction_module(job).times(stage.prediction_layers))
    if stage.loss:
        found.append(output_module(job))
    return tuple(found)
