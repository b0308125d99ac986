"""Work of GPT's and T5's operators, with the kernels of Megatron-LM without fused attention.

Sizes are bytes on one device: of the hidden state, of the inside of attention (queries; keys or
values), of scores and of the MLP's inside (ffn). Live are tensors that bypass an operator: the
residual, and in a decoder the encoder's output. An operator stores the activations it makes
(compare Korthikanti et al. 2022, arXiv 2205.05198, section 4.1); its backward pass needs the
gradient of its input and two buffers like its output, softmax and dropout three and four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.profiles.work import Exchange, Work, product, product_backward, streaming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.architecture import Parameters
    from ilp_planner.specs.gpt import Gpt
    from ilp_planner.specs.t5 import T5

STATISTICS = 8  # bytes per token that a layer norm keeps: mean and deviation in single precision
TOKEN_ID = 4  # bytes


@dataclass(frozen=True, slots=True)
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
        """Return the bytes copied if batch and sequence change places; 0 for one sample."""
        return size if self.samples > 1 else 0.0

    def product(self, operator: str, moved: tuple[float, float, float], **sizes: Any) -> Work:
        """Return a product. moved: bytes of both operands and of the result. sizes: all others."""
        flops = self.arithmetic(operator)
        return Work(
            forward=product(flops, *moved), backward=product_backward(flops, *moved), **sizes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The layers of one side of a model on one device.

    name: `enc` or `dec`. tokens: of a sample. inner: width inside attention. past: bytes that
    travel past the layers, beside the residual (an encoder's output).
    """

    share: Share
    name: str
    model: Gpt | T5
    tokens: int
    inner: int
    past: float = 0.0

    @property
    def hidden(self) -> float:
        """Return the bytes of the hidden state."""
        return self.share.tensor(self.tokens, self.model.hidden)

    @property
    def live(self) -> float:
        """Return the bytes that bypass the inside of attention or the MLP."""
        return self.past + self.hidden

    @property
    def bias(self) -> float:
        """Return the bytes of a bias that the operator after its product adds."""
        return float(self.model.hidden * self.share.number)


def encoder_layer(side: Side, *, causal: bool) -> dict[str, Work]:
    """Return the operators of a layer without cross-attention."""
    norm = layernorm(side)
    return {
        "enc-1st-layernorm": norm,
        **attention(side, causal=causal),
        "enc-2nd-layernorm": norm,
        **mlp(side),
    }


