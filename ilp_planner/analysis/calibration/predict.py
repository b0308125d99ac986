"""Seconds of training jobs on a cluster, by the constants of its machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ilp_planner.costs.training.iteration import iteration_terms
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.schedule.engine import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import TrainingJob

MACHINES = 100  # that a fit tries, at least


@dataclass(frozen=True, eq=False)
class Predictions:
    """Times of jobs on the first nodes of a cluster of one device type, each computed once."""

    cluster: ClusterSpec
    jobs: Sequence[TrainingJob]
    known: dict[tuple[int, Machine], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        passes = (job.micro_batches * len(job.stages) for job in self.jobs)
        expect(MACHINES * 2 * sum(passes))

    @property
    def device(self) -> Device:
        """The only device type."""
        return self.cluster.device_types[self.cluster.type_names[0]]

    def of(self, which: Iterable[int]) -> Callable[[Machine], list[float]]:
        """Return a function for the seconds of some of the jobs, by their numbers, on a machine."""
        chosen = tuple(which)
        return lambda machine: [self.seconds(number, machine) for number in chosen]

    def seconds(self, number: int, machine: Machine) -> float:
        """Return the seconds of an iteration of a job."""
        key = (number, machine)
        if key not in self.known:
            job = self.jobs[number]
            per_node = self.cluster.nodes[0].devices
            network = Network(
                on_machine(self.cluster, machine), tuple(range(-(-job.world // per_node)))
            )
            self.known[key] = sum(iteration_terms(RankCosts(job, network), job).values())
        return self.known[key]


@lru_cache(maxsize=2)
def on_machine(cluster: ClusterSpec, machine: Machine) -> ClusterSpec:
    """Return a cluster with these constants for all devices."""
    types = {
        name: replace(device, machine=machine) for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)
