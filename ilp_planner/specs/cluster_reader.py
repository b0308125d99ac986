"""Cluster specifications from TOML; `clusters/README.md` describes the format."""

from __future__ import annotations

from pathlib import Path

from ilp_planner.specs.cluster import ClusterSpec, Device, Link, NodeGroup
from ilp_planner.specs.toml_reader import Table, read_toml

KEYS = ("name", "devices", "nodes", "links")
DEVICE_KEYS = (
    "memory",
    "peak",
    "sustained",
    "memory_bandwidth",
    "sustained_bandwidth",
    "launch",
    "price",
)
PEAK_KEYS = ("fp16", "fp32", "bf16", "tf32", "fp8", "fp64")
NODE_KEYS = ("name", "count", "device", "devices")
LINK_KEYS = ("bandwidth", "latency", "collectives")


def read_cluster(path: Path | str) -> ClusterSpec:
    """Read a cluster specification.

    Raises
    ------
    SpecError: one line with the file, the key, what was found and what was expected.
    """
    root = read_toml(Path(path), KEYS)
    devices = root.table("devices")
    types = {name: _read_device(devices, name) for name in devices.values}
    links = root.table("links", ("intra_node", "inter_node"))
    with root.blamed():
        return ClusterSpec(
            name=root.text("name"),
            device_types=types,
            nodes=tuple(_read_nodes(table) for table in root.tables("nodes", NODE_KEYS)),
            intra_node=_read_link(links, "intra_node"),
            inter_node=_read_link(links, "inter_node"),
        )


def _read_device(devices: Table, name: str) -> Device:
    table = devices.table(name, DEVICE_KEYS, where=f"device {name!r}")
    peak = table.table("peak", PEAK_KEYS)
    with table.blamed():
        return Device(
            name=name,
            memory=table.size("memory"),
            peak={precision: peak.flops(precision) for precision in peak.values},
            sustained=table.number("sustained"),
            memory_bandwidth=table.rate("memory_bandwidth"),
            sustained_bandwidth=table.number("sustained_bandwidth", Device.sustained_bandwidth),
            launch=table.duration("launch", Device.launch),
            price=table.number("price") if "price" in table.values else None,
        )


def _read_nodes(table: Table) -> NodeGroup:
    with table.blamed():
        return NodeGroup(
            name=table.text("name", "-").removeprefix("-"),
            count=table.whole("count", NodeGroup.count),
            device=table.text("device"),
            devices=table.whole("devices"),
        )


def _read_link(links: Table, key: str) -> Link:
    table = links.table(key, LINK_KEYS)
    collectives = table.table("collectives", optional=True)
    rates = {}
    for devices in collectives.values:
        if not devices.isdecimal():
            raise collectives.error(f"a key must be a number of devices, found {devices!r}")
        rates[int(devices)] = collectives.rate(devices)
    with table.blamed():
        return Link(
            bandwidth=table.rate("bandwidth"), latency=table.duration("latency"), collectives=rates
        )
