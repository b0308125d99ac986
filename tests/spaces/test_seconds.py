"""Where the seconds of plans go, in every space."""

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.starts import without_host
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.job.traffic import FAMILIES
from ilp_planner.spaces.training.costs import COMPUTE, HOST, communication
from tests.every_space import every_space, problem_in, result_in
from tests.examples import examples
from tests.random_plans import Drawer
from tests.random_problems import small_problems

PLANS = 40  # of a random problem


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


@examples(1, more=16)
@given(
    problem=st.sampled_from(("megatron", "torchtitan", "deepspeed")).flatmap(small_problems),
    seed=st.integers(0, 2**32 - 1),
)
def test_so_it_is_of_random_plans_of_runtimes(problem: Problem, seed: int) -> None:
    for plan in islice(Drawer(problem, seed).plans(None), PLANS):
        cost = evaluate(problem, plan).cost
        if cost is None:
            continue
        seconds = problem.space.seconds(problem, plan, cost)
        assert sum(seconds.values()) == pytest.approx(cost.iteration_time, rel=1e-12)
        assert min(seconds.values()) >= -1e-12 * cost.iteration_time
        for family, alone in (
            ("tensor", plan.stages[0].tp == plan.cp),
            ("context", plan.cp == 1),
            ("pipeline", plan.ranks == 1),
        ):
            assert family in FAMILIES
            assert not (alone and seconds.get(communication(family), 0.0)), family
        share = problem.space.host_share(problem, plan, cost.iteration_time) or 0.0
        late = share * cost.iteration_time
        assert seconds.get(HOST, 0.0) == pytest.approx(late, rel=1e-6, abs=1e-9 * late + 1e-15)
        at_once = replace(problem, cluster=without_host(problem.cluster))
        least = evaluate(at_once, plan).cost
        assert least is not None
        assert seconds[COMPUTE] == problem.space.seconds(at_once, plan, least)[COMPUTE]
