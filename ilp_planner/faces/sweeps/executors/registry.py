"""The contract of executors, and the executors by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ilp_planner.base.errors import SchedulerError

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work


class Done(NamedTuple):
    """Work that is no longer under way, by its number. solved: its result; None if its worker was
    lost. why: how."""

    number: int
    solved: Any
    why: str = ""


class Executor(Protocol):
    """A place for work, begun when it is made.

    slots: how much of it is under way at once; it is given no more.
    """

    slots: int

    def submit(self, work: Work) -> None:
        """Begin with work."""

    def collect(self, seconds: float) -> list[Done]:
        """Wait for work that ends, for so many seconds at most; return all that have ended."""

    def cancel(self) -> None:
        """End all that is under way, and leave nothing behind."""


class Entry(NamedTuple):
    """An executor. module: of this folder, if its class is. needs: a package, and the extra that
    brings it. address: the value of `--scheduler`; empty: nothing."""

    module: str
    name: str
    needs: str = ""
    address: str = ""


EXECUTORS = {
    "local": Entry("local", "Local"),
    "slurm": Entry("slurm", "Slurm", needs="submitit", address="a partition"),
    "dask": Entry("dask", "Dask", needs="distributed", address="tcp://HOST:8786"),
    "ray": Entry("ray", "Ray", needs="ray", address="HOST:6379 or auto"),
}
LOCAL = "local"


def open_executor(name: str, *, workers: int | None = None, scheduler: str = "") -> Executor:
    """Return an executor that has begun.

    Parameters
    ----------
    workers: points at once, at most; None: as many as there are cores. scheduler: its address.

    Raises
    ------
    SchedulerError: its package is not installed, or it cannot be reached.
    """
    entry = EXECUTORS[name]
    try:
        module = import_module(f"ilp_planner.faces.sweeps.executors.{entry.module}")
        made: Executor = getattr(module, entry.name)(workers=workers, scheduler=scheduler)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (entry.needs, name):
            raise
        raise SchedulerError(
            f"executor: found {name} without {entry.needs}, expected it installed: "
            f"pip install 'ilp-planner[{name}]'"
        ) from None
    return made
