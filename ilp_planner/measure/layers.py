"""Rows of whole layers: time in a running stack, memory part by part, the optimiser's step.

A part's time is that between two marks of passes that follow each other without waiting, as the
micro-batches of a training step do: what is launched late shows where it is waited for, and the
parts add up to the pass. Of several copies and passes the median counts.

Memory belongs to a part as a pipeline stage would see it: its input is kept by it, its output is
not. `activation_bytes` is what stays from its forward to its backward pass; the workspaces are what
is above that, and above what earlier parts keep, at the worst moment of either.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.anatomy.messages import (
    embedding_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.anatomy.overheads import handles, workspace
from ilp_planner.anatomy.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.measure.chain_job import SAFETY, SINGLE, ChainJob, Job
from ilp_planner.measure.memory import MemoryTrace
from ilp_planner.measure.modules import parameter_count
from ilp_planner.measure.shard import DENSE, EMBEDDING, EXPERTS, HEAD, Run, layer_kinds, runs_of
from ilp_planner.measure.stack import build_part, stack_of
from ilp_planner.measure.target import Target, median_spread
from ilp_planner.measure.training import MixedAdam, learnt_bytes
from ilp_planner.profiles.analytic_decoder import decoder_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


WARM_UP = 2  # passes before those that count
WARM = 5.0  # seconds after which one of them is enough
CHAIN = 3  # passes that count, from one waiting to the next
ALL_REDUCES = {"all_reduce": 1.0, "all_gather": 0.5}  # bytes moved, of an all-reduce's


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
        chain = [kind for kind in kinds for _ in range(copies if repeats(kind, job) else 1)]
        self.job, self.target = job, target
        self.stack = stack_of(chain, job, target)
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
        """Measure what every part keeps and needs; the largest of a kind's copies."""
        with MemoryTrace(self.target) as trace:
            self.stack.run(self.batch, trace.mark)
        count = len(self.chain)
        levels = trace.levels
        # What the first part gets was there before.
        there = self._allocated(handed(self.chain[0], self.job)[0])
        kept = 0.0  # by this part and those before it
        found: dict[str, PartMemory] = {}
        for place, kind in enumerate(self.chain):
            # Its input, made by the part before, and its output.
            entered, left = (self._allocated(size) for size in handed(kind, self.job))
            grown = levels[place + 1].held - levels[place].held
            before = kept
            kept = before + grown + entered - left
            above = passing(kind, self.job) + there - kept
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
        """Return what a part of a kind learns."""
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
    parts = {k: build_part(k, job, device=target.device, dtype=target.number) for k in kinds}
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


def known_values(kind: str, job: Job) -> dict[str, Any]:
    """Return the columns that need no measuring: arithmetic, traffic, what crosses a cut."""
    if isinstance(job, ChainJob):
        return job.known_values(kind)
    work = {
        EMBEDDING: lambda: embedding_work(job),
        DENSE: lambda: layer_work(job, experts=False),
        EXPERTS: lambda: layer_work(job, experts=True),
        HEAD: lambda: output_work(job) + job.model.prediction_layers * prediction_work(job),
    }[kind]()
    kernels = [kernel for module in work for kernel in module.forward]
    wide = job.micro_batch * job.model.sequence * job.model.hidden * job.settings.width
    return {
        "flop": sum(k.flops for k in kernels),
        "traffic_bytes": sum(k.traffic for k in kernels),
        "input_bytes": 0 if kind == EMBEDDING else wide,
        "output_bytes": 0 if kind == HEAD else wide,
    }


def sent(kind: str, job: Job) -> tuple[list[float], list[float]]:
    """Return the bytes of every tensor-parallel all-reduce of the forward and the backward pass.

    An all-gather, of which multi-token prediction has one, moves half of what an all-reduce of its
    tensor does, and counts as one of half the bytes.
    """
    if isinstance(job, ChainJob):
        return job.sent(kind)
    if kind == EMBEDDING:
        pairs = [embedding_messages(job)]
    elif kind == HEAD:
        pairs = list(output_messages(job).values())
        # experts divided like an MLP send what that sends, here and in layers
        pairs += job.model.prediction_layers * list(prediction_messages(job, False).values())
    else:
        pairs = list(layer_messages(job, experts=False).values())
    ways: tuple[list[float], list[float]] = ([], [])
    for pair in pairs:
        for way, messages in zip(ways, pair, strict=True):
            for message in messages:
                if message.group == "tp" and message.collective in ALL_REDUCES:
                    way += [ALL_REDUCES[message.collective] * message.size] * message.times
    return ways


def all_kinds(job: Job) -> tuple[str, ...]:
    """Return the kinds of parts of a model along its chain."""
    if isinstance(job, ChainJob):
        return job.kinds
    return (EMBEDDING, *layer_kinds(job.model), HEAD)


def repeats(kind: str, job: Job) -> bool:
    """Tell whether a stack may have copies of a part, one after the other."""
    return job.repeats(kind) if isinstance(job, ChainJob) else kind not in (EMBEDDING, HEAD)


def handed(kind: str, job: Job) -> tuple[float, float]:
    """Return the bytes that a part takes over from the one before, and leaves to the next."""
    if isinstance(job, ChainJob):
        return job.handed(kind)
    known = known_values(kind, job)
    return known["input_bytes"], known["output_bytes"]


def passing(kind: str, job: Job) -> float:
    """Return the bytes that travel through a part, made by one far before it."""
    return job.passing(kind) if isinstance(job, ChainJob) else 0.0


def runs(job: Job) -> tuple[Run, ...]:
    """Return the chain of parts, what is alike and neighbours together."""
    return job.runs if isinstance(job, ChainJob) else runs_of(job.model)


def sizes(job: Job) -> dict[str, int]:
    """Return the columns that say what a sample is."""
    if isinstance(job, ChainJob):
        return job.sizes
    return {"sequence": job.model.sequence, "hidden": job.model.hidden}


def layers_need(kinds: Sequence[str], job: Job, copies: int, *, stepped: bool = False) -> float:
    """Return bytes of parts that run in one stack.
    copies: of each kind of layer. stepped: of the optimiser's step instead of the passes."""
    if isinstance(job, ChainJob):
        return job.need(kinds, copies, stepped=stepped)
    rows = decoder_rows(job.model, job.micro_batch, job.tp, job.settings.precision, flash=True)
    width = job.settings.width
    held, kept, moment = 0.0, 0.0, 0.0
    for run in runs_of(job.model):
        if run.kind not in kinds:
            continue
        count = 1 if run.kind in (EMBEDDING, HEAD) else copies
        parameters = rows.gradients[run.first] / SINGLE
        if stepped:
            held += 2 * rows.state[run.first]
            continue
        held += count * parameters * (width + SINGLE)
        kept += count * rows.activation[run.first]
        # Libraries of a GPU have room of their own, which a CPU's do without.
        libraries = workspace(rows.job) + handles(rows.job) * (run.kind == HEAD)
        moment = max(moment, rows.workspace[run.first] - libraries + parameters * width)
        kinds = [kind for kind in kinds if kind != run.kind]
    return held + SAFETY * (kept + moment)
