"""A T5's parts as PyTorch modules with the shapes that one tensor-parallel rank holds.

Products, norms, embedding and loss are a plain decoder's (`modules`); attention looks both ways in
the encoder, and across in the decoder. Of the micro-batch the parts read tokens and labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ilp_planner.profiler.measure.attention import attended, kernel_of
from ilp_planner.profiler.measure.modules import Embedding, Mlp, Sum, WordLoss
from ilp_planner.profiler.measure.shard import BETWEEN, DECODER, EMBEDDING, ENCODER, HEAD

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.t5_job import T5Job


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
