"""How long a sweep takes beside the sum of its points, solved one by one.

python -m tests.benchmarks --suite sweep [--only TEXT] [--seconds 200]

The points are solved twice by processes with compiled kernels that have solved a point before. Once
one after the other in one process, each from nothing: the sum of these seconds over the cores is
what the sweep is held to. Then as the sweep does it, on all cores, with starts from neighbours.
Seconds of CPU are counted as well: on a machine where others work, they say more.
"""

import json
import math
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilp_planner.inputs.request import Reference, Request
from ilp_planner.kernels import cores
from ilp_planner.solvers.base import PREFER_PLAIN, Limits
from ilp_planner.sweeps.axes import axis_of
from ilp_planner.sweeps.executors.local import Local
from ilp_planner.sweeps.journal import Journal, heading
from ilp_planner.sweeps.points import Sweep
from ilp_planner.sweeps.row import NO_PLAN
from ilp_planner.sweeps.run import Run
from ilp_planner.sweeps.work import Chunk, Task
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.benchmarks.times import children_cpu

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "sweep.json"
SECONDS = 200.0
ASKED = 1.2  # times the sum of the points over the cores
SAME = 1e-9  # relative: of seconds per iteration
BATCHES = [64, 96, 128, 192, 256, 384, 512, 1024]
# Name -> what is varied of llama3-8b on H100.
CASES: dict[str, dict[str, object]] = {
    "24 points": {"gpus": "16..64xH100", "global_batch": BATCHES},
    "200 points": {
        "gpus": "8..128xH100",
        "global_batch": BATCHES,
        "headroom": ["1GiB", "4GiB", "8GiB", "16GiB", "24GiB"],
    },
}


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for name, vary in CASES.items():
        if only in name:
            rows[name] = measured(name, vary, seconds or SECONDS)
            print("sweep", json.dumps(rows[name]), flush=True)
            machine = f"Python {platform.python_version()}, {cores()} cores"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    if rows:
        write_table("sweep", table(list(rows.values())))


def measured(name: str, vary: dict[str, object], seconds: float) -> Row:
    """Return what a sweep takes, and its points one by one."""
    limits = Limits(seconds=seconds, workers=1, prefer_plain=PREFER_PLAIN)
    axes = tuple(axis_of(field, values) for field, values in vary.items())
    files = {"model": Reference(name="llama3-8b"), "profile": Reference(name="analytic")}
    sweep = Sweep(base=Request(files=files), axes=axes, limits=limits)
    alone, alone_cpu, seconds_of = one_by_one(sweep)
    journal = Journal(None, heading(sweep))
    executor = Local()
    begun, cpu = time.perf_counter(), children_cpu()
    Run(sweep, executor, journal, lambda done, what: None).finish()
    wall = time.perf_counter() - begun
    found = {sweep.number_of(row["values"]): row for row in journal.rows.values()}
    worst = max(
        (abs(found[n]["step_s"] / step - 1) for n, step in seconds_of.items() if step), default=0.0
    )
    return {
        "case": name,
        "points": sweep.size,
        "without_plan": sum(row["status"] in NO_PLAN for row in found.values()),
        "cores": executor.slots,
        "alone_s": alone,
        "alone_cpu_s": alone_cpu,
        "sweep_s": wall,
        "sweep_cpu_s": children_cpu() - cpu,
        "largest_difference": worst,
    }


def one_by_one(sweep: Sweep) -> tuple[float, float, dict[int, float]]:
    """Solve all points in one process, each from nothing, after the first one to warm it; return
    the sum of their seconds, those of CPU, and what plans take by point."""
    executor = Local(workers=1)
    steps: dict[int, float] = {}
    begun, cpu = math.nan, math.nan
    folder = os.getcwd()  # noqa: PTH109
    for number in (0, *range(sweep.size)):
        task = Task(number, sweep.request(sweep.point(number)), sweep.limits, None, folder)
        executor.submit(Chunk((task,)))
        done = []
        while not done:
            done = executor.collect(60.0)
        assert done[0].solved is not None, done[0].why
        (outcome,) = done[0].solved.outcomes
        if math.isnan(begun):
            begun, cpu = time.perf_counter(), process_cpu(executor)
        else:
            steps[number] = outcome.row.get("step_s", 0.0)
    wall, used = time.perf_counter() - begun, process_cpu(executor) - cpu
    executor.cancel()
    return wall, used, steps


def process_cpu(executor: Local) -> float:
    """Return the seconds of CPU that the one process of an executor has used."""
    stat = Path(f"/proc/{executor.processes[0].process.pid}/stat").read_text()
    user, system = stat.rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown what sweeps take."""
    head = [
        "sweep of llama3-8b on H100",
        "cores",
        "points one by one (s)",
        "over the cores (s)",
        "sweep (s)",
        "of that",
        "asked",
        "CPU, one by one (s)",
        "CPU, sweep (s)",
    ]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        share = row["alone_s"] / row["cores"]
        cells = [
            row["case"],
            str(row["cores"]),
            f"{row['alone_s']:.0f}",
            f"{share:.0f}",
            f"{row['sweep_s']:.0f}",
            f"{row['sweep_s'] / share:.2f}",
            f"{ASKED:g}",
            f"{row['alone_cpu_s']:.0f}",
            f"{row['sweep_cpu_s']:.0f}",
        ]
        lines.append(line(cells))
    return "\n".join(lines)
