"""One GPU's modules with their messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.messages import (
    embedding_messages,
    encoder_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.job.modules import Message, Module
from ilp_planner.specs.layer_kinds import (
    ATTENTION,
    CSA,
    DELTA,
    EXPERTS,
    FOLLOWING,
    HCA,
    LAYER_KINDS,
    MAMBA,
    MLP,
    WINDOWED,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.job.messages import Messages
    from ilp_planner.specs.training import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One GPU of a pipeline stage, and the stages with exactly the same memory and messages.

    layers: (first, last) of every virtual stage, from 0; None if it has none.
    """

    pp_ranks: tuple[int, ...]
    layers: tuple[tuple[int, int] | None, ...]
    modules: tuple[Module, ...]


def stage_views(jobs: Sequence[TrainingJob]) -> Iterator[StageView]:
    """Yield one GPU of every stage; stages that hold and send the same are one."""
    seen: dict[object, list[int]] = {}
    for r, job in enumerate(jobs):
        content = tuple(job.stages[k] for k in job.stages_of(r))
        kinds = tuple(
            job.layer_kinds[job.pipeline.starts[k] :][: job.stages[k].layers]
            for k in job.stages_of(r)
        )
        seen.setdefault((id(job), content, kinds), []).append(r)
    for pp_ranks in seen.values():
        r = pp_ranks[0]
        job = jobs[r]
        yield StageView(
            pp_ranks=tuple(pp_ranks),
            layers=tuple(layer_ranges(job, r)),
            modules=tuple(with_messages(job, module) for module in rank_modules(job, r)),
        )


def layer_ranges(job: TrainingJob, pp_rank: int) -> Iterator[tuple[int, int] | None]:
    """Yield the first and last layer of every virtual stage, from 0."""
    for k in job.stages_of(pp_rank):
        first, count = job.pipeline.starts[k], job.stages[k].layers
        yield (first, first + count - 1) if count else None


def _of_encoder(job: TrainingJob) -> Messages:
    """Return the messages of encoders, by paths below the embedding."""
    found: Messages = {}
    for encoder in job.model.encoders:
        layer, ends = encoder_messages(job, encoder)
        found |= {f"{encoder.name}.layers.{name}": pair for name, pair in layer.items()}
        found |= {f"{encoder.name}.{name}": pair for name, pair in ends.items()}
    return found


def with_messages(job: TrainingJob, module: Module) -> Module:
    """Return a module of a rank with its messages and those of its parts for a micro-batch."""
    if module.name == "embedding":
        return attach(module, {"word_embeddings": embedding_messages(job), **_of_encoder(job)})
    if module.name == "output":
        return attach(module, output_messages(job))
    if module.name == "decoder.layers":
        return attach(module, layer_messages(job, kind_of(job, module)))
    if module.name == "mtp.layers":
        layer = next(child for child in module.children if child.name == "transformer_layer")
        return attach(module, prediction_messages(job, kind_of(job, layer)))
    return module


def kind_of(job: TrainingJob, layer: Module) -> int:
    """Return the kind of a layer of a job, by its number in `LAYER_KINDS`."""
    names = {child.name: child for child in layer.children}
    mixer = ATTENTION if "self_attention" in names else ""
    if mixer and job.model.compressed:
        mixer = (
            CSA if _named(layer, "indexer") else HCA if _named(layer, "compressor") else WINDOWED
        )
    if "mixer" in names:
        inside = {part.name for part in names["mixer"].children}
        mixer = DELTA if "out_norm" in inside else MAMBA
    inner = ""
    if "mlp" in names:
        routed = any(part.name == "router" for part in names["mlp"].children)
        inner = EXPERTS if routed else MLP
    found = next(n for n, kind in enumerate(LAYER_KINDS) if kind[3:] == (mixer, inner))
    if not job.model.shares_keys or _named(layer, "indexer"):
        return found
    return FOLLOWING[found]


def _named(module: Module, name: str) -> bool:
    """Tell whether a module, or one in it, has a name."""
    return module.name == name or any(_named(child, name) for child in module.children)


def attach(module: Module, messages: Messages) -> Module:
    """Return a module with messages at the parts that they name.

    A part that has neither weights nor activations (what sends tokens to experts) is added.
    """
    known = {child.name for child in module.children}
    mine = dict.fromkeys(name.partition(".")[0] for name in messages)
    children = [*module.children, *(Module(name=name) for name in mine if name not in known)]
    found = []
    for child in children:
        forward, backward = messages.get(child.name, ((), ()))
        lead = f"{child.name}."
        inner = {
            name.removeprefix(lead): pair
            for name, pair in messages.items()
            if name.startswith(lead)
        }
        child = replace(child, forward=forward, backward=backward)
        found.append(attach(child, inner) if inner else child)
    return replace(module, children=tuple(found))


def messages_of(module: Module) -> Iterator[tuple[str, Message]]:
    """Yield (`forward` or `backward`, message) of a module itself."""
    for message in module.forward:
        yield "forward", message
    for message in module.backward:
        yield "backward", message
