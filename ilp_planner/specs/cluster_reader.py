"""Cluster specifications from TOML; `clusters/README.md` describes the format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import combinations_with_replacement
from pathlib import Path

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.limits import DEVICES, as_whole
from ilp_planner.base.units import format_bytes, format_seconds, parse_duration, parse_rate
from ilp_planner.specs.cluster import MEASURED, ROOFLINE, ClusterSpec, Device, NodeGroup
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.gpus import Gpu, gpu
from ilp_planner.specs.kernel_constants import KernelConstants
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import (
    ABOUT,
    CONSTANTS,
    DURATIONS,
    USUAL,
    Machine,
    with_constants,
)
from ilp_planner.specs.toml_reader import Table, read_toml
from ilp_planner.specs.zones import Zone, ways

# ---- links of a named GPU ------------------------------------------------------------------------
# For clusters that say no links of their own.


# Share of a link's rate that large messages reach, and seconds until one starts; both assumed.
REACHED = {"NVLink": 0.8, "xGMI": 0.8, "PCIe": 0.75}
LATENCY = {"NVLink": 10e-6, "xGMI": 10e-6, "PCIe": 20e-6}
NETWORK_REACHED = 0.9
# Share of the host's memory bandwidth that messages through it reach, each byte written and read
# once: 28 GB/s of each of 8 RTX 5090 beside 16 channels of DDR5-4800
# (github.com/NVIDIA/nccl/issues/1639).
HOST_REACHED = 0.73


def link_inside(row: Gpu) -> Link:
    """Return the link inside a node: a pair's, and in rings all links of a GPU. Without access to
    one another's memory, messages are no faster than the host's memory passes them on."""
    kind = row.link.split()[0]
    share = REACHED[kind]
    mesh = row.pair_bandwidth < row.link_bandwidth
    reached = share * row.pair_bandwidth
    return Link(
        bandwidth=reached if row.peer_access else min(reached, HOST_REACHED * row.host_memory / 2),
        latency=LATENCY[kind],
        collectives={row.node: share * row.link_bandwidth} if mesh else {},
    )


def link_between(
    pair: tuple[str, str], types: Mapping[str, Device], nodes: Sequence[NodeGroup]
) -> Link:
    """Return the link between nodes of two device types: all network cards of the weaker node
    together, or of a cluster inside one NVLink domain all its NVLinks.

    Parameters
    ----------
    types: by name; types of the pair name a GPU.
    """
    rows = [gpu(types[name].gpu) for name in pair]
    sizes = [min(g.devices for g in nodes if g.device == name) for name in pair]
    devices = sum(group.count * group.devices for group in nodes)
    if all(group.device in pair for group in nodes) and all(
        row == rows[0] and row.node < row.domain >= devices for row in rows
    ):
        inside = link_inside(rows[0])
        return Link(bandwidth=inside.bandwidth * min(sizes), latency=inside.latency)
    return Link(
        bandwidth=NETWORK_REACHED
        * min(row.network_bandwidth * size for row, size in zip(rows, sizes, strict=True)),
        latency=max(row.network_latency for row in rows),
    )


def link_note(link: Link, through_host: bool = False) -> str:
    """Return the remark of results on a link that a file leaves to the table."""
    way = ", through the host's memory, as its driver gives no peer access" * through_host
    return (
        f"{link.bandwidth / 1e9:.4g} GB/s and {link.latency * 1e6:g} us are assumed, of its "
        f"generation{way} (`ilp-plan gpus`)"
    )


# ---- cluster reader ------------------------------------------------------------------------------


KEYS = ("name", "devices", "nodes", "links", "zones", "notes")
DERIVED = ("name", "type", "processors")  # not said in files
DEVICE_KEYS = tuple(f.name for f in fields(Device) if f.name not in DERIVED)
PEAK_KEYS = ("fp16", "fp32", "bf16", "tf32", "fp8", "fp4", "fp64")
NODE_KEYS = ("name", "count", "device", "devices", "zone")
ZONE_KEYS = ("name", "inside", "bandwidth", "latency")
LINKS_KEYS = ("intra_node", "inter_node", "within", "between", "matrix", "fabric")
LINK_KEYS = ("bandwidth", "latency", "collectives")
MATRIX_KEYS = ("bandwidth", "latency")
FABRIC_KEYS = ("nodes_per_leaf", "leaves", "oversubscription", "rail_only")
Pair = tuple[str, str]
Matrix = tuple[tuple[Link, ...], ...]

OF_KERNELS = ("host_experts", "expert_waits")
MOST_OF_KERNEL = 1e-3  # seconds
# Of tables of version 0.2.0: constants that they lack, and its default of the host's time of a
# layer with experts.
LATER = {"low_precision", "scan", "expert_waits", "stepping", "ring_growth"}
USUAL_OF_LAYER = 8e-3  # seconds


def read_cluster(source: Path | str | Document) -> ClusterSpec:
    """Read a cluster specification.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    root = read_toml(Path(source) if isinstance(source, str) else source, KEYS)
    devices = root.table("devices")
    types = {name: _read_device(devices, name) for name in devices.values}
    nodes = tuple(_read_nodes(table, types) for table in root.tables("nodes", NODE_KEYS))
    zones = _read_zones(root)
    optional = bool(zones) or any(device.gpu for device in types.values())
    links = root.table("links", LINKS_KEYS, optional=optional)
    written = root.texts_of("notes") if "notes" in root.values else ()
    assumed = _gpu_notes(devices, types)
    within = _read_within(links, types)
    between = _read_between(links, types)
    intra = _read_intra_node(links, types, nodes, within, assumed)
    matrix = _read_matrix(links, nodes, within, intra)
    if zones and "inter_node" not in links.values:
        inter = _outermost(root, zones)
    else:
        inter = _read_inter_node(links, types, nodes, between, matrix, intra, assumed)
    fabric = _read_fabric(links)
    assumed += _fabric_notes(fabric)
    with root.blamed():
        return ClusterSpec(
            name=root.text("name"),
            device_types=types,
            nodes=nodes,
            intra_node=intra,
            inter_node=inter,
            within=within,
            between=between,
            matrix=matrix,
            zones=zones,
            fabric=fabric,
            notes=tuple(dict.fromkeys((*written, *assumed))),
        )


