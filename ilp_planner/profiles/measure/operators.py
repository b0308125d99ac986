"""Rows of a GPT's operators: 13 to a layer and 3, under the names of `specs.gpt`.

Each runs by itself, pass after pass without waiting, with the kernels of Megatron-LM without fused
attention: a bias is added by what follows its product, and hidden states are [tokens, batch,
width]. Split 0 divides the columns of the products into attention and MLP and the rows of those
out of them; split 1 the other way round.

Sizes are as Aceso has them: `activation_bytes` is what an operator's forward pass leaves allocated,
its output included, and the workspaces are what is above that. `input_bytes` and `output_bytes`
include what travels past an operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from ilp_planner.profiles.measure.modules import Embedding, WordLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.specs.training import TrainingJob

SPLITS = (0, 1)
TOKEN = 8  # bytes of a token's number

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator on one rank.

    run: its inputs -> its outputs, what is differentiable only. inputs: shapes of the former.
    weights: shapes of the parameters that `run` gets after the inputs. bias: parameters that
    another operator adds. live, left: numbers that cross a cut before and after it. sent: numbers
    of the all-reduce that it needs, and in which pass.
    """

    run: Callable[..., Any]
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()
    bias: int = 0
    live: float
    left: float
    sent: tuple[float, str] = (0.0, "")


def operators_of(job: TrainingJob, split: int) -> dict[str, Operator]:
    """Return every distinct operator of a rank, by name, in the order of the chain."""
    sizes = _Sizes(job)
    found = {"encoder-embedding": _embedding(job, sizes)}
    found |= _attention(sizes, split)
    found |= _mlp(sizes, split)
    hidden = sizes.hidden
    found["final-layernorm"] = Operator(
        run=lambda x, w, b: (_normed(x, w, b).transpose(0, 1).contiguous(),),
        inputs=(sizes.wide,),
        weights=((sizes.width,), (sizes.width,)),
        live=hidden,
        left=hidden,
    )
    found["gpt-post-process"] = _post_process(job, sizes)
    return found


class _Sizes:
    """The shapes that one rank computes with, and what they count."""

    def __init__(self, job: TrainingJob) -> None:
        model, self.tp = job.model, job.tp
        self.tokens, self.batch, self.width = model.sequence, job.micro_batch, model.hidden
        self.heads, self.channels = model.heads // job.tp, model.head
        self.inner, self.ffn = model.heads * model.head, model.ffn
        self.dropout = model.dropout
        self.wide = (self.tokens, self.batch, self.width)
        self.scores = (self.batch * self.heads, self.tokens, self.tokens)
        rows = self.tokens * self.batch
        self.hidden = float(rows * self.width)
        self.rows = rows
        self.scores_count = float(self.batch * self.heads * self.tokens * self.tokens)

    def columns(self, width: int) -> Shape:
        """Return the shape of a tensor of so many columns."""
        return (self.tokens, self.batch, width)


def _normed(hidden: Any, weight: Any, bias: Any) -> Any:
    return functional.layer_norm(hidden, weight.shape, weight, bias)


def _branch(hidden: Any, weight: Any, bias: Any) -> Any:
    """Return a norm's output, and the residual that passes: their gradients are added here."""
    return _normed(hidden, weight, bias), hidden.view_as(hidden)


def _norm(sizes: _Sizes) -> Operator:
    return Operator(
        run=_branch,
        inputs=(sizes.wide,),
        weights=((sizes.width,), (sizes.width,)),
        live=sizes.hidden,
        left=2 * sizes.hidden,
    )


