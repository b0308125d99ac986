"""Arithmetic and memory traffic of an operator, for the columns that predictions start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.measure.chain_job import ChainJob
from ilp_planner.profiles.analytic import operator_work

if TYPE_CHECKING:
    from ilp_planner.measure.chain_stack import Job
    from ilp_planner.specs.model import ModelSpec


def operator_traffic(model: ModelSpec, name: str, job: Job) -> dict[str, Any]:
    """Return `flop` and `traffic_bytes` of the forward pass of one rank."""
    if isinstance(job, ChainJob):
        return job.operator_values(name)
    from dataclasses import replace

    from ilp_planner.specs.gpt import Gpt

    gpt = model.architecture
    assert isinstance(gpt, Gpt)
    tokens = job.model.sequence
    longest = max(tokens, gpt.max_position_embeddings)
    same = replace(
        model,
        precision=job.settings.precision,
        architecture=replace(gpt, sequence=tokens, max_position_embeddings=longest),
    )
    work = operator_work(same, job.micro_batch, job.tp)[name]
    return {
        "flop": sum(kernel.flops for kernel in work.forward),
        "traffic_bytes": sum(kernel.traffic for kernel in work.forward),
    }
