"""The best prices are found from wherever one begins, however far they are."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds import cutting_planes
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.cutting_planes import Plane, best_prices
from tests.examples import examples


@examples(40)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.01, 1.0, 50.0]))
def test_prices_are_the_best_of_all(seed: int, scale: float) -> None:
    """A few ways with sums and devices each: the best prices are at a corner of their planes."""
    random = np.random.default_rng(seed)
    capacity = random.integers(4, 40, 2).astype(float)
    sums = random.uniform(1, 2, 6)
    uses = random.integers(0, 60, (6, 2)).astype(float)
    uses[0] = 0.5 * capacity  # one way fits, so the best prices are finite

    def priced(price):
        values = sums + uses @ price
        way = int(np.argmin(values))
        return values[way] - price @ capacity, float(sums[way]), uses[way]

    # corners: where two planes, or a plane and an axis, leave nothing free
    slopes = uses - capacity
    corners = [np.zeros(2)]
    planes = [(np.append(s, -1.0), -t) for s, t in zip(slopes, sums, strict=True)]
    planes += [(np.array([1.0, 0.0, 0.0]), 0.0), (np.array([0.0, 1.0, 0.0]), 0.0)]
    for three in itertools.combinations(planes, 3):
        rows = np.array([row for row, _ in three])
        if abs(np.linalg.det(rows)) > 1e-9:
            corners.append(np.linalg.solve(rows, [right for _, right in three])[:2])
    best = max(priced(corner)[0] for corner in corners if (corner >= -1e-12).all())
    start = scale * random.uniform(0, 1, 2)
    price, value = best_prices(priced, capacity, np.inf, start)
    assert (price >= 0).all()
    assert value == pytest.approx(priced(price)[0])
    assert best * (1 - 2e-3) <= value <= best * (1 + 1e-9)


class Ways:
    """Ways with a sum of seconds and devices of one type each, ten of which there are; what is
    asked is noted."""

    def __init__(self, *ways: tuple[float, float]) -> None:
        self.ways, self.asked = ways, list[float]()

    def __call__(self, price):
        self.asked.append(float(price[0]))
        seconds, use = min(self.ways, key=lambda way: way[0] + way[1] * price[0])
        return seconds + (use - 10) * float(price[0]), seconds, np.array([use])

    def best(self, enough=np.inf, **options):
        price, value = best_prices(self, np.array([10.0]), enough, **options)
        return float(price[0]), value


def test_steps_double_while_the_model_keeps_its_promise_and_shrink_where_it_does_not() -> None:
    """From a price of nothing on, by the average price of a device. The second way is better from
    0.1 on; the step to 0.3 was too far, and the two planes meet at what is best."""
    ways = Ways((1.0, 20.0), (3.0, 0.0))
    assert ways.best() == pytest.approx((0.1, 2.0))
    assert ways.asked == pytest.approx([0.0, 0.1, 0.3])
    flat = Ways((1.0, 11.0), (6.0, 0.0))
    assert flat.best() == pytest.approx((5 / 11, 1 + 5 / 11))
    assert flat.asked == pytest.approx([0.0, 0.1, 0.3, 0.7, 5 / 11])
    started = Ways((1.0, 11.0), (6.0, 0.0))
    assert started.best(start=np.array([0.7]))[1] == pytest.approx(1 + 5 / 11)
    # a price too high: the step is of the way's own seconds, more than what it proves
    assert started.asked == pytest.approx([0.7, 0.1, 5 / 11])


def test_known_paths_spare_steps_and_wrong_ones_cost_no_bound() -> None:
    """The two that meet at what is best promise it at once; one that is none promises less, and
    what is proved is what a price is worth."""
    planes = [Plane(1.0, np.array([11.0])), Plane(6.0, np.array([0.0]))]
    ways = Ways((1.0, 11.0), (6.0, 0.0))
    assert ways.best(planes=planes) == pytest.approx((5 / 11, 1 + 5 / 11))
    assert len(ways.asked) < 5
    wrong = Ways((1.0, 11.0), (6.0, 0.0))
    price, value = wrong.best(planes=[Plane(1.0, np.array([0.0]))])
    assert value == pytest.approx(1 + price)
    assert value <= 1 + 5 / 11


def test_prices_that_are_enough_are_not_bettered() -> None:
    """At once, or as soon as they are; or when there is no time left."""
    for enough in (0.5, 1.0):
        ways = Ways((1.0, 11.0), (6.0, 0.0))
        assert ways.best(enough) == (0.0, 1.0)
        assert ways.asked == [0.0]
    ways = Ways((1.0, 11.0), (6.0, 0.0))
    assert ways.best(1.05) == pytest.approx((0.1, 1.1))
    assert len(ways.asked) == 2
    late = Ways((1.0, 11.0), (6.0, 0.0))
    assert late.best(goon=lambda: False) == pytest.approx((0.1, 1.1))
    assert len(late.asked) == 2
    never = Ways((INFINITE, 11.0))
    assert never.best() == (0.0, INFINITE)
    assert never.asked == [0.0]
    none, value = best_prices(lambda price: (3.0, 3.0, price), np.zeros(0), np.inf)
    assert (none.size, value) == (0, 3.0)


def test_prices_are_near_enough_where_the_promise_is() -> None:
    """Within so many seconds, however far the model is looked at, up to the highest price."""
    ways = Ways((1.0, 11.0), (6.0, 0.0))
    assert ways.best(close=1e6) == (0.0, 1.0)
    assert ways.asked == [0.0]


def test_where_the_model_is_flat_its_edge_is_looked_behind() -> None:
    """A thousandth of a second for each price: what a step of 100 promises is no better, nor four
    times that, but sixteen times. The highest price is 10,000 steps away."""
    ways = Ways((1000.0, 10.001), (3e6, 0.0))
    price, _ = ways.best(goon=lambda: len(ways.asked) < 4)
    assert ways.asked == pytest.approx([0.0, 1600.0, 4800.0, 11200.0])
    assert price == pytest.approx(11200.0)


def test_without_a_way_there_is_no_plane_to_go_by() -> None:
    def priced(price):
        return 1.0, 0.0, None

    price, value = best_prices(priced, np.array([10.0]), np.inf)
    assert (price.tolist(), value) == ([0.0], 1.0)


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The upper ends of the regions in which the model's highest point is looked for."""
    seen, original = [], cutting_planes._Model.highest

    def highest(model, low, high):
        seen.append(high.tolist())
        return original(model, low, high)

    monkeypatch.setattr(cutting_planes._Model, "highest", highest)
    return seen


