"""The workers of a Dask cluster (`dask.distributed`), one chunk of points at a time on each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask
from distributed import Client, wait

from ilp_planner.base.errors import SchedulerError
from ilp_planner.faces.sweeps.executors.registry import Done
from ilp_planner.faces.sweeps.work import done

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work

PATIENCE = 10  # seconds that a scheduler has to answer
FIRST = "FIRST_COMPLETED"
SETTING = "scheduler-address"  # Dask's own, as DASK_SCHEDULER_ADDRESS sets it
_alone = threading.Lock()  # a worker may have several threads, and a search takes a whole core


def solve_alone(work: Work) -> Any:
    """Solve points when no others are being solved in this process."""
    with _alone:
        return done(work)


class Dask:
    """A Dask cluster."""

    def __init__(self, *, workers: int | None = None, scheduler: str = "") -> None:
        """Connect.

        Raises
        ------
        SchedulerError: no scheduler is named, or none answers there.
        """
        address = scheduler or dask.config.get(SETTING, None)
        if not address:
            raise SchedulerError(
                "scheduler: found none, expected the address that `dask scheduler` prints, as "
                "tcp://HOST:8786"
            )
        try:
            self.client = Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise SchedulerError(
                f"scheduler: found no Dask scheduler at {address} ({error}), expected one that "
                "`dask scheduler` has begun there"
            ) from None
        self.slots = workers or max(1, len(self.client.nthreads()))
        self.futures: dict[Any, int] = {}

    def submit(self, work: Work) -> None:
        """Give a chunk to the cluster.

        Raises
        ------
        SchedulerError: it is gone.
        """
        if self.client.status != "running":
            raise SchedulerError("scheduler: the Dask scheduler is gone, expected it to stay")
        name = f"sweep-{work.number}-{uuid4().hex}"
        self.futures[self.client.submit(solve_alone, work, key=name, pure=False)] = work.number

    def collect(self, seconds: float) -> list[Done]:
        """Return finished work, after so many seconds at most."""
        with self.client.as_current():
            try:
                ended = wait(list(self.futures), timeout=seconds, return_when=FIRST).done
            except TimeoutError:
                return []
        return [self._done(future) for future in ended]

    def cancel(self) -> None:
        """End running work, and close the connection."""
        if self.client.status == "running":
            self.client.cancel(list(self.futures), force=True)
        self.futures.clear()
        self.client.close()

    def _done(self, future: Any) -> Done:
        number = self.futures.pop(future)
        if future.status == "finished":
            return Done(number, future.result())
        error = future.exception() if future.status == "error" else None
        why = f"{type(error).__name__}: {error}" if error else f"its future was {future.status}"
        return Done(number, None, why)
