"""Times of messages by the measured links of a table: collectives, and sends between two devices.

Only groups of a measured size, number of hosts and stride: for others, a cluster's links serve as
well.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.predictions import collectives
from ilp_planner.costs.profiles.table import Origin, Prediction, Provenance

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.predictions import Collectives

SEND = "send_recv"
POINTS = 16  # sizes that a line is fitted to, evenly spaced in their logarithm
SAME = 1e-9  # relative: a spread of sizes below it tells no latency from a bandwidth


class LinkGroup(NamedTuple):
    """Devices that send to each other.

    size: of them. hosts: that they are on, equally many on each. stride: between their ranks.
    device: their type in profiles; None: they are of several. sharing: groups that do the same at
    once over a host's network; None: as busy as it was measured.
    """

    size: int
    hosts: int
    stride: int
    device: str | None
    sharing: int | None = None


class LinkTimes:
    """Measured links.
    table: rows of collectives and messages, of which there is one at least (`link_times`)."""

    def __init__(self, table: Measurements) -> None:
        self.source = table.source
        frame = table.of(Record.COLLECTIVE, Record.POINT_TO_POINT).copy()
        sends = frame["record"] == Record.POINT_TO_POINT
        frame.loc[sends, ["record", "name", "group_size"]] = Record.COLLECTIVE, SEND, 2.0
        rows = frame[(frame["provenance"] == Provenance.MEASURED) & (frame["bytes"] > 0)]
        rows = rows[(rows["group_size"] > 1) & (rows["time_s"] > 0)].fillna(
            {"hosts": 1.0, "stride": 1.0}
        )
        self._table = replace(table, frame=rows)
        self._known = {
            (device.casefold(), name, int(size), int(hosts), int(stride) if hosts == 1 else 0)
            for device, name, size, hosts, stride in zip(
                *(rows[c] for c in ("device", "name", "group_size", "hosts", "stride")), strict=True
            )
        }
        self._devices = {device for device, *_ in self._known}

    def knows(self, name: str, group: LinkGroup) -> bool:
        """Tell whether the message was measured in groups like this one."""
        if group.device is None:
            return False
        own = group.device.casefold()
        stride = group.stride if group.hosts == 1 else 0
        place = (own if own in self._devices else "", name, group.size, group.hosts, stride)
        return place in self._known

    def seconds(self, name: str, size: float, group: LinkGroup) -> float:
        """Return seconds of one message of so many bytes in a group that is known."""
        return self._at(name, size, group).value

    def line(self, name: str, group: LinkGroup, least: float, most: float) -> tuple[float, float]:
        """Return (seconds, seconds per byte) of the line through the times of messages of `least`
        to `most` bytes in a known group: by the least squares of its relative errors, and neither
        of the two is negative."""
        sizes = np.geomspace(least, most, POINTS)
        return relative_line(sizes, self._curve(name, sizes, group))

    def origin(
        self, name: str, size: float, group: LinkGroup, seconds: float | None = None
    ) -> Origin:
        """Return the source of a message's seconds.
        seconds: from a line, with its own error; None: `LinkTimes.seconds`."""
        found = self._at(name, size, group)
        if seconds is None:
            return Origin(found.provenance, found.error)
        between = found.provenance is Provenance.MEASURED
        off = abs(seconds / found.value - 1)
        return Origin(
            Provenance.INTERPOLATED if between else found.provenance,
            None if found.error is None else found.error + off,
        )

    @cached_property
    def _predictor(self) -> Collectives:
        return collectives(self._table)

    def _at(self, name: str, size: float, group: LinkGroup) -> Prediction:
        return self._predictor.predict(name, size, **_query(group))

    def _curve(self, name: str, sizes: ArrayLike, group: LinkGroup) -> Floats:
        return self._predictor.seconds(name, sizes, **_query(group))


def _query(group: LinkGroup) -> dict[str, Any]:
    """Return a group in the predictor's terms."""
    said = group._asdict()
    return said | {"group_size": said.pop("size"), "device": group.device or ""}


def link_times(table: Measurements) -> LinkTimes | None:
    """Return the measured links of a table; None if it has none."""
    found = LinkTimes(table)
    return found if found._known else None


def relative_line(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Return (seconds, seconds per byte), neither negative, of the line with the least squares of
    relative errors. Arguments: positive, float64 [n]."""
    rows = np.stack((1 / seconds, sizes / seconds))
    ((a, b), (_, c)), (p, q) = rows @ rows.T, rows.sum(axis=1)
    whole = a * c - b * b
    if whole <= SAME * a * c:
        return 0.0, float(q / c)
    latency, per_byte = (c * p - b * q) / whole, (a * q - b * p) / whole
    if latency < 0:
        return 0.0, float(q / c)
    return (float(p / a), 0.0) if per_byte < 0 else (float(latency), float(per_byte))
