"""Zones of nodes: a tree with the links of nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.specs.link import Link


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A rack, a zone, a region: a place of nodes or other zones.

    link: between two nodes that are both in it, and in no smaller zone together.
    inside: name of the zone that it is in itself; empty: in none.
    """

    name: str
    link: Link
    inside: str = ""


Ways = dict[str, tuple[Zone, ...]]
"""Of each zone by name: the zones that it is in, the largest first, and itself."""


def ways(zones: Sequence[Zone]) -> Ways:
    """Return the way from the root of the tree to every zone.

    Raises
    ------
    ValueError: the zones are not a tree.
    """
    counts = Counter(zone.name for zone in zones)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(
                f"zones: found {count} of the name {name!r}, expected a tree, in which every zone "
                "is there once, inside one other at most; rename or merge them"
            )
    of = {zone.name: zone for zone in zones}
    for zone in zones:
        if zone.inside and zone.inside not in of:
            raise ValueError(
                f"zone {zone.name!r}: inside must be one of {', '.join(of)}, found {zone.inside!r}"
            )
    return {zone.name: _way(zone, of) for zone in zones}


def _way(zone: Zone, of: Mapping[str, Zone]) -> tuple[Zone, ...]:
    """Return the zones from the outermost one to a zone."""
    found = [zone]
    while found[-1].inside:
        outer = of[found[-1].inside]
        if outer in found:
            circle = " inside ".join(repr(z.name) for z in [*found[found.index(outer) :], outer])
            raise ValueError(
                f"zones: found {circle}, expected a tree; leave out `inside` of the outermost one"
            )
        found.append(outer)
    return tuple(reversed(found))


def check_filled(zones: Sequence[Zone], used: Sequence[str], nodes: int) -> None:
    """Refuse zones without a node.

    Parameters
    ----------
    used: zones that nodes say they are in. nodes: how many there are.

    Raises
    ------
    ValueError: names the empty zones.
    """
    filled = {zone.name for way in map(ways(zones).__getitem__, used) for zone in way}
    empty = [zone.name for zone in zones if zone.name not in filled]
    if empty:
        raise ValueError(
            f"zones: found no node in {', '.join(empty)} ({len(zones)} zones, {nodes} nodes), "
            f'expected at least one in each; leave these out, or say zone = "{empty[-1]}" of nodes'
        )


def common(a: Sequence[Zone], b: Sequence[Zone]) -> Zone | None:
    """Return the smallest zone that two ways share; None if they share none."""
    shared = [x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))]
    return shared[-1] if shared else None
