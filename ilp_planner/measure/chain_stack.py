"""A stack of parts with any number of tensors between them, of models that are no decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.measure.chain_job import ChainJob
from ilp_planner.measure.modules import build
from ilp_planner.measure.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.measure.target import Target
    from ilp_planner.specs.training import TrainingJob

    Job = TrainingJob | ChainJob


class ChainStack(Stack):
    """Parts of a `ChainJob`; each gets the micro-batch and the tensors of the part before."""

    def build(self, kind: str, **like: Any) -> Any:
        """Return a part as a module."""
        return self.job.build(kind, **like)

    def batch(self) -> tuple[Any, ...]:
        """Return a micro-batch on the host."""
        return tuple(self.job.batch(self.target.number))

    def before(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors before a part."""
        return tuple(self.job.shapes(kind))

    def after(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors after a part."""
        return tuple(self.job.shapes(self.job.after(kind)))

    def load(self) -> tuple[Any, ...]:
        """Return what the parts read, on its way to the device."""
        device = self.target.device
        return tuple(tensor.to(device, non_blocking=True, copy=True) for tensor in self.host)

    def call(self, kind: str, part: Any, batch: tuple[Any, ...], *state: Any) -> Any:
        """Return what a part makes of the micro-batch and the tensors before it."""
        return part(batch, *state)

    def _passed(self, part: Any, given: Any, out: Any) -> None:
        # Of several tensors the last is the one whose gradient is complete last.
        super()._passed(part, given, out[-1] if isinstance(out, tuple) else out)


def stack_of(kinds: Sequence[str], job: Job, target: Target, **options: bool) -> Stack:
    """Return the stack of any job."""
    if isinstance(job, ChainJob):
        return ChainStack(kinds, job, target, **options)
    return Stack(kinds, job, target, **options)


def build_part(kind: str, job: Job, *, device: Any, dtype: Any) -> Any:
    """Return a part of any job as a module."""
    if isinstance(job, ChainJob):
        return job.build(kind, device=device, dtype=dtype)
    return build(kind, job, device=device, dtype=dtype)
