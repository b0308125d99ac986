"""What devices cost, as `--price` says it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.problem import Problem


def with_prices(problem: Problem[Any], text: str) -> Problem[Any]:
    """Return a problem whose devices cost what `2.5`, or `a100=2.5,t4=0.4`, says: currency units
    per device and hour. Types that are not named keep the price of the cluster.

    Raises
    ------
    UsageError: a text that says no price, or of a type that the cluster does not have.
    """
    types = problem.cluster.device_types
    asked = prices_of(text, list(dict.fromkeys(device.type for device in types.values())))
    priced = {
        key: replace(device, price=asked.get(device.type, device.price))
        for key, device in types.items()
    }
    return replace(problem, cluster=replace(problem.cluster, device_types=priced))


def prices_of(text: str, names: Sequence[str]) -> dict[str, float]:
    """Return what a text says that devices of these types cost.

    Raises
    ------
    UsageError: it says no price, or that of another type.
    """
    asked: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        name = name.strip()
        if equals and name not in names:
            raise UsageError(f"--price: found {name!r}, expected one of {', '.join(names)}")
        asked |= dict.fromkeys([name] if equals else names, _price(part, number))
    return asked


def _price(part: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(
            f"--price: found {part.strip()!r}, expected a number above 0, as 2.5 or a100=2.5"
        )
    return value
