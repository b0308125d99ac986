"""Operators of transformer layers: each runs by itself, pass after pass without waiting, with the
kernels of Megatron-LM without fused attention: a bias is added by the operator after its product,
and hidden states are [tokens, batch, width].

Split 0 divides the columns of the products into attention and MLP and the rows of the products out
of them; split 1 the other way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from ilp_planner.profiler.measure.modules import Embedding, WordLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.profiler.measure.operators import Job
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import TrainingJob


# ---- one operator as a rank runs it by itself ----------------------------------------------------
# Its work, and the message over a cut around it.
# Sizes are as Aceso has them: `activation_bytes` stay allocated after an operator's forward pass,
# its output included, and the workspaces are memory above that. `input_bytes` and `output_bytes`
# include tensors that bypass an operator.


Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator on one rank.

    run: its inputs -> its outputs, differentiable ones only. inputs: shapes of the former.
    weights: shapes of the parameters that `run` gets after the inputs. bias: parameters that
    another operator adds. live, left: numbers that cross a cut before and after it. sent: numbers
    of every all-reduce that it needs, and the pass. step: its kind, if its name says its place too;
    operators of one step and equal shapes are equal. logits: numbers in single precision that it
    makes besides.
    """

    run: Callable[..., Any]
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()
    bias: int = 0
    live: float
    left: float
    sent: tuple[tuple[float, str], ...] = ()
    step: str = ""
    logits: float = 0.0


def needed(operator: Operator, job: Job) -> float:
    """Return about how many bytes the operator needs at most: a few tensors like its outputs."""
    width = job.settings.width
    weights = sum(map(math.prod, operator.weights))
    moving = 2 * sum(map(math.prod, operator.inputs)) + 4 * operator.left
    single = 4 * (weights + 3 * operator.logits)
    return width * (moving + 2 * operator.logits + 2 * weights) + single


def known_sizes(operator: Operator, job: Job) -> dict[str, Any]:
    """Return the columns that need no measuring: the message over a cut."""
    width = job.settings.width
    return {"input_bytes": operator.live * width, "output_bytes": operator.left * width}


def sent_bytes(operator: Operator, job: Job) -> tuple[list[float], list[float]]:
    """Return the bytes of every all-reduce of the forward and the backward pass."""
    ways: dict[str, list[float]] = {"forward": [], "backward": []}
    for size, way in operator.sent if job.tp > 1 else ():
        ways[way].append(size * job.settings.width)
    return ways["forward"], ways["backward"]


_KEPT: dict[tuple[Any, ...], Any] = {}  # masks and tokens of the shape that is measured


def once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the cached object of a key; of each first word the last one is kept."""
    if key not in _KEPT:
        for old in [k for k in _KEPT if k[0] == key[0]]:
            del _KEPT[old]
        _KEPT[key] = make()
    return _KEPT[key]


def causal(tokens: int, device: Any) -> Any:
    """Return the masked scores, bool [tokens, tokens]."""
    return once(
        ("mask", tokens, str(device)),
        lambda: torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu_(1),
    )


def random_words(shape: Shape, vocab: int, device: Any) -> Any:
    """Return random words, int64 [batch, tokens]."""
    return once(
        ("tokens", shape, vocab, str(device)), lambda: torch.randint(vocab, shape, device=device)
    )


# ---- transformer operators -----------------------------------------------------------------------


TOKEN = 8  # bytes of a token's number


@dataclass(frozen=True)
class Side:
    """The layers of one side of a model, as one rank computes them.

    name: `enc` or `dec`. tokens: of a sample. past: numbers that travel past the layers.
    """

    name: str
    job: TrainingJob
    tokens: int
    past: float = 0.0

    @property
    def model(self) -> Decoder:
        """Return the sizes of the layers."""
        return self.job.model

    @property
    def width(self) -> int:
        """Return the width of hidden states."""
        return self.job.model.hidden

    @property
    def words(self) -> int:
        """Return the rows of the embedding on this rank."""
        return self.job.padded_vocab // self.job.tp

    @property
    def wide(self) -> Shape:
        """Return the shape of hidden states."""
        return self.columns(self.width)

    @property
    def rows(self) -> int:
        """Return the tokens of a micro-batch."""
        return self.tokens * self.job.micro_batch

    @property
    def hidden(self) -> float:
        """Return the numbers of the hidden states."""
        return float(self.rows * self.width)

    def columns(self, width: int) -> Shape:
        """Return the shape of a tensor of so many columns."""
        return (self.tokens, self.job.micro_batch, width)


def normed(hidden: Any, weight: Any, bias: Any) -> Any:
    """Return a layer norm."""
    return functional.layer_norm(hidden, weight.shape, weight, bias)


def _branch(hidden: Any, weight: Any, bias: Any) -> Any:
    """Return a norm's output, and the residual that passes: their gradients are added here."""
    return normed(hidden, weight, bias), hidden.view_as(hidden)


