"""Scenarios: machines whose constants lie elsewhere, within what data leave open."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.analysis.shortlist.spread import spread_of
from ilp_planner.specs.machine import with_constants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.machine import Machine

REACH = 1.28  # standard deviations from the assumed value to an end: 80 % lie between both ends
JOINT = 6  # draws of all constants together
SEED = 33


@dataclass(frozen=True)
class Scenario:
    """A machine. moves: of constants, in standard deviations from the assumed values."""

    moves: Mapping[str, float]

    @property
    def single(self) -> bool:
        """Whether one constant alone lies elsewhere."""
        return len(self.moves) == 1


NOMINAL = Scenario({})


def scenarios_of(cluster: ClusterSpec) -> list[Scenario]:
    """Return each constant at its low and its high end, and a few draws of all together; ends that
    are the assumed value of every device are left out."""
    devices = [cluster.device_types[name] for name in cluster.type_names]
    every = [Scenario({name: end}) for name in FREE for end in (-REACH, REACH)]
    open_ones = [one for one in every if any(moved(d, one.moves) != d.machine for d in devices)]
    draws = random.Random(SEED)
    names = list(dict.fromkeys(name for one in open_ones for name in one.moves))
    joint = []
    for _ in range(JOINT if len(names) > 1 else 0):
        drawn = {name: min(REACH, max(-REACH, draws.gauss(0, 1))) for name in names}
        joint.append(Scenario(drawn))
    return [*open_ones, *joint]


def value_of(device: Device, name: str, move: float) -> float:
    """Return a constant of a device's machine that lies so many standard deviations away, as far as
    it may go."""
    free, assumed = FREE[name], getattr(device.machine, name)
    low, high = min(free.low, assumed), max(free.high, assumed)
    return float(min(high, max(low, assumed + move * spread_of(device, name))))


def moved(device: Device, moves: Mapping[str, float]) -> Machine:
    """Return the machine of a device in a scenario."""
    values = {name: value_of(device, name, move) for name, move in moves.items()}
    return with_constants(device.machine, values)


def cluster_in(cluster: ClusterSpec, scenario: Scenario) -> ClusterSpec:
    """Return a cluster with the constants of a scenario."""
    types = {
        name: replace(device, machine=moved(device, scenario.moves))
        for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)
