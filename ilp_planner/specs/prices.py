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
from ilp_planner.base.units import counted

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


def price_list(
    text: str, names: Sequence[str], called: Mapping[str, str] | None = None
) -> PriceList:
    """Read `2.5`, `2.5,0.4`, `a100=2.5,t4=0.4` or `spot`, of devices of these types.

    One number without a name is the price of all types that are not named; several are those of all
    types, in their order. called: other names of the types.

    Raises
    ------
    UsageError: a text that says no price, one of another type, two of one, or one of none.
    """
    known = {name: name for name in names} | dict(called or {})
    asked: dict[str, float] = {}
    alone: list[float] = []
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        name, equals, number = part.rpartition("=")
        name = name.strip()
        if part == SPOT:
            continue
        if not equals:
            alone.append(_price(part, number))
        elif name not in known:
            raise UsageError(f"price: found {name!r}, expected one of {', '.join(known)}")
        elif known[name] in asked:
            raise UsageError(f"price: found two of {known[name]!r} in {text!r}, expected one")
        else:
            asked[known[name]] = _price(part, number)
    left = [name for name in names if name not in asked]
    each = len(alone) == len(names) and not asked  # a number for every type
    if alone and (SPOT in parts or not left or not (each or len(alone) == 1)):
        named = asked | dict(zip(left, alone, strict=False))
        example = ",".join([SPOT] * (SPOT in parts) + [f"{n}={one:g}" for n, one in named.items()])
        raise UsageError(
            f"price: found {counted(len(alone), 'number')} without a name in {text!r}, expected "
            f"one for all, one for each of {', '.join(names)}, or names, as {example}"
        )
    prices = alone if each else alone * len(left)
    return PriceList(asked | dict(zip(left, prices, strict=False)), SPOT in parts)


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
