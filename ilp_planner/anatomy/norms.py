"""Norms: their weights, and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.anatomy.modules import Kept, Module, Weight

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob

STATISTIC = 4  # bytes: means and inverse deviations are kept in fp32 whatever the precision


def norm_weights(job: TrainingJob, width: int, prefix: str = "") -> tuple[Weight, ...]:
    """Return scale and, for LayerNorm, shift."""
    scale = Weight(name=f"{prefix}weight", shape=(width,))
    if job.model.norm == "rmsnorm":
        return (scale,)
    return scale, Weight(name=f"{prefix}bias", shape=(width,))


def norm_kept(job: TrainingJob, shape: tuple[int, ...], why: str) -> tuple[Kept, ...]:
    """Return what a norm over the last dimension keeps: its input and statistics per row.

    The norm's output is kept by the products that read it, not by the norm.
    """
    numbers = 1 if job.model.norm == "rmsnorm" else 2
    statistics = Kept(
        name="statistics", shape=(numbers, *shape[:-1]), width=STATISTIC, why="of each row, fp32"
    )
    return Kept(name="input", shape=shape, width=job.settings.width, why=why), statistics


def norm_module(
    name: str, job: TrainingJob, shape: tuple[int, ...], *, why: str, output: str = ""
) -> Module:
    """Return a norm of its own, not merged into the product that follows.

    output: why its output is kept, when the products that read it leave that to us.
    """
    kept = norm_kept(job, shape, why)
    if output:
        kept += (Kept(name="output", shape=shape, width=job.settings.width, why=output),)
    return Module(name=name, weights=norm_weights(job, shape[-1]), kept=kept)