def _product(
    sizes: _Sizes, inner: int, outer: int, *, by_columns: bool, bias: bool, past: float
) -> Operator:
    """Return a product of which each rank holds some columns, or some rows, of the weights.

    bias: what follows adds it, so it crosses the cut; else it is added here.
    """
    tp = sizes.tp
    rows, columns = (inner, outer // tp) if by_columns else (inner // tp, outer)
    weights: tuple[Shape, ...] = ((columns, rows),)
    if not bias:
        weights += ((columns,),)
    return Operator(
        run=lambda x, w, b=None: (functional.linear(x, w, b),),
        inputs=(sizes.columns(rows),),
        weights=weights,
        bias=columns if bias else 0,
        live=past + sizes.rows * rows,
        left=past + sizes.rows * columns + (columns if bias else 0),
        # The gradient of an input that all ranks have, or an output that each has a summand of.
        sent=(float(sizes.rows * inner), "backward")
        if by_columns
        else (float(sizes.rows * outer), "forward"),
    )


def _residual(sizes: _Sizes) -> Operator:
    """Return bias, dropout and residual."""
    p = sizes.dropout
    return Operator(
        run=lambda x, b, residual: (residual + functional.dropout(x + b, p),),
        inputs=(sizes.wide, (sizes.width,), sizes.wide),
        live=2 * sizes.hidden + sizes.width,
        left=sizes.hidden,
    )


def _attention(sizes: _Sizes, split: int) -> dict[str, Operator]:
    heads, channels, tp = sizes.heads, sizes.channels, sizes.tp
    batch, tokens, past = sizes.batch, sizes.tokens, sizes.hidden
    inner, scores = sizes.rows * sizes.inner / tp, sizes.scores_count
    projected = (tokens, batch * heads, 3 * channels)
    one = (batch * heads, tokens, channels)
    scale = channels**-0.5

    def score(mixed: Any) -> Any:
        query, key, value = mixed.split(channels, dim=-1)
        found = torch.bmm((query * scale).transpose(0, 1), key.permute(1, 2, 0))
        return found, value.transpose(0, 1)

    def softmax(found: Any) -> Any:
        hidden = _causal(tokens, found.device)
        return (functional.softmax(found.masked_fill(hidden, -10000.0), dim=-1),)

    def context(share: Any, value: Any) -> Any:
        found = torch.bmm(share, value).transpose(0, 1)
        return (found.reshape(tokens, batch, heads * channels),)

    attended = past + inner + scores
    return {
        "enc-1st-layernorm": _norm(sizes),
        "enc-attention-qkv": _product(
            sizes, sizes.width, 3 * sizes.inner, by_columns=split == 0, bias=False, past=past
        ),
        "enc-attention-score": Operator(
            run=score, inputs=(projected,), live=past + 3 * inner, left=attended
        ),
        "enc-attention-softmax": Operator(
            run=softmax, inputs=(sizes.scores,), live=attended, left=attended
        ),
        "enc-attention-dropout": Operator(
            run=lambda x: (functional.dropout(x, sizes.dropout),),
            inputs=(sizes.scores,),
            live=attended,
            left=attended,
        ),
        "enc-attention-context": Operator(
            run=context, inputs=(sizes.scores, one), live=attended, left=past + inner
        ),
        "enc-attention-dense": _product(
            sizes, sizes.inner, sizes.width, by_columns=split == 1, bias=True, past=past
        ),
        "enc-post-attention-dropout": _residual(sizes),
        "enc-2nd-layernorm": _norm(sizes),
    }


def _mlp(sizes: _Sizes, split: int) -> dict[str, Operator]:
    columns = sizes.ffn // sizes.tp
    past = sizes.hidden

    def gelu(x: Any, b: Any) -> Any:
        return (functional.gelu(x + b, approximate="tanh"),)

    return {
        "enc-MLP-GEMM-1": _product(
            sizes, sizes.width, sizes.ffn, by_columns=split == 0, bias=True, past=past
        ),
        "enc-MLP-gelu": Operator(
            run=gelu,
            inputs=(sizes.columns(columns), (columns,)),
            live=past + sizes.rows * columns + columns,
            left=past + sizes.rows * columns,
        ),
        "enc-MLP-GEMM-2": _product(
            sizes, sizes.ffn, sizes.width, by_columns=split == 1, bias=True, past=past
        ),
        "enc-post-MLP-dropout": _residual(sizes),
    }


def _embedding(job: TrainingJob, sizes: _Sizes) -> Operator:
    model, rows = job.model, job.padded_vocab // job.tp

    def embed(words: Any, positions: Any) -> Any:
        found = Embedding.look_up(_tokens(job, words.device), words, whole=job.tp == 1)
        found = (found + positions[: model.sequence]).transpose(0, 1).contiguous()
        return (functional.dropout(found, model.dropout),)

    return Operator(
        run=embed,
        inputs=(),
        weights=((rows, model.hidden), (model.max_position_embeddings, model.hidden)),
        live=sizes.rows * TOKEN / job.settings.width,
        left=sizes.hidden,
        sent=(sizes.hidden, "forward"),
    )


def _post_process(job: TrainingJob, sizes: _Sizes) -> Operator:
    def loss(hidden: Any, words: Any) -> Any:
        logits = functional.linear(hidden, words).float()
        return (WordLoss.apply(logits, _tokens(job, words.device)).mean(),)

    return Operator(
        run=loss,
        inputs=((sizes.batch, sizes.tokens, sizes.width),),
        weights=((job.padded_vocab // job.tp, sizes.width),),
        live=sizes.hidden,
        left=0.0,
        sent=(sizes.hidden, "backward"),
    )


def needed(operator: Operator, job: TrainingJob) -> float:
    """Return about how many bytes the operator needs at most: a few tensors like its outputs."""
    width = job.settings.width
    weights = sum(_numbers(shape) for shape in operator.weights)
    single = 4 if not operator.left else 0  # logits, converted to single precision
    inputs = sum(_numbers(shape) for shape in operator.inputs)
    words = job.micro_batch * job.model.sequence * job.padded_vocab / job.tp if single else 0.0
    moving = 2 * inputs + 4 * operator.left
    return width * (moving + 2 * words + 2 * weights) + 4 * weights + 3 * single * words


def known_sizes(operator: Operator, job: TrainingJob) -> dict[str, Any]:
    """Return the columns that need no measuring: what crosses a cut."""
    width = job.settings.width
    return {"input_bytes": operator.live * width, "output_bytes": operator.left * width}


def sent_bytes(operator: Operator, job: TrainingJob) -> tuple[list[float], list[float]]:
    """Return the bytes of every all-reduce of the forward and the backward pass."""
    size, way = operator.sent
    if job.tp == 1 or not size:
        return [], []
    one = [size * job.settings.width]
    return (one, []) if way == "forward" else ([], one)


def _numbers(shape: Shape) -> float:
    count = 1.0
    for side in shape:
        count *= side
    return count


_KEPT: dict[tuple[Any, ...], Any] = {}  # masks and tokens of the shape that is measured


def _causal(tokens: int, device: Any) -> Any:
    """Return which scores are not to be seen, bool [tokens, tokens]."""
    return _once(
        ("mask", tokens, str(device)),
        lambda: torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu_(1),
    )


def _tokens(job: TrainingJob, device: Any) -> Any:
    """Return random words, int64 [batch, tokens]."""
    shape = (job.micro_batch, job.model.sequence)
    return _once(
        ("tokens", shape, job.model.vocab, str(device)),
        lambda: torch.randint(job.model.vocab, shape, device=device),
    )


def _once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    if key not in _KEPT:
        for old in [k for k in _KEPT if k[0] == key[0]]:
            del _KEPT[old]
        _KEPT[key] = make()
    return _KEPT[key]
