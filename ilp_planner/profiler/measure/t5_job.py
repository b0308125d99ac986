"""One rank's share of a T5: embedding, encoder layers, the part between the sides, decoder layers,
head.

Through the decoder the encoder's output travels along. It belongs to the part that makes it, once
for all decoder layers; their workspaces have it besides, for stages that begin inside the decoder.

A T5's parts as PyTorch modules with the shapes that one tensor-parallel rank holds.

Products, norms, embedding and loss are a plain decoder's (`modules`); attention looks both ways in
the encoder, and across in the decoder. Of the micro-batch the parts read tokens and labels.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ilp_planner.costs.profiles.analytic_transformer import t5_work
from ilp_planner.profiler.measure.attention import attended, kernel_of
from ilp_planner.profiler.measure.modules import Embedding, Mlp, Sum, WordLoss, made
from ilp_planner.profiler.measure.operators import ChainJob, t5_operators
from ilp_planner.profiler.measure.shard import BETWEEN, DECODER, EMBEDDING, ENCODER, HEAD
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.work import Work
    from ilp_planner.profiler.measure.transformer_operators import Operator
    from ilp_planner.specs.t5 import T5


# ---- encoder decoder -----------------------------------------------------------------------------


class First(nn.Module):  # type: ignore[misc]
    """Embeds the encoder's tokens."""

    def __init__(self, job: T5Job) -> None:
        super().__init__()
        self.embedding = Embedding(job.like)

    def forward(self, batch: Any) -> Any:
        """Return hidden states [batch, tokens, width]."""
        return self.embedding(batch[0])


class Attention(nn.Module):  # type: ignore[misc]
    """Attends over this rank's heads: to the same tokens, or across to a memory's."""

    def __init__(self, job: T5Job, *, causal: bool = False, across: bool = False) -> None:
        super().__init__()
        model = job.like.model
        inner = model.heads * model.head // job.tp
        self.shape = (model.heads // job.tp, model.head)
        self.causal, self.dropout = causal, model.dropout
        self.query = nn.Linear(model.hidden, inner if across else 3 * inner)
        self.memory = nn.Linear(model.hidden, 2 * inner) if across else None
        self.dense = nn.Linear(inner, model.hidden, bias=False)

    def forward(self, hidden: Any, memory: Any = None) -> Any:
        """Return the rank's part of the sum over ranks."""
        if self.memory is None:
            parts = self.query(hidden).chunk(3, dim=-1)
        else:
            parts = (self.query(hidden), *self.memory(memory).chunk(2, dim=-1))
        query, key, value = (one.unflatten(-1, self.shape).transpose(1, 2) for one in parts)
        found = attended(query, key, value, dropout=self.dropout, causal=self.causal)
        return self.dense(found.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """Attention to all tokens and an MLP, each after a norm."""

    def __init__(self, job: T5Job) -> None:
        super().__init__()
        model = job.like.model
        self.norm, self.attention = nn.LayerNorm(model.hidden), Attention(job)
        self.attention_sum = Sum(model)
        self.mlp_norm, self.mlp = nn.LayerNorm(model.hidden), Mlp(model, model.ffn // job.tp)
        self.mlp_sum = Sum(model)

    def forward(self, batch: Any, hidden: Any) -> Any:
        """Return the next hidden states."""
        hidden = self.attention_sum(self.attention(self.norm(hidden)), hidden)
        return self.mlp_sum(self.mlp(self.mlp_norm(hidden)), hidden)


class Between(nn.Module):  # type: ignore[misc]
    """Norms the encoder's output, and embeds the decoder's tokens."""

    def __init__(self, job: T5Job) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(job.model.hidden)
        self.embedding = Embedding(job.like)

    def forward(self, batch: Any, hidden: Any) -> Any:
        """Return the encoder's output and the decoder's hidden states."""
        return self.norm(hidden), self.embedding(batch[1])


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """Causal attention, attention to the encoder's output, and an MLP, each after a norm."""

    def __init__(self, job: T5Job) -> None:
        super().__init__()
        model = job.like.model
        self.norms = nn.ModuleList(nn.LayerNorm(model.hidden) for _ in range(3))
        self.attention, self.across = Attention(job, causal=True), Attention(job, across=True)
        self.mlp = Mlp(model, model.ffn // job.tp)
        self.sums = nn.ModuleList(Sum(model) for _ in range(3))

    def forward(self, batch: Any, encoded: Any, hidden: Any) -> Any:
        """Return the encoder's output, unchanged, and the next hidden states."""
        encoded = encoded.view_as(encoded)  # whose gradients are added up here
        hidden = self.sums[0](self.attention(self.norms[0](hidden)), hidden)
        hidden = self.sums[1](self.across(self.norms[1](hidden), encoded), hidden)
        return encoded, self.sums[2](self.mlp(self.norms[2](hidden)), hidden)


class Head(nn.Module):  # type: ignore[misc]
    """The last norm, the logits of this rank's words, and their loss."""

    def __init__(self, job: T5Job) -> None:
        super().__init__()
        words, width = job.like.padded_vocab // job.tp, job.model.hidden
        self.norm = nn.LayerNorm(width)
        self.words = nn.Parameter(torch.empty(words, width))
        self.bias = nn.Parameter(torch.empty(words))

    def forward(self, batch: Any, encoded: Any, hidden: Any) -> Any:
        """Return the mean loss of the labels."""
        logits = functional.linear(self.norm(hidden), self.words, self.bias)
        return WordLoss.apply(logits.float(), batch[2]).mean()


PARTS = {
    EMBEDDING: First, ENCODER: EncoderLayer, BETWEEN: Between, DECODER: DecoderLayer, HEAD: Head,
}  # fmt: skip


def attention_kernels(job: T5Job, *, device: Any, dtype: Any) -> str:
    """Return PyTorch's kernels of attention, in words."""
    with torch.device(device):
        own, across = (Attention(job, across=one).to(dtype) for one in (False, True))
        hidden = torch.zeros(1, 64, job.model.hidden, dtype=dtype)
    found = dict.fromkeys(
        kernel_of(call) for call in (lambda: own(hidden), lambda: across(hidden, hidden))
    )
    return "layers: " + " and ".join(found)


# ---- t5 job --------------------------------------------------------------------------------------


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
