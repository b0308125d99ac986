"""Cluster specifications to TOML, every number written out; `read_cluster` reads the same again.

The constants of a machine can be written into a cluster file that keeps the rest as it was.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.base.units import parse_duration, parse_flops, parse_rate, parse_size
from ilp_planner.specs.cluster import ROOFLINE, ClusterSpec, Device
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.machine import DURATIONS, Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.base.files import Document
    from ilp_planner.specs.link import Link


# ---- Values of any TOML file as text -------------------------------------------------------------


def toml_text(values: Mapping[str, object]) -> str:
    """Return a file that `tomllib` reads as these values, one line per key of the root: texts,
    numbers, booleans, lists and tables of them."""
    return "".join(f"{quoted(key)} = {_value(value)}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """Return a text as TOML has it, also as a key."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {_value(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


RATES = (("GB/s", 1e9), ("B/s", 1))
FLOPS = (("TFLOP/s", 1e12), ("FLOP/s", 1))
SIZES = (("GiB", 2**30), ("MiB", 2**20), ("B", 1))
TIMES = (("us", 1e-6), ("s", 1))
HOST_TIMES = (("ms", 1e-3), ("s", 1))
TITLE = re.compile(r"[ \t]*\[")


def cluster_text(cluster: ClusterSpec) -> str:
    """Return the file of a cluster."""
    lines = [f"name = {quoted(cluster.name)}"]
    if cluster.notes:
        lines.append(f"notes = [{', '.join(map(quoted, cluster.notes))}]")
    for group in cluster.nodes:
        lines += ["", "[[nodes]]"]
        lines += [f"name = {quoted(group.name)}"] if group.name else []
        lines += [f"count = {group.count}", f"device = {quoted(group.device)}"]
        lines.append(f"devices = {group.devices}")
        lines += [f"zone = {quoted(group.zone)}"] if group.zone else []
    for zone in cluster.zones:
        lines += ["", "[[zones]]", f"name = {quoted(zone.name)}"]
        lines += [f"inside = {quoted(zone.inside)}"] if zone.inside else []
        lines += _link(zone.link)
    for device in cluster.device_types.values():
        lines += ["", f"[devices.{quoted(device.name)}]", *_device(device)]
        if device.gpu and device.kernels is not None:  # which the constants change
            header = f"[devices.{quoted(device.name)}.machine]"
            lines += ["", header, *machine_lines(device.machine)]
    links = {"intra_node": cluster.intra_node, "inter_node": cluster.inter_node}
    links |= {f"within.{quoted(name)}": link for name, link in cluster.within.items()}
    for name, link in links.items():
        lines += ["", f"[links.{name}]", *_link(link)]
    for pair, link in cluster.between.items():
        types = ", ".join(map(quoted, pair))
        lines += ["", "[[links.between]]", f"types = [{types}]", *_link(link)]
    if (fabric := cluster.fabric) != Fabric():
        lines += ["", "[links.fabric]"]
        if fabric.leaves:
            lines.append(f"leaves = {list(fabric.leaves)}")
        if fabric.nodes_per_leaf:
            lines.append(f"nodes_per_leaf = {fabric.nodes_per_leaf}")
        lines.append(f"oversubscription = {fabric.oversubscription!r}")
        lines.append(f"rail_only = {str(fabric.rail_only).lower()}")
    if cluster.matrix:
        lines += ["", "[links.matrix]"]
        lines += _rows("bandwidth", [[_rate(link.bandwidth) for link in r] for r in cluster.matrix])
        lines += _rows("latency", [[_time(link.latency) for link in r] for r in cluster.matrix])
    return "\n".join(lines) + "\n"


def machine_lines(machine: Machine) -> list[str]:
    """Return the lines of a device's machine table, one per known constant."""
    lines = []
    for name, value in asdict(machine).items():
        if name in DURATIONS and value:
            lines.append(f"{name} = {_quantity(value, HOST_TIMES, parse_duration)}")
        elif value is not None:
            lines.append(f"{name} = {value!r}")
    return lines


