"""How often `ilp-plan doctor` names the injected cause first, and none in healthy runs.

Each log is simulated anew on `RUNS` machines; beside it with half the fault. One limit was set with
half faults in view: `ALONE` of `analysis.doctor.causes_kernels`, for slow links. Logs of real
training on CPUs are made once, and judged by their steps alone. With arguments it reads public logs
out of a copy of their repository instead:
python -m tests.benchmarks.doctor REPOSITORY PATTERN
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from ilp_planner.analysis.doctor.doctor import diagnose
from ilp_planner.formats.logs.base import LogError
from ilp_planner.formats.logs.read import read_log
from tests.benchmarks import doctor_real
from tests.benchmarks.doctor_logs import HEALTHY, MADE, WELL, Fault, Made, judge_of
from tests.benchmarks.kept import Kept
from tests.benchmarks.table import write_table

RUNS = 10
# Numbers of a fault that are factors: half of one is half of what is above 1.
FACTORS = ("kernels", "rank", "links", "fallen", "fullest")
AMOUNTS = ("gaps", "stall", "loading", "late", "retried")


def half(made: Made) -> Made | None:
    """Return a log with half the fault; None where it has no half, as a setting."""
    fault, usual = made.fault, Fault()
    changed: dict[str, Any] = {
        name: 1 + (getattr(fault, name) - 1) / 2
        for name in FACTORS
        if getattr(fault, name) != getattr(usual, name)
    }
    changed |= {name: getattr(fault, name) / 2 for name in AMOUNTS if getattr(fault, name)}
    if fault.fill < 1:
        changed["fill"] = 1 - (1 - fault.fill) / 2
    if fault.warm != usual.warm:
        changed["warm"] = tuple(1 + (each - 1) / 2 for each in fault.warm)
    return replace(made, fault=replace(fault, **changed)) if changed else None


def first_cause(path: Path, job: str = "") -> str:
    """Return the name of the first cause of a log, `HEALTHY` if none is named."""
    found = diagnose([read_log(path)], judge_of(job) if job else None)
    return found.causes[0].name if found.causes else HEALTHY


def row_of(made: Made, folder: Path) -> dict[str, Any]:
    """Return how often a log is diagnosed."""
    named = Counter(first_cause(made.into(folder, seed), made.job) for seed in range(RUNS))
    less = half(made)
    lesser = (
        None
        if less is None
        else Counter(first_cause(less.into(folder, seed), made.job) for seed in range(RUNS))
    )
    return {
        "case": made.name,
        "cause": made.cause,
        "runs": RUNS,
        "first": named[made.cause],
        "first_of_half": None if lesser is None else lesser[made.cause],
        "others": sorted({*named, *(lesser or ())} - {made.cause}),
    }


def measure(only: str = "", seconds: float | None = None) -> None:
    """Diagnose all logs; write the table."""
    cases = (*MADE, *WELL)
    order = [made.name for made in cases] + list(doctor_real.KINDS)
    kept = Kept("doctor", order)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for made in cases:
            if only in made.name:
                kept.add(row_of(made, folder))
        for kind, (cause, *_) in doctor_real.KINDS.items():
            if only in kind:
                found = first_cause(doctor_real.log_of(kind, folder))
                others = [found] * (found != cause)
                kept.add({"case": kind, "cause": cause, "runs": 1, "first": int(found == cause),
                          "first_of_half": None, "others": others})  # fmt: skip
    write_table("doctor", table(kept.rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the manual: a row per log, and their sums."""
    lines = ["| log | cause | named first | with half the fault | named instead |",
             "|---|---|---:|---:|---|"]  # fmt: skip
    for row in rows:
        lesser = "-" if row["first_of_half"] is None else f"{row['first_of_half']} of {row['runs']}"
        others = ", ".join(row["others"]) or "-"
        lines.append(
            f"| {row['case']} | {row['cause']} | {row['first']} of {row['runs']} | {lesser} "
            f"| {others} |"
        )
    ill = [row for row in rows if row["cause"] != HEALTHY]
    well = [row for row in rows if row["cause"] == HEALTHY]
    for title, some in (("all with a cause", ill), ("all healthy", well)):
        first, runs = (sum(row[key] for row in some) for key in ("first", "runs"))
        halves = [row for row in some if row["first_of_half"] is not None]
        less = sum(row["first_of_half"] for row in halves)
        lesser = f"{less} of {sum(row['runs'] for row in halves)}" if halves else "-"
        lines.append(f"| **{title}** | | **{first} of {runs}** | **{lesser}** | |")
    return "\n".join(lines)


def read_public(repository: str, pattern: str) -> Counter[str]:
    """Return how many files of a repository are read, and why others are not. Their content is
    taken from its git objects."""
    git = ["git", "-C", repository]
    listed = subprocess.run([*git, "ls-tree", "-r", "HEAD", "--name-only"], check=True,
                            capture_output=True, text=True).stdout  # fmt: skip
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in listed.splitlines():
            if not re.search(pattern, name):
                continue
            shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True)
            if shown.returncode:  # listed, and not in this copy
                continue
            path = Path(folder) / f"log{Path(name).suffix}"
            path.write_bytes(shown.stdout)
            try:
                read_log(path)
                found["read"] += 1
            except LogError as error:
                found[str(error).removeprefix(f"{path}: ").split("(")[0]] += 1
    return found


if __name__ == "__main__":
    for text, count in read_public(*sys.argv[1:]).most_common():
        print(f"{count:6,}  {text}")
