"""Seconds of the tensor-parallel messages that measured rows leave out.

A shard is measured on one device, so the all-reduces between its ranks are not in its time. They
are added from the collectives of the same table, or, if it has none, from the cluster's links.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.predictions import collectives
from ilp_planner.costs.profiles.table import TRUST, Origin, Provenance
from ilp_planner.costs.profiles.work import Exchange, exchange_time

if TYPE_CHECKING:
    import pandas

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.predictions import Collectives
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.link import Link

ALL_REDUCE = "all_reduce"


class MessageTimes:
    """Seconds of all-reduces among tensor-parallel ranks inside a node.
    cluster: its links stand in if the table has no all-reduces; None: there are no links."""

    def __init__(self, table: Measurements, cluster: ClusterSpec | None = None) -> None:
        self.table, self.cluster = table, cluster
        self._known: dict[tuple[str, int, float], tuple[float, Origin]] = {}
        rows = table.of(Record.COLLECTIVE)
        self.measured = bool((rows["name"] == ALL_REDUCE).any())

    def added(self, frame: pandas.DataFrame, device: str, tp: int) -> tuple[Floats, Origin]:
        """Return the seconds of one pass that each row leaves out, float64 [rows], and their
        source: of several, the least trustworthy.

        frame: rows of one device type and degree. device: as the table calls it.

        Raises
        ------
        ProfileError: the time of a message is unknown.
        """
        counts = frame["messages"].fillna(0.0).to_numpy(np.float64)
        sizes = frame["message_bytes"].fillna(0.0).to_numpy(np.float64)
        seconds = np.zeros(len(frame))
        origins = []
        for place in np.flatnonzero((counts > 0) & (sizes > 0)) if tp > 1 else ():
            spent, origin = self.all_reduce(device, tp, float(sizes[place]))
            seconds[place] = counts[place] * spent
            origins.append(origin)
        return seconds, worst(origins)

    @cached_property
    def _predictor(self) -> Collectives:
        return collectives(self.table)

    def all_reduce(self, device: str, tp: int, size: float) -> tuple[float, Origin]:
        """Return seconds of one all-reduce of so many bytes."""
        key = (device, tp, size)
        if key not in self._known:
            self._known[key] = self._find(device, tp, size)
        return self._known[key]

    def _find(self, device: str, tp: int, size: float) -> tuple[float, Origin]:
        if self.measured:
            found = self._predictor.predict(ALL_REDUCE, size, group_size=tp, hosts=1, device=device)
            return found.value, Origin(found.provenance, found.error)
        if self.cluster is None:
            raise ProfileError(
                f"{self.table.source}: 'messages': tensor-parallel all-reduces are not in the "
                "times of tp > 1, expected collectives in the table too: join one of them, "
                "PROFILE.csv,LINKS.csv (`ilp-plan profile measure-links` makes it)"
            )
        links = links_inside(self.cluster, device)
        exchange = Exchange(ALL_REDUCE, size)
        return max(exchange_time(exchange, tp, link) for link in links), Origin(Provenance.ANALYTIC)


def links_inside(cluster: ClusterSpec, device: str) -> list[Link]:
    """Return the links inside the nodes of the types with rows of `device`; of all types if none
    is."""
    names = [
        name
        for name in cluster.type_names
        if cluster.device_types[name].profile.casefold() == device.casefold()
    ]
    return [cluster.within.get(name, cluster.intra_node) for name in names or cluster.type_names]


def worst(origins: list[Origin]) -> Origin:
    """Return the least trustworthy of several; measured if there is none."""
    if not origins:
        return Origin(Provenance.MEASURED, 0.0)
    least = max((origin.provenance for origin in origins), key=TRUST.index)
    errors = [o.error for o in origins if o.provenance is least and o.error is not None]
    return Origin(least, max(errors) if errors else None)
