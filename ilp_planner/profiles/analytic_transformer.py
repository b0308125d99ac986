"""Work of a transformer layer's operators, with the kernels of Megatron-LM without fused attention.

Sizes are bytes on one device: of the hidden state, of what is inside attention (queries; keys or
values), of scores and of the MLP's inside (ffn). Live is what travels past an operator: the
residual, and in a decoder the encoder's output. An operator stores the activations it makes
(compare Korthikanti et al. 2022, arXiv 2205.05198, section 4.1); its backward pass needs the
gradient of its input and two buffers like its output, softmax and dropout three and four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.profiles.work import Exchange, Work, product, product_backward, streaming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.architecture import Parameters

STATISTICS = 8  # bytes per token that a layer norm keeps: mean and deviation in single precision
TOKEN_ID = 4  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One device's share of a micro-batch.

    samples: micro-batch of the replica. degree: tensor-parallel ranks. number: bytes of a number.
    flops, parameters: per operator and sample, of all ranks together.
    """

    samples: int
    degree: int
    number: int
    flops: Mapping[str, int]
    parameters: Mapping[str, Parameters]

    def arithmetic(self, operator: str) -> float:
        """Return the FLOPs of this device."""
        return self.samples * self.flops[operator] / self.degree

    def weights(self, operator: str) -> float:
        """Return the bytes of parameters on this device."""
        held = self.parameters.get(operator)
        return 0.0 if held is None else self.number * (held.split / self.degree + held.whole)

    def tensor(self, tokens: int, width: int) -> float:
        """Return the bytes of a tensor that every rank holds in full."""
        return float(self.samples * tokens * width * self.number)

    def split(self, tokens: int, width: int) -> float:
        """Return the bytes of a tensor that is divided among the ranks."""
        return self.tensor(tokens, width) / self.degree

    def mask(self, size: float) -> float:
        """Return the bytes of a dropout mask, one per number of a tensor of that size."""
        return size / self.number

    def transposed(self, size: float) -> float:
        """Return the bytes copied where batch and sequence change places; 0 for one sample."""
        return size if self.samples > 1 else 0.0


def attention(
    share: Share,
    side: str,
    number: str,
    *,
    past: float,
    hidden: float,
    inner: float,
    keys: float,
    memory: float,
    scores: float,
    width: int,
    causal: bool,
) -> dict[str, Work]:
    """Return the operators from `qkv` to `post-attention-dropout`.

    Parameters
    ----------
    past: bytes that travel past, beside the residual (an encoder's output).
    inner, keys: bytes of the queries, and of the keys or the values.
    memory: bytes that keys and values are made from, beyond `hidden`; 0 in self-attention.
    scores: bytes of queries times keys. width: numbers of a token.
    causal: the softmax skips the upper triangle.
    """

    def name(step: str) -> str:
        return f"{side}-attention-{step}{number}"

    live = past + hidden
    bias = float(width * share.number)
    qkv, score, context, dense = (name(s) for s in ("qkv", "score", "context", "dense"))
    projected = inner + 2 * keys
    triangle = 0.5 if causal else 1.0
    qkv_sizes = (hidden + memory, share.weights(qkv), projected)
    dense_sizes = (inner, share.weights(dense), hidden)
    return {
        qkv: Work(
            forward=product(share.arithmetic(qkv), *qkv_sizes),
            backward=product_backward(share.arithmetic(qkv), *qkv_sizes),
            backward_exchanges=(Exchange("all_reduce", hidden + memory),),
            input=live + hidden,
            output=live + projected,
            activations=projected,
            forward_reserved=projected,
            backward_reserved=hidden + memory + 2 * projected,
        ),
        score: Work(
            forward=product(share.arithmetic(score), inner, keys, scores),
            backward=product_backward(share.arithmetic(score), inner, keys, scores),
            input=live + projected,
            output=live + keys + scores,
            activations=scores,
            forward_reserved=scores,
            backward_reserved=inner + 2 * keys + 2 * scores,
        ),
        name("softmax"): Work(
            forward=streaming((triangle + 1) * scores),
            backward=streaming((2 * triangle + 1) * scores),
            input=live + keys + scores,
            output=live + keys + scores,
            activations=scores,
            backward_reserved=3 * scores,
        ),
        name("dropout"): Work(
            forward=streaming(2 * scores + share.mask(scores)),
            backward=streaming(2 * scores + share.mask(scores)),
            input=live + keys + scores,
            output=live + keys + scores,
            activations=scores + share.mask(scores),
            backward_reserved=4 * scores,
        ),
        context: Work(
            forward=product(share.arithmetic(context), scores, keys, inner),
            backward=product_backward(share.arithmetic(context), scores, keys, inner),
            input=live + keys + scores,
            output=live + inner,
            activations=inner,
            forward_reserved=inner,
            backward_reserved=scores + keys + 2 * inner,
        ),
        dense: Work(
            forward=product(share.arithmetic(dense), *dense_sizes),
            backward=product_backward(share.arithmetic(dense), *dense_sizes),
            forward_exchanges=(Exchange("all_reduce", hidden),),
            input=live + inner,
            output=live + hidden + bias,
            activations=hidden,
            backward_reserved=inner + 2 * hidden,
        ),
        f"{side}-post-attention-dropout{number}": residual_dropout(share, past, hidden, bias),
    }