def _read_device(devices: Table, name: str) -> Device:
    """Return a device type: the file's values, and for the rest the row of the GPU it names."""
    table = devices.table(name, DEVICE_KEYS, where=f"device {name!r}")
    given = table.values
    row = _read_gpu(table) if "gpu" in given else None
    kernels = _read_kernels(table, row)
    written = table.table("peak", PEAK_KEYS, optional=True)
    peak = {p: written.flops(p) for p in written.values} if "peak" in given else None
    with table.blamed():
        return Device(
            name=name,
            memory=table.size("memory", None if row is None else row.memory),
            peak=peak if row is None else {**row.peak, **(peak or {})},
            sustained=_optional(table, "sustained", row, table.number),
            memory_bandwidth=_optional(table, "memory_bandwidth", row, table.rate),
            sustained_bandwidth=table.number("sustained_bandwidth", Device.sustained_bandwidth),
            launch=table.duration("launch", Device.launch),
            host_link=_optional(table, "host_link", row, table.rate) or Device.host_link,
            host_memory=_optional(table, "host_memory", row, table.rate) or Device.host_memory,
            price=table.number("price") if "price" in given else None,
            spot_price=table.number("spot_price") if "spot_price" in given else None,
            profile=table.text("profile", name),
            gpu="" if row is None else row.name,
            processors=None if row is None else row.units,
            kernels=kernels,
            flash_attention=table.whole("flash_attention", Device.flash_attention),
            machine=_read_machine(table, None if kernels is None else row),
        )


