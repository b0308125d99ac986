"""A decoder's parts as PyTorch modules with the shapes that one tensor-parallel rank holds.

Plain PyTorch: each step a kernel of its own, attention by `scaled_dot_product_attention`. The
split is that of Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3): heads, columns of
the MLP and rows of the word embedding are divided, norms and the biases after a sum are whole on
every rank. What ranks would send each other is left out. Hidden states are [batch, tokens, width].
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ilp_planner.profiles.measure.shard import EMBEDDING, EXPERTS, HEAD

if TYPE_CHECKING:
    from ilp_planner.specs.decoder import Decoder, Experts
    from ilp_planner.specs.training import TrainingJob

DEVIATION = 0.02  # of weights; zeros would make a GPU faster than training does
ROTARY_BASE = 10000.0


def build(kind: str, job: TrainingJob, *, device: Any, dtype: Any) -> Any:
    """Return one part: `embedding`, `layer`, `layer with experts` or `head`."""
    with torch.device("meta"):  # without the library's own initial values, which take long
        made: Any
        if kind == EMBEDDING:
            made = Embedding(job)
        elif kind == HEAD:
            made = Head(job)
        else:
            made = Layer(job, experts=kind == EXPERTS)
    made = made.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                module.reset_parameters()
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.dim() > 1:
                    parameter.normal_(0.0, DEVIATION)
                else:
                    parameter.zero_()
    return made.train()


def _norm(model: Decoder, width: int) -> Any:
    return nn.LayerNorm(width) if model.norm == "layernorm" else nn.RMSNorm(width, eps=1e-5)


class Sum(nn.Module):  # type: ignore[misc]
    """Adds to the residual what a product gave: its bias, whole on every rank, and dropout."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(model.hidden)) if model.bias else None
        self.dropout = model.dropout

    def forward(self, product: Any, residual: Any) -> Any:
        """Return the sum."""
        if self.bias is not None:
            product = product + self.bias
        if self.dropout:
            product = functional.dropout(product, self.dropout)
        return residual + product


