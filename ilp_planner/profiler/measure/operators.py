"""The operators of a model, under the names of `specs`: 13 to a GPT's layer and 3; T5's layers have
the same and 8 more in the decoder; a Wide ResNet's are convolutions, norms and the operators
between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.profiles.analytic import operator_work
from ilp_planner.profiler.measure.chain_job import ChainJob
from ilp_planner.profiler.measure.job import Job, traffic_of
from ilp_planner.profiler.measure.transformer_operators import (
    Side,
    attention,
    embedding,
    final_norm,
    mlp,
    norm,
    post_process,
)
from ilp_planner.specs.gpt import Gpt

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.operator import Operator
    from ilp_planner.profiler.measure.t5_job import T5Job
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.training import TrainingJob


def gpt_operators(job: TrainingJob, split: int) -> dict[str, Operator]:
    """Return the operators of a GPT."""
    side = Side("enc", job, job.model.sequence)
    return {
        "encoder-embedding": embedding(side),
        "enc-1st-layernorm": norm(side),
        **attention(side, split, masked=True),
        "enc-2nd-layernorm": norm(side),
        **mlp(side, split),
        "final-layernorm": final_norm(side),
        "gpt-post-process": post_process(side),
    }


def t5_operators(job: T5Job) -> dict[str, Operator]:
    """Return the operators of a T5. Through the decoder the encoder's output travels along."""
    memory = job.model.encoder_sequence
    encoded = float(job.micro_batch * memory * job.model.hidden)
    first = Side("enc", job.like, memory)
    second = Side("dec", job.like, job.model.decoder_sequence, past=encoded)
    return {
        "encoder-embedding": embedding(first),
        "enc-1st-layernorm": norm(first),
        **attention(first, masked=False),
        "enc-2nd-layernorm": norm(first),
        **mlp(first),
        "enc-final-layernorm": final_norm(first),
        "decoder-embedding": embedding(second, memory),
        "dec-1st-layernorm": norm(second),
        **attention(second, number="-1", masked=True),
        "dec-2nd-layernorm": norm(second),
        **attention(second, number="-2", masked=False, memory=memory),
        "dec-3rd-layernorm": norm(second),
        **mlp(second),
        "dec-final-layernorm": final_norm(second),
        "t5-post-process": post_process(second, bias=True),
    }


def operator_traffic(model: ModelSpec, name: str, job: Job) -> dict[str, Any]:
    """Return `flop` and `traffic_bytes` of the forward pass of one rank."""
    if isinstance(job, ChainJob):
        return traffic_of(job.works[name].forward) | {"flop": job.flop(name)}
    gpt = model.architecture
    assert isinstance(gpt, Gpt)
    tokens = job.model.sequence
    longest = max(tokens, gpt.max_position_embeddings)
    same = replace(
        model,
        precision=job.settings.precision,
        architecture=replace(gpt, sequence=tokens, max_position_embeddings=longest),
    )
    return traffic_of(operator_work(same, job.micro_batch, job.tp)[name].forward)
