"""How long a solve takes that starts from a saved plan, after one change of what is asked.

python -m tests.benchmarks --suite warm [--only TEXT] [--seconds 200]

Every solve is the command line in a process of its own on two cores, with compiled kernels; seconds
are those of the process. The plan to start from is solved first; then every change twice, without
it and with it.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ilp_planner.formats.saved_json import read_saved
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.degrees import divisors
from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "warm.json"
CORES = 2
SECONDS = 200.0
SAME = 1e-9  # relative: of seconds per iteration
NODE = 8  # devices
# Model, devices and samples.
CASES = (
    ("llama3-70b", 64, 512),
    ("mixtral-8x7b", 64, 512),
    ("llama3-405b", 2048, 2048),
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose model contains `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for model, devices, batch in CASES:
        if only in model:
            row = measured(model, devices, batch, seconds or SECONDS)
            rows[row["case"]] = row
            machine = f"Python {platform.python_version()}, {CORES} cores"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_table("warm", table(list(rows.values())))


def measured(model: str, devices: int, batch: int, seconds: float) -> Row:
    """Return what every change takes, without and with the plan of before."""
    words = [model, "--gpus", f"{devices}xH100"]
    with tempfile.TemporaryDirectory() as name:
        saved = Path(name) / "plan.json"
        before = [*words, "--global-batch-size", str(batch), "--time-limit", str(seconds)]
        first = solve([*before, "--output", str(saved)])
        changes = []
        for change, more in changes_of(saved, devices, batch, seconds):
            cold = solve([*before, *more])
            warm = solve([*before, *more, "--start", str(saved)])
            changes.append({"change": change, "words": more, "cold": cold, "warm": warm})
            print("warm", model, json.dumps(changes[-1]), flush=True)
    return {"case": f"{model} on {devices} x H100", "first": first, "changes": changes}


def changes_of(
    saved: Path, devices: int, batch: int, seconds: float
) -> Iterator[tuple[str, list[str]]]:
    """Yield what is changed, and the words that say it after those of before."""
    plan = read_saved(saved).plan
    assert is_of_groups(plan)
    assert plan.settings is not None
    tp = plan.stages[0].tp // plan.settings.cp
    others = ",".join(str(other) for other in divisors(NODE) if other != tp)
    yield "another time limit", ["--time-limit", str(seconds / 2)]
    yield "a constraint that the plan keeps", ["--tp", str(tp)]
    yield "a constraint that it does not keep", ["--tp", others]
    yield "1 GiB less memory", ["--headroom", "1GiB"]
    yield "a node less", ["--max-devices", str(devices - NODE)]
    yield "twice the batch", ["--global-batch-size", str(2 * batch)]


def solve(words: Sequence[str]) -> Row:
    """Solve in a process of its own; return its seconds and what it found."""
    begun = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-m", "ilp_planner", "solve", *words, "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES]),
    )
    wall = time.perf_counter() - begun
    found: Row = json.loads(process.stdout) if process.stdout.strip() else {}
    notes = [note for note in found.get("notes", ()) if note.startswith("start: ")]
    return {
        "wall_s": wall,
        "exit_code": process.returncode,
        "objective_s": found.get("objective_s"),
        "gap": found.get("gap"),
        "objective": found.get("objective"),
        "note": notes[0].rpartition("plan.json")[2] if notes else "",
    }


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown what each change takes."""
    head = ["case", "change", "cold (s)", "warm (s)", "of cold", "taken of the file", "answer"]
    lines = [line(head), "|---|---|" + "---:|" * 3 + "---|---|"]
    for row in rows:
        for one in row["changes"]:
            cold, warm = one["cold"], one["warm"]
            cells = [
                row["case"],
                one["change"],
                f"{cold['wall_s']:.1f}",
                f"{warm['wall_s']:.1f}",
                f"{100 * warm['wall_s'] / cold['wall_s']:.0f} %",
                taken(warm["note"]),
                answer(cold, warm),
            ]
            lines.append(line(cells))
    return "\n".join(lines)


def taken(note: str) -> str:
    """Return what a note says that was taken."""
    if not note:
        return "nothing"
    plan = "a plan like it" if "which is none here" in note else "the plan"
    return f"{plan}, bounds" if "not derived again" in note else plan


def answer(cold: Row, warm: Row) -> str:
    """Return whether two solves found the same."""
    if cold["objective_s"] is None or warm["objective_s"] is None:
        return "no plan" if cold["exit_code"] == warm["exit_code"] else "differs"
    less = warm["objective_s"] / cold["objective_s"] - 1
    if abs(less) <= SAME and abs(cold["gap"] - warm["gap"]) <= SAME:
        return "the same"
    return f"{100 * less:+.3f} %, gaps {100 * cold['gap']:.2f} and {100 * warm['gap']:.2f} %"
