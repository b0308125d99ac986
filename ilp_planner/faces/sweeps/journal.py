"""Work that goes on where it was ended: a line of JSON for each part of it that is done, on disk
before the next one.

A journal only ever grows. Its first line has the common data of all parts, so that a later run
continues the same work only.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.fullest import plan_verdict
from ilp_planner.base.errors import OutputError, PlanError, UsageError, shown
from ilp_planner.base.files import append
from ilp_planner.base.units import counted
from ilp_planner.faces.report.expected import expected_object
from ilp_planner.faces.report.parallelism import parallelism, parallelism_object
from ilp_planner.faces.report.rates import rates_object
from ilp_planner.faces.report.stages import describe_training
from ilp_planner.faces.report.tables import span
from ilp_planner.formats.json_fields import Fields
from ilp_planner.plan import is_of_groups
from ilp_planner.spaces.throughput import throughput
from ilp_planner.specs.prices import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Result
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec


# ---- The result of one point of a sweep: a row of its table --------------------------------------

Row = dict[str, Any]

REFUSED, FAILED, LOST = "refused", "failed", "lost"  # besides what a search can end with
RATES = (
    "samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu",
    "bubble",
)  # fmt: skip
NO_PLAN = ("infeasible", "unknown", REFUSED, FAILED, LOST)


def row_of(problem: Problem[Any], result: Result, asked: ClusterSpec | None = None) -> Row:
    """Return the result of a problem, ready for JSON: seconds, bytes, and None for unknown values.

    Parameters
    ----------
    asked: the cluster of all nodes; None: that of the problem.
    """
    row: Row = {
        **devices_of(asked or problem.cluster),
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        "bound_s": _known(result.bound) or None,
        "wall_s": result.wall,
    }
    if result.plan is None or result.evaluation is None:
        return row | {"reason": result.reason or "no plan was found in time"}
    plan, evaluation = result.plan, result.evaluation
    row |= {
        "step_s": evaluation.iteration_time,
        **_expected(problem, plan, evaluation.iteration_time),
        "gap": _known(result.gap),
        "peak_memory_bytes": _known(evaluation.memory),
        "verdict": _verdict(problem, plan, evaluation),
        **parallelism_object(parallelism(problem, plan, evaluation)),
        "gpus_used": len(plan.used),
        "plan": plan_line(plan),
        "billed": billed(problem.cluster, plan),
    }
    rates = rates_object(throughput(problem, plan, evaluation)) or {}
    return row | {name: rates[name] for name in rates if name in RATES}


def billed(cluster: ClusterSpec, plan: AnyPlan) -> list[list[Any]]:
    """Return the billed devices, of all nodes that a plan uses: type, how many, price per hour and
    spot price."""
    found: Counter[tuple[Any, ...]] = Counter()
    for node in nodes_of(cluster, plan.used):
        device = cluster.device_types[cluster.node_types[node]]
        found[device.type, device.price, device.spot_price] += cluster.devices_of_nodes[node]
    return [[name, count, *prices] for (name, *prices), count in found.items()]


def devices_of(cluster: ClusterSpec) -> Row:
    """Return the number and the kinds of GPUs of a cluster."""
    kinds = dict.fromkeys(cluster.device_types[name].type for name in cluster.type_of)
    return {"gpus": cluster.device_count, "gpu": " + ".join(kinds)}


def plan_line(plan: AnyPlan) -> str:
    """Return a plan on one line: degrees, micro-batches, layers of every rank, how ranks train."""
    parts = [f"pp {plan.ranks}"]
    if is_of_groups(plan):
        degrees = (tp // plan.cp for stage in plan.stages for tp in stage.degrees)
        parts.append(f"tp {span(degrees)}")
        parts.append(f"dp {span(stage.dp for stage in plan.stages)}")
        unit = "layers"
    else:
        unit = "operators"
    count = plan.micro_batches
    batches = f"{counted(count, 'micro-batch')} of {plan.micro_batch_size}"
    if plan.ranks > 1:
        sizes = plan.per_rank([stage.stop - stage.start for stage in plan.stages])
        batches += f", {unit} {'-'.join(map(str, sizes))}"
    parts.append(batches)
    return ", ".join([*parts, *filter(None, [describe_training(plan)])])


def _expected(problem: Problem[Any], plan: AnyPlan, seconds: float) -> Row:
    found = expected_object(problem, plan, seconds)
    ends = found["expected_interval"] or dict.fromkeys(("low_s", "high_s"))
    return {
        "expected_error": found["expected_error"],
        **{f"expected_{name}": value for name, value in ends.items()},
        "expected_basis": found["expected_basis"],
    }


def _verdict(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> str | None:
    found = plan_verdict(problem, plan, evaluation)
    return None if found is None else str(found[0])


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


VERSION = 1  # of the format


class Kind(NamedTuple):
    """A kind of journals. word: of the work. other: what one of other work is called. begins: how a
    new one begins. beside: another file, of its name without `.jsonl`, is what people know."""

    word: str
    other: str
    begins: str
    beside: bool = False


class Journal:
    """Rows by the key of their point, in memory and on disk.

    path: None: in memory alone.
    """

    def __init__(self, path: Path | None, about: Mapping[str, str], kind: Kind) -> None:
        """Go on with a journal, or begin one.

        Raises
        ------
        UsageError: it is of other work, or another process works on it. PlanError: a line that was
        changed. OutputError: it cannot be read or written.
        """
        self.path, self.kind = path, kind
        self.rows: dict[str, Row] = {}
        self._lines: dict[str, int] = {}  # of rows that were there
        self._handle = None if path is None else _opened(path, kind)
        if path is not None and self._handle is not None:
            try:
                self._go_on(path, self._handle, about)
            except BaseException:
                self.close()
                raise

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, each with its `key`, and see them onto the disk.

        Raises
        ------
        OutputError: the system refuses.
        """
        lines = []
        for row in rows:
            self.rows[row["key"]] = row
            lines.append(_line(row))
        if self._handle is not None and lines:
            self._write("".join(lines))

    def read(self) -> Iterator[Fields]:
        """Yield the rows that were there, with their lines for messages."""
        for key, line in self._lines.items():
            yield Fields(self.rows[key], file=f"{self.path}: line {line}")

    def known(self, key: str) -> Row | None:
        """Return the row of a part of this work, from now on the latest one; None if it is not
        done."""
        row = self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row
        return row

    def latest(self) -> list[Row]:
        """Return a row for each set of values: of equal ones the latest. Others are of inputs that
        have changed since, as a GPU's constants."""
        return list({_values(row): row for row in self.rows.values()}.values())

    def close(self) -> None:
        """Let go of the file; no row is lost without it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, text: str) -> None:
        assert self._handle is not None
        assert self.path is not None
        append(self.path, self._handle, text.encode(errors="backslashreplace"))

    def _go_on(self, path: Path, handle: int, about: Mapping[str, str]) -> None:
        """Take the rows that are there; cut off a last line that is not whole."""
        first = _line({self.kind.word: VERSION, "about": dict(about)})
        with os.fdopen(os.dup(handle), "rb") as file:
            head, end = file.readline(), 0
            if head.endswith(b"\n"):
                _check_same(path, head, about, self.kind)
                end = len(head)
                for number, line in enumerate(file, 2):
                    if not line.endswith(b"\n"):
                        break
                    end += len(line)
                    row = _row(line, f"{path}: line {number}")
                    if row["status"] != LOST:  # is tried again
                        self.rows[row["key"]], self._lines[row["key"]] = row, number
        os.ftruncate(handle, end)
        if end == 0:
            self._write(first)


def _opened(path: Path, kind: Kind) -> int:
    """Open a journal for this process alone.

    Raises
    ------
    OutputError: the system refuses. UsageError: another process has it.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(
            f"{path}: another process is at work on this {kind.word}, expected its end; another "
            f"{kind.begins}"
        ) from None
    except OSError:  # a file system without locks
        return handle
    return handle


