"""How long the proofs of objectives over sets of nodes take.

python -m tests.benchmarks --suite price [--only TEXT] [--seconds 200]

Every row is the command line in a process of its own on two cores, with compiled kernels; seconds
are those of the process.
"""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table
from tests.benchmarks.warm import CORES, solve

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "price.json"
SECONDS = 200.0
# What is asked of `ilp-plan solve`: model, cluster, batch and prices.
CASES = (
    "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
    "gpt3-1.3b mixed-v100-t4 --global-batch-size 256 --space groups",
    "gpt3-1.3b v100-32gb-4x8 --global-batch-size 256 --space operators --price 3",
    "llama3-8b a100-4x8 --global-batch-size 256 --price 2",
    "llama3-70b h100-8x8 --global-batch-size 512 --price 2.5",
)
OBJECTIVES = ("price", "both")


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose words contain `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows: dict[str, Row] = {row["case"]: row for row in known}
    for case in CASES:
        if only in case:
            words = [*case.split(), "--time-limit", str(seconds or SECONDS)]
            row = {"case": case, "time": measured(words)}
            row |= {name: measured([*words, "--objective", name]) for name in OBJECTIVES}
            rows[case] = row
            print("price", json.dumps(row), flush=True)
            machine = f"Python {platform.python_version()}, {CORES} cores"
            RESULTS.write_text(
                json.dumps({"machine": machine, "rows": list(rows.values())}, indent=1) + "\n"
            )
    write_table("price", table(list(rows.values())))


def measured(words: Sequence[str]) -> Row:
    """Solve; return its seconds, the gap, and how many plans and sets of nodes there are."""
    row = solve(words)
    found = row.pop("objective") or {"gap": None, "best": (), "sets": ()}
    return {**row, "gap": found["gap"], "plans": len(found["best"]), "sets": len(found["sets"])}


def share(gap: float | None) -> str:
    """Return a gap in percent; `open` without one."""
    return "open" if gap is None else percent(gap)


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown what each proof takes."""
    head = ["case", "sets", "price (s)", "gap", "both (s)", "plans", "gap", "time alone (s)"]
    lines = [line(head), "|---|" + "---:|" * 7]
    for row in rows:
        price, both = (row[name] for name in OBJECTIVES)
        lines.append(
            line(
                [
                    row["case"],
                    str(price["sets"]),
                    f"{price['wall_s']:.1f}",
                    share(price["gap"]),
                    f"{both['wall_s']:.1f}",
                    str(both["plans"]),
                    share(both["gap"]),
                    f"{row['time']['wall_s']:.1f}",
                ]
            )
        )
    return "\n".join(lines)