def mlp(
    share: Share, side: str, *, past: float, hidden: float, ffn: float, width: int, ffn_width: int
) -> dict[str, Work]:
    """Return the operators from `MLP-GEMM-1` to `post-MLP-dropout`."""
    first, second = f"{side}-MLP-GEMM-1", f"{side}-MLP-GEMM-2"
    live = past + hidden
    bias = float(width * share.number)
    ffn_bias = ffn_width * share.number / share.degree
    first_sizes = (hidden, share.weights(first), ffn)
    second_sizes = (ffn, share.weights(second), hidden)
    return {
        first: Work(
            forward=product(share.arithmetic(first), *first_sizes),
            backward=product_backward(share.arithmetic(first), *first_sizes),
            backward_exchanges=(Exchange("all_reduce", hidden),),
            input=live + hidden,
            output=live + ffn + ffn_bias,
            activations=ffn,
            backward_reserved=hidden + 2 * ffn,
        ),
        f"{side}-MLP-gelu": Work(
            forward=streaming(2 * ffn),
            backward=streaming(4 * ffn),  # reads input and gradient, writes, sums for the bias
            input=live + ffn + ffn_bias,
            output=live + ffn,
            activations=ffn,
            backward_reserved=3 * ffn,
        ),
        second: Work(
            forward=product(share.arithmetic(second), *second_sizes),
            backward=product_backward(share.arithmetic(second), *second_sizes),
            forward_exchanges=(Exchange("all_reduce", hidden),),
            input=live + ffn,
            output=live + hidden + bias,
            activations=hidden,
            backward_reserved=ffn + 2 * hidden,
        ),
        f"{side}-post-MLP-dropout": residual_dropout(share, past, hidden, bias),
    }


def residual_dropout(share: Share, past: float, hidden: float, bias: float) -> Work:
    """Return bias, dropout and residual addition: three passes forward, two backward."""
    return Work(
        forward=streaming(7 * hidden + share.mask(hidden)),
        backward=streaming(3 * hidden + share.mask(hidden)),
        input=past + 2 * hidden + bias,
        output=past + hidden,
        activations=hidden + share.mask(hidden),
        forward_reserved=hidden,
        backward_reserved=6 * hidden,
    )


def layernorm(share: Share, tokens: int, past: float, hidden: float) -> Work:
    """Return a layer norm that branches off the residual; backward adds the residual's gradient."""
    return Work(
        forward=streaming(2 * hidden),
        backward=streaming(8 * hidden),
        input=past + hidden,
        output=past + 2 * hidden,
        activations=hidden + share.samples * tokens * STATISTICS,
        backward_reserved=8 * hidden,
    )


def final_layernorm(share: Share, tokens: int, past: float, hidden: float) -> Work:
    """Return a layer norm that ends a chain of layers: no residual, batch and sequence swapped."""
    copied = share.transposed(hidden)
    return Work(
        forward=streaming(2 * hidden + 2 * copied),
        backward=streaming(5 * hidden + 2 * copied),
        input=past + hidden,
        output=past + hidden,
        activations=hidden + copied + share.samples * tokens * STATISTICS,
        backward_reserved=4 * hidden,
    )


def embedding(share: Share, operator: str, tokens: int, past: float, hidden: float) -> Work:
    """Return the embedding of tokens: look up, add positions, transpose, drop out.

    The gradient is dense: zeroed, scattered into, and added to the accumulated one.
    """
    copied = share.transposed(past)
    return Work(
        forward=streaming(9 * hidden + share.mask(hidden) + 2 * copied),
        backward=streaming(6 * hidden + 6 * share.weights(operator)),
        forward_exchanges=(Exchange("all_reduce", hidden),),
        input=past or float(share.samples * tokens * TOKEN_ID),
        output=past + hidden,
        activations=hidden + share.mask(hidden) + copied,
        forward_reserved=3 * hidden,
        backward_reserved=share.weights(operator) + 4 * hidden,
    )


def post_process(share: Share, operator: str, tokens: int, hidden: float, vocab: int) -> Work:
    """Return logits and their loss, in single precision, over a vocabulary split among the ranks.

    Forward the logits are converted, searched for the maximum, shifted, exponentiated, summed and
    divided; backward scaled and converted. Three numbers per token cross the ranks.
    """
    flops = share.arithmetic(operator)
    logits = share.split(tokens, vocab)
    single = 4 / share.number * logits
    per_token = float(share.samples * tokens * 4)
    sizes = (hidden, share.weights(operator), logits)
    return Work(
        forward=product(flops, *sizes) + streaming(logits + 9 * single),
        backward=product_backward(flops, *sizes) + streaming(logits + 3 * single),
        forward_exchanges=(Exchange("all_reduce", per_token),) * 3,
        backward_exchanges=(Exchange("all_reduce", hidden),),
        input=hidden,
        output=0.0,
        activations=single,
        forward_reserved=logits,
    )
