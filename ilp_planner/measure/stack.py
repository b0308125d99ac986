"""A small stack of a model's parts, run like training runs it, with marks between the parts.

Hooks set the marks: a forward hook where a part ends, a hook of the tensor between two parts where
its gradient is complete. The parts of a pass therefore add up to the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ilp_planner.measure.modules import build
from ilp_planner.measure.shard import EMBEDDING, HEAD
from ilp_planner.measure.training import MixedAdam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.measure.target import Target
    from ilp_planner.specs.training import TrainingJob


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
        job: TrainingJob,
        target: Target,
        *,
        stepped: bool = False,
        recompute: bool = False,
    ) -> None:
        self.kinds, self.job, self.target, self.recompute = tuple(kinds), job, target, recompute
        self.parts = [build(k, job, device=target.device, dtype=target.number) for k in kinds]
        self.optimizer = MixedAdam(
            (p for part in self.parts for p in part.parameters()), stepped=stepped
        )
        shape = (job.micro_batch, job.model.sequence)
        self.host = torch.randint(job.model.vocab, (shape[0], shape[1] + 1))
        if target.kind == "cuda":
            self.host = self.host.pin_memory()
        wide = (*shape, job.model.hidden)
        like: dict[str, Any] = {"device": target.device, "dtype": target.number}
        self.input = None if kinds[0] == EMBEDDING else torch.randn(wide, **like)
        self.gradient: Any = None
        if kinds[-1] == HEAD:
            self.gradient = torch.full((), self.optimizer.scale, device=target.device)
        else:
            self.gradient = torch.randn(wide, **like) * 1e-4
        self.mark: Callable[[], None] | None = None
        self.hooks = [
            part.register_forward_hook(self._passed if kind != HEAD else self._reached)
            for part, kind in zip(self.parts, self.kinds, strict=True)
        ]

    def load(self) -> tuple[Any, Any]:
        """Return the tokens and labels of a micro-batch, on their way to the device."""
        there = self.host.to(self.target.device, non_blocking=True)
        return there[:, :-1].contiguous(), there[:, 1:].contiguous()

    def run(self, batch: tuple[Any, Any], mark: Callable[[], None] | None = None) -> None:
        """Do the forward and the backward pass of a micro-batch.

        Parameters
        ----------
        mark: called at the beginning, after each part's forward pass, and after each part's
            backward pass, which are in the opposite order: 2 n + 1 times for n parts.
        """
        tokens, labels = batch
        self.mark = mark
        if mark is not None:
            mark()
        hidden = tokens if self.input is None else self.input.detach().requires_grad_()
        for kind, part in zip(self.kinds, self.parts, strict=True):
            hidden = self._forward(kind, part, hidden, labels)
        hidden.backward(self.gradient)
        if mark is not None:
            mark()
        self.mark = None

    def release(self) -> None:
        """Let go of the parts: a GPU's memory is free as soon as nobody else refers to the stack,
        not only when Python looks for cycles."""
        for hook in self.hooks:
            hook.remove()
        self.optimizer.release()

    def _forward(self, kind: str, part: Any, hidden: Any, labels: Any) -> Any:
        if kind == HEAD:
            return part(hidden, labels)
        if kind == EMBEDDING or not self.recompute:
            return part(hidden)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(part, hidden, use_reentrant=False)

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
