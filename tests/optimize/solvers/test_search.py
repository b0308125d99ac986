"""The state of a search: what may be claimed of a path and a bound."""

import dataclasses
import math

import numpy as np
import pytest

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.backend import Search, printed_floor
from ilp_planner.optimize.solvers.base import Limits
from tests.examples import for_each
from tests.optimize.solvers.graphs import chain, make_graph

GRAPH = make_graph(
    2, [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 1, 0, 2, 3.0), (1, 2, 2, 1, 3.0)], 8
)


def test_keeps_the_best_path_and_bound() -> None:
    seen: list[tuple[float, float]] = []
    search = Search(GRAPH, (0, 1), lambda *now: seen.append(now))
    search.prove(20.0)
    search.offer((2, 3))
    search.offer((0, 1))
    search.prove(10.0)
    assert seen == [(40.5, 20.0), (27.0, 20.0)]
    solution = search.answer("test", Stop.TIME, Limits())
    assert (solution.path, solution.objective, solution.bound) == ((2, 3), 27.0, 20.0)
    assert (solution.status, solution.stopped_by) == (Status.FEASIBLE, Stop.TIME)


def test_recheck_proves_without_a_solver() -> None:
    search = Search(GRAPH, (2, 3))
    search.recheck()
    assert search.closed(0.0)
    solution = search.answer("test", Stop.TIME, Limits())
    assert (solution.status, solution.stopped_by) == (Status.OPTIMAL, Stop.PROOF)
    assert 27.0 * (1 - 1e-9) <= solution.bound <= 27.0


@for_each(
    ("bound", "gap", "said", "status", "stopped"),
    [
        (27.0, 0.0, Stop.PROOF, Status.OPTIMAL, Stop.PROOF),
        (27.0, 0.0, Stop.USER, Status.OPTIMAL, Stop.USER),
        (26.0, 0.0, Stop.USER, Status.FEASIBLE, Stop.USER),
        (26.0, 0.0, Stop.PROOF, Status.FEASIBLE, Stop.GAP),
        (26.0, 0.1, Stop.TIME, Status.FEASIBLE, Stop.GAP),
        (26.0, 0.01, Stop.TIME, Status.FEASIBLE, Stop.TIME),
        (26.0, 0.0, Stop.ERROR, Status.FEASIBLE, Stop.ERROR),
        (27.0 * (1 + 1e-12), 0.0, Stop.PROOF, Status.OPTIMAL, Stop.PROOF),
    ],
)
def test_status_follows_from_the_numbers(
    bound: float, gap: float, said: Stop, status: Status, stopped: Stop
) -> None:
    search = Search(GRAPH, (2, 3))
    search.prove(bound)
    solution = search.answer("test", said, Limits(gap=gap))
    assert (solution.status, solution.stopped_by) == (status, stopped)
    assert solution.bound <= solution.objective


def test_a_bound_above_a_path_is_an_error() -> None:
    search = Search(GRAPH, (2, 3))
    search.prove(27.1)
    with pytest.raises(SolverError, match=r"bound of 27.1 s, refuted by a path of 27.0 s"):
        search.answer("test", Stop.PROOF, Limits())


def test_without_a_path_the_bound_stays() -> None:
    search = Search(GRAPH)
    search.prove(26.0)
    solution = search.answer("test", Stop.TIME, Limits())
    assert (solution.status, solution.stopped_by) == (Status.UNKNOWN, Stop.TIME)
    assert (solution.path, solution.objective, solution.bound) == ((), math.inf, 26.0)


def test_a_claim_that_nothing_fits_is_taken_only_where_it_can_be_true() -> None:
    assert not Search(GRAPH).none_fits()
    limited = dataclasses.replace(GRAPH, use=np.ones((4, 1), np.int64), capacity=(2,))
    assert not Search(limited, (0, 1)).none_fits()
    search = Search(limited)
    assert search.none_fits()
    solution = search.answer("test", Stop.TIME, Limits())
    assert (solution.status, solution.stopped_by) == (Status.INFEASIBLE, Stop.PROOF)


def test_a_hint_must_be_within_the_capacities() -> None:
    limited = dataclasses.replace(GRAPH, use=np.ones((4, 1), np.int64), capacity=(1,))
    with pytest.raises(ValueError, match="must be a path"):
        Search(limited, (0, 1))


def test_refuses_a_hint_that_is_no_path() -> None:
    with pytest.raises(ValueError, match="must be a path"):
        Search(chain(1.0, 2.0), (0,))


@for_each(
    ("text", "least"),
    [("1.583012e+03", 1583.011), ("7019.813", 7019.812), ("7", 6.0), ("-0.5", -0.6)],
)
def test_printed_floor_takes_off_the_last_digit(text: str, least: float) -> None:
    assert printed_floor(text) == pytest.approx(least, abs=1e-9)


@for_each("text", ["inf", "-inf", "nan"])
def test_printed_floor_of_no_number_is_no_bound(text: str) -> None:
    assert printed_floor(text) == -math.inf
