"""Work of T5's operators. Through the decoder the encoder's output travels along."""

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
    return {**_encoder(t5, share), **_decoder(t5, share)}


def _encoder(t5: T5, share: Share) -> dict[str, Work]:
    tokens, width = t5.encoder_sequence, t5.hidden
    hidden, inner = share.tensor(tokens, width), share.split(tokens, t5.inner)
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
            scores=share.split(tokens * t5.heads, tokens),
            width=width,
            causal=False,
        ),
        "enc-2nd-layernorm": norm,
        **mlp(
            share,
            "enc",
            past=0.0,
            hidden=hidden,
            ffn=share.split(tokens, t5.ffn),
            width=width,
            ffn_width=t5.ffn,
        ),
        "enc-final-layernorm": final_layernorm(share, tokens, 0.0, hidden),
    }


def _decoder(t5: T5, share: Share) -> dict[str, Work]:
    tokens, width = t5.decoder_sequence, t5.hidden
    hidden, inner = share.tensor(tokens, width), share.split(tokens, t5.inner)
    encoded = share.tensor(t5.encoder_sequence, width)
    norm = layernorm(share, tokens, encoded, hidden)
    return {
        "decoder-embedding": embedding(share, "decoder-embedding", tokens, encoded, hidden),
        "dec-1st-layernorm": norm,
        **attention(
            share,
            "dec",
            "-1",
            past=encoded,
            hidden=hidden,
            inner=inner,
            keys=inner,
            memory=0.0,
            scores=share.split(tokens * t5.heads, tokens),
            width=width,
            causal=True,
        ),
        "dec-2nd-layernorm": norm,
        **attention(
            share,
            "dec",
            "-2",
            past=encoded,
            hidden=hidden,
            inner=inner,
            keys=share.split(t5.encoder_sequence, t5.inner),
            memory=encoded,
            scores=share.split(tokens * t5.heads, t5.encoder_sequence),
            width=width,
            causal=False,
        ),
        "dec-3rd-layernorm": norm,
        **mlp(
            share,
            "dec",
            past=encoded,
            hidden=hidden,
            ffn=share.split(tokens, t5.ffn),
            width=width,
            ffn_width=t5.ffn,
        ),
        "dec-final-layernorm": final_layernorm(share, tokens, encoded, hidden),
        "t5-post-process": post_process(share, "t5-post-process", tokens, hidden, t5.vocab),
    }
