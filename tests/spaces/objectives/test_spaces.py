"""Every plan space whose nodes can be left out is searched over sets of them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.formats.saved_plan import encode_aim
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.objectives.check import check_aim
from ilp_planner.spaces.objectives.node_sets import node_sets
from ilp_planner.spaces.objectives.objective import OBJECTIVES, PRICE, Point
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.objectives.search import solve_on_sets
from ilp_planner.spaces.registry import build_problem
from tests.every_space import PROBLEMS

SPACES = ("megatron", "megatron, two types", "torchtitan", "torchtitan@0.2.2", "deepspeed", "amp")


def priced_problem(space: str) -> Problem[Any]:
    """Return a small problem of a space, whose device types cost differently."""
    files = PROBLEMS[space]().files
    assert files is not None
    types = dict.fromkeys(device.type for device in files.cluster[0].device_types.values())
    price = ",".join(f"{name}={number}" for number, name in enumerate(types, 1))
    return build_problem(InputFiles(replace(files.request, price=price), objects=files.objects))


def least_seconds(problem: Problem[Any], nodes: tuple[int, ...]) -> float:
    """Return what the fastest plan on some nodes takes, by a search of its own."""
    try:
        return solve(problem_on(problem, nodes)).objective
    except InfeasibleError:
        return math.inf


@pytest.mark.parametrize(
    "space", [pytest.param(name, marks=[pytest.mark.slow] * (name != "amp")) for name in SPACES]
)
def test_sets_together_give_what_each_gives_by_itself(space: str) -> None:
    problem = priced_problem(space)
    sets = [(one, least_seconds(problem, one.nodes)) for one in node_sets(problem.cluster)]
    points = [Point(seconds, one.hourly) for one, seconds in sets if seconds < math.inf]
    for objective in OBJECTIVES.values():
        chosen = solve_on_sets(problem, objective)
        aim, plan = chosen.result.aim, chosen.result.plan
        assert aim is not None
        assert plan is not None
        assert aim.gap == 0
        expected = [objective.values(point) for point in objective.best(points)]
        found = [objective.values(Point(one.on.seconds, one.on.hourly)) for one in aim.best]
        assert found == [pytest.approx(values) for values in expected]
        check = check_aim(chosen.problem, plan, chosen.result.objective, encode_aim(aim))
        assert check.holds
        assert check.gap == 0
    assert PRICE.best(points)
