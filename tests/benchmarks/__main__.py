"""`make bench`: measure every case, write the results, show them in the manual.

python -m tests.benchmarks [--suite SUITE] [--only TEXT] [--seconds 200]
                           [--solvers auto,cp-sat,milp]
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from tests.benchmarks import (
    again,
    alpa,
    anytime,
    engine,
    first_solve,
    growth,
    kernel_judge,
    left_out,
    memory,
    mixed,
    peers,
    pinned,
    prediction,
    price,
    recipes,
    runtime,
    search,
    seats,
    slicing_table,
    solutions,
    stage_tp,
    steps,
    sweep,
    warm,
    why,
)
from tests.benchmarks.cases import CASES, DATA, ROOT
from tests.benchmarks.kernel_table import kernel_table
from tests.benchmarks.memory_table import memory_table
from tests.benchmarks.mixed_table import write_tables
from tests.benchmarks.steps_table import steps_table
from tests.benchmarks.table import aceso_table, write_table

RESULTS = Path(__file__).parent / "results" / "aceso.json"
ACESO_SECONDS = 200.0
RUNTIME = ("megatron", "analyze")
MEASURED = ("step", "gpu")  # by PyTorch; the latter on a GPU only
SUITES = (
    "aceso",
    *mixed.KEYS,
    "memory",
    "alpa",
    "predict",
    "slicing",
    "search",
    "first",
    "anytime",
    "growth",
    "peers",
    "warm",
    "sweep",
    "why",
    "price",
    "left-out",
    "again",
    "stage-tp",
    "seats",
    "solutions",
    "engine",
    "kernels",
    "steps",
    "recipes",
    *RUNTIME,
    *MEASURED,
)


def main() -> None:
    """Run the cases one after the other, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, help="default: all of them")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--solvers", default="auto,cp-sat,milp", help="for the suite aceso")
    parser.add_argument("--seconds", type=float, help="time limit instead of the cases' own")
    options = parser.parse_args()
    for suite in SUITES if options.suite is None else (options.suite,):
        if suite == "aceso":
            aceso(options.only, options.solvers.split(","), options.seconds or ACESO_SECONDS)
        elif suite == "memory":
            memory.main()
            table = memory_table(json.loads(memory.RESULTS.read_text()))
            write_table("memory", table)
        elif suite == "alpa":
            alpa.measure()
        elif suite == "predict":
            prediction.measure()
        elif suite == "slicing":
            slicing_table.measure(options.only, options.seconds)
        elif suite == "search":
            search.measure(options.only, options.seconds)
        elif suite == "first":
            first_solve.measure()
        elif suite == "anytime":
            anytime.measure(options.only, options.seconds)
        elif suite == "growth":
            growth.measure(options.only, options.seconds)
        elif suite == "peers":
            peers.measure(options.only, options.seconds)
        elif suite == "warm":
            warm.measure(options.only, options.seconds)
        elif suite == "sweep":
            sweep.measure(options.only, options.seconds)
            pinned.measure(options.only)
        elif suite == "why":
            why.measure(options.only, options.seconds)
        elif suite == "price":
            price.measure(options.only, options.seconds)
        elif suite == "left-out":
            left_out.measure(options.only)
        elif suite == "again":
            again.SUITE.measure(options.only, options.seconds)
        elif suite == "stage-tp":
            stage_tp.SUITE.measure(options.only, options.seconds)
        elif suite == "seats":
            seats.SUITE.measure(options.only, options.seconds)
        elif suite == "engine":
            engine.measure()
        elif suite == "solutions":
            solutions.measure(options.only, options.seconds)
        elif suite == "kernels":
            kernel_judge.measure()
            write_table("kernels", kernel_table(kernel_judge.known()))
        elif suite == "steps":
            steps.measure()
            write_table("steps", steps_table(steps.known()))
        elif suite == "recipes":
            recipes.measure(options.only, options.seconds)
        elif suite in RUNTIME:
            runtime.measure(suite, options.only, options.seconds)
        elif suite in MEASURED:
            from tests.benchmarks import step

            step.measure(suite, options.only)
        else:
            mixed.measure(suite, options.only, options.seconds)
            write_tables(mixed.known())


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
