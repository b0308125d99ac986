"""One slice of a trial as JSON, in a process that has imported nothing else.

python -m tests.checker bounds|edits|mistakes SPACE FIRST COUNT
"""

import json
import os
import sys
from importlib import import_module

MODULES = {
    "bounds": "tests.checker.trials",
    "edits": "tests.checker.trials",
    "mistakes": "tests.checker.mistakes",
}


def main() -> None:
    """Run it."""
    name, space, first, count = sys.argv[1:]
    os.nice(5)
    trial = getattr(import_module(MODULES[name]), name)
    print(json.dumps(trial(space, int(first), int(count))))


if __name__ == "__main__":
    main()
