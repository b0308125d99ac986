"""Linear models in CP-SAT: the optimum that the arc flow of a graph has."""

from __future__ import annotations

import numpy as np
import pytest

from ilp_planner.deadline import Deadline
from ilp_planner.errors import SolverError
from ilp_planner.result import Status, Stop
from ilp_planner.solvers.arc_flow import LinearModel
from ilp_planner.solvers.arc_rows import Rows
from ilp_planner.solvers.base import Limits
from ilp_planner.solvers.linear_cpsat import solve_linear


def rows(*entries: dict[int, float], low: list[float], high: list[float]) -> Rows:
    return Rows(
        pointer=np.cumsum([0, *(len(entry) for entry in entries)]),
        column=np.array([column for entry in entries for column in entry]),
        value=np.array([value for entry in entries for value in entry.values()], float),
        low=np.array(low, float),
        high=np.array(high, float),
    )


def one_of_each(chosen: float = 1.0) -> LinearModel:
    """Return two pairs of which one each is chosen; a maximum of sums, and one of its own."""
    return LinearModel(
        arcs=4,
        cost=np.array([0.0, 0, 0, 0, 1, 1]),
        maxima=(("total", 0.0, 9.0), ("peak", 0.5, 9.0)),
        rows={
            "pairs": rows({0: 1, 1: 1}, {2: 1, 3: 1}, low=[chosen] * 2, high=[chosen] * 2),
            "total": rows({0: -1.5, 1: -2, 2: -1, 3: -0.25, 4: 1}, low=[0], high=[np.inf]),
            "peak": rows({0: -3, 5: 1}, {1: -2, 3: -2, 5: 1}, low=[0, -1], high=[np.inf] * 2),
        },
        scale=1.0,
    )


def test_the_cheapest_arcs_are_chosen() -> None:
    model = one_of_each()
    values = {(a, b): model.value((a, b)) for a in (0, 1) for b in (2, 3)}
    assert values == {(0, 2): 5.5, (0, 3): 4.75, (1, 2): 4.0, (1, 3): 5.25}
    solution = solve_linear(model, Limits(), Deadline(60))
    assert (solution.path, solution.objective) == ((1, 2), 4.0)
    assert solution.bound == pytest.approx(4.0)
    assert solution.bound <= 4.0
    assert (solution.status, solution.stopped_by) == (Status.OPTIMAL, Stop.PROOF)


def test_rows_that_nothing_fits_are_an_error() -> None:
    with pytest.raises(SolverError, match="infeasible"):
        solve_linear(one_of_each(3.0), Limits(), Deadline(60))


def test_without_time_there_is_no_claim() -> None:
    solution = solve_linear(one_of_each(), Limits(), Deadline(0))
    assert solution.status is not Status.OPTIMAL
    assert solution.bound <= 4.0
