"""The workers of a Ray cluster, a core for each chunk of points."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ray

from ilp_planner.base.errors import SchedulerError
from ilp_planner.faces.sweeps.executors.registry import Done
from ilp_planner.faces.sweeps.work import THREADS, done

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work

PATIENCE = 15  # seconds that a cluster has to answer
RUNNING = "auto"  # what Ray calls the cluster that runs on this machine


class Ray:
    """A Ray cluster that runs already."""

    def __init__(self, *, workers: int | None = None, scheduler: str = "") -> None:
        """Connect.

        Raises
        ------
        SchedulerError: no cluster is there.
        """
        address = scheduler or RUNNING
        variables = {**THREADS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        check_answers(address)
        try:
            ray.init(
                address=address,
                runtime_env={"env_vars": variables},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unreachable(address, str(error).partition("\n")[0]) from None
        self.slots = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.solve = ray.remote(num_cpus=1, max_retries=0)(done)
        self.references: dict[Any, int] = {}

    def submit(self, work: Work) -> None:
        """Give a chunk to the cluster."""
        self.references[self.solve.remote(work)] = work.number

    def collect(self, seconds: float) -> list[Done]:
        """Return finished work, after so many seconds at most."""
        known = list(self.references)
        if not ray.wait(known, num_returns=1, timeout=seconds)[0]:
            return []
        return [self._done(one) for one in ray.wait(known, num_returns=len(known), timeout=0)[0]]

    def cancel(self) -> None:
        """End running work, and close the connection."""
        for reference in self.references:
            ray.cancel(reference, force=True)
        self.references.clear()
        ray.shutdown()

    def _done(self, reference: Any) -> Done:
        number = self.references.pop(reference)
        try:
            return Done(number, ray.get(reference))
        except ray.exceptions.RayError as error:
            first = str(error).partition("\n")[0]
            return Done(number, None, f"{type(error).__name__}: {first}")


def check_answers(address: str) -> None:
    """Find out whether a cluster answers: Ray itself would wait for one that has ended.

    Raises
    ------
    SchedulerError: it does not.
    """
    if address.startswith("ray://"):  # which Ray asks within a time of its own
        return
    named = [] if address == RUNNING else ["--address", address]
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *named]
    try:
        subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer in {PATIENCE} s") from None
    except subprocess.CalledProcessError:
        raise _unreachable(address, "it is not healthy") from None


def _unreachable(address: str, why: str) -> SchedulerError:
    return SchedulerError(
        f"scheduler: found no Ray cluster at {address} ({why}), expected one that `ray start "
        "--head` has begun"
    )
