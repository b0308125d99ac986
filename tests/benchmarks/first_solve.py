"""Measure the first solves after an installation, when the numerical kernels are compiled.

Every row is the command line in a process of its own on two cores, from start to end. The folder
that compiled code is kept in is empty at first; the second time is with what is in it then.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

RESULTS = Path(__file__).parent / "results" / "first_solve.json"
CORES = 2
MIXED = "--space groups --model gpt-10l-4096 --cluster mixed-a100-t4 --global-batch-size 8"
# What is solved, one after the other, and the seconds asked for.
CASES = (
    ("ilp-plan solve", "", 12.0),
    ("then the first mixed cluster", MIXED, None),
)


def measure() -> None:
    """Time every case, keep the rows, show them in the manual."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, words, asked in CASES:
            first, again = seconds(words, folder), seconds(words, folder)
            rows.append({"case": name, "asked_s": asked, "first_s": first, "again_s": again})
            print("first solve", json.dumps(rows[-1]), flush=True)
    machine = f"Python {platform.python_version()}, {CORES} cores"
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    write_table("first", table(rows))


def seconds(words: str, folder: str) -> float:
    """Return the seconds of one solve. folder: where compiled code is kept."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ilp_planner", "solve", *words.split(), "--json"],
        env={**os.environ, "NUMBA_CACHE_DIR": folder},
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES]),
    )
    return time.perf_counter() - started


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [line(["solve", "asked (s)", "first (s)", "again (s)"]), "|---|---:|---:|---:|"]
    for row in rows:
        asked = "-" if row["asked_s"] is None else f"{row['asked_s']:.0f}"
        lines.append(line([row["case"], asked, f"{row['first_s']:.1f}", f"{row['again_s']:.1f}"]))
    return "\n".join(lines)