def test_what_promises_more_for_ever_is_given_up_after_thirty_rounds() -> None:
    """At 10,000 times the average price of a device, each step twice as long as the last one."""
    asked: list[float] = []

    def priced(price):
        asked.append(float(price[0]))
        return float(2 ** len(asked)), 1e20, np.array([20.0])

    best_prices(priced, np.array([10.0]), np.inf)
    assert len(asked) == 31
    assert asked[1:4] == pytest.approx([1e19, 2e19, 3e19])  # half of what is promised is not kept
    assert max(asked) == asked[-1] == pytest.approx(3e20)


def test_no_price_is_above_ten_thousand_times_the_average(boxes: list[list[float]]) -> None:
    """A region grows by four while its edge is best, as long as that is little."""
    ways = Ways((1.0, 10.0 + 1e-3))
    assert ways.best(close=1.5) == (0.0, 1.0)
    assert ways.asked == [0.0]
    steps = [0.1, 0.4, 1.6, 6.4, 25.6, 102.4, 409.6, 1000.0]
    assert boxes == [[pytest.approx(step)] for step in steps]


def test_there_is_no_edge_at_the_highest_price(boxes: list[list[float]]) -> None:
    """From one step below it on, where a device costs a tenth of what there is to gain."""
    start = 999.9 / (1 - 999.9e-4)
    seconds = 1.0 + 1e-4 * start
    ways = Ways((1.0, 10.0 + 1e-4))
    assert ways.best(start=np.array([start]), close=1.5) == pytest.approx((start, seconds))
    assert boxes == [[pytest.approx(start + seconds / 10)]]


def test_a_region_grows_where_one_price_is_at_its_edge(boxes: list[list[float]]) -> None:
    """The other one is worth nothing: its region stays as it is."""

    def priced(price):
        use = np.array([10.0 + 1e-3, 5.0])
        return 1.0 + float((use - 10.0) @ price), 1.0, use

    best_prices(priced, np.array([10.0, 10.0]), np.inf, close=1.5)
    assert boxes[:3] == [[pytest.approx(step), pytest.approx(0.05)] for step in (0.05, 0.2, 0.8)]
    assert len(boxes) == 8


def test_the_edge_of_a_region_is_looked_behind_where_prices_are_small() -> None:
    ways = Ways((1.0, 10.002), (3e3, 0.0))
    ways.best(goon=lambda: len(ways.asked) < 2)
    assert ways.asked == pytest.approx([0.0, 0.4])


def test_nothing_is_below_a_price_of_nothing(boxes: list[list[float]]) -> None:
    """The first step down ends there, where the model is no better."""
    ways = Ways((1.0, 10.0 - 1e-4))
    price, _ = ways.best(start=np.array([0.1]))
    assert price == 0.1
    assert ways.asked == [0.1]
    assert len(boxes) == 1


def test_what_the_model_promises_to_the_digit_is_not_bettered() -> None:
    ways = Ways((0.0, 10.0))
    assert ways.best() == (0.0, 0.0)
    assert ways.asked == [0.0]


def test_the_average_price_is_of_the_seconds_by_the_devices() -> None:
    """Of one at least."""
    for capacity, step in (([2.0], 1.5), ([1.0], 3.0), ([0.25], 3.0), ([0.5, 0.25], 3.0)):
        asked: list[list[float]] = []

        def priced(price, asked=asked, capacity=capacity):
            asked.append(price.tolist())
            return 3.0 + float(price.sum()), 3.0, np.array(capacity) + 1.0

        best_prices(priced, np.array(capacity), 3.1)
        assert asked == [[0.0] * len(capacity), pytest.approx([step] * len(capacity))]


def test_a_step_that_gains_nothing_is_shortened_and_one_that_gains_little_repeated() -> None:
    """By 0.4, from where it began; as long as it was, from where it ends."""
    ways = Ways((1.0, 20.0), (2.0, 0.0))  # as good at 0.1 as at 0
    ways.best(goon=lambda: len(ways.asked) < 3)
    assert ways.asked == pytest.approx([0.0, 0.1, 0.04])
    ways = Ways((1.0, 20.0), (1.1, 11.0))  # 1.2 instead of the 2 that were promised
    ways.best(goon=lambda: len(ways.asked) < 3)
    assert ways.asked == pytest.approx([0.0, 0.1, 0.2])
