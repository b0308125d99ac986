"""Measuring a model for every degree and micro-batch that is asked for, row by row.

A measurement that runs out of memory gets a row that says so, and larger micro-batches of the same
shard are not tried. Every row is on disk before the next is measured.

The tensor-parallel messages of a shard that is measured alone, from a table of links.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ilp_planner.base.errors import MeasureError
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.costs.profiles.table import TRUST, Provenance
from ilp_planner.profiler.measure.journal import Journal, RowKey, row_key
from ilp_planner.profiler.measure.layers import (
    LayerBench,
    OperatorBench,
    layer_values,
    optimizer_seconds,
)
from ilp_planner.profiler.measure.operators import operator_traffic
from ilp_planner.profiler.measure.target import Target, is_lost, ran_out
from ilp_planner.profiler.measure.transformer_operators import (
    Operator,
    known_sizes,
    needed,
    sent_bytes,
)
from ilp_planner.profiler.measure.wish import Failure, Summary, Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.profiler.measure.operators import Job


# ---- added messages ------------------------------------------------------------------------------


ALL_REDUCE = "all_reduce"


class MessageAdder:
    """Adds the seconds of all-reduces to measured columns.
    links: a table with collectives. device: as the rows call it."""

    def __init__(self, links: Measurements, device: str) -> None:
        from ilp_planner.profiler.predict.collectives import CollectivePredictor

        self.predictor = CollectivePredictor(links)
        self.device = device

    def add(self, values: dict[str, Any], ways: tuple[list[float], list[float]], tp: int) -> None:
        """Add them to `time_s`, `forward_s` and `backward_s`; a row that rests on predicted ones
        says so, with its error if all of their errors are known.

        ways: bytes of every all-reduce of the forward and of the backward pass.
        """
        off, worst, told = 0.0, Provenance.MEASURED, True
        for column, sizes in zip(("forward_s", "backward_s"), ways, strict=True):
            for size in sizes:
                found = self.predictor.predict(
                    ALL_REDUCE, size, group_size=tp, hosts=1, device=self.device
                )
                values[column] += found.value
                values["time_s"] += found.value
                off += found.value * (found.error or 0.0)
                told = told and found.error is not None
                worst = max(worst, found.provenance, key=TRUST.index)
        if worst is not Provenance.MEASURED:
            values["provenance"] = worst
            if told:
                values["error"] = off / values["time_s"]


# ---- sweep ---------------------------------------------------------------------------------------


FEWEST, MOST = 3, 20  # passes that count, unless the user says how many
ENOUGH = {"cuda": 2.0, "cpu": 10.0}  # seconds of them
OPTIMIZER_REPEATS = 5
LOADS = 5
BATCH_GENERATOR = "batch_generator"

Found = TypeVar("Found")


class Sweep:
    """One run of measuring.

    known: rows that the table has already. links: collectives that are to be in the times.
    progress: called with the finished share of the work, and the next step.
    """

    def __init__(
        self,
        wish: Wish,
        target: Target,
        journal: Journal,
        *,
        known: Mapping[RowKey, RowStatus] | None = None,
        links: Measurements | None = None,
        progress: Callable[[float, str], None] = lambda share, what: None,
    ) -> None:
        self.wish, self.target, self.journal = wish, target, journal
        self.known = dict(known or {})
        self.adder = MessageAdder(links, target.name) if links is not None else None
        self.progress = progress
        self.summary = Summary()
        self.jobs = wish.jobs(target.dtype)
        self.total = sum(self._weight(job) for job in self.jobs) or 1.0
        self.done = 0.0
        self.exhausted: dict[tuple[Any, ...], int] = {}  # what, shard -> least micro-batch
        self.steps: dict[tuple[Any, ...], dict[str, float]] = {}

    def run(self) -> Summary:
        """Measure everything.

        Raises
        ------
        MeasureError: the device does not answer any more; says the rows on disk.
        """
        for job in self.jobs:
            if Record.LAYER in self.wish.records:
                self._layers(job)
            if self.wish.operators and job.plain:
                self._operators(job)
        self.progress(1.0, "done")
        return self.summary

    # ---- one shard ------------------------------------------------------------------------------

    def _layers(self, job: Job) -> None:
        kinds = job.kinds
        rows = self._layer_rows(job)
        batch = {"record": Record.STEP, "name": BATCH_GENERATOR, **self._common(job)}
        every = (*rows, batch) if job.plain else rows  # whoever has parts of samples gets them all
        if all(row_key(row) in self.known for row in every):
            self.summary.there += len(every)
        else:
            self._show(f"{_describe(job)}: layers")
            found = self._layer_parts(kinds, job)
            for row in rows:
                self._write(row | found[row["name"]])
            if BATCH_GENERATOR in found and job.plain:
                self._write(batch | found[BATCH_GENERATOR])
        self.done += self._weight(job, operators=False)

    def _layer_parts(self, kinds: Sequence[str], job: Job) -> dict[str, dict[str, Any]]:
        """Return the columns of every kind of part: in one stack, or, when that does not fit, each
        by itself."""
        free = [kind for kind in kinds if not self._is_exhausted(kind, job)]
        found: dict[str, dict[str, Any]] = {}
        if len(free) == len(kinds):
            whole = self._attempt(partial(self._stack, kinds, job, self.wish.copies))
            if isinstance(whole, dict):
                return self._with_steps(kinds, job, whole)
            if whole.status is RowStatus.FAILED:
                return {kind: dict(whole.columns) for kind in kinds}
        for kind in kinds:
            if kind not in free:
                found[kind] = self._not_tried(kind, job)
                continue
            alone = self._attempt(partial(self._stack, [kind], job, 1))
            if isinstance(alone, dict):
                found |= alone
                continue
            found[kind] = alone.columns
            if alone.status is RowStatus.OUT_OF_MEMORY:
                self._exhaust(kind, job)
        return self._with_steps(kinds, job, found)

    def _stack(self, kinds: Sequence[str], job: Job, copies: int) -> dict[str, dict[str, Any]]:
        self._check_memory(job.need(kinds, copies), ", ".join(kinds))
        bench = LayerBench(kinds, job, self.target, copies=copies)
        bench.sample(FEWEST if self.wish.repeats is None else self.wish.repeats)
        bench.sample(self._more(bench.pass_seconds()))
        found = layer_values(bench, bench.memory())
        for kind, values in found.items():
            values |= job.known_values(kind)
        loads = bench.load_seconds(LOADS)
        bench.release()
        found[BATCH_GENERATOR] = {"time_s": sorted(loads)[LOADS // 2], "repeats": LOADS}
        return found

    def _with_steps(
        self, kinds: Sequence[str], job: Job, found: dict[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Return the columns with the optimiser's step, the same for any micro-batch, and with the
        messages."""
        key = _shard(job)
        if key not in self.steps:
            self.steps[key] = self._optimizer(kinds, job)
        for kind in kinds:
            values = found[kind]
            if values.get("status", RowStatus.OK) is RowStatus.OK:
                if kind in self.steps[key]:
                    values["optimizer_s"] = self.steps[key][kind]
                self._add_messages(values, job, job.sent(kind))
        return found

    def _optimizer(self, kinds: Sequence[str], job: Job) -> dict[str, float]:
        def measure(some: Sequence[str]) -> dict[str, float]:
            self.target.tidy()
            self._check_memory(job.need(some, 1, stepped=True), "optimiser")
            return optimizer_seconds(some, job, self.target, OPTIMIZER_REPEATS)

        together = self._attempt(partial(measure, kinds))
        if isinstance(together, dict):
            return together
        found: dict[str, float] = {}
        for kind in kinds:
            alone = self._attempt(partial(measure, [kind]))
            if isinstance(alone, dict):
                found |= alone
        return found

    def _operators(self, job: Job) -> None:
        share = self._weight(job, layers=False) / (len(job.splits) * len(job.operators(0)))
        again: dict[tuple[Any, ...], dict[str, Any]] = {}
        for split in job.splits:
            for name, operator in job.operators(split).items():
                row = {
                    "record": Record.OPERATOR, "name": name, "split": split, **self._common(job)
                }  # fmt: skip
                what = (operator.step or name, operator.inputs, operator.weights)
                if row_key(row) in self.known:
                    self.summary.there += 1
                else:
                    if what not in again:  # else the same computation: one measurement for both
                        self._show(f"{_describe(job)}: {name}")
                        again[what] = self._operator(name, operator, job)
                    self._write(row | known_sizes(operator, job) | again[what])
                self.done += share

    def _operator(self, name: str, operator: Operator, job: Job) -> dict[str, Any]:
        if self._is_exhausted(name, job):
            return self._not_tried(name, job)

        def measure() -> dict[str, Any]:
            self._check_memory(needed(operator, job), name)
            bench = OperatorBench(operator, job, self.target)
            bench.sample(FEWEST if self.wish.repeats is None else self.wish.repeats)
            bench.sample(self._more(sum(bench.forward + bench.backward) / len(bench.forward)))
            return bench.values()

        found = self._attempt(measure)
        if not isinstance(found, dict):
            if found.status is RowStatus.OUT_OF_MEMORY:
                self._exhaust(name, job)
            return found.columns
        self._add_messages(found, job, sent_bytes(operator, job))
        return operator_traffic(self.wish.model, name, job) | found

    # ---- what can go wrong ----------------------------------------------------------------------

    def _attempt(self, measure: Callable[[], Found]) -> Found | Failure:
        """Return the measurement, or why there is none; a MeasureError if the device is lost."""
        try:
            return measure()
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, MeasureError):
                raise
            text = " ".join(str(error).split()) or type(error).__name__
            if ran_out(error):
                failure = Failure(RowStatus.OUT_OF_MEMORY, text)
            elif is_lost(error):
                raise MeasureError(self._lost(text)) from None
            else:
                failure = Failure(RowStatus.FAILED, text)
        # Beyond the handler: the error's frames hold the tensors.
        try:
            self.target.tidy()
        except RuntimeError as error:
            raise MeasureError(self._lost(" ".join(str(error).split()))) from None
        return failure

    def _lost(self, text: str) -> str:
        there = self.journal.rows + len(self.known)
        rows = "a row" if there == 1 else f"{there} rows"
        kept = (
            f"{rows} measured before are in {self.journal.path}, `resume` goes on after them"
            if there
            else "nothing was measured before"
        )
        return f"{self.target.name} does not answer any more ({text[:120]}): {kept}"

    def _check_memory(self, need: float, what: str) -> None:
        free = self.target.free_memory()
        if need > free:
            raise MemoryError(
                f"{what} would need about {need / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
            )

    def _is_exhausted(self, what: str, job: Job) -> bool:
        least = self.exhausted.get((what, *_shard(job)))
        if least is None:
            for (_, name, _, tp, _, size, tokens, *degrees), status in self.known.items():
                if (name, tp, tokens, *degrees) == (what, *_shard(job)) and (
                    status is RowStatus.OUT_OF_MEMORY and size <= job.micro_batch
                ):
                    return True
            return False
        return job.micro_batch >= least

    def _exhaust(self, what: str, job: Job) -> None:
        self.exhausted[what, *_shard(job)] = job.micro_batch

    def _not_tried(self, what: str, job: Job) -> dict[str, Any]:
        least = self.exhausted.get((what, *_shard(job)))
        at = "a smaller micro-batch" if least is None else f"micro-batch {least}"
        return {"status": RowStatus.OUT_OF_MEMORY, "source": f"not tried: {at} did not fit"}

    # ---- rows -----------------------------------------------------------------------------------

    def _layer_rows(self, job: Job) -> list[dict[str, Any]]:
        common = self._common(job)
        return [
            {
                **{"record": Record.LAYER, "name": run.kind, "layers": run.layers},
                **common,
                **job.degrees(run.kind),
            }
            for run in job.runs
            if run.kind in job.kinds
        ]

    def _common(self, job: Job) -> dict[str, Any]:
        return {
            "device": self.target.name,
            "dtype": self.target.dtype,
            "tp": job.tp,
            "micro_batch": job.micro_batch,
            **job.sizes,
        }

    def _add_messages(
        self, values: dict[str, Any], job: Job, ways: tuple[list[float], list[float]]
    ) -> None:
        if job.tp == 1:
            return
        if self.adder is not None:
            self.adder.add(values, ways, job.tp)
            return
        both = [*ways[0], *ways[1]]
        if both:
            # Half a message each way where only one pass has it; small ones with the largest.
            values["message_bytes"] = max(both)
            values["messages"] = sum(both) / max(both) / 2

    def _write(self, row: dict[str, Any]) -> None:
        if row_key(row) in self.known:
            return
        self.journal.add(row)
        status = row.get("status", RowStatus.OK)
        degrees = "".join(f", {n} {row[n]}" for n in ("cp", "ep", "etp") if n in row)
        name = f"{row['name']}, tp {row['tp']}{degrees}, micro-batch {row['micro_batch']}"
        if status is RowStatus.OUT_OF_MEMORY:
            self.summary.exhausted.append(name)
        elif status is RowStatus.FAILED:
            self.summary.failed.append(f"{name}: {row.get('source', '')}")
        else:
            self.summary.measured += 1

    def _more(self, seconds: float) -> int:
        """Return how many passes more are worth their time."""
        if self.wish.repeats is not None:
            return 0
        fitting = int(ENOUGH[self.target.kind] / max(seconds, 1e-9))
        return max(min(fitting, MOST) - FEWEST, 0)

    def _show(self, what: str) -> None:
        self.progress(min(self.done / self.total, 1.0), what)

    def _weight(self, job: Job, *, layers: bool = True, operators: bool = True) -> float:
        """Return about how much work a shard is, in FLOP of its passes."""
        passes = 3.0 * (MOST if self.wish.repeats is None else self.wish.repeats)
        flops = sum(job.known_values(kind)["flop"] for kind in job.kinds)
        total = 0.0
        if layers and Record.LAYER in self.wish.records:
            total += passes * flops * self.wish.copies
        if operators and self.wish.operators and job.plain:
            total += passes * flops * 3
        return total


def _describe(job: Job) -> str:
    tokens = _tokens(job)
    each = f" x {tokens}" if tokens > 0 else " samples" if job.micro_batch > 1 else " sample"
    degrees = "".join(f", {name} {n}" for name, n in job.degrees(job.kinds[0]).items())
    return f"tp {job.tp}{degrees}, {job.micro_batch}{each}"


def _shard(job: Job) -> tuple[int, ...]:
    """Return the key of a part's shard: tp, the tokens of a sample, and as in keys of rows cp, ep
    and etp."""
    degrees = job.degrees(job.kinds[0])
    return job.tp, _tokens(job), *(degrees.get(name, -1) for name in ("cp", "ep", "etp"))


def _tokens(job: Job) -> int:
    """Return the tokens of a sample; -1, as in keys of rows, if there are none."""
    return job.sizes.get("sequence", -1)
