"""Solve the cases of Aceso's evaluation anew into solutions/, by the command line.

python -m tests.benchmarks --suite solutions [--only TEXT]

Equal inputs give equal bytes: what differs afterwards has changed.
"""

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.cases import CASES, ROOT, Case

SECONDS = 200.0
LARGE = "scale-layer-1024"  # whose plan is a large file
KEPT = tuple(case for case in CASES if case.model != LARGE)


def file_of(case: Case) -> Path:
    """Return where the plan of a case is."""
    cluster = case.cluster.replace("-32gb", "")
    lowered = "-12gb" if case.memory == "12000 MiB" else ""
    return ROOT / "solutions" / f"{case.model}--{cluster}{lowered}.json"


def command(case: Case, seconds: float) -> list[str]:
    """Return the words that solve a case."""
    return [
        "solve",
        *("--model", f"models/{case.model}.toml", "--cluster", f"clusters/{case.cluster}.toml"),
        *("--profile", f"aceso:../shared/data/aceso/{case.database}", "--cost-model", "aceso"),
        *("--global-batch-size", str(case.global_batch), "--memory-limit", case.memory),
        *("--time-limit", f"{seconds:g}", "--reproducible"),
        *("--output", str(file_of(case).relative_to(ROOT))),
    ]


def measure(only: str, seconds: float | None) -> None:
    """Solve the cases whose name contains `only`."""
    for case in KEPT:
        if only in case.name:
            words = command(case, seconds or SECONDS)
            print("ilp-plan", *words, flush=True)
            subprocess.run([sys.executable, "-m", "ilp_planner", *words], cwd=ROOT, check=True)
