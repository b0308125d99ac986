"""Metis's description of a cluster: a hostfile and a `clusterfile.json`.

The clusterfile has an entry per name of the hostfile: `instance_type`, `inter_bandwidth`,
`intra_bandwidth` (GB/s) and `memory` (GB, of one device). Metis counts a bandwidth as 2^20 bytes
per millisecond for each GB/s, and a memory as 1024 MB for each GB. Its README gives bandwidths in
bytes per second, so its communication is free: these figures are kept for Metis's own cost model,
and read in their evident unit everywhere else.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import Document, read_json
from ilp_planner.base.limits import LEAST_RATE, MEMORY, RATE
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.hostfile import read_hostfile
from ilp_planner.specs.link import Link

GIB = 2**30
GB = 1e9
# Above it, a figure in GB/s must be one in bytes/s: no link does 100 TB/s, and none that is worth
# training over is slower than 100 KB/s.
MOST_GB_PER_S = 1e5
# Neither file says it; orders of magnitude of NVLink or PCIe, and of a network card.
INTRA_LATENCY = 10e-6
INTER_LATENCY = 50e-6
KEYS = ("instance_type", "inter_bandwidth", "intra_bandwidth", "memory")
# What a figure may be: bandwidths in GB/s, or in bytes/s by mistake; memory in GB.
FIGURES = dict.fromkeys(KEYS[1:3], (LEAST_RATE / GB, RATE)) | {"memory": (1 / GIB, MEMORY / GIB)}


class MetisNode(NamedTuple):
    """One node, in Metis's units.

    device: its type, in capitals (Metis does not tell `t4` from `T4`). devices: number of them.
    inter, intra: bandwidths as the file gives them, meant as GB/s. memory: GB (2^30 bytes) per
    device.
    """

    host: str
    device: str
    devices: int
    inter: float
    intra: float
    memory: float


@dataclass(frozen=True, kw_only=True)
class MetisCluster:
    """Nodes in the order of the hostfile and of the device numbers.

    notes: one-line remarks about suspicious values.
    """

    nodes: tuple[MetisNode, ...]
    source: str = "cluster"
    notes: tuple[str, ...] = ()

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types by name, for any order of the lines."""
        return tuple(sorted({node.device for node in self.nodes}))

    @cached_property
    def bandwidth(self) -> dict[str, float]:
        """Bandwidth of each type as Metis's cost model reads it, GB/s.

        Metis reads `intra_bandwidth` also between nodes. If nodes of a type differ, it takes the
        least one between nodes and the first line's inside a node; here it is the least in both, so
        that the order of the lines does not matter.
        """
        return self.least("intra")

    @cached_property
    def memory(self) -> dict[str, float]:
        """MB (2^20 bytes) of one device of each type; the least if nodes of a type differ."""
        return {device: size * 1024 for device, size in self.least("memory").items()}

    def least(self, figure: str) -> dict[str, float]:
        """Return the least value of a node's field, by device type."""
        return {
            device: min(getattr(node, figure) for node in self.nodes if node.device == device)
            for device in self.device_types
        }


