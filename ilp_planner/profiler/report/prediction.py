"""Predicted rows for people and for `--json`: value, provenance, expected error, basis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.costs.profiles.measurements import Record, RowStatus
from ilp_planner.faces.report.tables import Table, note_lines
from ilp_planner.faces.schemas import headed
from ilp_planner.profiler.predict.assessment import (
    TIME_COLUMNS,
    dropped_rows,
    errors_of,
    score,
)
from ilp_planner.profiler.predict.crossvalidation import Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.profiler.predict.answers import Answer
    from ilp_planner.profiler.predict.assessment import Judged

KINDS = {
    Record.LAYER: "layers",
    Record.OPERATOR: "operators",
    Record.STEP: "parts of a step",
    Record.COLLECTIVE: "collectives, by size",
    Record.MATMUL: "matrix products",
}
MEMORY = {
    "state_bytes": "states",
    "activation_bytes": "activations",
    "memory_bytes": "memory",
}


def answer_table(answers: Sequence[Answer]) -> Table:
    """Return a row per answer."""
    memory = [name for name in MEMORY if any(name in answer.row for answer in answers)]
    devices = {answer.row.get("device", "") for answer in answers}
    columns = ["what", *(["device"] if len(devices) > 1 else []), "where", "time"]
    columns += ["expected\nerror", "provenance", *(MEMORY[name] for name in memory), "basis"]
    table = Table(*columns, left=("what", "device", "where", "provenance", "basis"))
    for answer in answers:
        cells = [answer.what]
        cells += [str(answer.row.get("device", ""))] if len(devices) > 1 else []
        cells += [
            answer.where,
            format_seconds(answer.time.value),
            describe_error(answer),
            answer.time.provenance.value,
            *(format_bytes(answer.row.get(name, np.nan)) for name in memory),
            answer.time.basis,
        ]
        table.add(*cells)
    return table


def describe_error(answer: Answer) -> str:
    """Return the expected relative error of a time; `unknown` if nothing tells it."""
    error = answer.time.error
    if error is None:
        return "unknown"
    return "-" if error == 0.0 and answer.known else format_percent(error)


def prediction_lines(
    table: Measurements, answers: Sequence[Answer], judged: Sequence[Judged]
) -> list[tuple[str, str]]:
    """Say the error of predictions of every kind, and missing measurements."""
    lines = [("table", f"{table.source}, {len(table.frame)} rows")]
    for kind, protocol, found in scores(judged):
        lines.append(
            (
                f"{KINDS[kind]}, {protocol}",
                f"time off by {format_percent(found.mean)} (median {format_percent(found.median)}) "
                f"of {found.rows} values, each predicted from the other rows",
            )
        )
    lost = sum(answer.row.get("status") == RowStatus.OUT_OF_MEMORY for answer in answers)
    if lost:
        rows = "1 row needs" if lost == 1 else f"{lost} rows need"
        lines.append(("out of memory", f"{rows} no less than one that ran out of it when measured"))
    return [*lines, *note_lines((*table.notes, *(f"left out: {x}" for x in dropped_rows(table))))]


def scores(judged: Sequence[Judged]) -> list[tuple[Record, str, Any]]:
    """Return kind, protocol and score of times, if any row was judged."""
    found = []
    for kind in KINDS:
        mine = [j for j in judged if j.kind is kind]
        for protocol in Protocol:
            one = score(errors_of(mine, protocol, TIME_COLUMNS))
            if one.rows:
                found.append((kind, protocol.value, one))
    return found


def prediction_object(
    table: Measurements, answers: Sequence[Answer], judged: Sequence[Judged]
) -> dict[str, Any]:
    """Return the object of `--json`."""
    return {
        **headed("profile-predict"),
        "table": table.source,
        "machine": dict(table.machine),
        "predictions": [
            {
                "what": answer.what,
                "where": answer.where,
                "time_s": answer.time.value,
                "provenance": answer.time.provenance.value,
                "expected_error": answer.time.error,
                "basis": answer.time.basis,
                "row": {key: _plain(value) for key, value in answer.row.items()},
            }
            for answer in answers
        ],
        "cross_validation": [
            {
                "kind": kind.value,
                "protocol": protocol,
                "values": found.rows,
                "mean": found.mean,
                "median": found.median,
                "percentile_90": found.high,
            }
            for kind, protocol, found in scores(judged)
        ],
        "left_out": list(dropped_rows(table)),
        "notes": list(table.notes),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return value
