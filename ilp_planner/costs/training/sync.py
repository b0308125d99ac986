"""The rings of a pipeline rank's synchronisation: gradients reduced, parameters gathered.

A ring's seconds are linear in the bytes of the elements that a rank has, so that the seconds of a
range of the chain add up. If a profile has measured the collective in groups of that size on so
many hosts (`profiles.link_times`), it is the line through its values; otherwise the cluster's links
(`costs.training.network`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.profiles.shares import LINKS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.training.network import Route


class Ring(NamedTuple):
    """One collective. sizes: bytes of every element of the chain, float64 [n]. latency, per_byte:
    seconds. links: that these are of; None: the cluster's."""

    collective: str
    route: Route
    sizes: NDArray[np.float64]
    latency: float
    per_byte: float
    links: LinkTimes | None = None

    def origin(self, size: float) -> Origin:
        """Return the source of the seconds of so many bytes."""
        if self.links is None or self.route.group is None or not size > 0:
            return LINKS
        seconds = self.latency + self.per_byte * size
        return self.links.origin(self.collective, size, self.route.group, seconds)


def ring(
    collective: str, route: Route, sizes: NDArray[np.float64], links: LinkTimes | None
) -> Ring:
    """Return a collective of elements of so many bytes; one of them has some."""
    group = route.group
    if links is None or group is None or not links.knows(collective, group):
        return Ring(collective, route, sizes, *route.line(collective))
    ends = float(sizes[sizes > 0].min()), float(sizes.sum())
    return Ring(collective, route, sizes, *links.line(collective, group, *ends), links)
