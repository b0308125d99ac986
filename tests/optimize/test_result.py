"""What a gap is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.result import Result, Status, Stop, relative_gap


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (2.0, 1.0, 0.5),
        (2.0, 2.0, 0.0),
        (2.0, 0.0, 1.0),
        (2.0, 3.0, 0.0),  # rounding never makes a gap negative
        (2.0, math.inf, 0.0),
        (math.inf, 1.0, math.inf),
        (math.inf, math.inf, math.inf),
        (math.nan, 1.0, math.inf),
    ],
)
def test_the_gap_is_the_share_of_the_objective_that_is_open(
    objective: float, bound: float, gap: float
) -> None:
    assert relative_gap(objective, bound) == gap


@given(st.floats(1e-6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_better_bound_never_widens_the_gap(objective: float, a: float, b: float) -> None:
    assert relative_gap(objective, max(a, b)) <= relative_gap(objective, min(a, b))
    assert 0 <= relative_gap(objective, a) <= 1


def test_a_result_knows_its_gap() -> None:
    result = Result(
        plan=None,
        status=Status.UNKNOWN,
        stopped_by=Stop.TIME,
        objective=math.inf,
        bound=1.0,
        bound_source="work",
        wall=0.1,
        solver="dp",
        seed=0,
    )
    assert math.isinf(result.gap)
    assert (result.plan, result.evaluation, result.certificate) == (None, None, {})
    assert (result.notes, result.reason, result.ranking) == ((), "", ())


def test_status_and_stop_read_as_words() -> None:
    assert [str(s) for s in Status] == ["optimal", "feasible", "infeasible", "unknown"]
    assert [str(s) for s in Stop] == [
        "proof",
        "gap",
        "time",
        "memory",
        "effort",
        "heuristic",
        "user",
        "error",
    ]
