"""What all tests share: how examples are drawn, and that no library takes more than one thread.

By default property tests draw the same examples on every machine, however slow it is, so that a
failure is the change's own. `make test-all` draws new ones on every run, and more of
them.
"""

import gc
import os
from collections import Counter
from pathlib import Path

# Before torch and NumPy are imported: pytest's workers share the cores, and threads of several
# OpenMP pools that wait for one another cost far more than they give.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from ilp_planner.base.resident import resident  # noqa: E402
from tests.examples import ALL, USUAL  # noqa: E402

settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    max_examples=USUAL,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("new", settings.get_profile("same"), derandomize=False, max_examples=ALL)
settings.load_profile("same")

gc.set_threshold(50_000, 20, 20)  # nothing here comes near the memory of this machine
# A search makes what it leaves old by freezing and unfreezing all that there is. What tests froze
# stays frozen, as looking through all of it again takes a second of every module, until a process
# has grown by so many bytes.
UNFREEZE, gc.unfreeze = gc.unfreeze, lambda: None
GROWTH = 2**28

# Files of tests need not be there after a power cut: waiting for the disk takes longer than most
# tests do.
os.fsync = lambda handle: None

# What only `make test-all` reads: processes that are killed or signalled, what imports a training
# system, and what tries every plan with every command.
SLOW = (
    *(
        "runtimes",
        "faults",
        "profiler/measure",
        "benchmarks/test_step.py",
        "schedule/test_against_*.py",
    ),
    *("faces/cli/test_combinations.py", "faces/cli/test_signals.py"),
    *("profiler/commands/test_links.py", "profiler/commands/test_measure.py"),
    "specs/hugging_face/test_transformers.py",
)
LEFT = {name: [*Path(__file__).parent.glob(name)] for name in SLOW}
assert all(LEFT.values()), LEFT
LEFT_OUT = {path for paths in LEFT.values() for path in paths}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave `SLOW` unread where slow tests are left out, unless it is named."""
    named = [Path(word.partition("::")[0]).resolve() for word in config.args]
    asked = any(LEFT_OUT & {path, *path.parents} for path in named)
    return (
        collection_path in LEFT_OUT and config.option.markexpr == "not slow" and not asked
    ) or None


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Call cases slow beyond the first n of a test that is marked `few(n)`."""
    cases = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("few")
        if mark is not None and item.get_closest_marker("slow") is None:
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


class Held:
    """most: bytes of the process before what is frozen is looked through again."""

    most = 0


@pytest.fixture
def unfreezing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `gc.unfreeze` do what it does elsewhere."""
    monkeypatch.setattr(gc, "unfreeze", UNFREEZE)
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _older_objects_are_kept() -> None:
    """Leave what is there before a module's tests out of garbage collections.

    They walk a heap of hundreds of thousands of objects otherwise: all test modules, torch and what
    it brings.
    """
    grown = resident() > Held.most
    if grown:
        UNFREEZE()
    gc.collect()
    gc.freeze()
    if grown:
        Held.most = resident() + GROWTH
