"""The shared formulation: nothing that matters is dropped, every path satisfies every row."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ilp_planner.errors import SolverError
from ilp_planner.solvers.arc_flow import (
    above,
    capacity_rows,
    check_positions,
    cover_rows,
    flow_rows,
    incumbent,
    linear_model,
    maxima_of,
    ordered_path,
    reduced,
    shortest_path,
    solver_scale,
)
from tests.solvers.graphs import chain, general_graphs, graphs, make_graph, paths_of, two_types

if TYPE_CHECKING:
    from ilp_planner.graph import StageGraph
    from ilp_planner.solvers.arc_flow import LinearModel

quick = settings(max_examples=100)
FORK = make_graph(
    2, [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 1, 0, 2, 3.0), (1, 2, 2, 1, 3.0)], 8
)


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
@given(graph=graphs())
def test_every_path_satisfies_every_row(graph: StageGraph) -> None:
    problem = reduced(graph)
    for scale in (1.0, solver_scale(problem)):
        model = linear_model(problem, scale=scale)
        for path in paths_of(problem.graph):
            check_rows(model, problem.graph, path)


def check_rows(model: LinearModel, graph: StageGraph, path: tuple[int, ...]) -> None:
    """A path with its maxima satisfies every row and bound, and costs what it costs."""
    values = np.zeros(model.columns)
    values[list(path)] = 1.0
    values[model.arcs :] = np.array(maxima_of(graph, path)) * model.scale
    cost = graph.path_time(path) * model.scale
    for (_, low, high), value in zip(model.maxima, values[model.arcs :], strict=True):
        assert low <= value <= high
    assert model.cost @ values == pytest.approx(cost)
    for rows in model.rows.values():
        total = np.bincount(rows.row, rows.value * values[rows.column], len(rows))
        assert (total >= rows.low - 1e-9 * cost).all()
        assert (total <= rows.high + 1e-9 * cost).all()


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


@quick
@given(graph=general_graphs())
def test_the_rows_hold_for_the_paths_within_the_capacities_only(graph: StageGraph) -> None:
    problem = reduced(graph)
    assume(problem.graph.arcs)
    model = linear_model(problem, scale=solver_scale(problem))
    for path in paths_of(problem.graph):
        if graph.is_path(problem.original(path)):
            check_rows(model, problem.graph, path)
        else:
            rows = capacity_rows(problem.graph)
            chosen = np.isin(rows.column, path)
            total = np.bincount(rows.row, rows.value * chosen, len(rows))
            assert (total > rows.high).any()


@quick
@given(graph=general_graphs(), least=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_covering_rows_force_the_peaks(graph: StageGraph, least: float) -> None:
    """Within one row of a path's largest arc, the least value and the excess make its peak."""
    graph = reduced(dataclasses.replace(graph, use=np.zeros(0, np.int64), capacity=())).graph
    for peak in graph.peaks:
        floor = least * float(peak.min())
        excess = above(cover_rows(graph), peak, floor)
        assert (excess.low == floor).all()
        rows = list(excess.entries())
        for path in paths_of(graph):
            chosen = set(path)
            totals = [
                floor + sum(v for c, v in zip(columns, values, strict=True) if c in chosen)
                for columns, values in rows
            ]
            assert max(totals, default=floor) == pytest.approx(peak[list(path)].max())


def test_a_type_that_must_be_used_too_often_leaves_nothing() -> None:
    graph = dataclasses.replace(chain(1.0, 2.0), use=np.array([[1, 0], [1, 1]]), capacity=(1, 8))
    assert reduced(graph).bound == math.inf
    assert reduced(graph, 3.0).bound == 3.0
    assert incumbent(graph) == ()
    assert reduced(dataclasses.replace(graph, capacity=(2, 1))).graph.arcs == 2


def test_capacities_are_divided_by_what_all_uses_share() -> None:
    graph = dataclasses.replace(
        chain(1.0, 2.0), use=np.array([[8, 0, 3], [24, 0, 1]]), capacity=(31, 5, 2)
    )
    rows = capacity_rows(graph)
    assert list(rows.entries()) == [([0, 1], [1.0, 3.0]), ([0, 1], [3.0, 1.0])]
    assert rows.high.tolist() == [3.0, 2.0]


def test_the_incumbent_of_a_larger_graph_fits_and_is_near_the_optimum() -> None:
    """Nodes that count devices prove a tighter bound than capacities do."""
    bound = reduced(two_types(layers=20)).bound
    problem = reduced(two_types(layers=20, shared=True))
    assert problem.bound <= bound
    path = incumbent(problem.graph)
    assert problem.graph.is_path(path)
    assert bound <= problem.graph.path_time(path) <= 1.25 * bound


@quick
@given(graph=graphs(), entries=st.sampled_from([0.0, 1.0, 3.0, 1e9]))
def test_the_covering_rows_force_the_bottleneck(graph: StageGraph, entries: float) -> None:
    """Whatever rows are left out, each arc stays in one, and no row holds two arcs of a path."""
    graph = reduced(graph).graph
    rows = list(cover_rows(graph, entries).entries())
    assert {arc for columns, _ in rows for arc in columns} == set(range(graph.arcs))
    for columns, values in rows:
        assert values == graph.time[columns].tolist()
        for path in paths_of(graph):
            assert len(set(columns) & set(path)) == 1


def test_operators_under_the_same_arcs_share_a_row() -> None:
    arcs = [(0, 50, 0, 1, 1.0), (50, 100, 1, 1, 1.0), (0, 100, 0, 2, 1.5)]
    rows = cover_rows(make_graph(100, arcs, 2))
    assert [columns for columns, _ in rows.entries()] == [[0, 2], [1, 2]]


def test_flow_rows_of_a_chain() -> None:
    rows = flow_rows(chain(1.0, 2.0))
    found = sorted((c, v, low) for (c, v), low in zip(rows.entries(), rows.low, strict=True))
    assert found == [([0], [1.0], 1.0), ([0, 1], [1.0, -1.0], 0.0), ([1], [1.0], 1.0)]


def test_several_sources_share_one_unit() -> None:
    graph = dataclasses.replace(
        chain(1.0, 2.0),
        nodes=4,
        sources=(0, 3),
        tail=np.array([0, 2, 3]),
        head=np.array([2, 1, 1]),
        start=np.array([0, 1, 0]),
        stop=np.array([1, 2, 2]),
        time=np.array([1.0, 2.0, 4.0]),
        extra=np.zeros(3),
        peaks=np.zeros((0, 3)),
        use=np.zeros((3, 0), np.int64),
    )
    assert ([0, 2], [1.0, 1.0]) in list(flow_rows(graph).entries())
    assert set(paths_of(graph)) == {(0, 1), (2,)}
    assert incumbent(graph) == (0, 1)


@quick
@given(graph=graphs())
def test_shortest_paths(graph: StageGraph) -> None:
    paths = paths_of(graph)
    for ceiling in (math.inf, float(np.median(graph.time))):
        allowed = [p for p in paths if graph.time[list(p)].max() <= ceiling]
        best = shortest_path(graph, ceiling)
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


@quick
@given(time=st.floats(1e-9, 1e9))
def test_the_scale_is_an_exact_power_of_two(time: float) -> None:
    scale = solver_scale(reduced(chain(time)))
    assert math.frexp(scale)[0] == 0.5
    assert 64 <= time * scale < 128


def test_ordered_path_refuses_what_is_no_path() -> None:
    assert ordered_path(FORK, [3, 2]) == (2, 3)
    with pytest.raises(SolverError, match="form no path"):
        ordered_path(FORK, [2, 1])


@pytest.mark.parametrize(
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
