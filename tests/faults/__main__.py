"""`make faults`: commands killed at 200 moments each, all tests of faults, and what they found.

`python -m tests.faults --seed 7 --count 20 --only sweep` kills one command at the moments of that
seed.
"""

import argparse
import os
import random
import subprocess
import sys

from tests.faults.commands import COMMANDS
from tests.faults.kills import kill_all

MOMENTS = 200  # of each command


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=MOMENTS, help="moments of each command")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=[command.name for command in COMMANDS])
    asked = parser.parse_args()
    chosen = tuple(one for one in COMMANDS if asked.only in (None, one.name))
    print(f"seed {asked.seed}", flush=True)
    wrong = kill_all(chosen, asked.count, asked.seed, asked.workers)
    if asked.only is None:
        words = [sys.executable, "-m", "pytest", "tests/faults", "-m", "slow or not slow"]
        sys.exit(subprocess.run(words, check=False).returncode or bool(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
