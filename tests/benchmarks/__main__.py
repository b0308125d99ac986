"""`make bench`: measure every case with every solver, write the results, show them in the README.

python -m tests.benchmarks [--only TEXT] [--solvers auto,cp-sat,milp] [--seconds 200]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.cases import CASES, DATA, ROOT
from tests.benchmarks.table import aceso_table, write_readme

RESULTS = Path(__file__).parent / "results" / "aceso.json"


def main() -> None:
    """Run the cases one after the other, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--solvers", default="auto,cp-sat,milp")
    parser.add_argument("--seconds", type=float, default=200.0)
    options = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA.relative_to(ROOT.parent)}: Aceso's profile database is not there")
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {(row["case"], row["solver"]): row for row in known}
    for case in CASES:
        if options.only not in case.name:
            continue
        for solver in options.solvers.split(","):
            run = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tests.benchmarks.one",
                    case.name,
                    solver,
                    str(options.seconds),
                ],
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
            machine = f"Python {platform.python_version()}, 2 cores, {options.seconds:.0f} s limit"
            record = {"machine": machine, "rows": list(rows.values())}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    write_readme(ROOT / "README.md", "aceso", aceso_table(list(rows.values())))


if __name__ == "__main__":
    main()
