"""Nodes are billed whole, each once, and prices are read as people write them."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.specs.prices import check_prices, hourly_price, nodes_of, with_prices
from tests.tiny import make_cluster


def test_a_node_costs_what_all_its_devices_do() -> None:
    cluster = with_prices(make_cluster(3, 4), "2.5")
    assert hourly_price(cluster, [0]) == 10.0
    assert hourly_price(cluster, [2, 0, 2]) == 20.0
    assert hourly_price(cluster, nodes_of(cluster, [3, 4])) == 20.0
    assert hourly_price(cluster, []) == 0.0
    assert hourly_price(make_cluster(), [0]) is None


def test_spot_prices_are_the_files() -> None:
    cluster = make_cluster(1, 2)
    types = {"gpu": replace(cluster.device, price=2.0, spot_price=0.5)}
    rented = replace(cluster, device_types=types)
    assert hourly_price(rented, [0]) == 4.0
    assert hourly_price(with_prices(rented, "spot"), [0]) == 1.0
    assert hourly_price(with_prices(rented, "spot,gpu=3"), [0]) == 6.0
    with pytest.raises(UsageError, match="price: found spot, but no spot price in cluster 'tiny'"):
        with_prices(cluster, "spot")


def test_a_price_that_is_needed_and_not_known_is_asked_for() -> None:
    cluster = make_cluster()
    with pytest.raises(UsageError, match="price: found none of gpu in cluster 'tiny'") as caught:
        check_prices(cluster)
    assert "`price=gpu=2.5`" in str(caught.value)
    check_prices(with_prices(cluster, "gpu=2.5"))
