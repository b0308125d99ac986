"""`make bench`: measure every case, write the results, show them in the manual.

python -m tests.benchmarks [--suite SUITE] [--only TEXT] [--seconds 200]
                           [--solvers auto,cp-sat,milp]
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from tests.benchmarks import (
    alpa,
    anytime,
    growth,
    kernel_judge,
    memory,
    mixed,
    peers,
    prediction,
    recipes,
    runtime,
    slicing_table,
    solutions,
    steps,
)
from tests.benchmarks.cases import CASES, DATA, ROOT
from tests.benchmarks.kernel_table import kernel_table
from tests.benchmarks.memory_table import memory_table
from tests.benchmarks.mixed_table import write_tables
from tests.benchmarks.steps_table import steps_table
from tests.benchmarks.table import aceso_table, write_table

RESULTS = Path(__file__).parent / "results" / "aceso.json"
ACESO_SECONDS = 200.0


def of_rows(module: ModuleType, name: str, table: Callable[..., str]) -> None:
    """Measure, and write the one table of what is known then."""
    module.measure()
    write_table(name, table(module.known()))


def memory_rows() -> None:
    """Judge memory; write its table."""
    memory.main()
    write_table("memory", memory_table(json.loads(memory.RESULTS.read_text())))


def mixed_clusters(suite: str, only: str, seconds: float | None) -> None:
    """Measure a suite of mixed clusters; write their tables."""
    mixed.measure(suite, only, seconds)
    write_tables(mixed.known())


def by_pytorch(suite: str, only: str) -> None:
    """Measure with PyTorch, which is imported for it."""
    from tests.benchmarks import step

    step.measure(suite, only)


# Name -> what measures it, of the options `--only` and `--seconds`.
SUITES: dict[str, Callable[[str, float | None], object]] = {
    **{name: partial(mixed_clusters, name) for name in mixed.KEYS},
    "memory": lambda only, seconds: memory_rows(),
    "alpa": lambda only, seconds: alpa.measure(),
    "predict": lambda only, seconds: prediction.measure(),
    "slicing": slicing_table.measure,
    "anytime": anytime.measure,
    "growth": growth.measure,
    "peers": peers.measure,
    "solutions": solutions.measure,
    "kernels": lambda only, seconds: of_rows(kernel_judge, "kernels", kernel_table),
    "steps": lambda only, seconds: of_rows(steps, "steps", steps_table),
    "recipes": recipes.measure,
    **{name: partial(runtime.measure, name) for name in ("megatron", "analyze")},
    **{name: lambda only, seconds, name=name: by_pytorch(name, only) for name in ("step", "gpu")},
}


def main() -> None:
    """Run the cases one after the other, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = ("aceso", *SUITES)
    parser.add_argument("--suite", choices=every, help="default: all of them")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--solvers", default="auto,cp-sat,milp", help="for the suite aceso")
    parser.add_argument("--seconds", type=float, help="time limit instead of the cases' own")
    options = parser.parse_args()
    for suite in every if options.suite is None else (options.suite,):
        if suite == "aceso":
            aceso(options.only, options.solvers.split(","), options.seconds or ACESO_SECONDS)
        else:
            SUITES[suite](options.only, options.seconds)


def aceso(only: str, solvers: list[str], seconds: float) -> None:
    """Measure Aceso's cases with every solver."""
    if not DATA.exists():
        print("aceso: left out, its profile database is not in ../shared/data/aceso")
        return
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {(row["case"], row["solver"]): row for row in known}
    for case in CASES:
        if only not in case.name:
            continue
        for solver in solvers:
            run = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.one", case.name, solver, str(seconds)],
                capture_output=True,
                text=True,
                cwd=ROOT,
                check=False,
            )
            if run.returncode:
                sys.exit(f"{case.name}, {solver}: {run.stderr}")
            row = json.loads(run.stdout.splitlines()[-1])
            rows[case.name, solver] = row
            print(
                f"{case.name:28} {solver:8} {row['objective_ms']:10.1f} ms  gap {row['gap']:.2e}  "
                f"first good {row['first_good_s'] or 0:6.2f} s  all {row['wall_s']:6.2f} s  "
                f"{row['peak_mb']:5.0f} MB",
                flush=True,
            )
            RESULTS.parent.mkdir(exist_ok=True)
            machine = f"Python {platform.python_version()}, 2 cores, {seconds:.0f} s limit"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_table("aceso", aceso_table(list(rows.values())))


if __name__ == "__main__":
    main()
