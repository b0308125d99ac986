"""Measure the event engine: one iteration of a pipeline, in a process that has compiled it.

python -m tests.benchmarks --suite engine
"""

import json
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ilp_planner.simulation.engine import StageTimes, expect, simulate
from ilp_planner.simulation.schedules import schedule_orders
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

RESULTS = Path(__file__).parent / "results" / "engine.json"
RUNS = 15
MANY = 10**9  # operations: compile


class Case(NamedTuple):
    """A pipeline. asked: milliseconds."""

    ranks: int
    virtual: int
    micro_batches: int
    asked: float | None


CASES = (Case(16, 1, 64, 2.0), Case(16, 4, 64, None), Case(64, 4, 512, 50.0))


def measure() -> None:
    """Time every case, keep the rows, show them in the manual."""
    expect(MANY)
    rows = [row(case) for case in CASES]
    RESULTS.write_text(
        json.dumps({"machine": f"Python {platform.python_version()}", "rows": rows}, indent=1)
        + "\n"
    )
    write_table("engine", table(rows))


def row(case: Case) -> dict[str, Any]:
    """Return what a pipeline takes to be run, and to be put in order once before."""
    stages = case.ranks * case.virtual
    drawn = np.random.default_rng(0).uniform(0.5, 1.5, (4, stages))
    drawn[1] = drawn[2] + drawn[3]
    sends = np.full(stages - 1, 0.01)
    name = "1f1b" if case.virtual == 1 else "interleaved"
    started = time.perf_counter()
    orders = schedule_orders(name, case.ranks, case.micro_batches, case.virtual)
    ordered = time.perf_counter() - started
    taken = []
    for _ in range(RUNS):
        started = time.perf_counter()
        simulate(orders, StageTimes(*drawn, sends, sends), blocking=case.virtual == 1)
        taken.append(time.perf_counter() - started)
    print(name, case, f"{1e3 * min(taken):.2f} ms", flush=True)
    return {
        **case._asdict(),
        "operations": 2 * stages * case.micro_batches,
        "least_ms": 1e3 * min(taken),
        "median_ms": 1e3 * float(np.median(taken)),
        "order_ms": 1e3 * ordered,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    heads = ["pipeline", "operations", "asked (ms)", f"least of {RUNS} (ms)", "median (ms)"]
    lines = [line([*heads, "its order, once (ms)"]), "|---|" + "---:|" * 5]
    for found in rows:
        shape = f"{found['ranks']} ranks x {found['virtual']} stages, {found['micro_batches']}"
        cells = [f"{shape} micro-batches", f"{found['operations']:,}"]
        cells.append("-" if found["asked"] is None else f"{found['asked']:g}")
        times = (found[name] for name in ("least_ms", "median_ms", "order_ms"))
        lines.append(line([*cells, *(f"{seconds:.2f}" for seconds in times)]))
    return "\n".join(lines)
