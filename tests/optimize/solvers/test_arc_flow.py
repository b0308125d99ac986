"""The shared model: every path satisfies every row, at its cost."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.solvers.arc_flow import (
    LinearModel,
    capacity_rows,
    linear_model,
    maxima_of,
    ordered_path,
    solver_scale,
)
from ilp_planner.optimize.solvers.arc_reduction import reduced
from tests.examples import examples
from tests.optimize.solvers.graphs import FORK, chain, general_graphs, graphs, paths_of

quick = examples(50)


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
@given(time=st.floats(1e-9, 1e9))
def test_the_scale_is_an_exact_power_of_two(time: float) -> None:
    scale = solver_scale(reduced(chain(time)))
    assert math.frexp(scale)[0] == 0.5
    assert 64 <= time * scale < 128


def test_ordered_path_refuses_what_is_no_path() -> None:
    assert ordered_path(FORK, [3, 2]) == (2, 3)
    with pytest.raises(SolverError, match="form no path"):
        ordered_path(FORK, [2, 1])
