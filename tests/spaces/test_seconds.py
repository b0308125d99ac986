"""Where the seconds of plans go, in every space."""

import pytest

from ilp_planner.evaluate import evaluate
from tests.every_space import every_space, problem_in, result_in


@every_space
def test_seconds_add_up_to_the_iteration_and_none_is_negative(space: str) -> None:
    problem, plan = problem_in(space), result_in(space).plan
    assert plan is not None
    cost = evaluate(problem, plan).cost
    assert cost is not None
    seconds = problem.space.seconds(problem, plan, cost)
    assert sum(seconds.values()) == pytest.approx(cost.iteration_time, rel=1e-12)
    least = min(seconds.values())
    assert least >= -1e-12 * cost.iteration_time
