"""What nodes cost: clouds bill a node as a whole, from its first device on, and an idle one never.

A price is per device and hour, in one currency for the whole cluster; a node costs what all its
devices do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.specs.cluster import ClusterSpec

HOUR = 3600  # seconds
SPOT = "spot"  # the spot prices of the cluster's file


def hourly_price(cluster: ClusterSpec, nodes: Iterable[int]) -> float | None:
    """Return what nodes cost per hour, each counted once; None where a price is not known."""
    total = 0.0
    for node in sorted(set(nodes)):
        price = cluster.device_types[cluster.node_types[node]].price
        if price is None:
            return None
        total += price * cluster.devices_of_nodes[node]
    return total


def nodes_of(cluster: ClusterSpec, devices: Iterable[int]) -> list[int]:
    """Return the nodes that devices are in, ascending."""
    return sorted({cluster.node_of[device] for device in devices})


def with_prices(cluster: ClusterSpec, text: str) -> ClusterSpec:
    """Return a cluster whose devices cost what `2.5`, `a100=2.5,t4=0.4` or `spot` says, per device
    and hour. Types that are not named keep the price that they had.

    Raises
    ------
    UsageError: a text that says no price, one of a type that the cluster does not have, or spot
        prices of a cluster that has none.
    """
    types = cluster.device_types
    names = list(dict.fromkeys(device.type for device in types.values()))
    asked: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        name = name.strip()
        if part.strip() == SPOT:
            asked |= _spot(cluster)
            continue
        if equals and name not in names:
            raise UsageError(f"price: found {name!r}, expected one of {', '.join(names)}")
        asked |= dict.fromkeys([name] if equals else names, _price(part, number))
    priced = {
        key: replace(device, price=asked.get(device.type, device.price))
        for key, device in types.items()
    }
    return replace(cluster, device_types=priced)


def check_prices(cluster: ClusterSpec, why: str) -> None:
    """Refuse a cluster with a type whose price is not known. why: what it is needed for.

    Raises
    ------
    UsageError: the type, and how its price can be said.
    """
    used = {name: cluster.device_types[name] for name in cluster.type_names}
    unknown = [device.type for device in used.values() if device.price is None]
    if unknown:
        example = ",".join(f"{name}=2.5" for name in dict.fromkeys(unknown))
        raise UsageError(
            f"price: found none of {' and '.join(dict.fromkeys(unknown))} in cluster "
            f"{cluster.name!r}, expected a price per device and hour, to say {why}: "
            f"`price={example}`, or price = 2.5 in [devices.{unknown[0]}] of its file"
        )


def _spot(cluster: ClusterSpec) -> dict[str, float]:
    devices = cluster.device_types.values()
    found = {d.type: d.spot_price for d in devices if d.spot_price is not None}
    if not found:
        raise UsageError(
            f"price: found spot, but no spot price in cluster {cluster.name!r}, expected "
            "spot_price = 1.2 in a table [devices.NAME] of its file, or a price as 1.2"
        )
    return found


def _price(part: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(
            f"price: found {part.strip()!r}, expected a number above 0, as 2.5 or a100=2.5"
        )
    return value
