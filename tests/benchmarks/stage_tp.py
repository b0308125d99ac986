"""What it is worth that device types of a stage may differ in their tensor-parallel degree, and
what looking for it takes.

python -m tests.benchmarks --suite stage-tp [--only TEXT] [--seconds 60]

Every row is the command line twice, with one degree for all replicas of a stage and then, from the
plan of the first, with a degree for each device type, each in a process of its own on two cores,
with compiled kernels; seconds are those of both cores together.
"""

from __future__ import annotations

import json
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.again import measured
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table
from tests.benchmarks.warm import CORES

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "stage_tp.json"
SECONDS = 60.0
# What is asked of `ilp-plan solve`: model, cluster, batch and stages.
CASES = (
    "gpt3-350m mixed-v100-t4 --global-batch-size 64",
    "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
    "gpt3-2.6b mixed-v100-t4 --global-batch-size 256",
    "gpt3-6.7b mixed-a100-t4 --global-batch-size 256",
    "gpt3-1.3b mixed-v100-t4 --global-batch-size 64 --max-stages 2",
    "gpt3-1.3b mixed-a100-t4 --global-batch-size 256 --max-stages 1",
    "gpt3-13b mixed-h100-a100-v100 --global-batch-size 256",
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose words contain `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for case in CASES:
        if only in case:
            words = [*case.split(), "--space", "groups", "--time-limit", str(seconds or SECONDS)]
            with tempfile.TemporaryDirectory() as folder:
                plan = str(Path(folder) / "one.json")
                one = measured([*words, "--output", plan])
                start = ["--start", plan] if Path(plan).exists() else []
                mixed = measured([*words, "--stage-tp", "mixed", *start])
            rows[case] = {"case": case, "one": one, "mixed": mixed}
            print("stage-tp", json.dumps(rows[case]), flush=True)
            machine = f"Python {platform.python_version()}, {CORES} cores"
            order = [rows[name] for name in CASES if name in rows]
            RESULTS.write_text(json.dumps({"machine": machine, "rows": order}, indent=1) + "\n")
    write_table("stage-tp", table([rows[n] for n in CASES if n in rows]))


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown the plan's seconds with one degree and with several, and what the searches
    take."""
    head = ["case", "one degree (s)", "gap", "CPU-s", "one each (s)", "gap", "CPU-s more", "less"]
    lines = [line(head), "|---|" + "---:|" * 7]
    for row in rows:
        cells = [row["case"]]
        for one in (row["one"], row["mixed"]):
            none = one["objective_s"] is None
            cells += ["no plan" if none else f"{one['objective_s']:.3f}"]
            cells += ["-" if none else percent(one["gap"]), f"{one['cpu_s']:.1f}"]
        seconds = [row[name]["objective_s"] for name in ("one", "mixed")]
        cells.append("-" if None in seconds else percent(1 - seconds[1] / seconds[0]))
        lines.append(line(cells))
    return "\n".join(lines)
