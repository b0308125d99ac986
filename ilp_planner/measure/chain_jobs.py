"""The job whose first rank's share is measured, by the family of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.errors import UsageError
from ilp_planner.measure.resnet_job import ResnetJob
from ilp_planner.measure.t5_job import T5Job
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from ilp_planner.measure.chain_job import ChainJob
    from ilp_planner.specs.architecture import Architecture


def chain_job(model: Architecture, *, tp: int, micro_batch: int, dtype: str) -> ChainJob | None:
    """Return the job whose first rank's share is measured; None of another family.

    Raises
    ------
    UsageError: tp does not divide what is divided.
    """
    kinds: dict[str, type[ChainJob]] = {"t5": T5Job, "resnet": ResnetJob}
    if model.family not in kinds:
        return None
    parts = model.tensor_parts
    if parts % tp:
        possible = ", ".join(str(t) for t in range(1, min(parts, 64) + 1) if parts % t == 0)
        raise UsageError(f"tp: found {tp}, expected a divisor of {parts}: {possible}")
    return kinds[model.family](
        model=model, micro_batch=micro_batch, tp=tp, settings=Settings(precision=dtype)
    )
