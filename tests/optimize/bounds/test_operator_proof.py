"""What a certificate keeps of a part of operators, and what is read of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.optimize.bounds.operator_part import Proof, recorded_prices
from ilp_planner.optimize.bounds.stages import FORBIDDING_PRICE, StageKey
from tests.examples import for_each

HALF = FORBIDDING_PRICE / 2
PRICES = ((2, 1, HALF), (2, 3, HALF / 2), (2, 1, 0.0))


def proof() -> Proof:
    """Return a proof with two stages, the last one first."""
    exact: Any = {
        StageKey(4, 1, True, False, 7): way(3, 5, 1.5),
        StageKey(2, 3, False, True, 6): way(0, 3, 2.5),
    }
    return Proof(counted=False, digits=3, slowest=0.75, prices=PRICES, exact=exact)


def way(start: int, stop: int, bound: float) -> Any:
    return SimpleNamespace(start=start, stop=stop, optimum=SimpleNamespace(bound=bound))


def test_a_record_has_all_that_a_bound_rests_on() -> None:
    record = proof().record(stages=True)
    assert (record["counted"], record["digits"], record["slowest_s"]) == (False, 3, 0.75)
    assert record["exact_stages"] == [
        {
            "start": 0, "stop": 3, "devices": 2, "in_flight": 3,
            "enters_node": False, "leaves_node": True, "bound_s": 2.5,
        },
        {
            "start": 3, "stop": 5, "devices": 4, "in_flight": 1,
            "enters_node": True, "leaves_node": False, "bound_s": 1.5,
        },
    ]  # fmt: skip
    assert proof().record(stages=False)["exact_stages"] == []


def test_prices_of_a_record_are_those_of_the_proof() -> None:
    assert recorded_prices(proof().record(stages=False)) == {
        (2, 1): [HALF, 0.0],
        (2, 3): [HALF / 2],
    }
    assert recorded_prices({}) == {}


@for_each("price", [-1e-9, FORBIDDING_PRICE * 1.001, float("nan"), float("inf")])
def test_a_price_that_proves_nothing_is_refused(price: float) -> None:
    row = {"devices": 1, "in_flight": 1, "seconds_per_byte": price}
    with pytest.raises(PlanError, match="certificate: found a price of"):
        recorded_prices({"prices": [row]})
    row["seconds_per_byte"] = FORBIDDING_PRICE
    assert recorded_prices({"prices": [row]}) == {(1, 1): [FORBIDDING_PRICE]}
