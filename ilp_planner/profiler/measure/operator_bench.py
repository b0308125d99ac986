"""Timing one operator: pass after pass without waiting, and its allocations."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ilp_planner.profiler.measure.memory import MemoryTrace
from ilp_planner.profiler.measure.modules import DEVIATION
from ilp_planner.profiler.measure.target import Target, median_spread
from ilp_planner.profiler.measure.training import MixedAdam, learnt_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.profiler.measure.operators import Job
    from ilp_planner.profiler.measure.transformer_operators import Operator

WARM_UP = 2
CHAIN = 10  # passes that count, from one waiting to the next


class OperatorBench:
    """One operator that is measured pass by pass."""

    def __init__(self, operator: Operator, job: Job, target: Target) -> None:
        like: dict[str, Any] = {"device": target.device, "dtype": target.number}
        self.operator, self.job, self.target = operator, job, target
        self.inputs = [torch.randn(s, **like).requires_grad_() for s in operator.inputs]
        self.weights = [
            nn.Parameter(torch.empty(s, **like).normal_(0.0, DEVIATION)) for s in operator.weights
        ]
        self.gradients = MixedAdam(self.weights, stepped=False)
        with torch.no_grad():
            found = operator.run(*self.inputs, *self.weights)
            self.outputs = [torch.randn_like(out) * 1e-4 for out in found]
        del found
        self.forward: list[float] = []
        self.backward: list[float] = []
        for _ in range(WARM_UP):
            self._run(lambda: None)
        target.wait()

    def _run(self, mark: Callable[[], None]) -> None:
        mark()
        found = self.operator.run(*self.inputs, *self.weights)
        mark()
        torch.autograd.backward(found, self.outputs)
        del found
        mark()
        for one in self.inputs:
            one.grad = None

    def sample(self, passes: int) -> None:
        """Measure so many passes more."""
        for forward, backward in self.target.passes(self._run, passes, CHAIN):
            self.forward.append(forward)
            self.backward.append(backward)

    def values(self) -> dict[str, Any]:
        """Return the measured columns."""
        with MemoryTrace(self.target) as trace:
            self._run(trace.mark)
        before, after, back = trace.levels[:3]
        kept = max(after.held - before.held, 0.0)
        forward, backward = statistics.median(self.forward), statistics.median(self.backward)
        count = sum(w.numel() for w in self.weights) + self.operator.bias
        both = [f + b for f, b in zip(self.forward, self.backward, strict=True)]
        return {
            "time_s": forward + backward,
            "forward_s": forward,
            "backward_s": backward,
            "spread": median_spread(both),
            "repeats": len(both),
            **learnt_bytes(count, self.job.settings.width, self.target.dtype),
            "activation_bytes": kept,
            "forward_workspace_bytes": max(after.peak - before.held - kept, 0.0),
            "backward_workspace_bytes": max(back.peak - before.held - kept, 0.0),
        }
