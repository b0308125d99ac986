"""Run the command line, and print a line of JSON whenever the plan or the bound improves.

python -m tests.benchmarks.anytime_one BEGUN solve WORDS...

BEGUN: seconds since the epoch, of the moment at which the process was started. Each line holds the
seconds since then, those of the plan (null: none yet) and those of the bound.
"""

import json
import math
import os
import sys
import time

from ilp_planner.faces.cli.main import main
from ilp_planner.faces.report import live


class Printed(live.Progress):
    """Progress as lines on the error stream."""

    def __call__(self, incumbent: float, bound: float) -> None:
        """Print both, in seconds."""
        plan = incumbent if math.isfinite(incumbent) else None
        line = json.dumps([time.time() - BEGUN, plan, bound])
        os.write(2, f"\n{line}\n".encode())


if __name__ == "__main__":
    BEGUN = float(sys.argv.pop(1))
    live.Progress = Printed  # type: ignore[misc]
    main()
