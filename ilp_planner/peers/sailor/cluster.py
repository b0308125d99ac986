"""Sailor's clusters: GPUs of every type and zone, and curves of their links.

Sailor (https://github.com/eth-easl/sailor) plans for a file of quotas, GPU type, zone -> GPUs, and
reads from its repository:

* `basic_cluster_config.json`: GPU type -> `gpus_per_node` and `mem_per_gpu`, bytes;
* `multizone_bandwidths_het.json`: zone, type and GPUs of the machine that sends, then of the one
  that receives -> [coefficients, largest rate]: a polynomial in log2 of megabytes, highest power
  first, gives GB/s;
* `intra_node_bandwidths.json`: type, GPUs -> the same, inside a machine.

A link here has a latency and a bandwidth: the line that follows a curve best (least squares of its
relative errors) between the messages that plans send, from one sample at the narrowest cut to
DeepSpeed's bucket of gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import read_json
from ilp_planner.base.limits import DEVICES, LEAST_RATE, MEMORY, RATE
from ilp_planner.costs.profiles.link_times import relative_line
from ilp_planner.peers.sailor.profile import (
    FLOAT_BYTES,
    count_of,
    needed_file,
    object_of,
    sailor_file,
)
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ilp_planner.base.numerics import Floats
    from ilp_planner.peers.sailor.profile import SailorProfile

MACHINES, BETWEEN, WITHIN = (
    "basic_cluster_config.json",
    "multizone_bandwidths_het.json",
    "intra_node_bandwidths.json",
)
BUCKET = 500e6  # bytes: MEMORY_BUCKET_DEEPSPEED_SIZE of sailor_planner/constants.py
POINTS = 16  # sizes that a line is fitted to, evenly spaced in their logarithm
LEAST_LATENCY = 1e-6  # seconds, of a curve whose line has none; no message takes less
MEGABYTE, GIGABYTE = 1e6, 1e9


class Machines(NamedTuple):
    """The machines of one GPU type in one zone.

    size: GPUs of each. number: of machines. memory: bytes of a GPU.
    """

    gpu: str
    zone: str
    size: int
    number: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A link as Sailor measured it. where: file and key, to blame."""

    where: str
    coefficients: tuple[float, ...]

    def seconds(self, sizes: Floats) -> Floats:
        """Return the time of messages of so many bytes.

        Raises
        ------
        ProfileError: the curve has no rate there that a link can have.
        """
        with np.errstate(all="ignore"):  # what no link can have is refused, not remarked on
            rates = np.polyval(self.coefficients, np.log2(sizes / MEGABYTE))
            known = (rates * GIGABYTE >= LEAST_RATE) & (rates * GIGABYTE <= RATE)
        if not known.all():
            place = int(np.argmin(known))
            raise ProfileError(
                f"{self.where}: found {rates[place]:.3g} GB/s for {sizes[place] / MEGABYTE:.3g} "
                "MB, expected coefficients of a rate above 0, highest power of log2(MB) first"
            )
        return np.asarray(sizes / GIGABYTE / rates, np.float64)

    def link(self, sizes: Floats) -> tuple[Link, float]:
        """Return the line through the curve at these sizes, and its largest relative error."""
        seconds = self.seconds(sizes)
        latency, per_byte = relative_line(sizes, seconds)
        latency, per_byte = max(latency, LEAST_LATENCY), max(per_byte, 1 / RATE)
        off = float(np.abs((latency + per_byte * sizes) / seconds - 1).max())
        return Link(bandwidth=1 / per_byte, latency=latency), off


def sailor_cluster(folder: Path, quotas: Path, profile: SailorProfile) -> ClusterSpec:
    """Return the cluster of a file of quotas, by the figures of Sailor's repository.

    A device type is a GPU type; if quotas name several zones, one in each zone.

    Raises
    ------
    ProfileError: one line with the file, the key, the found and the expected value.
    """
    machines, left_over = _machines(folder, quotas, profile)
    names = _names(machines)
    narrowest = min(float(held.outputs[:-1].min(initial=np.inf)) for held in profile.sizes.values())
    least = min(max(FLOAT_BYTES * narrowest, MEGABYTE), BUCKET / 2)
    sizes = np.geomspace(least, BUCKET, POINTS)
    path = needed_file(folder, BETWEEN)
    curves = _Curves(path, read_json(path, ProfileError))
    between, worst = {}, 0.0
    for a, b in combinations_with_replacement(sorted(machines, key=lambda m: names[m]), 2):
        ways = [curves.between(a, b).link(sizes), curves.between(b, a).link(sizes)]
        link, off = max(ways, key=lambda way: way[0].latency + BUCKET / way[0].bandwidth)
        between[names[a], names[b]] = link
        worst = max(worst, off)
    within, inside = _within(folder, machines, names, sizes)
    first = names[machines[0]]
    notes = [
        f"{path.name}: links between machines are lines through its curves from "
        f"{least / MEGABYTE:.3g} to {BUCKET / MEGABYTE:.3g} MB, off by at most {worst:.1%}; of two "
        "directions the slower; largest rates and machines of other sizes are not used",
        *inside,
        *left_over,
    ]
    return ClusterSpec(
        name=quotas.stem,
        device_types={
            names[m]: Device(name=names[m], memory=m.memory, profile=m.gpu) for m in machines
        },
        nodes=tuple(NodeGroup(device=names[m], devices=m.size, count=m.number) for m in machines),
        intra_node=within.get(first, between[first, first]),
        inter_node=between[first, first],
        within=within or {name: between[name, name] for name in names.values()},
        between=between,
        notes=tuple(notes),
    )