def norm(side: Side) -> Operator:
    """Return the norm at the beginning of a residual."""
    return Operator(
        run=_branch,
        inputs=(side.wide,),
        weights=((side.width,), (side.width,)),
        live=side.past + side.hidden,
        left=side.past + 2 * side.hidden,
    )


def final_norm(side: Side) -> Operator:
    """Return the norm after the last layer; samples come before tokens from here on."""
    return Operator(
        run=lambda x, w, b: (normed(x, w, b).transpose(0, 1).contiguous(),),
        inputs=(side.wide,),
        weights=((side.width,), (side.width,)),
        live=side.past + side.hidden,
        left=side.past + side.hidden,
    )


def _product(side: Side, inner: int, outer: int, *, by_columns: bool, bias: bool) -> Operator:
    """Return a product with some columns, or some rows, of the weights on each rank.

    bias: the next operator adds it, so it crosses the cut; else it is added here.
    """
    tp, past = side.job.tp, side.past + side.hidden
    rows, columns = (inner, outer // tp) if by_columns else (inner // tp, outer)
    weights: tuple[Shape, ...] = ((columns, rows),)
    if not bias:
        weights += ((columns,),)
    return Operator(
        run=lambda x, w, b=None: (functional.linear(x, w, b),),
        inputs=(side.columns(rows),),
        weights=weights,
        bias=columns if bias else 0,
        live=past + side.rows * rows,
        left=past + side.rows * columns + (columns if bias else 0),
        # The gradient of an input that all ranks have, or an output that each has a summand of.
        sent=((float(side.rows * inner), "backward"),)
        if by_columns
        else ((float(side.rows * outer), "forward"),),
    )


def _crossing(side: Side, memory: int) -> Operator:
    """Return the products of queries, and of keys and values from a memory of so many tokens,
    passed on: its gradients are added here."""
    batch, inner = side.job.micro_batch, side.model.heads * side.model.head // side.job.tp
    seen = float(memory * batch * side.width)

    def project(x: Any, m: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        return functional.linear(x, w, b), functional.linear(m, v, c), m.view_as(m)

    return Operator(
        run=project,
        inputs=(side.wide, (memory, batch, side.width)),
        weights=((inner, side.width), (inner,), (2 * inner, side.width), (2 * inner,)),
        live=side.past + 2 * side.hidden,
        left=side.past + side.hidden + (side.rows + 2 * memory * batch) * inner,
        sent=((side.hidden + seen, "backward"),),
    )


def _residual(side: Side) -> Operator:
    """Return bias, dropout and residual."""
    p = side.model.dropout
    return Operator(
        run=lambda x, b, residual: (residual + functional.dropout(x + b, p),),
        inputs=(side.wide, (side.width,), side.wide),
        live=side.past + 2 * side.hidden + side.width,
        left=side.past + side.hidden,
    )


def attention(
    side: Side, split: int = 0, *, number: str = "", masked: bool, memory: int = 0
) -> dict[str, Operator]:
    """Return the operators of an attention, from the products into it to the residual.

    number: how their names end. masked: tokens see earlier ones only. memory: tokens that are
        attended to; 0: the side's own.
    """
    model, batch, tokens = side.model, side.job.micro_batch, side.tokens
    heads, channels, dropout = model.heads // side.job.tp, model.head, model.dropout
    keys = memory or tokens
    inner = model.heads * channels
    past = side.past + side.hidden
    queries, values = (float(n * batch * heads * channels) for n in (tokens, keys))
    scores = (batch * heads, tokens, keys)
    scale = channels**-0.5

    def score(query: Any, *mixed: Any) -> Any:
        if mixed:
            key, value = mixed[0].split(channels, dim=-1)
        else:
            query, key, value = query.split(channels, dim=-1)
        found = torch.bmm((query * scale).transpose(0, 1), key.permute(1, 2, 0))
        return found, value.transpose(0, 1)

    def softmax(found: Any) -> Any:
        if masked:
            found = found.masked_fill(causal(tokens, found.device), -10000.0)
        return (functional.softmax(found, dim=-1),)

    def context(share: Any, value: Any) -> Any:
        found = torch.bmm(share, value).transpose(0, 1)
        return (found.reshape(tokens, batch, heads * channels),)

    attended = past + values + float(batch * heads * tokens * keys)
    one = (batch * heads, keys, channels)
    if memory:
        first = _crossing(side, memory)
        projected: tuple[Shape, ...] = (
            (tokens, batch * heads, channels),
            (keys, batch * heads, 2 * channels),
        )
    else:
        first = _product(side, side.width, 3 * inner, by_columns=split == 0, bias=False)
        projected = ((tokens, batch * heads, 3 * channels),)
    steps = {
        "attention-qkv": first,
        "attention-score": Operator(
            run=score, inputs=projected, live=past + queries + 2 * values, left=attended
        ),
        "attention-softmax": Operator(run=softmax, inputs=(scores,), live=attended, left=attended),
        "attention-dropout": Operator(
            run=lambda x: (functional.dropout(x, dropout),),
            inputs=(scores,),
            live=attended,
            left=attended,
        ),
        "attention-context": Operator(
            run=context, inputs=(scores, one), live=attended, left=past + queries
        ),
        "attention-dense": _product(side, inner, side.width, by_columns=split == 1, bias=True),
        "post-attention-dropout": _residual(side),
    }
    return {f"{side.name}-{step}{number}": operator for step, operator in steps.items()}


def mlp(side: Side, split: int = 0) -> dict[str, Operator]:
    """Return the operators of an MLP, to the residual."""
    width, ffn, past = side.width, side.model.ffn, side.past + side.hidden
    columns = ffn // side.job.tp

    def gelu(x: Any, b: Any) -> Any:
        return (functional.gelu(x + b, approximate="tanh"),)

    steps = {
        "MLP-GEMM-1": _product(side, width, ffn, by_columns=split == 0, bias=True),
        "MLP-gelu": Operator(
            run=gelu,
            inputs=(side.columns(columns), (columns,)),
            live=past + side.rows * columns + columns,
            left=past + side.rows * columns,
        ),
        "MLP-GEMM-2": _product(side, ffn, width, by_columns=split == 1, bias=True),
        "post-MLP-dropout": _residual(side),
    }
    return {f"{side.name}-{step}": operator for step, operator in steps.items()}


def embedding(side: Side, memory: int = 0) -> Operator:
    """Return the embedding of a side's tokens; the memory of a decoder, samples before tokens till
    here, is turned back."""
    job, model, shape = side.job, side.model, (side.job.micro_batch, side.tokens)

    def embed(*given: Any) -> Any:
        *seen, words, positions = given
        tokens = random_words(shape, model.vocab, words.device)
        found = Embedding.look_up(tokens, words, whole=job.tp == 1)
        found = (found + positions[: side.tokens]).transpose(0, 1).contiguous()
        found = functional.dropout(found, model.dropout)
        return (*(one.transpose(0, 1).contiguous() for one in seen), found)

    return Operator(
        run=embed,
        inputs=((job.micro_batch, memory, side.width),) if memory else (),
        weights=((side.words, side.width), (model.max_position_embeddings, side.width)),
        live=side.past or side.rows * TOKEN / job.settings.width,
        left=side.past + side.hidden,
        sent=((side.hidden, "forward"),),
    )


def post_process(side: Side, *, bias: bool = False) -> Operator:
    """Return the logits of this rank's words, and their loss."""
    model, shape = side.model, (side.job.micro_batch, side.tokens)

    def loss(hidden: Any, words: Any, added: Any = None) -> Any:
        logits = functional.linear(hidden, words, added).float()
        labels = random_words(shape, model.vocab, words.device)
        return (WordLoss.apply(logits, labels).mean(),)

    return Operator(
        run=loss,
        inputs=((*shape, side.width),),
        weights=((side.words, side.width), *(((side.words,),) if bias else ())),
        live=side.hidden,
        left=0.0,
        sent=((side.hidden, "backward"),),
        logits=float(side.rows * side.words),
    )