class Embedding(nn.Module):  # type: ignore[misc]
    """Looks up this rank's words, adds learnt positions, drops out."""

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model = job.model
        self.whole = job.tp == 1
        self.words = nn.Parameter(torch.empty(job.padded_vocab // job.tp, model.hidden))
        self.positions = None
        if model.positions == "learned":
            shape = (model.max_position_embeddings, model.hidden)
            self.positions = nn.Parameter(torch.empty(shape))
        self.dropout = model.dropout

    def forward(self, tokens: Any) -> Any:
        """Return the hidden states of tokens [batch, tokens]."""
        hidden = self.look_up(tokens, self.words, whole=self.whole)
        if self.positions is not None:
            hidden = hidden + self.positions[: tokens.shape[1]]
        return functional.dropout(hidden, self.dropout) if self.dropout else hidden

    @staticmethod
    def look_up(tokens: Any, words: Any, *, whole: bool) -> Any:
        """Return this rank's summand of the tokens' vectors: zeros for words of other ranks."""
        if whole:
            return functional.embedding(tokens, words)
        elsewhere = tokens >= words.shape[0]
        hidden = functional.embedding(tokens.masked_fill(elsewhere, 0), words)
        return hidden.masked_fill(elsewhere.unsqueeze(-1), 0.0)


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
            self.norms = nn.ModuleList(_norm(model, self.channels) for _ in range(2))
        self.rotary = model.positions == "rope"
        self.dropout = model.dropout

    def forward(self, hidden: Any) -> Any:
        """Return what the rank adds to the sum over ranks."""
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
        found = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            # A CPU's fused attention cannot drop out; a GPU's keeps no mask of it.
            dropout_p=self.dropout if hidden.is_cuda else 0.0,
            is_causal=True,
            enable_gqa=self.groups != self.heads,
        )
        return self.dense(found.transpose(1, 2).reshape(batch, tokens, self.sizes[0]))


def turned(states: Any) -> Any:
    """Return queries or keys with rotary position embedding (Su et al. 2021, arXiv 2104.09864)."""
    tokens, channels = states.shape[-2:]
    cosines, sines = rotary_tables(tokens, channels, states.device, states.dtype)
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat((-second, first), dim=-1) * sines


@lru_cache(maxsize=2)
def rotary_tables(tokens: int, channels: int, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the cosines and sines of every position and channel, which all layers share."""
    half = channels // 2
    powers = torch.arange(half, dtype=torch.float32, device=device) / half
    places = torch.arange(tokens, dtype=torch.float32, device=device)
    angles = places[:, None] * ROTARY_BASE ** (-powers)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


class Mlp(nn.Module):  # type: ignore[misc]
    """Two products with an activation between them; gated: SwiGLU."""

    def __init__(self, model: Decoder, columns: int) -> None:
        super().__init__()
        self.gated = model.gated
        self.first = nn.Linear(model.hidden, columns * (1 + model.gated), bias=model.bias)
        self.second = nn.Linear(columns, model.hidden, bias=False)

    def forward(self, hidden: Any) -> Any:
        """Return what the rank adds to the sum over ranks."""
        return self.second(activated(self.first(hidden), self.gated))


def activated(inner: Any, gated: bool) -> Any:
    """Return the activation of an MLP's first product."""
    if not gated:
        return functional.gelu(inner, approximate="tanh")
    gate, up = inner.chunk(2, dim=-1)
    return functional.silu(gate) * up


class RoutedExperts(nn.Module):  # type: ignore[misc]
    """Router and all experts, of each this rank's columns, and the shared one.

    Every expert gets its even share of the tokens, whatever the router says: with random weights
    that is no more arbitrary, and it is what `anatomy.work` assumes.
    """

    def __init__(self, job: TrainingJob, experts: Experts) -> None:
        super().__init__()
        model = job.model
        self.count, self.top_k, self.gated = experts.count, experts.top_k, model.gated
        self.router = nn.Linear(model.hidden, experts.count, bias=model.bias)
        self.experts = nn.ModuleList(
            Mlp(model, experts.ffn // job.tp) for _ in range(experts.count)
        )
        self.biases = nn.Parameter(torch.empty(experts.count, model.hidden)) if model.bias else None
        self.shared = Mlp(model, experts.shared_ffn // job.tp) if experts.shared_ffn else None
        self.shared_bias = None
        if model.bias and experts.shared_ffn:
            self.shared_bias = nn.Parameter(torch.empty(model.hidden))

    def forward(self, hidden: Any) -> Any:
        """Return what the rank adds to the sum over ranks."""
        tokens = hidden.reshape(-1, hidden.shape[-1])
        share = functional.softmax(self.router(tokens).float(), dim=-1)
        share.topk(self.top_k, dim=-1)  # the choice takes its time, and is not followed
        copies = len(tokens) * self.top_k
        order = torch.arange(copies, device=tokens.device)
        expert = order % self.count
        by_expert = torch.argsort(expert, stable=True)
        source = by_expert // self.top_k
        sizes = [(copies - e + self.count - 1) // self.count for e in range(self.count)]
        weights = share[source, expert[by_expert]].to(tokens.dtype)
        found = []
        for e, part in enumerate(tokens[source].split(sizes)):
            out = self.experts[e](part)
            found.append(out if self.biases is None else out + self.biases[e])
        mixed = torch.cat(found) * weights[:, None]
        result = torch.zeros_like(tokens).index_add(0, source, mixed)
        if self.shared is not None:
            result = result + self.shared(tokens)
            if self.shared_bias is not None:
                result = result + self.shared_bias
        return result.view_as(hidden)


class Layer(nn.Module):  # type: ignore[misc]
    """A transformer layer: attention, then an MLP or experts, each after a norm."""

    def __init__(self, job: TrainingJob, *, experts: bool) -> None:
        super().__init__()
        model = job.model
        self.input_norm = _norm(model, model.hidden)
        self.attention = Attention(job)
        self.attention_sum = Sum(model)
        self.mlp_norm = _norm(model, model.hidden)
        if experts:
            assert model.experts is not None
            self.mlp = RoutedExperts(job, model.experts)
            self.mlp_sum = Sum(model)
            self.mlp_sum.bias = None  # each expert has its own
        else:
            self.mlp = Mlp(model, model.ffn // job.tp)
            self.mlp_sum = Sum(model)

    def forward(self, hidden: Any) -> Any:
        """Return the next hidden states."""
        hidden = self.attention_sum(self.attention(self.input_norm(hidden)), hidden)
        return self.mlp_sum(self.mlp(self.mlp_norm(hidden)), hidden)


class Head(nn.Module):  # type: ignore[misc]
    """The last norm, the logits of this rank's words, and their loss."""

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model = job.model
        self.norm = _norm(model, model.hidden)
        self.words = nn.Parameter(torch.empty(job.padded_vocab // job.tp, model.hidden))

    def forward(self, hidden: Any, labels: Any) -> Any:
        """Return the mean loss of labels [batch, tokens]."""
        logits = functional.linear(self.norm(hidden), self.words)
        return WordLoss.apply(logits.float(), labels).mean()


class WordLoss(torch.autograd.Function):  # type: ignore[misc]
    """Cross-entropy over this rank's part of the vocabulary, as without a fused kernel.

    Single precision, in place where the logits are not needed again. The sums over ranks (largest
    logit, sum of exponentials, the label's logit) are left out: the numbers are this rank's.
    """

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any) -> Any:
        """Return the loss of every token. logits: [..., words], overwritten."""
        logits = logits.detach()
        logits -= logits.max(dim=-1, keepdim=True).values
        elsewhere = labels >= logits.shape[-1]
        labels = labels.masked_fill(elsewhere, 0)
        chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        chosen = chosen.masked_fill(elsewhere, 0.0)
        total = logits.exp_().sum(dim=-1)
        logits.div_(total.unsqueeze(-1))
        ctx.save_for_backward(logits, elsewhere, labels)
        return torch.log(total) - chosen

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient of the logits, made in what was kept."""
        share, elsewhere, labels = ctx.saved_tensors
        hit = (~elsewhere).to(share.dtype).unsqueeze(-1)
        share.scatter_add_(-1, labels.unsqueeze(-1), -hit)
        share.mul_(gradients[0].unsqueeze(-1))
        return share, None


def attention_kernel(job: TrainingJob, *, device: Any, dtype: Any) -> str:
    """Return which of PyTorch's kernels computes the attention of a shard."""
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

    with torch.device(device):
        model = Attention(job).to(dtype)
        hidden = torch.zeros(1, min(64, job.model.sequence), job.model.hidden, dtype=dtype)
    with Listen():
        model(hidden)
    return next((name for name in seen if "product" in name), seen[0] if seen else "unknown")


def parameter_count(module: Any) -> int:
    """Return how many numbers a module learns."""
    return sum(math.prod(p.shape) for p in module.parameters())
