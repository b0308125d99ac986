"""Work of T5's operators. Through the decoder the encoder's output travels along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.profiles.analytic_transformer import (
    Share,
    Side,
    attention,
    embedding,
    encoder_layer,
    final_layernorm,
    layernorm,
    mlp,
    post_process,
)

if TYPE_CHECKING:
    from ilp_planner.profiles.work import Work
    from ilp_planner.specs.t5 import T5


def t5_work(t5: T5, samples: int, degree: int, number: int) -> dict[str, Work]:
    """Return the work of every distinct operator.

    Parameters
    ----------
    samples: micro-batch of the replica. degree: tensor-parallel ranks. number: bytes of a number.
    """
    share = Share(
        samples=samples, degree=degree, number=number, flops=t5.flops, parameters=t5.parameters
    )
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
