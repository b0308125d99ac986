"""Jobs of Slurm, by submitit: chunks of points that can begin together are one array of jobs."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit

from ilp_planner.base.errors import SchedulerError
from ilp_planner.faces.sweeps.executors.registry import Done
from ilp_planner.faces.sweeps.work import done

if TYPE_CHECKING:
    from ilp_planner.faces.sweeps.work import Work

SLOTS = 64  # jobs at once, unless somebody says
POLL = 0.2  # seconds between two looks at the jobs
SPARE = 10  # minutes that a job has besides the time limit of a point
FOLDER = ".ilp-plan-sweep-"  # in the current folder, which all nodes have to see


def on_its_nodes(work: Work) -> Any:
    """Do work, on each of the nodes that it has; launch scripts are told which of them this is."""
    here = submitit.JobEnvironment()
    if here.num_nodes > 1:
        os.environ |= {"NODE_RANK": str(here.node), "MASTER_ADDR": here.hostnames[0]}
    return done(work)


class Slurm:
    """A Slurm cluster."""

    def __init__(
        self, *, workers: int | None = None, scheduler: str = "", cluster: str = "slurm"
    ) -> None:
        """Look for it.

        Parameters
        ----------
        scheduler: a partition; empty: Slurm's usual one. cluster: submitit's name of a kind of
            cluster; `local` are processes of this machine.

        Raises
        ------
        SchedulerError: Slurm is not there.
        """
        self.slots = workers or SLOTS
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=Path.cwd()))
        try:
            self.executor = submitit.AutoExecutor(self.folder / "%j", cluster=cluster)
        except RuntimeError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SchedulerError(
                f"scheduler: found no Slurm on this machine ({error}), expected one with `sbatch`"
            ) from None
        self.executor.update_parameters(cpus_per_task=1, name="ilp-plan-sweep")
        if cluster == "slurm":
            self.executor.update_parameters(slurm_array_parallelism=self.slots)
            if scheduler:
                self.executor.update_parameters(slurm_partition=scheduler)
        self.waiting: list[Work] = []
        self.jobs: dict[Any, int] = {}

    def submit(self, work: Work) -> None:
        """Take a chunk into the next array."""
        self.waiting.append(work)

    def collect(self, seconds: float) -> list[Done]:
        """Submit the array, and return finished work, after so many seconds at most.

        Raises
        ------
        SchedulerError: Slurm refuses the array.
        """
        self._flush()
        end = time.monotonic() + seconds
        while True:
            ended = [job for job in self.jobs if job.done()]
            if ended or time.monotonic() > end:
                return [self._done(job) for job in ended]
            time.sleep(POLL)

    def cancel(self) -> None:
        """End all jobs."""
        for job in self.jobs:
            job.cancel()
        self.jobs.clear()
        self.waiting.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _flush(self) -> None:
        if not self.waiting:
            return
        seconds = max(work.seconds for work in self.waiting)
        self.executor.update_parameters(timeout_min=math.ceil(seconds / 60) + SPARE)
        if nodes := self.waiting[0].nodes:
            gpus = self.waiting[0].devices
            self.executor.update_parameters(nodes=nodes, tasks_per_node=1, gpus_per_node=gpus)
        try:
            jobs = self.executor.map_array(on_its_nodes, self.waiting)
        except submitit.core.utils.FailedJobError as error:
            first = str(error).partition("\n")[0]
            raise SchedulerError(
                f"scheduler: Slurm refuses the jobs ({first}), expected it to take them; a "
                "partition that you may use is named by `scheduler`"
            ) from None
        self.jobs |= {job: work.number for job, work in zip(jobs, self.waiting, strict=True)}
        self.waiting = []

    def _done(self, job: Any) -> Done:
        number = self.jobs.pop(job)
        try:
            return Done(number, job.result())
        except (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError) as bad:
            return Done(number, None, str(bad).partition("\n")[0])
