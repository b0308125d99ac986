"""A small stack of a model's parts, run like training runs it, with marks between the parts.

Hooks set the marks: a forward hook if a part ends, a hook of the tensor between two parts if its
gradient is complete. The parts of a pass therefore add up to the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ilp_planner.profiler.measure.shard import AROUND, HEAD
from ilp_planner.profiler.measure.training import MixedAdam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.profiler.measure.job import Job
    from ilp_planner.profiler.measure.target import Target


class Stack:
    """Parts in the order of the chain, and a micro-batch for them.

    kinds: of the parts, in order; without an embedding the first gets hidden states, without a head
        the last one's output gets a gradient.
    stepped: the optimiser's states are there as well.
    recompute: layers keep their input only and run again before their backward pass.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        job: Job,
        target: Target,
        *,
        stepped: bool = False,
        recompute: bool = False,
    ) -> None:
        self.kinds, self.job, self.target, self.recompute = tuple(kinds), job, target, recompute
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
        """Return the inputs of the parts, on their way to the device."""
        return self.job.load(self.host, self.target.device)

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
            return self.job.call(kind, part, *given)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.job.call, kind, part, *given, use_reentrant=False)

    def _reached(self, part: Any, given: Any, out: Any) -> None:
        if self.mark is not None:
            self.mark()

    def _passed(self, part: Any, given: Any, out: Any) -> None:
        """Mark the end of a part, and later that its successors' backward passes are done."""
        if self.mark is not None:
            self.mark()
            if part is not self.parts[-1]:
                # Of several tensors the last is the one whose gradient is complete last.
                last = out[-1] if isinstance(out, tuple) else out
                last.register_hook(self._returned)

    def _returned(self, gradient: Any) -> None:
        if self.mark is not None:
            self.mark()
