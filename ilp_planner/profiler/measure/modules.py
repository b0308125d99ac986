"""A decoder's parts as PyTorch modules with the shapes that one tensor-parallel rank holds.

Plain PyTorch: each step a kernel of its own, attention in `attention`. The split is that of
Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3): heads, columns of the MLP and rows
of the word embedding are divided, norms and the biases after a sum are whole on every rank.
Messages between ranks are left out. Hidden states are [batch, tokens, width].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ilp_planner.profiler.measure.attention import attention_of, norm_of
from ilp_planner.profiler.measure.shard import EMBEDDING, EXPERTS, HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.specs.decoder import Decoder, Experts
    from ilp_planner.specs.training import TrainingJob

DEVIATION = 0.02  # of weights; zeros would make a GPU faster than training does
PREDICTION_WEIGHT = 0.1  # of the losses of tokens further ahead, Megatron's default


def build(kind: str, job: TrainingJob, *, device: Any, dtype: Any) -> Any:
    """Return one part: `embedding`, `layer`, `layer with experts` or `head`."""

    def make() -> Any:
        if kind == EMBEDDING:
            return Embedding(job)
        return Head(job) if kind == HEAD else Layer(job, experts=kind == EXPERTS)

    return made(make, device=device, dtype=dtype)


def made(make: Callable[[], Any], *, device: Any, dtype: Any) -> Any:
    """Return a module on a device, its products' weights random."""
    with torch.device("meta"):  # without the library's own initial values, which take long
        found = make()
    found = found.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for module in found.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.BatchNorm2d):
                module.reset_parameters()
                continue
            for parameter in module.parameters(recurse=False):
                if parameter.dim() > 1:
                    parameter.normal_(0.0, DEVIATION)
                else:
                    parameter.zero_()
    return found.train()


class Sum(nn.Module):  # type: ignore[misc]
    """Adds the output of a product to the residual: its bias, whole on every rank, and dropout."""

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


class Mlp(nn.Module):  # type: ignore[misc]
    """Two products with an activation between them; gated: SwiGLU."""

    def __init__(self, model: Decoder, columns: int) -> None:
        super().__init__()
        self.gated = model.gated
        self.first = nn.Linear(model.hidden, columns * (1 + model.gated), bias=model.bias)
        self.second = nn.Linear(columns, model.hidden, bias=False)

    def forward(self, hidden: Any) -> Any:
        """Return the rank's part of the sum over ranks."""
        return self.second(activated(self.first(hidden), self.gated))


def activated(inner: Any, gated: bool) -> Any:
    """Return the activation of an MLP's first product."""
    if not gated:
        return functional.gelu(inner, approximate="tanh")
    gate, up = inner.chunk(2, dim=-1)
    return functional.silu(gate) * up


