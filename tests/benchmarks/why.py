"""How long `ilp-plan why` takes, and how far the gains that it says are proved.

python -m tests.benchmarks --suite why [--only TEXT] [--seconds 12]

Every command is a process of its own on four cores, with compiled kernels; seconds are those of the
process. The plan is solved first, until it is proved.
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

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "why.json"
CORES = 4
SECONDS = 12.0
FIRST = 300.0  # seconds for the plan
# What is planned, and what is asked besides what limits it.
CASES = (
    ("llama3-70b", "64xH100", 512, "tp=8"),
    ("mixtral-8x7b", "64xH100", 512, "ep=8"),
    ("llama3-8b", "32xA100-80GB", 256, "tp=8"),
    ("llama3-405b", "512xH100", 512, "tp=8"),
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose model contains `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for case in CASES:
        if only in case[0]:
            row = measured(*case, seconds or SECONDS)
            rows[row["case"]] = row
            print("why", json.dumps(row), flush=True)
            machine = f"Python {platform.python_version()}, {CORES} cores"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_table("why", table(list(rows.values())))


def measured(model: str, gpus: str, batch: int, instead: str, seconds: float) -> Row:
    """Return what asking takes, and what is known then."""
    with tempfile.TemporaryDirectory() as name:
        plan = str(Path(name) / "plan.json")
        words = ["solve", model, "--gpus", gpus, "--global-batch-size", str(batch)]
        asked([*words, "--time-limit", str(FIRST), "--output", plan])
        limit = ["--time-limit", str(seconds), "--workers", str(CORES)]
        wall, found = asked(["why", plan, *limit])
        other, alternative = asked(["why", plan, "--not", instead, *limit])
    best = found["best_s"]
    return {
        "case": f"{model} on {gpus}",
        "wall_s": wall,
        "iteration_time_s": best,
        "gains": [
            {
                "limit": gain["limit"],
                "change": gain["change"],
                "least": gain["gain_at_least_s"] / best,
                "most": gain["gain_at_most_s"] / best,
                "stopped_by": gain["stopped_by"],
            }
            for gain in found["gains"]
            if gain.get("gain_at_least_s") is not None and gain["gain_at_most_s"] is not None
        ],
        "tried": len(found["gains"]),
        "not": instead,
        "not_wall_s": other,
        "not_costs": [alternative["costs_at_least_s"], alternative["costs_at_most_s"]],
    }


def asked(words: list[str]) -> tuple[float, Row]:
    """Run a command; return its seconds and what it printed."""
    begun = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words, "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES]),
    )
    found: Row = json.loads(process.stdout)
    return time.perf_counter() - begun, found


def table(rows: list[Row]) -> str:
    """Return as Markdown what each case takes, and how wide its ranges are."""
    head = ["case", "changes", "why (s)", "closed", "widest range", "most surely gained by"]
    lines = [line([*head, "--not", "(s)"]), "|---|" + "---:|" * 4 + "---|---|---:|"]
    for row in rows:
        gains = row["gains"]
        closed = sum(gain["stopped_by"] != "time" for gain in gains)
        widest = max(gain["most"] - max(gain["least"], 0.0) for gain in gains)
        best = max(gains, key=lambda gain: gain["least"])
        cells = [
            row["case"],
            str(row["tried"]),
            f"{row['wall_s']:.1f}",
            f"{closed} of {row['tried']}",
            f"{100 * widest:.1f} %",
            f"{best['limit']}: {best['change']}, {100 * best['least']:.1f} to "
            f"{100 * best['most']:.1f} %",
            f"`{row['not']}`",
            f"{row['not_wall_s']:.1f}",
        ]
        lines.append(line(cells))
    return "\n".join(lines)
