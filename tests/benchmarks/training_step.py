"""A whole training step on one device: measured, and predicted from the rows of its layers.

The step takes so many micro-batches through all layers, one after the other, and then steps the
optimiser: what one pipeline stage does that has the whole model.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ilp_planner.base.errors import ProfileError
from ilp_planner.profiler.measure.operators import Job
from ilp_planner.profiler.measure.shard import AROUND, EMBEDDING, HEAD
from ilp_planner.profiler.measure.target import MemoryTrace, Target, median_spread

WARM_UP = 2  # steps

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """seconds: of a step. peak: bytes, of states, activations and workspaces. spread: of the
    repeats; 0 of a prediction."""

    seconds: float
    peak: float
    spread: float = 0.0


class StepBench:
    """A model that is trained, measured step by step.

    Parameters
    ----------
    job: of one rank; all of its parts are built. micro_batches: of a step. recompute: layers keep
        their input only.
    """

    def __init__(
        self, job: Job, target: Target, *, micro_batches: int, recompute: bool = False
    ) -> None:
        from ilp_planner.profiler.measure.layers import Stack

        self.target, self.micro_batches = target, micro_batches
        self.stack = Stack(chain_of(job), job, target, stepped=True, recompute=recompute)
        self.seconds: list[float] = []
        for _ in range(WARM_UP):
            self._step()
        target.wait()
        self.held = _resident(target, self.stack)

    def _step(self) -> None:
        for _ in range(self.micro_batches):
            self.stack.run(self.stack.load())
        self.stack.optimizer.step()

    def sample(self, steps: int) -> None:
        """Measure so many steps more."""
        self.seconds += self.target.seconds_of(self._step, steps)

    def release(self) -> None:
        """Let the memory go."""
        self.stack.release()

    def figures(self) -> StepFigures:
        """Measure the peak, and return what was measured."""
        with MemoryTrace(self.target) as trace:
            self._step()
        return StepFigures(
            seconds=statistics.median(self.seconds),
            peak=self.held + max(level.peak for level in trace.levels),
            spread=median_spread(self.seconds),
        )


def _resident(target: Target, stack: Any) -> float:
    """Return the bytes that are held between steps: on a GPU as its allocator says."""
    if target.kind == "cuda":
        import torch

        return float(torch.cuda.memory_allocated())
    optimizer = stack.optimizer
    tensors = {id(t): t for t in (*optimizer.parameters, *optimizer.gradients, *optimizer.masters)}
    for state in optimizer.adam.state.values():
        tensors |= {id(t): t for t in state.values() if hasattr(t, "element_size")}
    return float(sum(t.numel() * t.element_size() for t in tensors.values()))


def predict_step(
    rows: Sequence[Mapping[str, Any]],
    *,
    layers: int | Sequence[str],
    micro_batches: int,
    recompute: bool = False,
    generator: float = 0.0,
    resident: float = 0.0,
) -> StepFigures:
    """Return the step that the rows of layers add up to.

    Every micro-batch takes each layer's forward and backward pass, recomputed ones a forward pass
    more; the optimiser steps once. The peak is the worst moment of a walk forward and back: what
    the layers before keep, and what the one that runs needs.

    Parameters
    ----------
    rows: of one shard and micro-batch: embedding, layers, head, with `layers` ranges that may be
        longer than the model is here; `input_bytes` and `output_bytes` are what a part takes over
        and leaves (`Job.handed`). layers: of a model with one kind of them, or the kinds of all
        parts of any (`chain_of`). generator: seconds until a micro-batch is on the device.
        resident: bytes that are held besides states.

    Raises
    ------
    ProfileError: a kind of layer has no row.
    """
    chain = _chain(rows, layers)
    seconds = generator * micro_batches
    states = resident
    for row in chain:
        passes = row["forward_s"] + row["backward_s"]
        again = row["forward_s"] if recompute and row["name"] not in AROUND else 0.0
        seconds += micro_batches * (passes + again) + row["optimizer_s"]
        states += row["state_bytes"]
    return StepFigures(seconds=seconds, peak=states + _peak(chain, recompute))


def chain_of(job: Job) -> list[str]:
    """Return the kind of every part of a model, in order."""
    return list(job.chain)


def _chain(
    rows: Sequence[Mapping[str, Any]], layers: int | Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the row of every part of a chain; the one kind of layer is repeated."""
    by_name = {row["name"]: row for row in rows}
    if isinstance(layers, int):
        inner = [name for name in by_name if name not in (EMBEDDING, HEAD)]
        if len(inner) != 1 and EMBEDDING in by_name and HEAD in by_name:
            raise ProfileError("rows of a step: expected one kind of layer")
        layers = (EMBEDDING, *inner * layers, HEAD)
    for name in layers:
        if name not in by_name:
            raise ProfileError(f"rows of a step: expected one of {name!r}, found none")
    return [by_name[name] for name in layers]


def _peak(chain: Sequence[Mapping[str, Any]], recompute: bool) -> float:
    """Return the bytes above the states at the worst moment of one micro-batch."""
    kept, worst = 0.0, 0.0
    for row in chain:
        full = row["activation_bytes"]
        forgets = recompute and row["name"] not in AROUND
        before = kept
        kept += row["input_bytes"] if forgets else full
        forward, backward = row["forward_workspace_bytes"], row["backward_workspace_bytes"]
        if not forgets:
            worst = max(worst, kept + max(forward, backward))
            continue
        # Forward, what is made goes at once; backward it is made again beside the gradient.
        again = before + full
        worst = max(worst, again + forward, again + backward, again + forward + row["output_bytes"])
    return worst
