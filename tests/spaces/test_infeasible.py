"""The reason why no plan exists is true, and names what is missing."""

import re
from typing import Any

import pytest

from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.infeasible import exists_without_limits, misfit
from tests.mixed_cases import room_problem

GIB = 2**30
METIS: dict[str, Any] = {"cost_model": "metis", "space": "metis"}
COSTS: list[dict[str, Any]] = [{}, METIS]


def least_need(costs: dict[str, Any]) -> float:
    """Return the bytes that the layer which needs most takes where it takes least."""
    problem = room_problem(**costs)
    rows = [
        problem.costs.layer_memory(device, tp)  # type: ignore[attr-defined]
        for device, degrees in problem.costs.degrees().items()
        for tp in degrees
    ]
    return float(max(map(min, zip(*rows, strict=True))))


@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_a_layer_fits_with_as_many_bytes_and_with_none_less(costs: dict[str, Any]) -> None:
    need = least_need(costs)
    assert misfit(room_problem(memory_limit=need, **costs)) == ""
    problem = room_problem(memory_limit=need - 2**20, **costs)
    text = misfit(problem)
    assert re.fullmatch(
        r"layer \d \(.+\) fits no device: at least it needs .+ on each .+, 1.00 MiB more than .+",
        text,
    )
    result = solve(problem)
    assert result.status is Status.INFEASIBLE
    assert result.reason == text


@pytest.mark.parametrize("costs", [{}, {"cost_model": "metis"}], ids=str)
def test_layers_that_fit_one_by_one_but_not_together(costs: dict[str, Any]) -> None:
    problem = room_problem(memory_limit=least_need(costs), max_stages=1, **costs)
    assert misfit(problem) == ""
    result = solve(problem)
    assert result.status is Status.INFEASIBLE
    assert result.reason.startswith("in every plan some device would need more memory")


def test_an_end_of_the_profile_is_no_lack_of_memory() -> None:
    problem = room_problem(**METIS, global_batch=64, micro_batch_sizes=(64,))
    assert exists_without_limits(problem) is False
    assert exists_without_limits(room_problem(**METIS, memory_limit=1.0)) is True
    search = problem.space.begin(problem, Task(Limits(), "auto"))
    assert "whatever its memory" in problem.space.explain(search)


def test_metis_s_rule_is_named() -> None:
    problem = room_problem(**METIS, memory_rule="metis", memory_limit=2.0**20)
    result = solve(problem)
    assert result.status is Status.INFEASIBLE
    assert "by Metis's rule" in result.reason
