"""One mutant at a time: a process of its own imports it in place of the module, and runs tests.

No file is changed. The process is a fork of one that has imported what tests need besides the
package, and ends at the first test that fails.
"""

import ast
import multiprocessing as mp
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.mutants.modules import Module

MEMORY = 4 * 2**30  # bytes that a mutant may take besides what is imported
LOST = "a test is not there"
PRELOADED = (
    "hypothesis.strategies", "numba.core.dispatcher", "ortools.sat.python.cp_model", "pandas",
    "pytest", "scipy.optimize", "typer",
)  # fmt: skip
PATIENCE = 10.0  # times as long as a test took: then it hangs


class Version(NamedTuple):
    """A module as a process imports it. tree: None: as it is."""

    module: Module
    tree: ast.Module | None


def preload() -> None:
    """Import what most tests need, and nothing of the package."""
    for name in PRELOADED:
        import_module(name)


def first_failure(version: Version, tests: Sequence[str], times: dict[str, float]) -> str | None:
    """Return the first of the tests that fails with a version of a module; None: all pass.

    A process that dies, hangs or takes too much memory counts as a failure.

    Raises
    ------
    LookupError: a test is not there any more.
    """
    fork = mp.get_context("fork")
    mine, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_run, args=(version, tests, times, theirs))
    process.start()
    theirs.close()
    patience = 60 + PATIENCE * sum(max(times.get(test, 0.0), 0.1) for test in tests)
    try:
        said = mine.recv() if mine.poll(patience) else "hangs"
    except EOFError:
        said = "the process dies"
    end(process)
    if said == LOST:
        raise LookupError(
            f"no such test among {', '.join(tests[:3])} ...: run `make coverage` again"
        )
    return said or None


def end(process: Any) -> None:
    """End a process and what it started, if it leads a group of its own."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(process.pid, signal.SIGKILL)
    process.join()


def quiet() -> None:
    """Lead a group of processes, and say nothing."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)


def bounded() -> None:
    """Take no more memory than what is held already, and `MEMORY`."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))


def uncompiled() -> None:
    """Let kernels that are imported from now on be plain Python."""
    import numba

    os.environ["NUMBA_DISABLE_JIT"] = "1"
    numba.config.DISABLE_JIT = True


def quick_examples() -> None:
    """Let properties end at the first example that fails, and look for no smaller one."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("same"), phases=phases)
    settings.load_profile("mutants")


def _run(version: Version, tests: Sequence[str], times: dict[str, float], pipe: Any) -> None:
    import pytest

    quiet()
    bounded()
    if not version.module.compiled:
        uncompiled()
    if version.tree is not None:
        sys.meta_path.insert(0, _Finder(version))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        watch = _Watch(times, pipe)
        options = ("-p", "no:cacheprovider", "--basetemp", f"{folder}/tests")
        code = pytest.main([*options, *tests], plugins=[watch])
    lost = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    watch.say(LOST if code in lost else "" if code == pytest.ExitCode.OK else f"pytest: {code!s}")


class _Finder(MetaPathFinder):
    """Finds one module, and reads it otherwise than it is written."""

    def __init__(self, version: Version) -> None:
        self.version = version

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = PathFinder.find_spec(name, path) if name == self.version.module.name else None
        if spec is not None:
            spec.loader = _Loader(self.version)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, version: Version) -> None:
        super().__init__(version.module.name, str(version.module.file))
        self.version = version

    def get_code(self, name: str) -> Any:
        return compile(self.version.tree or "", str(self.version.module.file), "exec")


class _Watch:
    """A plugin of pytest that ends the process at the first failure, or at a test that hangs."""

    def __init__(self, times: dict[str, float], pipe: Any) -> None:
        self.times, self.pipe = times, pipe
        self.test = "before any test"

    def say(self, what: str) -> None:
        self.pipe.send(what)
        os._exit(0)

    def pytest_sessionstart(self) -> None:
        quick_examples()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say(f"{report.nodeid} cannot be collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say(report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid
        signal.signal(signal.SIGPROF, self._hangs)
        signal.setitimer(signal.ITIMER_PROF, 10 + PATIENCE * self.times.get(nodeid, 1.0))

    def _hangs(self, number: int, frame: object) -> None:
        self.say(f"{self.test} hangs")