def _device(device: Device) -> list[str]:
    lines = [f"gpu = {quoted(device.gpu)}"] if device.gpu else []
    if device.gpu and device.kernels is None:
        lines.append(f"kernels = {quoted(ROOFLINE)}")
    lines += [f"profile = {quoted(device.profile)}", f"memory = {_size(device.memory)}"]
    for precision, rate in (device.peak or {}).items():
        lines.append(f"peak.{precision} = {_quantity(rate, FLOPS, parse_flops)}")
    if device.memory_bandwidth is not None:
        lines.append(f"memory_bandwidth = {_rate(device.memory_bandwidth)}")
    for name in ("sustained", "sustained_bandwidth", "price", "spot_price"):
        value = getattr(device, name)
        lines += [] if value is None else [f"{name} = {value!r}"]
    lines += [f"{name} = {_rate(getattr(device, name))}" for name in ("host_link", "host_memory")]
    if device.flash_attention != Device.flash_attention:
        lines.append(f"flash_attention = {device.flash_attention}")
    return [*lines, f"launch = {_time(device.launch)}"]


def _link(link: Link) -> list[str]:
    collectives = (f"collectives.{n} = {_rate(rate)}" for n, rate in link.collectives.items())
    return [
        f"bandwidth = {_rate(link.bandwidth)}", f"latency = {_time(link.latency)}", *collectives,
    ]  # fmt: skip


def _rows(name: str, rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"{name} = [", *(f"    [{', '.join(row)}]," for row in rows), "]"]


def _rate(value: float) -> str:
    return _quantity(value, RATES, parse_rate)


def _size(value: int) -> str:
    return _quantity(value, SIZES, parse_size)


def _time(value: float) -> str:
    return _quantity(value, TIMES, parse_duration)


def _quantity(
    value: float, units: Sequence[tuple[str, float]], parse: Callable[[str], float]
) -> str:
    """Return a quantity in the first unit that says it to the digit with few digits; in the last
    one otherwise."""
    for unit, factor in units[:-1]:
        text = f"{value / factor:.9g} {unit}"
        if parse(text) == value:
            return quoted(text)
    return quoted(f"{value!r} {units[-1][0]}")


# ---- a machine in a file that is there -----------------------------------------------------------


def with_machine(document: Document, device: str, machine: Machine, note: str) -> str:
    """Return the text of a cluster file with the table of a device's machine appended or replaced.

    Parameters
    ----------
    note: on the source of the constants, as a comment.

    Raises
    ------
    SpecError: the file has the constants in another form than that table.
    """
    table = machine_table(device, machine, note)
    kept = _without(document.text, device)
    text = f"{kept.rstrip()}\n\n{table}"
    wanted = tomllib.loads(document.text)
    wanted["devices"][device]["machine"] = tomllib.loads(table)["devices"][device]["machine"]
    try:
        right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise SpecError(
            f"{document.name}: device {device!r}: cannot write its machine into this form, "
            f"expected the header [devices.{_key(device)}] above what it has, and nothing of its "
            "machine outside of a table of its own"
        )
    return text


def machine_table(device: str, machine: Machine, note: str) -> str:
    """Return the table of a device's machine in a cluster file."""
    header = f"[devices.{_key(device)}.machine]  # {note}"
    return "\n".join([header, *machine_lines(machine)]) + "\n"


def _key(name: str) -> str:
    """Return a key of TOML, in quotes if it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)


def _without(text: str, device: str) -> str:
    """Return a file without the table of a device's machine: from its header to the next one."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if TITLE.match(line):
            inside = _header(line) == {"devices": {device: {"machine": {}}}}
        if not inside:
            kept.append(line)
    return "".join(kept)


def _header(line: str) -> dict[str, Any]:
    """Return the table of a line as a file of its own; nothing if it is no header."""
    try:
        return tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return {}