def _machines(
    folder: Path, quotas: Path, profile: SailorProfile
) -> tuple[list[Machines], list[str]]:
    """Return the machines that quotas fill, and remarks on the GPUs that fill none."""
    path = needed_file(folder, MACHINES)
    described = object_of(path, read_json(path, ProfileError), "")
    timed = sorted({key.device for key in profile.times})
    machines, notes = [], []
    for gpu, zones in object_of(quotas, read_json(quotas, ProfileError), "").items():
        if gpu not in timed:
            raise ProfileError(
                f"{quotas}: found GPU type {gpu!r}, expected one of {', '.join(timed)}, which "
                f"{profile.model} has times of"
            )
        machine = object_of(path, described.get(gpu), gpu)
        per_node, memory = (
            count_of(path, f"{gpu}.{key}", machine.get(key), most)
            for key, most in (("gpus_per_node", None), ("mem_per_gpu", MEMORY))
        )
        for zone, gpus in object_of(quotas, zones, gpu).items():
            count, rest = divmod(count_of(quotas, f"{gpu}.{zone}", gpus), per_node)
            if rest:
                notes.append(
                    f"{quotas.name}: {gpu}.{zone}: {rest} of {gpus} GPUs fill no machine of "
                    f"{per_node}, and are left out"
                )
            if count:
                machines.append(Machines(gpu, zone, per_node, count, memory))
    if not machines:
        raise ProfileError(f"{quotas}: found no GPUs that fill a machine, expected some")
    total = sum(machine.size * machine.number for machine in machines)
    if total > DEVICES:
        raise ProfileError(f"{quotas}: found {total} GPUs in machines, expected at most {DEVICES}")
    if "zone" in described:
        notes.append(f"{path.name}: zone is not read: quotas say zones")
    return machines, notes


def _names(machines: list[Machines]) -> dict[Machines, str]:
    """Return the name of each device type."""
    several = len({machine.zone for machine in machines}) > 1
    return {m: f"{m.gpu}-{m.zone}" if several else m.gpu for m in machines}


class _Curves:
    """The curves between machines. root: content of the file."""

    def __init__(self, path: Path, root: Any) -> None:
        self.path, self.root = path, root

    def between(self, sender: Machines, receiver: Machines) -> Curve:
        """Return the curve from a machine to another one."""
        keys = [
            *(sender.zone, sender.gpu, str(sender.size)),
            *(receiver.zone, receiver.gpu, str(receiver.size)),
        ]
        value, walked = self.root, ""
        for key in keys:
            held = object_of(self.path, value, walked)
            if key not in held:
                raise ProfileError(
                    f"{self.path}: {walked or 'the file'}: found {', '.join(held) or 'nothing'}, "
                    f"expected {key!r}, which the quotas need"
                )
            value, walked = held[key], f"{walked}.{key}" if walked else key
        return _curve(self.path, walked, value)


def _curve(path: Path, where: str, value: Any) -> Curve:
    """Return `[coefficients, largest rate]` of a file."""
    given = value[0] if isinstance(value, list) and value else None
    numbers = given if isinstance(given, list) else []
    if not numbers or not all(type(c) in (int, float) and math.isfinite(c) for c in numbers):
        raise ProfileError(
            f"{path}: {where}: found {value!r:.60}, expected [[coefficients], largest rate]"
        )
    return Curve(where=f"{path}: {where}", coefficients=tuple(map(float, numbers)))


def _within(
    folder: Path, machines: list[Machines], names: Mapping[Machines, str], sizes: Floats
) -> tuple[dict[str, Link], list[str]]:
    """Return device type -> link inside its machines, and remarks; none if the file is not
    there."""
    path = sailor_file(folder, WITHIN)
    if path is None:
        return {}, [
            f"no {WITHIN}: links inside a machine are taken as those to the next one, as "
            "Sailor's planner takes them"
        ]
    root = object_of(path, read_json(path, ProfileError), "")
    links, worst = {}, 0.0
    for machine in machines:
        held = object_of(path, root.get(machine.gpu), machine.gpu)
        groups = sorted(count_of(path, f"{machine.gpu}: GPUs", key) for key in held)
        fitting = [n for n in groups if n <= machine.size]
        if not fitting:
            raise ProfileError(
                f"{path}: {machine.gpu}: found curves of {', '.join(held) or 'no'} GPUs, expected "
                f"at most {machine.size}, as many as a machine has"
            )
        where = f"{machine.gpu}.{fitting[-1]}"
        link, off = _curve(path, where, held[str(fitting[-1])]).link(sizes)
        links[names[machine]], worst = link, max(worst, off)
    return links, [
        f"{path.name}: links inside a machine are lines through the curves of all its GPUs, off by "
        f"at most {worst:.1%}; largest rates and fewer GPUs are not used"
    ]