def _read_kernels(device: Table, row: Gpu | None) -> KernelConstants | None:
    """Return the measured constants of a GPU's kernels; None if the file names none, or takes a
    roofline all the same.

    Raises
    ------
    SpecError: measured ones, or a version of the flash-attention package, are asked for of a device
        that names no GPU, or of one that lacks them.
    """
    said = device.choice("kernels", (MEASURED, ROOFLINE)) if "kernels" in device.values else None
    if row is None and said == MEASURED:
        raise device.error(
            f"kernels: found {MEASURED!r} of a device that names no GPU, expected "
            'gpu = "..." beside it, as in gpu = "H100-80GB"'
        )
    if row is None or said == ROOFLINE:
        if "flash_attention" in device.values:
            raise device.error(
                "flash_attention: expected measured kernels of a GPU beside it, as with "
                'gpu = "H100-80GB", found a roofline, which has one attention'
            )
        return None
    with device.blamed():
        return row.with_flash(device.whole("flash_attention", Device.flash_attention))


def _read_machine(device: Table, row: Gpu | None) -> Machine:
    """Return a machine's constants: those of its architecture if the file says nothing. The error
    of times is known for these constants only.

    row: None if kernels are a roofline.

    Raises
    ------
    SpecError: they are of a device with roofline kernels, without an effect, or too long for a
        kernel.
    """
    if row is None and "machine" in device.values:
        if "gpu" in device.values:
            raise device.error(
                f'machine: found constants beside kernels = "{ROOFLINE}", which they do not '
                "change, expected one of the two"
            )
        raise device.error(
            "machine: found constants of a device whose kernels are not known, which they change, "
            'expected gpu = "..." beside it, as in gpu = "H100-80GB"'
        )
    usual = Machine() if row is None else USUAL[row.machine]
    table = device.table("machine", (*CONSTANTS, *ABOUT), optional=True)
    values = {key: _read_constant(table, key) for key in table.values}
    older = of_layers(table.values)
    for key in () if older else OF_KERNELS:
        if values.get(key, 0.0) > MOST_OF_KERNEL:
            raise table.error(
                f"{key} must be the time of one kernel, not of a layer, at most "
                f"{format_seconds(MOST_OF_KERNEL)}, as in '{format_seconds(getattr(usual, key))}', "
                f"found {table.values[key]!r}"
            )
    with table.blamed():
        if older:
            return with_constants(Machine(), {**values, **_of_kernels(values, usual)})
        return with_constants(usual, values)


def of_layers(values: Mapping[str, object]) -> bool:
    """Tell whether a table of constants was written by a version that knew fewer of them, and the
    host's time of experts as that of a layer."""
    return {*CONSTANTS, "runs"} - values.keys() == LATER


def _of_kernels(values: Mapping[str, float], usual: Machine) -> dict[str, float]:
    """Return the host's times of kernels of experts from that of a layer: as much of the defaults
    as it is of the default then."""
    share = values["host_experts"] / USUAL_OF_LAYER
    return {key: share * getattr(usual, key) for key in OF_KERNELS}


def _read_constant(table: Table, key: str) -> float:
    """Return one of a machine's constants. Only seconds have a unit, but for 0."""
    if key == "runs":
        return table.natural(key)
    value = table.values[key]
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return table.duration(key) if key in DURATIONS else table.number(key)


def _read_gpu(table: Table) -> Gpu:
    try:
        return gpu(table.text("gpu"))
    except SpecError as error:
        raise table.error(f"gpu: {error}") from None


def _optional(
    table: Table, key: str, row: Gpu | None, read: Callable[[str], float]
) -> float | None:
    """Return the file's value of a key, else the GPU's row; None if neither does."""
    return read(key) if key in table.values else getattr(row, key, None)


def _gpu_notes(devices: Table, types: Mapping[str, Device]) -> list[str]:
    """Return notes on memory derived from a data sheet, on unmeasured kernels, on constants of an
    older version, and on architectures that are taken for another."""
    rows = {name: gpu(device.gpu) for name, device in types.items() if device.gpu}
    memory = [
        f"memory of {name}: {format_bytes(row.memory)} is assumed, {row.memory_source}"
        for name, row in rows.items()
        if not row.memory_seen and "memory" not in devices.table(name).values
    ]
    kernels = [
        f"kernels of {name} are {row.kernels_source}"
        for name, row in rows.items()
        if types[name].kernels is not None and not row.halves_measured
    ]
    older = [
        f"host_experts of {name} is of a layer, as version 0.2.0 wrote it, and is taken as "
        f"{format_seconds(device.machine.host_experts)} for each kernel"
        for name, device in types.items()
        if of_layers(devices.table(name).table("machine", optional=True).values)
    ]
    known = {name: known_gpu(device) for name, device in types.items()}
    taken = [
        f"architecture of {name}: {row.architecture.assumed}"
        for name, row in known.items()
        if row and row.architecture.assumed
    ]
    return memory + kernels + older + taken


