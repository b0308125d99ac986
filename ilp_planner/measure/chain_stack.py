"""A stack of parts with any number of tensors between them, of models that are no decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ilp_planner.measure.chain_job import ChainJob
from ilp_planner.measure.modules import build
from ilp_planner.measure.shard import AROUND, HEAD
from ilp_planner.measure.stack import Stack
from ilp_planner.measure.training import MixedAdam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.measure.target import Target
    from ilp_planner.specs.training import TrainingJob

    Job = TrainingJob | ChainJob


class ChainStack(Stack):
    """Parts of a `ChainJob`; each gets the micro-batch and the tensors of the part before."""

    def __init__(
        self,
        kinds: Sequence[str],
        job: ChainJob,
        target: Target,
        *,
        stepped: bool = False,
        recompute: bool = False,
    ) -> None:
        self.kinds, self.target, self.recompute = tuple(kinds), target, recompute
        like: dict[str, Any] = {"device": target.device, "dtype": target.number}
        self.parts = [job.build(kind, **like) for kind in kinds]
        self.optimizer = MixedAdam(
            (p for part in self.parts for p in part.parameters()), stepped=stepped
        )
        self.host = job.batch(target.number)
        if target.kind == "cuda":
            self.host = tuple(tensor.pin_memory() for tensor in self.host)
        self.inputs = [torch.randn(shape, **like) for shape in job.shapes(kinds[0])]
        if kinds[-1] == HEAD:
            self.gradients = [torch.full((), self.optimizer.scale, device=target.device)]
        else:
            after = job.shapes(job.after(kinds[-1]))
            self.gradients = [torch.randn(shape, **like) * 1e-4 for shape in after]
        self.mark: Callable[[], None] | None = None
        self.hooks = [
            part.register_forward_hook(self._passed if kind != HEAD else self._reached)
            for part, kind in zip(self.parts, self.kinds, strict=True)
        ]

    def load(self) -> tuple[Any, ...]:
        """Return what the parts read, on its way to the device."""
        device = self.target.device
        return tuple(tensor.to(device, non_blocking=True, copy=True) for tensor in self.host)

    def run(self, batch: tuple[Any, ...], mark: Callable[[], None] | None = None) -> None:
        """Do the forward and the backward pass of a micro-batch; marks as in `Stack`."""
        self.mark = mark
        if mark is not None:
            mark()
        state = tuple(tensor.detach().requires_grad_() for tensor in self.inputs)
        for kind, part in zip(self.kinds, self.parts, strict=True):
            out = self._forward(kind, part, batch, state)
            state = out if isinstance(out, tuple) else (out,)
        del out
        torch.autograd.backward(state, self.gradients)
        if mark is not None:
            mark()
        self.mark = None

    def _forward(self, kind: str, part: Any, batch: Any, state: Any) -> Any:
        if not self.recompute or kind in AROUND:
            return part(batch, *state)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(part, batch, *state, use_reentrant=False)

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
