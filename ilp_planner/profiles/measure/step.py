"""A whole training step on one device: measured, and predicted from the rows of its layers.

The step takes so many micro-batches through all layers, one after the other, and then steps the
optimiser: what one pipeline stage does that has the whole model.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import ProfileError
from ilp_planner.profiles.measure.memory import MemoryTrace
from ilp_planner.profiles.measure.shard import EMBEDDING, HEAD, runs_of
from ilp_planner.profiles.measure.spread import median_spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.profiles.measure.target import Target
    from ilp_planner.specs.training import TrainingJob

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
    job: of one rank; all of its layers are built. micro_batches: of a step. recompute: layers keep
        their input only.
    """

    def __init__(
        self, job: TrainingJob, target: Target, *, micro_batches: int, recompute: bool = False
    ) -> None:
        from ilp_planner.profiles.measure.stack import Stack

        self.target, self.micro_batches = target, micro_batches
        kinds = [run.kind for run in runs_of(job.model) for _ in range(run.first, run.last + 1)]
        self.stack = Stack(kinds, job, target, stepped=True, recompute=recompute)
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
        for _ in range(steps):
            self.target.wait()
            marks = [self.target.mark()]
            self._step()
            marks.append(self.target.mark())
            self.target.wait()
            self.seconds += self.target.between(marks)

    def release(self) -> None:
        """Let the memory go."""
        self.stack.release()

    def figures(self) -> StepFigures:
        """Measure the peak, and return what was measured."""
        with MemoryTrace(self.target) as trace:
            self._step()
        return StepFigures(
            seconds=statistics.median(self.seconds),
            peak=self.held + trace.peak,
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
    layers: int,
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
        longer than the model is here. layers: of the model. generator: seconds until a micro-batch
        is on the device. resident: bytes that are held besides states.

    Raises
    ------
    ProfileError: a kind of layer has no row.
    """
    chain = _chain(rows, layers)
    seconds = generator * micro_batches
    states = resident
    for row in chain:
        passes = row["forward_s"] + row["backward_s"]
        again = row["forward_s"] if recompute and row["name"] not in (EMBEDDING, HEAD) else 0.0
        seconds += micro_batches * (passes + again) + row["optimizer_s"]
        states += row["state_bytes"]
    return StepFigures(seconds=seconds, peak=states + _peak(chain, recompute))


def _chain(rows: Sequence[Mapping[str, Any]], layers: int) -> list[Mapping[str, Any]]:
    """Return the row of every layer of a chain; the last kind of layer is repeated."""
    by_name = {row["name"]: row for row in rows}
    inner = [row for row in rows if row["name"] not in (EMBEDDING, HEAD)]
    for name in (EMBEDDING, HEAD):
        if name not in by_name:
            raise ProfileError(f"rows of a step: expected one of {name!r}, found none")
    if len({row["name"] for row in inner}) != 1:
        raise ProfileError("rows of a step: expected one kind of layer")
    return [by_name[EMBEDDING], *[inner[0]] * layers, by_name[HEAD]]


def _peak(chain: Sequence[Mapping[str, Any]], recompute: bool) -> float:
    """Return the bytes above the states at the worst moment of one micro-batch."""
    kept, worst = 0.0, 0.0
    for row in chain:
        full = row["activation_bytes"]
        forgets = recompute and row["name"] not in (EMBEDDING, HEAD)
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
