"""What it costs to cover sets of nodes that leave some out.

python -m tests.benchmarks --suite left-out [--only TEXT]

Every case is the command `ilp-plan solve` in processes of its own, with `--all-devices` and
without, one after the other.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from ilp_planner.kernels import cores
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.benchmarks.times import children_cpu

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "left_out.json"
ALL = "--all-devices"
CASES = (
    "llama3-8b --gpus 64xH100 --global-batch-size 512",
    "gpt3-13b --gpus 32xA100-80GB --global-batch-size 512",
    "gpt3-1.3b --gpus 256xH100 --space operators --global-batch-size 1024",
    "mixtral-8x7b --gpus 64xH100 --global-batch-size 512",
    "mixtral-8x7b --gpus 128xH100 --global-batch-size 1024",
    "llama3-405b --gpus 2048xH100 --global-batch-size 2048",
    "llama3-70b --gpus 64xH100 --global-batch-size 512",
    "llama3-70b --gpus 64xH100 --runtime torchtitan --global-batch-size 1024",
)


def measure(only: str) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for case in CASES:
        if only in case:
            rows[case] = {"case": case, "all": solved(case, ALL), "any": solved(case)}
            print("left-out", json.dumps(rows[case]), flush=True)
            machine = f"Python {platform.python_version()}, {cores()} cores"
            record = {"machine": machine, "rows": [rows[name] for name in CASES if name in rows]}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_table("left-out", table([rows[name] for name in CASES if name in rows]))


def solved(case: str, *options: str) -> Row:
    """Return what a solve takes, and the nodes that its bound is about."""
    before = children_cpu()
    words = ["solve", *case.split(), "--prefer-plain", "0", *options, "--json"]
    if "--space" in case:
        words = [word for word in words if word not in ("--prefer-plain", "0")]
    command = [sys.executable, "-m", "ilp_planner", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        "cpu_s": children_cpu() - before,
        "seconds": found["objective_s"],
        "gap": found["gap"],
        "nodes": "" if options else found["among"].rpartition("; on ")[2],
    }


def table(rows: list[Row]) -> str:
    """Return a row per case."""
    lines = [
        line(("case", "all nodes (CPU-s)", "any nodes (CPU-s)", "times", "the bound covers")),
        "|---|---:|---:|---:|---|",
    ]
    for row in rows:
        every, some = row["all"]["cpu_s"], row["any"]["cpu_s"]
        cells = (f"`{row['case']}`", f"{every:.1f}", f"{some:.1f}", f"{some / every:.2f}")
        lines.append(line((*cells, row["any"]["nodes"])))
    return "\n".join(lines)
