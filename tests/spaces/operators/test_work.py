"""The work of operators is a bound for plans on all nodes, and on some of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.spaces.objectives.on_nodes import problem_on
from tests.spaces.objectives.cases import every_point, operator_problem


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_plan_on_any_nodes_is_below_the_work(seed: int) -> None:
    problem = operator_problem(seed)
    space, nodes = problem.space, range(problem.cluster.node_count)
    bounds = [space.work_bound(problem, nodes[: count + 1]) for count in nodes]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] > 0
    for point in every_point("operators", problem):
        assert point.seconds >= bounds[-1] * (1 - ROUNDING)
    for count in nodes:
        own = every_point("operators", problem_on(problem, tuple(nodes[: count + 1])))
        assert all(point.seconds >= bounds[count] * (1 - ROUNDING) for point in own)
