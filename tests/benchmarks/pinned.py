"""How many points a sweep does in a minute that leave nothing to choose, and what judging takes.

python -m tests.benchmarks --suite sweep [--only TEXT]

Of every point of a pinned sweep all settings are said, so that it is a plan to judge, or none. Two
processes solve the points, with a journal on disk, from their start to their end. Seconds of CPU,
those of the process that hands the points out included, say more on a machine where others work.
"""

import json
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ilp_planner as ilp
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.kernels import cores
from ilp_planner.solvers.base import PREFER_PLAIN, Limits
from ilp_planner.sweeps.axes import axis_of
from ilp_planner.sweeps.executors.local import Local
from ilp_planner.sweeps.journal import Journal, heading
from ilp_planner.sweeps.points import Sweep
from ilp_planner.sweeps.run import Run
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.benchmarks.times import children_cpu

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "pinned.json"
WORKERS = 2
PER_MINUTE, PER_SECOND, MILLISECONDS = 60_000, 500, 2.0  # asked
SIZES = {"global_batch": [256, 512, 1024, 2048], "micro_batch_sizes": [4, 8, 16, 32, 64]}
SAID: dict[str, object] = {
    "gpus": "64xH100",
    "cp_comm": "p2p",
    "rank_order": "tp-cp-ep-dp-pp",
    "layout": "even",
    "virtual_stages": 1,
    **SIZES,
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8],
    "sharding": ["none", "optimizer"],
    "recompute": ["none", "core_attn", "full"],
}
# Model -> what is varied.
SWEEPS: dict[str, dict[str, object]] = {
    "llama3-8b": {**SAID, "cp": [1, 2]},
    "llama3-70b": {**SAID, "cp": [1, 2]},
    "mixtral-8x7b": {**SAID, "cp": 1, "ep": [1, 8]},
}
# Name -> model and what is said of the plan that is judged.
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3-70b on 64 H100, 16 stages": (
        "llama3-70b",
        {
            "gpus": "64xH100",
            "global_batch": 256,
            "tp": 8,
            "pp": 4,
            "virtual_stages": 4,
            "recompute": "core_attn",
            "micro_batch_sizes": [2],
        },
    ),
    "llama3-405b on 16,384 H100, 16 stages": (
        "llama3-405b",
        {
            "gpus": "16384xH100",
            "global_batch": 2048,
            "tp": 8,
            "pp": 16,
            "virtual_stages": 1,
            "recompute": "full",
            "micro_batch_sizes": [128],
        },
    ),
}
REPEATS, ROUNDS = 20, 15


def measure(only: str) -> None:
    """Measure the cases whose name contains `only`; write the results and the tables."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for name in (*SWEEPS, *PLANS):
        if only in name or only in "pinned":
            rows[name] = swept(name) if name in SWEEPS else judged(name)
            print("pinned", json.dumps(rows[name]), flush=True)
            machine = f"Python {platform.python_version()}, {cores()} cores"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_table("pinned", sweep_table([rows[name] for name in SWEEPS if name in rows]))
    write_table("one-plan", plan_table([rows[name] for name in PLANS if name in rows]))


def swept(model: str) -> Row:
    """Return what a pinned sweep takes."""
    axes = tuple(axis_of(field, values) for field, values in SWEEPS[model].items())
    files = {"model": Reference(name=model), "profile": Reference(name="analytic")}
    limits = Limits(seconds=200.0, workers=1, prefer_plain=PREFER_PLAIN)
    sweep = Sweep(base=Request(files=files), axes=axes, limits=limits)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "pinned.csv.jsonl", heading(sweep))
        begun, own, others = time.perf_counter(), time.process_time(), children_cpu()
        Run(sweep, Local(workers=WORKERS), journal, lambda done, what: None).finish()
        wall, own = time.perf_counter() - begun, time.process_time() - own
        journal.close()
    found = Counter(kind_of(row) for row in journal.rows.values())
    return {
        "case": model,
        "points": sweep.size,
        **found,
        "wall_s": wall,
        "main_cpu_s": own,
        "workers_cpu_s": children_cpu() - others,
    }


def kind_of(row: Row) -> str:
    """Return what became of a point."""
    if row["status"] == "optimal":
        return "plans"
    return "no_memory" if "more memory than it has" in row["reason"] else "contradictory"


def judged(name: str) -> Row:
    """Return what judging a plan takes through Python, once everything is known."""
    model, said = PLANS[name]
    problem = ilp.problem(
        model, cp=1, sharding="optimizer", cp_comm="p2p", rank_order="tp-cp-ep-dp-pp", **said
    )
    result = ilp.solve(problem, seconds=30)
    assert result.plan is not None, result.reason
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(REPEATS):
            ilp.evaluate(problem, result.plan)
        times.append((time.process_time() - begun) / REPEATS)
    return {"case": name, "least_s": min(times), "median_s": sorted(times)[ROUNDS // 2]}


def sweep_table(rows: Sequence[Row]) -> str:
    """Return as Markdown how many points are done in a minute."""
    head = [
        "pinned sweep on 64 H100",
        "points",
        "with a plan",
        "too little memory",
        "contradictory",
        "sweep (s)",
        "CPU (s)",
        "points a minute",
        "by CPU of two cores",
        "asked",
        "a second and core",
        "asked",
    ]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        cpu = row["main_cpu_s"] + row["workers_cpu_s"]
        cells = [
            row["case"],
            f"{row['points']:,}",
            *(f"{row.get(kind, 0):,}" for kind in ("plans", "no_memory", "contradictory")),
            f"{row['wall_s']:.1f}",
            f"{cpu:.1f}",
            f"{60 * row['points'] / row['wall_s']:,.0f}",
            f"{60 * WORKERS * row['points'] / cpu:,.0f}",
            f"{PER_MINUTE:,}",
            f"{row['points'] / cpu:.0f}",
            f"{PER_SECOND}",
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def plan_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what judging takes."""
    head = ["plan", "least (ms)", "median (ms)", "asked (ms)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        each = [f"{row[key] * 1e3:.2f}" for key in ("least_s", "median_s")]
        lines.append(line([row["case"], *each, f"{MILLISECONDS:g}"]))
    return "\n".join(lines)