def _read_nodes(table: Table, types: Mapping[str, Device]) -> NodeGroup:
    with table.blamed():
        return NodeGroup(
            name=table.text("name", "-").removeprefix("-"),
            count=table.whole("count", NodeGroup.count),
            device=table.choice("device", tuple(types) or ("none",)),
            devices=table.whole("devices"),
            zone=table.text("zone", "-").removeprefix("-"),
        )


def _read_zones(root: Table) -> tuple[Zone, ...]:
    """Return the zones of the file, a tree.

    Raises
    ------
    SpecError: they are not one, or their links make no sense.
    """
    if "zones" not in root.values:
        return ()
    zones = []
    for table in root.tables("zones", ZONE_KEYS):
        link = _read_link(table)
        inside = table.text("inside", "-").removeprefix("-")
        zones.append(Zone(name=table.text("name"), link=link, inside=inside))
    with root.blamed():
        ways(zones)
    return tuple(zones)


def _outermost(root: Table, zones: Sequence[Zone]) -> Link:
    """Return the link of the outermost zone, in place of a link between zones: there is none.

    Raises
    ------
    SpecError: several zones are in no other.
    """
    outermost = [zone for zone in zones if not zone.inside]
    if len(outermost) > 1:
        names = ", ".join(zone.name for zone in outermost)
        raise root.error(
            f"links.inter_node is missing, which nodes of different zones out of {names} have; "
            "add it, or a zone that these are inside"
        )
    return outermost[0].link


def _read_within(links: Table, types: Mapping[str, Device]) -> dict[str, Link]:
    table = links.table("within", tuple(types), optional=True)
    return {name: _read_link(table.table(name, LINK_KEYS)) for name in table.values}


def _read_between(links: Table, types: Mapping[str, Device]) -> dict[Pair, Link]:
    found: dict[Pair, Link] = {}
    tables = links.tables("between", ("types", *LINK_KEYS)) if "between" in links.values else ()
    for table in tables:
        names = table.texts_of("types")
        if len(names) != 2:
            shown = ", ".join(names)
            raise table.error(f"types must be two device types, maybe the same, found {shown}")
        for name in names:
            if name not in types:
                known = ", ".join(types)
                raise table.error(f"types must be device types out of {known}, found {name!r}")
        low, high = sorted(names)
        if (low, high) in found:
            raise table.error(f"types {low}, {high}: an earlier entry has this pair already")
        found[low, high] = _read_link(table)
    return found


def _read_intra_node(
    links: Table,
    types: Mapping[str, Device],
    nodes: Sequence[NodeGroup],
    within: dict[str, Link],
    assumed: list[str],
) -> Link:
    """Return the default inside nodes; if every type says its own, it may be missing.

    Types that name a GPU and say no link take that of its generation, with a note in `assumed`;
    into `within` if there are several.
    """
    lacking = list(dict.fromkeys(g.device for g in nodes if g.device not in within))
    if "intra_node" in links.values or any(not types[name].gpu for name in lacking):
        return _read_link(links.table("intra_node", LINK_KEYS))
    rows = {name: gpu(types[name].gpu) for name in lacking}
    found = {name: link_inside(row) for name, row in rows.items()}
    assumed += (
        f"link inside nodes of {name}: {link_note(found[name], not row.peer_access)}"
        for name, row in rows.items()
    )
    if len(found) > 1 or within:
        within |= found
    return min(({**within, **found}[group.device] for group in nodes), key=_bandwidth)


