"""Rows of whole layers: time in a running stack, memory part by part, the optimiser's step; and of
single operators: time of pass after pass without waiting, and allocations.

A part's time is that between two marks of passes that follow each other without waiting, as the
micro-batches of a training step do: late launches show at the waits for them, and the parts add up
to the pass. Of several copies and passes the median counts.

Memory belongs to a part as a pipeline stage would see it: its input is kept by it, its output is
not. `activation_bytes` stay from its forward to its backward pass; the workspaces are memory above
that, and above the activations of earlier parts, at the worst moment of either.

A small stack of a model's parts, run like training runs it, with marks between the parts.

Hooks set the marks: a forward hook if a part ends, a hook of the tensor between two parts if its
gradient is complete. The parts of a pass therefore add up to the pass.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from ilp_planner.profiler.measure.modules import DEVIATION, parameter_count
from ilp_planner.profiler.measure.operators import MixedAdam, learnt_bytes
from ilp_planner.profiler.measure.shard import AROUND, HEAD
from ilp_planner.profiler.measure.target import MemoryTrace, Target, median_spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.profiler.measure.operators import Job
    from ilp_planner.profiler.measure.transformer_operators import Operator


# ---- stack ---------------------------------------------------------------------------------------


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


# ---- layers --------------------------------------------------------------------------------------


WARM_UP = 2  # passes before those that count
WARM = 5.0  # seconds after which one of them is enough
CHAIN = 3  # passes that count, from one waiting to the next


@dataclass(kw_only=True)
class PartTimes:
    """Seconds of one kind of part, one entry per copy and pass."""

    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)

    @property
    def both(self) -> list[float]:
        """Seconds of both passes."""
        return [f + b for f, b in zip(self.forward, self.backward, strict=True)]


class PartMemory(NamedTuple):
    """Bytes of one part for one micro-batch."""

    activation: float
    forward_workspace: float
    backward_workspace: float


class LayerBench:
    """A stack that is measured pass by pass.
    kinds: parts to measure. copies: of each kind of layer."""

    def __init__(self, kinds: Sequence[str], job: Job, target: Target, *, copies: int) -> None:
        chain = [kind for kind in kinds for _ in range(copies if job.repeats(kind) else 1)]
        self.job, self.target = job, target
        self.stack = Stack(chain, job, target)
        self.chain = chain
        self.times = {kind: PartTimes() for kind in chain}
        self.passes = 0
        self.batch = self.stack.load()
        begun = time.monotonic()
        for _ in range(WARM_UP):
            self.stack.run(self.batch)
            target.wait()
            if time.monotonic() - begun > WARM:
                break

    def sample(self, passes: int) -> None:
        """Measure so many passes more."""
        run = partial(self.stack.run, self.batch)
        for spans in self.target.passes(run, passes, CHAIN):
            backward = spans[len(self.chain) :][::-1]
            for kind, f, b in zip(self.chain, spans, backward, strict=False):
                self.times[kind].forward.append(f)
                self.times[kind].backward.append(b)
            self.passes += 1

    def release(self) -> None:
        """Let the memory go."""
        self.stack.release()

    def pass_seconds(self) -> float:
        """Return about how long a pass takes."""
        return sum(statistics.median(self.times[kind].both) for kind in self.chain if self.passes)

    def memory(self) -> dict[str, PartMemory]:
        """Measure the activations and workspaces of every part; the largest of a kind's copies."""
        with MemoryTrace(self.target) as trace:
            self.stack.run(self.batch, trace.mark)
        count = len(self.chain)
        levels = trace.levels
        # What the first part gets was there before.
        there = self._allocated(self.job.handed(self.chain[0])[0])
        kept = 0.0  # by this part and those before it
        found: dict[str, PartMemory] = {}
        for place, kind in enumerate(self.chain):
            # Its input, made by the part before, and its output.
            entered, left = (self._allocated(size) for size in self.job.handed(kind))
            grown = levels[place + 1].held - levels[place].held
            before = kept
            kept = before + grown + entered - left
            above = self.job.passing(kind) + there - kept
            memory = PartMemory(
                activation=max(kept - before, 0.0),
                forward_workspace=max(levels[place + 1].peak + above, 0.0),
                backward_workspace=max(levels[2 * count - place].peak + above, 0.0),
            )
            found[kind] = PartMemory(*map(max, memory, found.get(kind, memory)))
        return found

    def _allocated(self, size: float) -> float:
        if self.target.kind == "cuda":  # blocks of 512 bytes (`CUDACachingAllocator.cpp`)
            return float(-(-size // 512) * 512)
        return float(size)

    def parameters(self, kind: str) -> int:
        """Return the parameters of a part of a kind."""
        return parameter_count(self.stack.parts[self.chain.index(kind)])

    def load_seconds(self, repeats: int) -> list[float]:
        """Measure how long a micro-batch takes to get to the device."""
        return self.target.seconds_of(self.stack.load, repeats)


def optimizer_seconds(
    kinds: Sequence[str], job: Job, target: Target, repeats: int
) -> dict[str, float]:
    """Measure the optimiser's step of each kind of part.

    A step of all parts together is measured as well, and shared out: many small steps cost more
    than one.
    """
    parts = {k: job.build(k, device=target.device, dtype=target.number) for k in kinds}
    alone = {}
    for kind, part in parts.items():
        optimizer = MixedAdam(part.parameters())
        alone[kind] = _step_seconds(optimizer, target, repeats)
        optimizer.release()
        del optimizer
        target.tidy()
    if len(parts) == 1:
        return alone
    every = MixedAdam(p for part in parts.values() for p in part.parameters())
    share = _step_seconds(every, target, repeats) / sum(alone.values())
    return {kind: seconds * share for kind, seconds in alone.items()}


def _step_seconds(optimizer: Any, target: Target, repeats: int) -> float:
    for _ in range(WARM_UP):
        optimizer.step()
    return statistics.median(target.seconds_of(optimizer.step, repeats))


def layer_values(bench: LayerBench, memory: Mapping[str, PartMemory]) -> dict[str, dict[str, Any]]:
    """Return the measured columns of every kind."""
    rows = {}
    for kind, times in bench.times.items():
        forward, backward = statistics.median(times.forward), statistics.median(times.backward)
        rows[kind] = {
            "time_s": forward + backward,
            "forward_s": forward,
            "backward_s": backward,
            "spread": median_spread(times.both),
            "repeats": bench.passes,
            **learnt_bytes(bench.parameters(kind), bench.job.settings.width, bench.target.dtype),
            **{f"{name}_bytes": size for name, size in memory[kind]._asdict().items()},
        }
    return rows


# ---- one operator --------------------------------------------------------------------------------


OPERATOR_CHAIN = 10  # passes that count, from one waiting to the next


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
        for forward, backward in self.target.passes(self._run, passes, OPERATOR_CHAIN):
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
