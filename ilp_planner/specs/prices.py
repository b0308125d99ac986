"""Prices of nodes: clouds bill a node as a whole, from its first device on, and an idle one never.

A price is per device and hour, in one currency for the whole cluster; a node has the price of all
its devices.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import beyond

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ilp_planner.specs.cluster import ClusterSpec

SPOT = "spot"  # the spot prices of the cluster's file


def hourly_price(cluster: ClusterSpec, nodes: Iterable[int]) -> float | None:
    """Return the price of nodes per hour, each counted once; None if a price is not known."""
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


class PriceList(NamedTuple):
    """Prices of devices per hour, in place of a cluster's.

    prices: by type. spot: others have their spot prices, if any.
    """

    prices: Mapping[str, float]
    spot: bool = False

    def price_of(self, name: str, price: float | None, spot_price: float | None) -> float | None:
        """Return the price of a device with two prices in a cluster; None if nothing is known."""
        said = spot_price if self.spot and spot_price is not None else price
        return self.prices.get(name, said)


def price_list(text: str, names: Sequence[str]) -> PriceList:
    """Read `2.5`, `a100=2.5,t4=0.4` or `spot`, of devices of these types.

    Raises
    ------
    UsageError: a text that says no price, or one of another type.
    """
    asked: dict[str, float] = {}
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        name, equals, number = part.rpartition("=")
        name = name.strip()
        if part == SPOT:
            continue
        if equals and name not in names:
            raise UsageError(f"price: found {name!r}, expected one of {', '.join(names)}")
        asked |= dict.fromkeys([name] if equals else names, _price(part, number))
    return PriceList(asked, SPOT in parts)


def with_prices(cluster: ClusterSpec, text: str) -> ClusterSpec:
    """Return a cluster with the prices of a text (`price_list`). Types that are not named keep the
    price that they had.

    Raises
    ------
    UsageError: a text that says no price, one of a type that the cluster does not have, or spot
        prices of a cluster that has none.
    """
    types = cluster.device_types
    said = price_list(text, list(dict.fromkeys(device.type for device in types.values())))
    if said.spot and all(device.spot_price is None for device in types.values()):
        raise UsageError(
            f"price: found spot, but no spot price in cluster {cluster.name!r}, expected "
            "spot_price = 1.2 in a table [devices.NAME] of its file, or a price as 1.2"
        )
    priced = {
        key: replace(device, price=said.price_of(device.type, device.price, device.spot_price))
        for key, device in types.items()
    }
    return replace(cluster, device_types=priced)


def check_prices(cluster: ClusterSpec) -> None:
    """Refuse a cluster with a type of unknown price.

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
            f"{cluster.name!r}, expected a price per device and hour, to say what plans cost: "
            f"`price={example}`, or price = 2.5 in [devices.{unknown[0]}] of its file"
        )


def _price(part: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(
            f"price: found {part.strip()!r}, expected a number above 0, as 2.5 or a100=2.5"
        )
    if expected := beyond("price", value):
        raise UsageError(f"price: found {part.strip()!r}, expected {expected}")
    return value
