"""Work of GPT's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.profiles.analytic_transformer import (
    Share,
    attention,
    embedding,
    final_layernorm,
    layernorm,
    mlp,
    post_process,
)

if TYPE_CHECKING:
    from ilp_planner.profiles.work import Work
    from ilp_planner.specs.gpt import Gpt


def gpt_work(gpt: Gpt, samples: int, degree: int, number: int) -> dict[str, Work]:
    """Return the work of every distinct operator.

    Parameters
    ----------
    samples: micro-batch of the replica. degree: tensor-parallel ranks. number: bytes of a number.
    """
    share = Share(
        samples=samples, degree=degree, number=number, flops=gpt.flops, parameters=gpt.parameters
    )
    tokens, width = gpt.sequence, gpt.hidden
    hidden, inner = share.tensor(tokens, width), share.split(tokens, width)
    norm = layernorm(share, tokens, 0.0, hidden)
    return {
        "encoder-embedding": embedding(share, "encoder-embedding", tokens, 0.0, hidden),
        "enc-1st-layernorm": norm,
        **attention(
            share,
            "enc",
            "",
            past=0.0,
            hidden=hidden,
            inner=inner,
            keys=inner,
            memory=0.0,
            scores=share.split(tokens * gpt.heads, tokens),
            width=width,
            causal=True,
        ),
        "enc-2nd-layernorm": norm,
        **mlp(
            share,
            "enc",
            past=0.0,
            hidden=hidden,
            ffn=share.split(tokens, gpt.ffn),
            width=width,
            ffn_width=gpt.ffn,
        ),
        "final-layernorm": final_layernorm(share, tokens, 0.0, hidden),
        "gpt-post-process": post_process(share, "gpt-post-process", tokens, hidden, gpt.vocab),
    }
