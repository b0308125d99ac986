"""What suites of benchmarks share: rows that are kept, and processes that are measured."""

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import ROOT

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
CORES = 2
BESIDE = "ee45d751"  # the commit whose seconds those that are asked for are a share of
COMPILING = 20.0  # seconds at most of a run before the measured one: it leaves kernels, bytecode
ADDITIONS = 20_000_000  # of the loop


class Kept:
    """Rows of a suite in `results/NAME.json`, in the order of its cases.

    order: keys of the cases. key: of a row. machine: what the file says of the measurement besides
    Python's version.
    """

    def __init__(
        self,
        name: str,
        order: Sequence[Hashable],
        key: Callable[[Row], Hashable] = lambda row: row["case"],
        machine: str = f"{CORES} cores",
    ) -> None:
        self.name, self.file = name, RESULTS / f"{name}.json"
        self.order, self.key, self.machine = order, key, machine
        known = json.loads(self.file.read_text())["rows"] if self.file.exists() else []
        self._rows = {key(row): row for row in known}

    @property
    def rows(self) -> list[Row]:
        """All rows that are known."""
        return [self._rows[one] for one in self.order if one in self._rows]

    def add(self, row: Row) -> None:
        """Put a row in place of an older one of its case; print it, and write the file."""
        self._rows[self.key(row)] = row
        print(self.name, json.dumps(row)[:1000], flush=True)
        record = {"machine": f"Python {platform.python_version()}, {self.machine}"}
        self.file.write_text(json.dumps(record | {"rows": self.rows}, indent=1) + "\n")


def loop() -> float:
    """Return the CPU seconds of a loop in Python, which say how fast the machine is."""
    begun, count = time.process_time(), 0
    while count < ADDITIONS:
        count += 1
    return time.process_time() - begun


@contextlib.contextmanager
def beside(commit: str = BESIDE) -> Iterator[Path]:
    """Check out a commit into a folder of its own, for as long as it is measured."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "before")
        add = ["git", "worktree", "add", "--quiet", "--detach", root, commit]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            yield Path(root)
        finally:
            remove = ["git", "worktree", "remove", "--force", root]
            subprocess.run(remove, cwd=ROOT, check=True)


def of_checkout(root: Path) -> dict[str, str]:
    """Return the environment of a process that runs a checkout's package and keeps its bytecode."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(root)}


def on_cores(count: int = CORES) -> Callable[[], None]:
    """Return what keeps a process that is begun to so many cores."""
    return lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def process(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a process of its own on two cores."""
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        preexec_fn=on_cores(),
    )


def measured(module: str, *words: str) -> Any:
    """Return what such a process prints at last, as JSON.

    Raises
    ------
    SystemExit: it failed.
    """
    done = process(module, *words)
    if done.returncode:
        sys.exit(f"{module} {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
