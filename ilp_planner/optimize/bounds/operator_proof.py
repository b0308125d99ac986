"""The basis of the bound of a part of operators, for its certificate and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import PlanError
from ilp_planner.optimize.bounds.stages import FORBIDDING_PRICE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.optimize.bounds.stages import StageKey, Way


class Proof(NamedTuple):
    """The basis of a bound: the counting of downstream stages and micro-batches in flight, the
    multipliers tried and the stages solved exactly. slowest: seconds that the slowest stage takes
    at least."""

    counted: bool
    digits: int
    slowest: float
    prices: tuple[tuple[int, int, float], ...]
    exact: dict[StageKey, Way]

    def record(self, *, stages: bool) -> dict[str, Any]:
        """Return the content for a certificate, with the stages if the bound needs them."""
        ways = sorted(self.exact.items(), key=lambda item: item[0]) if stages else []
        return {
            "counted": self.counted,
            "digits": self.digits,
            "slowest_s": self.slowest,
            "prices": [
                {"devices": devices, "in_flight": in_flight, "seconds_per_byte": price}
                for devices, in_flight, price in self.prices
            ],
            "exact_stages": [
                {
                    "start": way.start,
                    "stop": way.stop,
                    "devices": key.devices,
                    "in_flight": key.in_flight,
                    "enters_node": key.enters_node,
                    "leaves_node": key.leaves_node,
                    "bound_s": way.optimum.bound,
                }
                for key, way in ways
            ],
        }


def recorded_prices(record: Mapping[str, Any]) -> dict[tuple[int, int], list[float]]:
    """Return the multipliers that a certificate lists, by devices and micro-batches in flight.

    Raises
    ------
    PlanError: one of them proves nothing.
    """
    prices: dict[tuple[int, int], list[float]] = {}
    for row in record.get("prices", []):
        price = float(row["seconds_per_byte"])
        if not 0 <= price <= FORBIDDING_PRICE:
            raise PlanError(f"certificate: found a price of {price} seconds per byte")
        prices.setdefault((int(row["devices"]), int(row["in_flight"])), []).append(price)
    return prices