def attention(side: Side, number: str = "", *, causal: bool, across: int = 0) -> dict[str, Work]:
    """Return the operators from `qkv` to `post-attention-dropout`.

    number: how their names end. causal: the softmax skips the upper triangle. across: tokens that
        keys and values are made of; 0: the side's own.
    """

    def name(step: str) -> str:
        return f"{side.name}-attention-{step}{number}"

    share, hidden, live = side.share, side.hidden, side.live
    inner = share.split(side.tokens, side.inner)
    keys = share.split(across or side.tokens, side.inner)
    scores = share.split(side.tokens * side.model.heads, across or side.tokens)
    taken = hidden + share.tensor(across, side.model.hidden)
    projected = inner + 2 * keys
    triangle = 0.5 if causal else 1.0
    return {
        name("qkv"): share.product(
            name("qkv"),
            (taken, share.weights(name("qkv")), projected),
            backward_exchanges=(Exchange("all_reduce", taken),),
            input=live + hidden,
            output=live + projected,
            activations=projected,
            forward_reserved=projected,
            backward_reserved=taken + 2 * projected,
        ),
        name("score"): share.product(
            name("score"),
            (inner, keys, scores),
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
        name("context"): share.product(
            name("context"),
            (scores, keys, inner),
            input=live + keys + scores,
            output=live + inner,
            activations=inner,
            forward_reserved=inner,
            backward_reserved=scores + keys + 2 * inner,
        ),
        name("dense"): _back_to_hidden(side, name("dense"), inner),
        f"{side.name}-post-attention-dropout{number}": residual_dropout(side),
    }


def _back_to_hidden(side: Side, operator: str, inner: float) -> Work:
    """Return the second product of attention or the MLP, with results that the ranks add up."""
    hidden = side.hidden
    return side.share.product(
        operator,
        (inner, side.share.weights(operator), hidden),
        forward_exchanges=(Exchange("all_reduce", hidden),),
        input=side.live + inner,
        output=side.live + hidden + side.bias,
        activations=hidden,
        backward_reserved=inner + 2 * hidden,
    )


def mlp(side: Side) -> dict[str, Work]:
    """Return the operators from `MLP-GEMM-1` to `post-MLP-dropout`."""
    share, hidden, live = side.share, side.hidden, side.live
    ffn = share.split(side.tokens, side.model.ffn)
    bias = side.model.ffn * share.number / share.degree
    return {
        f"{side.name}-MLP-GEMM-1": share.product(
            f"{side.name}-MLP-GEMM-1",
            (hidden, share.weights(f"{side.name}-MLP-GEMM-1"), ffn),
            backward_exchanges=(Exchange("all_reduce", hidden),),
            input=live + hidden,
            output=live + ffn + bias,
            activations=ffn,
            backward_reserved=hidden + 2 * ffn,
        ),
        f"{side.name}-MLP-gelu": Work(
            forward=streaming(2 * ffn),
            backward=streaming(4 * ffn),  # reads input and gradient, writes, sums for the bias
            input=live + ffn + bias,
            output=live + ffn,
            activations=ffn,
            backward_reserved=3 * ffn,
        ),
        f"{side.name}-MLP-GEMM-2": _back_to_hidden(side, f"{side.name}-MLP-GEMM-2", ffn),
        f"{side.name}-post-MLP-dropout": residual_dropout(side),
    }


def residual_dropout(side: Side) -> Work:
    """Return bias, dropout and residual addition: three passes forward, two backward."""
    hidden, mask = side.hidden, side.share.mask(side.hidden)
    return Work(
        forward=streaming(7 * hidden + mask),
        backward=streaming(3 * hidden + mask),
        input=side.past + 2 * hidden + side.bias,
        output=side.past + hidden,
        activations=hidden + mask,
        forward_reserved=hidden,
        backward_reserved=6 * hidden,
    )


def layernorm(side: Side) -> Work:
    """Return a layer norm that branches off the residual; backward adds the residual's gradient."""
    hidden = side.hidden
    return Work(
        forward=streaming(2 * hidden),
        backward=streaming(8 * hidden),
        input=side.past + hidden,
        output=side.past + 2 * hidden,
        activations=hidden + side.share.samples * side.tokens * STATISTICS,
        backward_reserved=8 * hidden,
    )


def final_layernorm(side: Side) -> Work:
    """Return a layer norm that ends a chain of layers: no residual, batch and sequence swapped."""
    hidden, copied = side.hidden, side.share.transposed(side.hidden)
    return Work(
        forward=streaming(2 * hidden + 2 * copied),
        backward=streaming(5 * hidden + 2 * copied),
        input=side.past + hidden,
        output=side.past + hidden,
        activations=hidden + copied + side.share.samples * side.tokens * STATISTICS,
        backward_reserved=4 * hidden,
    )


def embedding(side: Side, operator: str) -> Work:
    """Return the embedding of tokens: look up, add positions, transpose, drop out.

    The gradient is dense: zeroed, scattered into, and added to the accumulated one.
    """
    share, hidden, past = side.share, side.hidden, side.past
    copied = share.transposed(past)
    return Work(
        forward=streaming(9 * hidden + share.mask(hidden) + 2 * copied),
        backward=streaming(6 * hidden + 6 * share.weights(operator)),
        forward_exchanges=(Exchange("all_reduce", hidden),),
        input=past or float(share.samples * side.tokens * TOKEN_ID),
        output=past + hidden,
        activations=hidden + share.mask(hidden) + copied,
        forward_reserved=3 * hidden,
        backward_reserved=share.weights(operator) + 4 * hidden,
    )


def post_process(side: Side, operator: str) -> Work:
    """Return logits and their loss, in single precision, over a vocabulary split among the ranks.

    Forward the logits are converted, searched for the maximum, shifted, exponentiated, summed and
    divided; backward scaled and converted. Three numbers per token cross the ranks.
    """
    share, hidden = side.share, side.hidden
    flops = share.arithmetic(operator)
    logits = share.split(side.tokens, side.model.vocab)
    single = 4 / share.number * logits
    per_token = float(share.samples * side.tokens * 4)
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


def gpt_work(gpt: Gpt, samples: int, degree: int, number: int) -> dict[str, Work]:
    """Return the work of every distinct operator. samples: micro-batch of the replica. degree:
    tensor-parallel ranks. number: bytes of a number."""
    share = Share(samples, degree, number, gpt.flops, gpt.parameters)
    side = Side(share=share, name="enc", model=gpt, tokens=gpt.sequence, inner=gpt.hidden)
    return {
        "encoder-embedding": embedding(side, "encoder-embedding"),
        **encoder_layer(side, causal=True),
        "final-layernorm": final_layernorm(side),
        "gpt-post-process": post_process(side, "gpt-post-process"),
    }


def t5_work(t5: T5, samples: int, degree: int, number: int) -> dict[str, Work]:
    """Return the work of every distinct operator. samples: micro-batch of the replica. degree:
    tensor-parallel ranks. number: bytes of a number."""
    share = Share(samples, degree, number, t5.flops, t5.parameters)
    memory = t5.encoder_sequence
    first = Side(share=share, name="enc", model=t5, tokens=memory, inner=t5.inner)
    second = Side(
        share=share,
        name="dec",
        model=t5,
        tokens=t5.decoder_sequence,
        inner=t5.inner,
        past=share.tensor(memory, t5.hidden),
    )
    norm = layernorm(second)
    return {
        "encoder-embedding": embedding(first, "encoder-embedding"),
        **encoder_layer(first, causal=False),
        "enc-final-layernorm": final_layernorm(first),
        "decoder-embedding": embedding(second, "decoder-embedding"),
        "dec-1st-layernorm": norm,
        **attention(second, "-1", causal=True),
        "dec-2nd-layernorm": norm,
        **attention(second, "-2", causal=False, across=memory),
        "dec-3rd-layernorm": norm,
        **mlp(second),
        "dec-final-layernorm": final_layernorm(second),
        "t5-post-process": post_process(second, "t5-post-process"),
    }
