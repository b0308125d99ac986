"""Self-attention as one tensor-parallel rank computes it: multi-head, grouped-query and multi-head
latent (DeepSeek-V2, arXiv 2405.04434, section 2.1), each with PyTorch's fused kernel.

A rank's part of latent attention is as in Megatron core with Transformer Engine
(`multi_latent_attention.py`): the products to the compressed widths whole, the products from them
divided by heads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import TrainingJob

ROTARY_BASE = 10000.0


def attention_of(job: TrainingJob) -> Any:
    """Return the kind of attention that a model has."""
    return Attention(job) if job.model.latent is None else LatentAttention(job)


def norm_of(model: Decoder, width: int) -> Any:
    """Return a norm over the last dimension, as the model has them."""
    return nn.LayerNorm(width) if model.norm == "layernorm" else nn.RMSNorm(width, eps=1e-5)


class Attention(nn.Module):  # type: ignore[misc]
    """Projects, attends causally over this rank's heads, projects back."""

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model = job.model
        self.heads, self.groups = model.heads // job.tp, model.kv_heads // job.tp
        self.channels = model.head
        self.sizes = [self.heads * self.channels] + [self.groups * self.channels] * 2
        self.qkv = nn.Linear(model.hidden, sum(self.sizes), bias=model.bias or model.qkv_bias)
        self.dense = nn.Linear(self.sizes[0], model.hidden, bias=False)
        self.norms: Any = None
        if model.qk_norm:
            self.norms = nn.ModuleList(norm_of(model, self.channels) for _ in range(2))
        self.rotary = model.positions == "rope"
        self.dropout, self.cp = model.dropout, job.settings.cp

    def forward(self, hidden: Any) -> Any:
        """Return the rank's part of the sum over ranks."""
        batch, tokens, _ = hidden.shape
        parts = self.qkv(hidden).split(self.sizes, dim=-1)
        heads = (self.heads, self.groups, self.groups)
        query, key, value = (
            part.view(batch, tokens, count, self.channels).transpose(1, 2)
            for part, count in zip(parts, heads, strict=True)
        )
        if self.norms is not None:
            query, key = self.norms[0](query), self.norms[1](key)
        if self.rotary:
            query, key = turned(query), turned(key)
        found = attended_of_ranks(query, key, value, dropout=self.dropout, ranks=self.cp)
        return self.dense(found.transpose(1, 2).reshape(batch, tokens, self.sizes[0]))


class LatentAttention(nn.Module):  # type: ignore[misc]
    """Compresses queries, keys and values, widens them to this rank's heads, attends, projects.

    The rotary part of a key is one for all heads and bypasses the compression.
    """

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model, sizes = job.model, job.model.latent
        assert sizes is not None
        self.sizes, self.heads, self.dropout = sizes, model.heads // job.tp, model.dropout
        self.cp = job.settings.cp
        queries = self.heads * (sizes.key + sizes.rotary)
        self.query_down = self.query_norm = self.key_norm = None
        if sizes.query_rank:
            self.query_down = nn.Linear(model.hidden, sizes.query_rank, bias=False)
            self.query_norm = norm_of(model, sizes.query_rank) if model.qk_norm else None
        self.query_up = nn.Linear(sizes.query_rank or model.hidden, queries, bias=False)
        rank = sizes.key_value_rank
        self.key_down = nn.Linear(model.hidden, rank + sizes.rotary, bias=False)
        self.key_norm = norm_of(model, rank) if model.qk_norm else None
        self.key_up = nn.Linear(rank, self.heads * (sizes.key + sizes.value), bias=False)
        self.dense = nn.Linear(self.heads * sizes.value, model.hidden, bias=False)

    def forward(self, hidden: Any) -> Any:
        """Return the rank's part of the sum over ranks."""
        sizes, shape = self.sizes, (*hidden.shape[:2], self.heads, -1)
        narrow = hidden if self.query_down is None else self.query_down(hidden)
        query = self.query_up(_normed(narrow, self.query_norm)).view(shape)
        query, rotary = query.split((sizes.key, sizes.rotary), dim=-1)
        query = torch.cat((query, _turned_heads(rotary)), dim=-1)
        down = self.key_down(hidden)
        narrow, rotary = down.split((sizes.key_value_rank, sizes.rotary), dim=-1)
        # Copies, as Megatron's: a part would keep the whole product.
        wide = self.key_up(_normed(narrow.contiguous(), self.key_norm)).view(shape)
        key, value = wide.split((sizes.key, sizes.value), dim=-1)
        rotary = _turned_heads(rotary.unsqueeze(2)).expand(-1, -1, self.heads, -1)
        key = torch.cat((key, rotary), dim=-1)
        heads = (part.transpose(1, 2) for part in (query, key, value.contiguous()))
        found = attended_of_ranks(*heads, dropout=self.dropout, ranks=self.cp)
        return self.dense(found.transpose(1, 2).flatten(2))


def _normed(states: Any, norm: Any) -> Any:
    return states if norm is None else norm(states)


def _turned_heads(states: Any) -> Any:
    """Return rotary parts [batch, tokens, heads, channels] turned."""
    return turned(states.transpose(1, 2)).transpose(1, 2)