def _read_inter_node(
    links: Table,
    types: Mapping[str, Device],
    nodes: Sequence[NodeGroup],
    between: dict[Pair, Link],
    matrix: Matrix,
    intra: Link,
    assumed: list[str],
) -> Link:
    """Return the default between nodes; it may be missing if no two nodes would use it.

    Then it is the slowest used one, or the one inside nodes if there is one node. Types that name
    GPUs take the network of their generations if they say none, as above.
    """
    if "inter_node" in links.values:
        return _read_link(links.table("inter_node", LINK_KEYS))
    if matrix:
        used = [link for x, row in enumerate(matrix) for y, link in enumerate(row) if x != y]
    else:
        several = {
            g.device for g in nodes if sum(h.count for h in nodes if h.device == g.device) > 1
        }
        pairs = [
            (a, b)
            for a, b in combinations_with_replacement(sorted({g.device for g in nodes}), 2)
            if a != b or a in several
        ]
        lacking = [pair for pair in pairs if pair not in between]
        for pair in lacking:
            if not all(types[name].gpu for name in pair):
                raise links.error(
                    f"inter_node is missing, and no [[links.between]] has types {', '.join(pair)}"
                )
        found = {pair: link_between(pair, types, nodes) for pair in lacking}
        assumed += (
            f"link between nodes of {' and '.join(dict.fromkeys(pair))}: {link_note(link)}"
            for pair, link in found.items()
        )
        used = [{**between, **found}[pair] for pair in pairs]
        if len(pairs) > 1:
            between |= found
    return min(used, key=_bandwidth, default=intra)


def _read_fabric(links: Table) -> Fabric:
    table = links.table("fabric", FABRIC_KEYS, optional=True)
    with table.blamed():
        return Fabric(
            nodes_per_leaf=table.whole("nodes_per_leaf", Fabric.nodes_per_leaf),
            leaves=table.wholes("leaves", Fabric.leaves),
            oversubscription=table.number("oversubscription", Fabric.oversubscription),
            rail_only=table.flag("rail_only", Fabric.rail_only),
        )


def _fabric_notes(fabric: Fabric) -> Iterator[str]:
    """Yield remarks of results on switches that change nothing, or that no published run had."""
    if fabric.oversubscription > 1:
        yield (
            f"links.fabric: no run that the expected error rests on says that its uplinks were "
            f"oversubscribed {fabric.oversubscription:g}:1"
        )
    elif fabric.nodes_per_leaf or fabric.leaves:
        yield "links.fabric: leaf switches are without effect, as oversubscription is 1"


def _bandwidth(link: Link) -> float:
    return link.bandwidth


def _read_matrix(
    links: Table, nodes: Sequence[NodeGroup], within: Mapping[str, Link], intra: Link
) -> Matrix:
    """Return links from node to node; along the diagonal, links inside the nodes."""
    if "matrix" not in links.values:
        return ()
    table = links.table("matrix", MATRIX_KEYS)
    inside = [within.get(group.device, intra) for group in nodes for _ in range(group.count)]
    count = len(inside)
    bandwidths = table.square("bandwidth", count, parse_rate, per="node")
    if isinstance(table.values.get("latency"), list):
        latencies = table.square("latency", count, parse_duration, per="node")
    else:
        latencies = ((table.duration("latency"),) * count,) * count
    with table.blamed():
        return tuple(
            tuple(
                inside[x]
                if bandwidth is None or latency is None
                else Link(bandwidth=bandwidth, latency=latency)
                for bandwidth, latency in zip(bandwidths[x], latencies[x], strict=True)
            )
            for x in range(count)
        )


def _read_link(table: Table) -> Link:
    collectives = table.table("collectives", optional=True)
    rates = {}
    for devices in collectives.values:
        if not devices.isdecimal():
            raise collectives.error(f"a key must be a number of devices, found {devices!r}")
        if as_whole(devices) > DEVICES:
            found = devices[:40]
            raise collectives.error(f"a key must be at most {DEVICES} devices, found {found!r}")
        rates[int(devices)] = collectives.rate(devices)
    with table.blamed():
        return Link(
            bandwidth=table.rate("bandwidth"), latency=table.duration("latency"), collectives=rates
        )
