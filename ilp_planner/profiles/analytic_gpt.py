"""Work of GPT's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.profiles.analytic_transformer import (
    Share,
    Side,
    embedding,
    encoder_layer,
    final_layernorm,
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
    side = Side(share=share, name="enc", model=gpt, tokens=gpt.sequence, inner=gpt.hidden)
    return {
        "encoder-embedding": embedding(side, "encoder-embedding"),
        **encoder_layer(side, causal=True),
        "final-layernorm": final_layernorm(side),
        "gpt-post-process": post_process(side, "gpt-post-process"),
    }