def attended(query: Any, key: Any, value: Any, *, dropout: float, causal: bool = True) -> Any:
    """Return attention, [batch, heads, tokens, channels of a value].

    query, key, value: likewise; of the latter two, heads may be fewer. causal: tokens see those
        before them only; always so where values are of another width than keys.
    """
    if not query.is_cuda and query.shape[-1] != value.shape[-1]:
        return UnequalWidths.apply(query, key, value)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        # A CPU's fused attention cannot drop out; a GPU's keeps no mask of it.
        dropout_p=dropout if query.is_cuda else 0.0,
        is_causal=causal,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def attended_of_ranks(query: Any, key: Any, value: Any, *, dropout: float, ranks: int) -> Any:
    """Return attention of the first of so many context-parallel ranks, with the first and the last
    of twice as many parts of a sample, as Megatron deals them out.

    The first part sees itself, the last one all: keys and values of the other ranks are copies of
    this one's, and their gradients are added up here as the ring does.
    """
    if ranks == 1:
        return attended(query, key, value, dropout=dropout)
    half = query.shape[2] // 2
    first = attended(*(part[:, :, :half] for part in (query, key, value)), dropout=dropout)
    key, value = (part.repeat(1, 1, ranks, 1) for part in (key, value))
    return torch.cat((first, seeing_all(query[:, :, half:], key, value, dropout=dropout)), dim=2)


def seeing_all(query: Any, key: Any, value: Any, *, dropout: float) -> Any:
    """Return causal attention of the last tokens of a sample to all of them."""
    width = value.shape[-1]
    if query.is_cuda:
        from torch.nn.attention.bias import causal_lower_right

        seen = causal_lower_right(query.shape[2], key.shape[2])
    else:
        seen = seen_by_last(query.shape[2], key.shape[2])
        value = _padded(value, query.shape[-1])
    wide = max(query.shape[-1], value.shape[-1])
    scale = query.shape[-1] ** -0.5
    if not query.is_cuda:
        query, key = _padded(query, wide), _padded(key, wide)
    found = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=seen,
        dropout_p=dropout if query.is_cuda else 0.0,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return found[..., :width]


@lru_cache(maxsize=2)
def seen_by_last(last: int, tokens: int) -> Any:
    """Return the tokens of a sample that each of the last ones sees, bool [last, tokens]."""
    return torch.ones(last, tokens, dtype=torch.bool).tril(tokens - last)


class UnequalWidths(torch.autograd.Function):  # type: ignore[misc]
    """A CPU's fused attention needs equally many channels of queries, keys and values
    (`sdp_utils_cpp.h: check_head_dim_size_cpp`); with others: padded for the kernel, kept as they
    are. Without, PyTorch would compute and keep all scores.
    """

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
        """Return the output of the heads."""
        ctx.width, ctx.scale = max(key.shape[-1], value.shape[-1]), key.shape[-1] ** -0.5
        found, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *(_padded(t, ctx.width) for t in (query, key, value)), 0.0, True, scale=ctx.scale
        )
        found = found[..., : value.shape[-1]].transpose(1, 2).contiguous().transpose(1, 2)
        ctx.save_for_backward(query, key, value, found, sums)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradients of queries, keys and values."""
        *operands, found, sums = ctx.saved_tensors
        grown = [_padded(t, ctx.width) for t in (*gradients, *operands, found)]
        back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *grown, sums, 0.0, True, scale=ctx.scale
        )
        return tuple(
            gradient[..., : operand.shape[-1]]
            for gradient, operand in zip(back, operands, strict=True)
        )


def _padded(states: Any, width: int) -> Any:
    more = width - states.shape[-1]
    return functional.pad(states, (0, more)) if more > 0 else states


def turned(states: Any) -> Any:
    """Return queries or keys with rotary position embedding (Su et al. 2021, arXiv 2104.09864)."""
    tokens, channels = states.shape[-2:]
    cosines, sines = rotary_tables(tokens, channels, states.device, states.dtype)
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat((-second, first), dim=-1) * sines


@lru_cache(maxsize=2)
def rotary_tables(tokens: int, channels: int, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the cosines and sines of every position and channel, shared by all layers."""
    half = channels // 2
    powers = torch.arange(half, dtype=torch.float32, device=device) / half
    places = torch.arange(tokens, dtype=torch.float32, device=device)
    angles = places[:, None] * ROTARY_BASE ** (-powers)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def attention_kernel(job: TrainingJob, *, device: Any, dtype: Any) -> str:
    """Return the kernel of PyTorch's that computes the attention of a shard."""
    with torch.device(device):
        model = attention_of(job).to(dtype)
        tokens = min(64, job.model.sequence // job.settings.cp)
        hidden = torch.zeros(1, tokens, job.model.hidden, dtype=dtype)
    return kernel_of(lambda: model(hidden))


def kernel_of(attend: Callable[[], Any]) -> str:
    """Return the kernel of PyTorch's in a call of attention."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Listen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(getattr(func, "__name__", func))
            if "scaled_dot_product" in name or "softmax" in name:
                seen.append(name.split(".")[0].strip("_"))
            return func(*args, **(kwargs or {}))

    with Listen():
        attend()
    return next((name for name in seen if "product" in name), seen[0] if seen else "unknown")
