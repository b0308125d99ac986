"""A small stack of a model's parts, run like training runs it, with marks between the parts.

Hooks set the marks: a forward hook where a part ends, a hook of the tensor between two parts where
its gradient is complete. The parts of a pass therefore add up to the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ilp_planner.measure.chain_job import ChainJob, Job
from ilp_planner.measure.modules import build
from ilp_planner.measure.shard import AROUND, EMBEDDING, HEAD
from ilp_planner.measure.training import MixedAdam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.measure.target import Target


class Stack:
    """Parts in the order of the chain, and a micro-batch for them.

    Parameters
    ----------
    kinds: of the parts, in order; without an embedding the first gets hidden states, without a head
        the last one's output gets a gradient.
    stepped: the optimiser's states are there as well.
    recompute: layers keep their input only and run again before their backward pass.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        job: Any,
        target: Target,
        *,
        stepped: bool = False,
        recompute: bool = False,
    ) -> None:
        self.kinds, self.job, self.target, self.recompute = tuple(kinds), job, target, recompute
        like: dict[str, Any] = {"device": target.device, "dtype": target.number}
        self.parts = [self.build(kind, **like) for kind in kinds]
        self.optimizer = MixedAdam(
            (p for part in self.parts for p in part.parameters()), stepped=stepped
        )
        self.host = self.batch()
        if target.kind == "cuda":
            self.host = tuple(tensor.pin_memory() for tensor in self.host)
        self.inputs = [torch.randn(shape, **like) for shape in self.before(kinds[0])]
        if kinds[-1] == HEAD:
            self.gradients = [torch.full((), self.optimizer.scale, device=target.device)]
        else:
            after = self.after(kinds[-1])
            self.gradients = [torch.randn(shape, **like) * 1e-4 for shape in after]
        self.mark: Callable[[], None] | None = None
        self.hooks = [
            part.register_forward_hook(self._passed if kind != HEAD else self._reached)
            for part, kind in zip(self.parts, self.kinds, strict=True)
        ]

    # ---- what a decoder says ---------------------------------------------------------------------

    def build(self, kind: str, **like: Any) -> Any:
        """Return a part as a module."""
        return build(kind, self.job, **like)

    def batch(self) -> tuple[Any, ...]:
        """Return a micro-batch on the host: tokens, with one more for the labels."""
        return (torch.randint(self.job.model.vocab, (self._wide[0], self._wide[1] + 1)),)

    def before(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors before a part; none before the first of the chain."""
        return () if kind == EMBEDDING else (self._wide,)

    def after(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the tensors after a part."""
        return (self._wide,)

    @property
    def _wide(self) -> tuple[int, int, int]:
        """Return the shape of hidden states."""
        return (self.job.micro_batch, self.job.model.sequence, self.job.model.hidden)

    def load(self) -> tuple[Any, ...]:
        """Return the tokens and labels of a micro-batch, on their way to the device."""
        there = self.host[0].to(self.target.device, non_blocking=True)
        return there[:, :-1].contiguous(), there[:, 1:].contiguous()

    def call(self, kind: str, part: Any, batch: tuple[Any, ...], *state: Any) -> Any:
        """Return what a part makes of the tensors before it."""
        tokens, labels = batch
        return part(*state, labels) if kind == HEAD else part(*(state or (tokens,)))

    # ---- what all do -----------------------------------------------------------------------------

    def run(self, batch: tuple[Any, ...], mark: Callable[[], None] | None = None) -> None:
        """Do the forward and the backward pass of a micro-batch.

        mark: called at the beginning, after each part's forward pass, and after each part's
            backward pass, which are in the opposite order: 2 n + 1 times for n parts.
        """
        self.mark = mark
        if mark is not None:
            mark()
        state = tuple(tensor.detach().requires_grad_() for tensor in self.inputs)
        for kind, part in zip(self.kinds, self.parts, strict=True):
            out = self._forward(kind, part, batch, *state)
            state = out if isinstance(out, tuple) else (out,)
        del out
        torch.autograd.backward(state, self.gradients)
        if mark is not None:
            mark()
        self.mark = None

    def release(self) -> None:
        """Let go of the parts: a GPU's memory is free as soon as nobody else refers to the stack,
        not only when Python looks for cycles."""
        for hook in self.hooks:
            hook.remove()
        self.optimizer.release()

    def _forward(self, kind: str, part: Any, *given: Any) -> Any:
        if not self.recompute or kind in AROUND:
            return self.call(kind, part, *given)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.call, kind, part, *given, use_reentrant=False)

    def _reached(self, part: Any, given: Any, out: Any) -> None:
        if self.mark is not None:
            self.mark()

    def _passed(self, part: Any, given: Any, out: Any) -> None:
        """Mark the end of a part, and later that its successors' backward passes are done."""
        if self.mark is not None:
            self.mark()
            if part is not self.parts[-1]:
                out.register_hook(self._returned)

    def _returned(self, gradient: Any) -> None:
        if self.mark is not None:
            self.mark()


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