def read_metis_cluster(hosts_of: Path | Document, entries_of: Path | Document) -> MetisCluster:
    """Read both files.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    refuse_other_kind(entries_of, FileKind.CLUSTERFILE, SpecError)
    hosts, content = read_hostfile(hosts_of), read_json(entries_of, SpecError)
    hostfile, clusterfile = (
        f.name if isinstance(f, Document) else str(f) for f in (hosts_of, entries_of)
    )
    if not isinstance(content, dict):
        raise SpecError(
            f"{clusterfile}: must be an object with an entry per node, found {content!r:.40}"
        )
    entries = {}
    for host in sorted({host.name for host in hosts}):
        if host not in content:
            known = ", ".join(sorted(content)) or "none"
            raise SpecError(
                f"{clusterfile}: {host!r} is missing, which {hostfile} names; found {known}"
            )
        entries[host] = _read_entry(clusterfile, host, content[host])
    nodes = tuple(entries[host.name]._replace(devices=host.devices) for host in hosts)
    return MetisCluster(
        nodes=nodes, source=str(clusterfile), notes=tuple(_remarks(clusterfile, nodes))
    )


def metis_cluster_spec(cluster: MetisCluster, name: str = "metis") -> ClusterSpec:
    """Return the cluster in the planner's own terms: bytes, and bytes per second.

    The link between two nodes is the slower of their network cards; of several nodes of a type, the
    slowest.
    """

    def link(figure: float, latency: float) -> Link:
        return Link(bandwidth=bytes_per_second(figure), latency=latency)

    types = cluster.device_types
    inter = cluster.least("inter")
    return ClusterSpec(
        name=name,
        device_types={d: Device(name=d, memory=int(cluster.memory[d] * 2**20)) for d in types},
        nodes=tuple(
            NodeGroup(name=node.host, device=node.device, devices=node.devices)
            for node in cluster.nodes
        ),
        intra_node=link(min(cluster.bandwidth.values()), INTRA_LATENCY),
        inter_node=link(min(inter.values()), INTER_LATENCY),
        within={d: link(cluster.bandwidth[d], INTRA_LATENCY) for d in types},
        between={
            (a, b): link(min(inter[a], inter[b]), INTER_LATENCY)
            for a in types
            for b in types
            if a <= b
        },
    )


def metis_cluster_of(spec: ClusterSpec) -> MetisCluster:
    """Return a cluster of the planner's in Metis's terms, nodes named `node1`, `node2`, ...

    A type keeps its name. A node's `inter` is its fastest link to another node.
    """
    nodes = []
    for number, device in enumerate(spec.node_types):
        others = [
            spec.link(number, other).bandwidth
            for other in range(spec.node_count)
            if other != number
        ]
        nodes.append(
            MetisNode(
                host=f"node{number + 1}",
                device=device,
                devices=spec.devices_of_nodes[number],
                inter=max(others, default=spec.inter_node.bandwidth) / GB,
                intra=spec.link(number, number).bandwidth / GB,
                memory=spec.device_types[device].memory / GIB,
            )
        )
    return MetisCluster(nodes=tuple(nodes), source=spec.name)


def bytes_per_second(figure: float) -> float:
    """Return the evident meaning of a clusterfile's bandwidth: GB/s, or bytes/s if that is
    absurd."""
    return figure if figure > MOST_GB_PER_S else figure * GB


def _read_entry(path: str, host: str, entry: Any) -> MetisNode:
    if not isinstance(entry, dict):
        raise SpecError(
            f"{path}: {host!r} must be an object with {', '.join(KEYS)}, found {entry!r:.40}"
        )
    for key in KEYS:
        if key not in entry:
            raise SpecError(
                f"{path}: {host!r}: {key} is missing, expected {', '.join(KEYS)}, "
                f"found {', '.join(map(str, entry)) or 'none'}"
            )
    device = entry["instance_type"]
    if not isinstance(device, str) or not device.strip():
        raise SpecError(f"{path}: {host!r}: instance_type must be a name, found {device!r}")
    for key in KEYS[1:]:
        value = entry[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise SpecError(
                f"{path}: {host!r}: {key} must be a positive, finite number, found {value!r:.40}"
            )
        least, most = FIGURES[key]
        if not least <= value <= most:
            raise SpecError(
                f"{path}: {host!r}: {key} must be {least:g} to {most:g}, found {value!r:.40}"
            )
    return MetisNode(
        host=host,
        device=device.strip().upper(),
        devices=1,
        inter=entry["inter_bandwidth"],
        intra=entry["intra_bandwidth"],
        memory=entry["memory"],
    )


def _remarks(path: str, nodes: Iterable[MetisNode]) -> Iterable[str]:
    """Yield one line per suspicious thing, in an order that the lines of the files do not
    change."""
    nodes = sorted(nodes)
    for key in ("inter", "intra"):
        figures = sorted({getattr(n, key) for n in nodes if getattr(n, key) > MOST_GB_PER_S})
        if figures:
            yield (
                f"{path}: {key}_bandwidth {figures[0]:.12g} looks like bytes/s, expected GB/s: "
                f"probably {figures[0] / GB:.4g}; cost model metis keeps it as it is, "
                "and its communication is next to free"
            )
    for device in sorted({n.device for n in nodes}):
        for key, unit in (("intra", "GB/s"), ("memory", "GB")):
            values = sorted({getattr(n, key) for n in nodes if n.device == device})
            if len(values) > 1:
                name = "intra_bandwidth" if key == "intra" else key
                yield (
                    f"{path}: {name} of {device} differs between nodes "
                    f"({', '.join(f'{v:.6g}' for v in values)} {unit}): the least one counts"
                )
    implausible = sorted({n.memory for n in nodes if n.memory > 4096})
    if implausible:
        yield (
            f"{path}: memory {implausible[0]:.12g} is meant in GB per device, "
            f"probably {implausible[0] / (1024 if implausible[0] < 1e7 else GIB):.4g}"
        )
