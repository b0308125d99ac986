"""Nodes are billed whole, each once, and prices are read as people write them."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.specs.prices import check_prices, hourly_price, nodes_of, price_list, with_prices
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


@pytest.mark.parametrize("names", ["a", "a b", "a b c", "c b a d"])
def test_every_price_counts_or_is_refused(names: str) -> None:
    """Of all texts of up to four numbers without a name beside those of some types."""
    types = names.split()
    for named in range(len(types) + 1):
        for count in range(5):
            said = {name: 10.0 + at for at, name in enumerate(types[:named])}
            alone = [1.0 + at for at in range(count)]
            words = [*(f"{name}={price}" for name, price in said.items()), *map(str, alone)]
            if not words:
                continue
            for text in (",".join(words), ",".join(reversed(words))):
                numbers = [float(word) for word in text.split(",") if "=" not in word]
                if count == 0:
                    expected = said
                elif count == 1 and named < len(types):
                    expected = {**dict.fromkeys(types, numbers[0]), **said}
                elif count == len(types) and not named:
                    expected = dict(zip(types, numbers, strict=True))
                else:
                    with pytest.raises(UsageError, match="without a name") as caught:
                        price_list(text, types)
                    fix = str(caught.value).rpartition(" as ")[2]
                    assert price_list(fix, types).prices
                    continue
                assert price_list(text, types).prices == expected, text


@pytest.mark.parametrize("text", ["a=1,a=2", "a=1,A=2", "spot,2", "2,spot", "A=1,b=2,A=1"])
def test_no_price_is_dropped(text: str) -> None:
    with pytest.raises(UsageError, match="price: found"):
        price_list(text, ["a", "b"], {"A": "a"})
