"""Nothing that matters is dropped."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.solvers.arc_reduction import check_positions, reduced
from ilp_planner.optimize.solvers.backend import incumbent
from tests.examples import examples, for_each
from tests.optimize.solvers.graphs import FORK, chain, general_graphs, graphs, paths_of

quick = examples(50)


@quick
@given(graph=graphs(), factor=st.sampled_from([0.5, 1.0, 1.01, 1.5, 10.0]))
def test_no_path_within_the_cutoff_is_lost(graph: StageGraph, factor: float) -> None:
    costs = {path: graph.path_time(path) for path in paths_of(graph)}
    cutoff = min(costs.values()) * factor
    problem = reduced(graph, cutoff)
    left = {problem.original(path) for path in paths_of(problem.graph)}
    wanted = {path for path, cost in costs.items() if cost <= cutoff}
    assert wanted <= left <= set(costs)
    assert problem.bound <= min(min(costs.values()), cutoff) * (1 + 1e-12)
    for path in wanted:
        assert problem.original(problem.translated(path)) == path
        assert graph.time[list(path)].max() >= problem.bottleneck


@quick
@given(graph=graphs(feasible=False))
def test_without_a_cutoff_only_dead_arcs_go(graph: StageGraph) -> None:
    paths = paths_of(graph)
    problem = reduced(graph)
    assert set(problem.arcs.tolist()) == {arc for path in paths for arc in path}
    assert (problem.bound == math.inf) == (not paths)


def test_a_cutoff_below_the_optimum_is_proved_by_leaving_nothing() -> None:
    problem = reduced(FORK, 26.9)
    assert problem.graph.arcs == 0
    assert problem.bound == 26.9
    assert problem.translated((2, 3)) == ()


def test_a_cutoff_at_the_optimum_keeps_it() -> None:
    problem = reduced(FORK, 27.0)
    assert problem.arcs.tolist() == [2, 3]
    assert problem.bottleneck == 3.0
    assert problem.bound == pytest.approx(27.0, rel=1e-13)
    assert problem.bound <= 27.0


@quick
@given(graph=general_graphs(), factor=st.sampled_from([0.5, 1.0, 1.5, math.inf]))
def test_no_path_within_cutoff_and_capacities_is_lost(graph: StageGraph, factor: float) -> None:
    costs = {path: graph.path_time(path) for path in paths_of(graph) if graph.is_path(path)}
    cheapest = min(costs.values(), default=1.0)
    cutoff = cheapest * factor
    problem = reduced(graph, cutoff)
    left = {problem.original(path) for path in paths_of(problem.graph)}
    wanted = {path for path, cost in costs.items() if cost <= cutoff}
    assert wanted <= left <= set(paths_of(graph))
    assert problem.bound <= min(cheapest if costs else math.inf, cutoff) * (1 + 1e-12)
    for path in wanted:
        assert graph.time[list(path)].max() >= problem.bottleneck
        assert (graph.peaks[:, list(path)].max(axis=1) >= problem.peaks).all()
    best = problem.original(incumbent(problem.graph))
    assert not best or best in costs


def test_a_type_that_must_be_used_too_often_leaves_nothing() -> None:
    graph = dataclasses.replace(chain(1.0, 2.0), use=np.array([[1, 0], [1, 1]]), capacity=(1, 8))
    assert reduced(graph).bound == math.inf
    assert reduced(graph, 3.0).bound == 3.0
    assert incumbent(graph) == ()
    assert reduced(dataclasses.replace(graph, capacity=(2, 1))).graph.arcs == 2


@for_each(
    ("change", "message"),
    [
        ({"start": np.array([0, 2]), "stop": np.array([1, 3])}, "tail .* at operator 1, found 2"),
        ({"operators": 3}, "must be at operator 3, found 2"),
        ({"sources": (2,)}, "must be at operator 0, found 1"),
    ],
)
def test_arcs_must_join_where_their_operators_do(change: dict[str, Any], message: str) -> None:
    graph = chain(1.0, 2.0)
    check_positions(graph)
    with pytest.raises(SolverError, match=message):
        reduced(dataclasses.replace(graph, **change))
