"""Links between devices."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ilp_planner.base.limits import LEAST_LATENCY, LEAST_RATE, RATE, SECONDS


def check_positive(**values: float) -> None:
    """Refuse everything but positive, finite numbers.

    Raises
    ------
    ValueError: names the first that is not.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive, found {value!r}")


def check_within(least: float, most: float, unit: str, **values: float) -> None:
    """Refuse everything but numbers between two limits, both above 0.

    Raises
    ------
    ValueError: names the first that is not, and the limit that it is beyond.
    """
    check_positive(**values)
    for name, value in values.items():
        if not least <= value <= most:
            end = f"at least {least:g}" if value < least else f"at most {most:g}"
            raise ValueError(f"{name} must be {f'{end} {unit}'.rstrip()}, found {value:g}")


@dataclass(frozen=True, kw_only=True)
class Link:
    """A way to send.

    bandwidth: bytes/s of a large message between two devices. latency: seconds until it starts.
    collectives: devices -> bytes/s that each of them sends in a large ring collective ("bus
        bandwidth"), where that is not `bandwidth`: on a mesh, more devices use more links. Of links
        inside nodes only: rings between nodes take the `bandwidth` of their slowest link.
    """

    bandwidth: float
    latency: float
    collectives: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_within(LEAST_RATE, RATE, "bytes/s", bandwidth=self.bandwidth)
        check_within(LEAST_LATENCY, SECONDS, "s", latency=self.latency)
        for devices, rate in self.collectives.items():
            if devices < 2:
                raise ValueError(f"collectives must be of at least 2 devices, found {devices}")
            check_within(LEAST_RATE, RATE, "bytes/s", **{f"collectives.{devices}": rate})

    def collective_bandwidth(self, devices: int) -> float:
        """Return bytes/s that each device sends: the entry of the largest group not above it."""
        fitting = [n for n in self.collectives if n <= devices]
        return self.collectives[max(fitting)] if fitting else self.bandwidth
