"""Shortest paths, and the best of a few of them."""

import math

import numpy as np
import pytest
from hypothesis import given

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.solvers.arc_reduction import reduced
from ilp_planner.optimize.solvers.backend import incumbent, shortest_path
from tests.examples import examples
from tests.optimize.solvers.graphs import graphs, paths_of, two_types

quick = examples(50)


def test_the_incumbent_of_a_larger_graph_fits_and_is_near_the_optimum() -> None:
    """Nodes that count devices prove a tighter bound than capacities do."""
    bound = reduced(two_types(layers=20)).bound
    problem = reduced(two_types(layers=20, shared=True))
    assert problem.bound <= bound
    path = incumbent(problem.graph)
    assert problem.graph.is_path(path)
    assert bound <= problem.graph.path_time(path) <= 1.25 * bound


@quick
@given(graph=graphs())
def test_shortest_paths(graph: StageGraph) -> None:
    paths = paths_of(graph)
    for ceiling in (math.inf, float(np.median(graph.time))):
        allowed = [p for p in paths if graph.time[list(p)].max() <= ceiling]
        best = shortest_path(graph, graph.time + graph.extra, graph.time <= ceiling)
        assert bool(best) == bool(allowed)
        if best:
            assert best in allowed
            least = min(graph.time[list(p)].sum() for p in allowed)
            assert graph.time[list(best)].sum() == pytest.approx(least)
    assert incumbent(graph) in paths


def test_the_incumbent_of_a_larger_graph_is_near_the_optimum() -> None:
    graph = two_types(layers=24)
    bound = reduced(graph).bound
    assert bound <= graph.path_time(incumbent(graph)) <= 1.2 * bound
