"""One rank's share of a T5: embedding, encoder layers, the part between the sides, decoder layers,
head.

Through the decoder the encoder's output travels along. It belongs to the part that makes it, once
for all decoder layers; their workspaces have it besides, for stages that begin inside the decoder.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ilp_planner.costs.profiles.analytic_transformer import t5_work
from ilp_planner.profiler.measure.chain_job import ChainJob
from ilp_planner.profiler.measure.encoder_decoder import PARTS, attention_kernels
from ilp_planner.profiler.measure.modules import made
from ilp_planner.profiler.measure.operators import t5_operators
from ilp_planner.profiler.measure.shard import BETWEEN, DECODER, EMBEDDING, ENCODER, HEAD
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.work import Work
    from ilp_planner.profiler.measure.operator import Operator
    from ilp_planner.specs.t5 import T5

DROPOUT = 0.1  # Raffel et al. 2020, section 3.1.2
SCORES = ("attention-softmax", "attention-dropout")  # parts of one kernel where attention is fused


class T5Job(ChainJob):
    """The measurement of a T5; its layers attend with fused kernels, its operators without."""

    model: T5

    @property
    def sizes(self) -> dict[str, int]:
        """Return the encoder's tokens of a sample, and the width of each."""
        return {"sequence": self.model.encoder_sequence, "hidden": self.model.hidden}

    @cached_property
    def works(self) -> Mapping[str, Work]:
        """Return the work of every operator."""
        return t5_work(self.model, self.micro_batch, self.tp, self.settings.width)

    @cached_property
    def like(self) -> TrainingJob:
        """Return the plain decoder that has the same products, norms and embedding."""
        t5 = self.model
        return TrainingJob(
            model=Decoder(
                layers=t5.layers,
                hidden=t5.hidden,
                heads=t5.heads,
                head=t5.kv_channels,
                ffn=t5.ffn,
                sequence=t5.encoder_sequence,
                vocab=t5.vocab,
                max_position_embeddings=t5.max_position_embeddings,
                dropout=DROPOUT,
            ),
            micro_batch=self.micro_batch,
            global_batch=self.micro_batch,
            tp=self.tp,
            settings=Settings(precision=self.settings.precision, vocab_multiple=1),
        )

    def kind_of(self, segment: str, first: str) -> str:
        """Return the name of the segment without its number."""
        return segment.split(" ")[0]

    def build(self, kind: str, *, device: Any, dtype: Any) -> Any:
        """Return a part as a module."""
        return made(lambda: PARTS[kind](self), device=device, dtype=dtype)

    def batch(self, dtype: Any) -> tuple[Any, ...]:
        """Return the encoder's tokens, the decoder's, and its labels: int64 [batch, tokens]."""
        t5, size = self.model, self.micro_batch
        lengths = (t5.encoder_sequence, t5.decoder_sequence, t5.decoder_sequence)
        return tuple(torch.randint(t5.vocab, (size, tokens)) for tokens in lengths)

    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors before a part: [batch, tokens, width]."""
        t5 = self.model
        encoded = (self.micro_batch, t5.encoder_sequence, t5.hidden)
        hidden = (self.micro_batch, t5.decoder_sequence, t5.hidden)
        if kind == EMBEDDING:
            return ()
        return (encoded,) if kind in (ENCODER, BETWEEN) else (encoded, hidden)

    def operators(self, split: int) -> dict[str, Operator]:
        """Return every distinct operator."""
        return t5_operators(self)

    def describe(self, device: Any, dtype: Any) -> dict[str, str]:
        """Return the kernel of attention."""
        return {"attention": attention_kernels(self, device=device, dtype=dtype)}

    def kept(self, operator: str) -> float:
        """Return the bytes that an operator keeps; fused attention keeps no scores."""
        scores = (*SCORES, "attention-score")
        return 0.0 if _is(operator, scores) else self.works[operator].activations

    def traffic(self, operator: str) -> float:
        """Return the bytes that an operator moves; fused attention does not move scores."""
        if _is(operator, SCORES):
            return 0.0
        moved = super().traffic(operator)
        for step in ("attention-score", "attention-context"):
            if _is(operator, (step,)):
                moved -= self.works[operator.replace(step, "attention-score")].activations
        return moved

    def passing(self, kind: str) -> float:
        """Return the bytes of the encoder's output that travel through the decoder."""
        if kind != DECODER:
            return 0.0
        t5 = self.model
        return float(self.micro_batch * t5.encoder_sequence * t5.hidden * self.settings.width)

    def handed(self, kind: str) -> tuple[float, float]:
        """Return the bytes that a part takes over and leaves, without the encoder's output if that
        is only passed on."""
        taken, left = super().handed(kind)
        encoded = self.passing(DECODER)
        if kind in (DECODER, HEAD):
            taken -= encoded
        if kind in (BETWEEN, DECODER):
            left -= encoded
        return taken, left


def _is(operator: str, steps: tuple[str, ...]) -> bool:
    return any(step in operator and "post" not in operator for step in steps)
