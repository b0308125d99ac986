"""What one rank computes with: its share of a model, for one micro-batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.errors import UsageError
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings, TrainingJob

if TYPE_CHECKING:
    from ilp_planner.specs.model import ModelSpec

EMBEDDING, HEAD = "embedding", "head"
STEM, BETWEEN = "stem", "decoder-embedding"  # of a Wide ResNet; of a T5, between its sides
ENCODER, DECODER = "enc", "dec"  # layers of an encoder-decoder
AROUND = (EMBEDDING, STEM, BETWEEN, HEAD)  # what is around layers, and never recomputed
DENSE, EXPERTS = "layer", "layer with experts"
SINGLE = 4  # bytes of a number in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Consecutive layers of a kind along the chain; the embedding is layer 0, the head the last."""

    kind: str
    first: int
    last: int

    @property
    def layers(self) -> str:
        """Return the range as a table writes it."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


def decoder_of(model: ModelSpec, sequence: int | None = None) -> Decoder:
    """Return the model as a decoder with samples of so many tokens.

    Raises
    ------
    UsageError: it is none, or cannot turn its queries.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise UsageError(
            f"model {model.name!r}: found family {model.family!r}, expected gpt or decoder"
        )
    latent = decoder.latent
    name, turned = ("head", decoder.head) if latent is None else ("latent.rotary", latent.rotary)
    if turned % 2 and (latent is not None or decoder.positions == "rope"):
        raise UsageError(
            f"model {model.name!r}: {name}: found {turned} channels, expected an even number: "
            "rotary positions turn them in pairs"
        )
    if sequence is None or sequence == decoder.sequence:
        return decoder
    longest = max(sequence, decoder.max_position_embeddings)
    return replace(decoder, sequence=sequence, max_position_embeddings=longest)


def job_of(decoder: Decoder, *, tp: int, micro_batch: int, dtype: str) -> TrainingJob:
    """Return the training job whose first rank's share is measured.

    Raises
    ------
    UsageError: tp does not divide heads, columns and experts.
    """
    parts = decoder.tensor_parts
    if decoder.prediction_layers:
        parts = math.gcd(parts, decoder.hidden)  # columns of the product that joins
    check_degree(tp, parts)
    return TrainingJob(
        model=decoder,
        micro_batch=micro_batch,
        global_batch=micro_batch,
        tp=tp,
        settings=Settings(
            precision=dtype,
            optimizer=OptimizerSettings(master=0 if dtype == "fp32" else SINGLE),
            kernels=Kernels(
                attention="flash",
                fused_dropout=False,
                fused_activation=False,
                grouped_experts=decoder.experts is not None,
                accumulation_fusion=False,
            ),
        ),
    )


def check_degree(tp: int, parts: int) -> None:
    """Refuse a tensor-parallel degree that does not divide a model's parts."""
    if parts % tp:
        possible = ", ".join(str(t) for t in range(1, min(parts, 64) + 1) if parts % t == 0)
        raise UsageError(f"tp: found {tp}, expected a divisor of {parts}: {possible}")


def runs_of(decoder: Decoder) -> tuple[Run, ...]:
    """Return the chain of embedding, layers and head, what is alike and neighbours together."""
    runs = [Run(kind=EMBEDDING, first=0, last=0)]
    for number, experts in enumerate(decoder.expert_layers, 1):
        kind = EXPERTS if experts else DENSE
        if runs[-1].kind == kind:
            runs[-1] = replace(runs[-1], last=number)
        else:
            runs.append(Run(kind=kind, first=number, last=number))
    runs.append(Run(kind=HEAD, first=decoder.layers + 1, last=decoder.layers + 1))
    return tuple(runs)


def layer_kinds(decoder: Decoder) -> tuple[str, ...]:
    """Return the kinds of layers that a model has, in the order of their first."""
    return tuple(dict.fromkeys(run.kind for run in runs_of(decoder)[1:-1]))
