"""What every executor promises, held against a real one."""

import time
from collections.abc import Callable
from pathlib import Path

from ilp_planner.faces.sweeps.executors.registry import Executor
from ilp_planner.faces.sweeps.journal import Journal, Row
from ilp_planner.faces.sweeps.points import Sweep
from ilp_planner.faces.sweeps.sweep import JOURNAL, Run, heading
from tests.faces.sweeps.cases import sweep_of
from tests.small import write_specs

PATIENCE = 120.0  # seconds


def small_sweep(folder: Path) -> Sweep:
    """Return four points of the small model, of which one can have no plan."""
    write_specs(folder)
    return sweep_of(
        str(folder / "tiny.toml"),
        cluster=[str(folder / "pair.toml")],
        memory=["8 GiB", "1 MiB"],
        global_batch=[32, 64],
    )


def solved(sweep: Sweep, executor: Executor) -> dict[tuple[str, ...], Row]:
    """Solve a sweep; return its rows by memory and batch."""
    journal = Journal(None, heading(sweep), JOURNAL)
    Run(sweep, executor, journal, lambda done, what: None).finish()
    return {tuple([*row["values"].values()][1:]): row for row in journal.rows.values()}


def check_executor(sweep: Sweep, executor: Executor) -> None:
    """Hold what an executor finds of the small sweep to what its points are."""
    rows = solved(sweep, executor)
    assert {*rows} == {(m, b) for m in ("8 GiB", "1 MiB") for b in ("32", "64")}
    for batch in ("32", "64"):
        assert rows["8 GiB", batch]["status"] == "optimal", rows
        assert rows["1 MiB", batch]["status"] == "infeasible"
    assert rows["8 GiB", "32"]["step_s"] < rows["8 GiB", "64"]["step_s"]


def check_loss(sweep: Sweep, executor: Executor, kill: Callable[[], None]) -> None:
    """Hold an executor to its rows, though its workers are killed while they work.

    kill: ends a worker that works.
    """
    begun = time.monotonic()
    killed = False
    collect = executor.collect

    def collect_and_kill(seconds: float):
        nonlocal killed
        if not killed:
            killed = True
            time.sleep(0.5)  # a worker takes longer to begin: it is killed with its point
            kill()
        return collect(min(seconds, PATIENCE - (time.monotonic() - begun)))

    executor.collect = collect_and_kill  # type: ignore[method-assign]
    check_executor(sweep, executor)
    assert killed
