"""What all descriptions of pipelines share, over pipelines that are listed one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.pipelines import (
    SHORTEST,
    Arcs,
    OpenStages,
    Pipelines,
    Place,
    fewest_before,
)


@dataclass
class Listed(Pipelines):
    """Pipelines by the seconds of their stages."""

    every: list[list[float]]
    operators: int = 3

    def exists(self, slowest: float) -> bool:
        return any(max(one) <= slowest for one in self.every)

    def least_sum(self, slowest: float) -> float:
        return min((sum(one) for one in self.every if max(one) <= slowest), default=INFINITE)

    def open_graph(self, weight: float, cutoff: float, low: float) -> OpenStages:
        raise NotImplementedError


SECONDS = st.floats(0.01, 100)
PIPELINES = st.lists(st.lists(SECONDS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(PIPELINES, st.sampled_from([0.0, 1e-3, 0.01]), st.sampled_from([1e-4, 1e-2, 0.5]))
def test_the_least_slowest_stage_is_between_two_close_numbers(
    every: list[list[float]], low: float, tolerance: float
) -> None:
    """None at the first, one at the second."""
    found = Listed(every)
    least = min(map(max, every))
    below, above = found.least_slowest(low, 1000.0, tolerance)
    assert not found.exists(below) or below == low
    assert below <= least <= above <= below * (1 + tolerance)
    assert found.exists(above)
    assert found.least_slowest(low, least / 2) == (least / 2, INFINITE)
    assert found.least_slowest(low, least)[1] == least
    near, over = found.least_slowest(low, 1000.0)
    assert near <= least <= over <= near * (1 + 1e-4)


def test_what_is_below_the_shortest_is_not_told_apart() -> None:
    found = Listed([[SHORTEST / 4]])
    below, above = found.least_slowest(0.0, 1.0)
    assert below == 0.0
    assert SHORTEST / 1000 <= above <= SHORTEST


@pytest.mark.parametrize("weight", [0.0, 1.0, 7.0])
@given(PIPELINES, st.floats(1.001, 3))
def test_bounds_of_a_pipeline_s_slowest_stage_and_of_its_time(
    weight: float, every: list[list[float]], more: float
) -> None:
    """A pipeline's time is the sum of its stages, and the slowest one some times more."""
    found, low = Listed(every), min(map(max, every))
    least = min(sum(one) for one in every)
    times = [weight * max(one) + sum(one) for one in every]
    cutoff = min(times) * more
    slowest = found.slowest_below(weight, cutoff)
    for one, time in zip(every, times, strict=True):
        assert time >= cutoff or max(one) <= slowest * (1 + 1e-9)
    for start in (0.0, low):
        bound = found.least_total(weight, cutoff, start, least)
        assert bound <= min(times) * (1 + 1e-9)


def test_the_sum_of_other_stages_bounds_the_slowest_one() -> None:
    """Of 12 s with the slowest one twice more: at most 4 s, as there is none of more; the least sum
    of stages up to 4 s is 6 s, which leaves 6 s for two more of the slowest."""
    found = Listed([[1.0, 5.0], [3.0, 3.0], [4.0, 4.0]])
    assert found.slowest_below(2.0, 12.0) == 3.0
    assert found.slowest_below(0.0, 12.0) == 12.0
    assert found.slowest_below(2.0, 6.0) == 0.0  # none has stages up to 2 s
    assert found.slowest_below(1.0, 8.0) == 2.0
    assert found.slowest_below(2.0, 30.0) == 10.0


def test_lengths_of_the_slowest_stage_raise_the_bound() -> None:
    """Two times 4 s at least, and the sum of a pipeline within 4 to 4.4 s, and so on."""
    found = Listed([[4.0, 4.0], [8.0]])
    assert found.least_total(2.0, 24.0, 4.0, 1.0) == pytest.approx(2 * 4 + 8)
    assert found.least_total(2.0, 24.0, 4.0, 9.0) == pytest.approx(2 * 4 + 9)
    uneven = Listed([[4.0, 4.0, 4.0], [8.0]])
    last = 4 * 2 ** (7 / 8)  # the seventh of eight lengths between 4 and 8 s
    assert uneven.least_total(1.0, 16.0, 4.0, 1.0) == pytest.approx(min(4 + 12, last + 8))
    assert uneven.least_total(1.0, 16.0, 0.0, 1.0) == pytest.approx(8)  # from nothing on
    short = Listed([[0.25, 0.25, 0.25], [0.5]])
    assert short.least_total(1.0, 1.0, 0.25, 0.0625) == pytest.approx(
        min(0.25 + 0.75, last / 16 + 0.5)
    )


def test_the_fewest_groups_fill_whole_nodes_and_a_part_of_one() -> None:
    """More than there are devices where none do. Nodes of two, and of three."""
    assert fewest_before(5, 2, [1, 2, 4]).tolist() == [0, 1, 1, 2, 1, 2]
    assert fewest_before(4, 2, [2]).tolist() == [0, 5, 1, 5, 2]
    assert fewest_before(3, 3, [2]).tolist() == [0, 4, 1, 4]
    assert fewest_before(2, 2, []).tolist() == [0, 3, 3]


def test_a_graph_of_arcs_has_their_states_and_no_time_of_nothing() -> None:
    """States 7 and 9 to begin with, of which one is there; 3 at the end."""
    numbers: Any = [np.array(row) for row in ([9, 9, 5], [5, 3, 3], [0, 0, 1], [1, 3, 3])]
    arcs = Arcs(*numbers, np.array([0, 1, 0]), np.array([4, 5, 6]), np.array([0.0, 2.0, 3.0]))
    places = [Place(1, 0, False, True), Place(2, 1, True, False)]
    found = Listed([[1.0]]).graph(arcs, places, weight=2.0, sources=[7, 9], sink=3)
    graph = found.graph
    assert (graph.nodes, graph.sources, graph.sink) == (3, (2,), 0)
    assert (graph.operators, graph.weight) == (3, 2.0)
    assert (graph.tail.tolist(), graph.head.tolist()) == ([2, 2, 1], [1, 0, 0])
    assert (graph.start.tolist(), graph.stop.tolist()) == ([0, 0, 1], [1, 3, 3])
    assert graph.time.tolist() == [SHORTEST, 2.0, 3.0]
    assert found.places == tuple(places)
    assert (found.place.tolist(), found.entry.tolist()) == ([0, 1, 0], [4, 5, 6])
