"""All mutants of a module in forks of one process that has collected and run their tests.

A fork exchanges the code of the function that is mutated, runs the tests that reach it again, and
ends at the first that fails. What tests share is there already, so most mutants take a fraction of
a second. What is there already may also hide a mutant: whoever survives here, or ends its process,
is tried again in a process of its own (`running`).
"""

import multiprocessing as mp
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from itertools import zip_longest
from multiprocessing.connection import wait
from typing import Any, NamedTuple

import pytest

from tests.mutants.modules import Module
from tests.mutants.mutations import mutated
from tests.mutants.patching import patched
from tests.mutants.running import PATIENCE, bounded, end, quick_examples, quiet, uncompiled

FORK = mp.get_context("fork")
SURVIVED, NOT_HERE = "", "cannot be tried here"


class Asked(NamedTuple):
    """A mutant of the host's module. tests: that reach it, in the order in which they are asked."""

    number: int
    function: str
    tests: tuple[str, ...]


def hosted(
    module: Module, asked: Sequence[Asked], times: dict[str, float], forks: int
) -> dict[int, str]:
    """Return by mutant the first test that fails, `SURVIVED` or `NOT_HERE`."""
    mine, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_host, args=(module, asked, times, forks, theirs))
    process.start()
    theirs.close()
    found = dict.fromkeys((each.number for each in asked), NOT_HERE)
    try:
        while True:
            number, said = mine.recv()
            found[number] = said
    except EOFError:
        pass
    process.join()
    return found


def _host(
    module: Module, asked: Sequence[Asked], times: dict[str, float], forks: int, pipe: Any
) -> None:
    import pytest

    quiet()
    if not module.compiled:
        uncompiled()
    tests = dict.fromkeys(test for each in asked for test in each.tests)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        options = ("-p", "no:cacheprovider", "--basetemp", f"{folder}/tests", "-s")
        pytest.main([*options, *tests], plugins=[_Host(module, asked, times, forks, pipe)])


class _Host:
    """A plugin of pytest that runs tests, and then forks for every mutant to run some again."""

    def __init__(
        self, module: Module, asked: Sequence[Asked], times: dict[str, float], forks: int, pipe: Any
    ) -> None:
        self.module, self.asked, self.times = module, asked, times
        self.forks, self.pipe = forks, pipe
        self.source = module.file.read_text()

    def pytest_sessionstart(self) -> None:
        quick_examples()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        good = [item for item in items.values() if self._first([item]) is None]
        passing = {item.nodeid for item in good}
        waiting = list(reversed(self.asked))
        running: dict[Any, tuple[Asked, Any]] = {}
        while waiting or running:
            while waiting and len(running) < self.forks:
                each = waiting.pop()
                mine, theirs = FORK.Pipe(duplex=False)
                chosen = [items[test] for test in each.tests if test in passing]
                process = FORK.Process(target=self._try, args=(each, chosen, theirs))
                process.start()
                theirs.close()
                running[mine] = (each, process)
            for ready in wait(list(running)):
                each, process = running.pop(ready)
                try:
                    said = ready.recv()
                except EOFError:
                    said = NOT_HERE
                end(process)
                self.pipe.send((each.number, said))
        return True

    def _try(self, each: Asked, items: list[pytest.Item], pipe: Any) -> None:
        os.setsid()
        bounded()
        tree = mutated(self.source, each.number)
        here = patched(sys.modules[self.module.name], tree, each.function)

        def hangs(number: int, frame: object) -> None:
            pipe.send(f"hangs: {self.at}")
            os._exit(0)

        signal.signal(signal.SIGPROF, hangs)
        signal.signal(signal.SIGALRM, hangs)
        pipe.send((self._first(items) or SURVIVED) if here else NOT_HERE)
        os._exit(0)

    def _first(self, items: list[pytest.Item]) -> str | None:
        """Return the first test that fails."""
        from _pytest.runner import runtestprotocol

        for item, following in zip_longest(items, items[1:]):
            self.at = item.nodeid
            patience = 10 + PATIENCE * self.times.get(item.nodeid, 1.0)
            if signal.getsignal(signal.SIGPROF) != signal.SIG_DFL:
                signal.setitimer(signal.ITIMER_PROF, patience)
                signal.alarm(int(10 * patience))
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return item.nodeid
        return None
