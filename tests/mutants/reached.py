"""Which tests reach which lines, and how long they take: what `make coverage` writes down.

As a plugin of pytest, this module notes what every test takes. Coverage notes for every line which
tests went through it.
"""

import json
import os
import signal
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".mutants"
COVERAGE, TIMES = FOLDER / "coverage", FOLDER / "times.json"
LONGEST = 60  # seconds of a core that a test may take with kernels that are not compiled


class Reached:
    """What the tests reach, as measured.

    times: seconds by test, of those that passed and whose file is still there.
    """

    def __init__(self) -> None:
        import coverage

        self.data = coverage.CoverageData(str(COVERAGE))
        self.data.read()
        times: dict[str, float] = json.loads(TIMES.read_text())
        here = {file: (ROOT / file).is_file() for file in {t.partition("::")[0] for t in times}}
        self.times = {t: seconds for t, seconds in times.items() if here[t.partition("::")[0]]}

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """The tests of each file."""
        found: dict[str, list[str]] = {}
        for test in self.times:
            found.setdefault(test.partition("::")[0], []).append(test)
        return found

    def by_line(self, module: Path) -> dict[int, set[str]]:
        """Return the tests that reach each line of a module, in whichever checkout they were
        measured.

        Raises
        ------
        LookupError: no test reaches any line: a part of the tests was measured, or none that is
            still there. Mutants of the module would all seem to survive.
        """
        name = str(module.relative_to(ROOT))
        found: dict[int, set[str]] = {}
        for file in self.data.measured_files():
            if file == name or file.endswith(f"{os.sep}{name}"):
                for line, contexts in self.data.contexts_by_lineno(file).items():
                    tests = {said.rpartition("|")[0] for said in contexts} & self.times.keys()
                    found.setdefault(line, set()).update(tests)
        if not any(found.values()):
            raise LookupError(f"{name}: no test of {COVERAGE.relative_to(ROOT)} reaches it")
        return found


_times: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what a test took; nothing of one that failed."""
    if report.passed:
        _times[report.nodeid] = _times.get(report.nodeid, 0.0) + report.duration
    else:
        _times[report.nodeid] = float("nan")


def pytest_sessionfinish(session: Any) -> None:
    """Write the times down, in the process that hears of all tests; `--cov-append` adds them."""
    if not hasattr(session.config, "workerinput"):
        FOLDER.mkdir(exist_ok=True)
        known = json.loads(TIMES.read_text()) if session.config.getoption("cov_append") else {}
        passed = {test: seconds for test, seconds in _times.items() if seconds == seconds}
        TIMES.write_text(json.dumps(known | passed, indent=0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip the rest of a test whose kernels take too long uncompiled."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST if os.environ.get("NUMBA_DISABLE_JIT") else 0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(number: int, frame: object) -> None:
    pytest.skip(f"takes more than {LONGEST} s with kernels that are not compiled")