def _check_same(path: Path, head: bytes, about: Mapping[str, str], kind: Kind) -> None:
    """Refuse the journal of other work.

    Raises
    ------
    UsageError: with the differences.
    """
    try:
        there = json.loads(head)["about"]
        found = {str(name): str(text) for name, text in there.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path}: found no journal of a {kind.word}, expected one, or no file; another "
            f"{kind.begins}"
        ) from None
    unlike = [
        f"{name} {found.get(name, 'none')} there, {about.get(name, 'none')} here"
        for name in (*about, *(name for name in found if name not in about))
        if found.get(name) != about.get(name)
    ]
    if unlike:
        name = path.with_suffix("") if kind.beside else path
        raise UsageError(f"{name}: {kind.other}: {'; '.join(unlike)}; another {kind.begins}")


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n"


def _values(row: Row) -> str:
    return json.dumps(row["values"], sort_keys=True)


def _row(line: bytes, place: str) -> Row:
    """Return the row of a line.

    Raises
    ------
    PlanError: it is none.
    """
    try:
        found = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        text = line.decode(errors="replace").strip()
        raise PlanError(
            f"{place}: found {shown(text)}, expected a row as it was written; without the line, "
            "its part is done again"
        ) from None
    fields = Fields(found, file=place)
    fields.text("key")
    fields.text("status")
    fields.record("values")
    return fields.values


def _no_number(name: str) -> float:
    raise ValueError(name)