class RoutedExperts(nn.Module):  # type: ignore[misc]
    """Router, the experts that a rank holds, of each its columns, and the shared one.

    Every expert gets its even share of the tokens, for any router says: with random weights that is
    no more arbitrary, and `job.work` assumes it. With expert parallelism, the rank routes its
    part of the tokens to all experts, and as many rows, also of ranks that share its experts, come
    back from other ranks: copies of its own stand in.
    """

    def __init__(self, job: TrainingJob, experts: Experts) -> None:
        super().__init__()
        model = job.model
        self.count, self.top_k, self.gated = experts.count, experts.top_k, model.gated
        spread = job.settings.ep > 1 or job.expert_tp != job.tp
        # Ranks that divide the tokens, and ranks that divide every expert, between whom they pass.
        self.parts, self.sharing = (job.tp, job.expert_tp) if spread else (1, 1)
        held = experts.count // job.settings.ep
        self.router = nn.Linear(model.hidden, experts.count, bias=model.bias)
        self.experts = nn.ModuleList(Mlp(model, experts.ffn // job.expert_tp) for _ in range(held))
        self.biases = nn.Parameter(torch.empty(held, model.hidden)) if model.bias else None
        self.shared = Mlp(model, experts.shared_ffn // job.tp) if experts.shared_ffn else None
        self.shared_bias = None
        if model.bias and experts.shared_ffn:
            self.shared_bias = nn.Parameter(torch.empty(model.hidden))

    def forward(self, hidden: Any) -> Any:
        """Return the rank's part of the sum over ranks."""
        every = hidden.reshape(-1, hidden.shape[-1])
        tokens = every.chunk(self.parts)[0]
        share = functional.softmax(self.router(tokens).float(), dim=-1)
        share.topk(self.top_k, dim=-1)  # the choice takes its time, and is not followed
        copies = len(tokens) * self.top_k
        order = torch.arange(copies, device=tokens.device)
        expert = order % self.count
        by_expert = torch.argsort(expert, stable=True)
        source = by_expert // self.top_k
        held, rows = len(self.experts), copies * self.sharing
        sizes = [(rows - e + held - 1) // held for e in range(held)]
        weights = share[source, expert[by_expert]].to(tokens.dtype)
        found = []
        for e, part in enumerate(_repeated(tokens[source], self.sharing).split(sizes)):
            out = self.experts[e](part)
            found.append(out if self.biases is None else out + self.biases[e])
        mixed = torch.cat(found)[:copies] * weights[:, None]
        result = torch.zeros_like(tokens).index_add(0, source, mixed)
        result = _repeated(result, self.parts)[: len(every)]
        if self.shared is not None:
            result = result + self.shared(every)
            if self.shared_bias is not None:
                result = result + self.shared_bias
        return result.view_as(hidden)


def _repeated(rows: Any, times: int) -> Any:
    """Return rows as if other ranks had sent as many."""
    return rows.repeat(times, 1) if times > 1 else rows


class Layer(nn.Module):  # type: ignore[misc]
    """A transformer layer: attention, then an MLP or experts, each after a norm."""

    def __init__(self, job: TrainingJob, *, experts: bool) -> None:
        super().__init__()
        model = job.model
        self.input_norm = norm_of(model, model.hidden)
        self.attention = attention_of(job)
        self.attention_sum = Sum(model)
        self.mlp_norm = norm_of(model, model.hidden)
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


class PredictionLayer(nn.Module):  # type: ignore[misc]
    """One layer of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron
    core's `multi_token_prediction.py`): the state before, joined with the word to come, through a
    transformer layer like the last one."""

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model = job.model
        self.ranks = job.tp
        self.norms = nn.ModuleList(norm_of(model, model.hidden) for _ in range(2))
        self.join = nn.Linear(2 * model.hidden, model.hidden // job.tp, bias=False)
        self.layer = Layer(job, experts=model.expert_layers[-1])
        self.norm = norm_of(model, model.hidden)

    def forward(self, words: Any, hidden: Any) -> Any:
        """Return the next state, normed."""
        joined = self.join(torch.cat((self.norms[0](words), self.norms[1](hidden)), dim=-1))
        if self.ranks > 1:  # the columns of the other ranks would be gathered
            joined = joined.repeat(1, 1, self.ranks)
        return self.norm(self.layer(joined))


class Head(nn.Module):  # type: ignore[misc]
    """The last norm, layers of multi-token prediction, the logits of this rank's words, and their
    loss.

    Prediction of further tokens looks their words up here: in a copy of the first stage's.
    """

    def __init__(self, job: TrainingJob) -> None:
        super().__init__()
        model = job.model
        shape = (job.padded_vocab // job.tp, model.hidden)
        self.whole = job.tp == 1
        self.norm = norm_of(model, model.hidden)
        self.words = nn.Parameter(torch.empty(shape))
        layers = range(model.prediction_layers)
        self.predictions = nn.ModuleList(PredictionLayer(job) for _ in layers)
        self.copied = nn.Parameter(torch.empty(shape)) if layers else None

    def forward(self, hidden: Any, labels: Any) -> Any:
        """Return the mean loss of labels [batch, tokens], and a share of that of later ones."""
        states, later = [self.norm(hidden)], [labels]
        for layer in self.predictions:
            words = Embedding.look_up(later[-1], self.copied, whole=self.whole)
            states.append(layer(words, states[-1]))
            later.append(later[-1].roll(-1, dims=1))
        if self.predictions:  # the output reads one tensor of all, as Megatron's does
            states = torch.cat(states).chunk(len(states))
        loss, *further = map(self._loss, states, later)
        return loss + PREDICTION_WEIGHT / len(further) * sum(further) if further else loss

    def _loss(self, hidden: Any, labels: Any) -> Any:
        logits = functional.linear(hidden, self.words)
        return WordLoss.apply(logits.float(), labels).mean()


class WordLoss(torch.autograd.Function):  # type: ignore[misc]
    """Cross-entropy over this rank's part of the vocabulary, as without a fused kernel.

    Single precision, in place if the logits are not needed again. The sums over ranks (largest
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
        """Return the gradient of the logits, made in the kept tensor."""
        share, elsewhere, labels = ctx.saved_tensors
        hit = (~elsewhere).to(share.dtype).unsqueeze(-1)
        share.scatter_add_(-1, labels.unsqueeze(-1), -hit)
        share.mul_(gradients[0].unsqueeze(-1))
        return share, None


def parameter_count(module: Any) -> int:
    """Return how many numbers a module learns."""
    return sum(math.prod(p.shape) for p in module.parameters())
