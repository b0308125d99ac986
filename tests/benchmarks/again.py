"""What it is worth that stages of groups may compute layers again, and what looking for it takes.

python -m tests.benchmarks --suite again [--only TEXT] [--seconds 60]

Every row is the command line twice, without recomputation (`--recompute none`, what there was
before) and with all that is tried, each in a process of its own on two cores, with compiled
kernels; seconds are those of both cores together.
"""

from __future__ import annotations

import json
import platform
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table
from tests.benchmarks.warm import CORES, solve

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "again.json"
SECONDS = 60.0
# What is asked of `ilp-plan solve`: model, cluster, batch and memory.
CASES = (
    "gpt3-350m mixed-v100-t4 --global-batch-size 64",
    "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
    "gpt3-2.6b mixed-v100-t4 --global-batch-size 256",
    "gpt3-6.7b mixed-a100-t4 --global-batch-size 256",
    "gpt3-6.7b mixed-a100-t4 --global-batch-size 256 --memory-limit 40GiB",
    "gpt3-13b mixed-h100-a100-v100 --global-batch-size 256",
    "gpt3-6.7b --gpus 2048xH100 --global-batch-size 1920",
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose words contain `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for case in CASES:
        if only in case:
            words = [*case.split(), "--space", "groups", "--time-limit", str(seconds or SECONDS)]
            row = {
                "case": case,
                "none": measured([*words, "--recompute", "none"]),
                "any": measured(words),
            }
            rows[case] = row
            print("again", json.dumps(row), flush=True)
            machine = f"Python {platform.python_version()}, {CORES} cores"
            order = [rows[name] for name in CASES if name in rows]
            RESULTS.write_text(json.dumps({"machine": machine, "rows": order}, indent=1) + "\n")
    write_table("again", table([rows[n] for n in CASES if n in rows]))


def measured(words: Sequence[str]) -> Row:
    """Solve; return the plan's seconds, its gap, and the seconds of all cores."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = solve(words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {name: row[name] for name in ("wall_s", "objective_s", "gap")} | {"cpu_s": cpu}


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown the plan's seconds with and without, and what the searches take."""
    head = ["case", "without (s)", "gap", "CPU-s", "recomputed (s)", "gap", "CPU-s", "less"]
    lines = [line(head), "|---|" + "---:|" * 7]
    for row in rows:
        without, again = row["none"], row["any"]
        cells = [row["case"]]
        for one in (without, again):
            none = one["objective_s"] is None
            cells += ["no plan" if none else f"{one['objective_s']:.3f}"]
            cells += ["-" if none else percent(one["gap"]), f"{one['cpu_s']:.1f}"]
        both = without["objective_s"] is not None and again["objective_s"] is not None
        less = 1 - again["objective_s"] / without["objective_s"] if both else None
        lines.append(line([*cells, "-" if less is None else percent(less)]))
    return "\n".join(lines)
