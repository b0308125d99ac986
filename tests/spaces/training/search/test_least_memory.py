"""No part needs less than those that are looked at for the least memory."""

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.inputs.problem import Problem
from ilp_planner.spaces.training.search import least_memory
from ilp_planner.spaces.training.search.least_memory import fits, least_share
from ilp_planner.spaces.training.search.possible import megatron_parts
from tests.examples import examples
from tests.random_problems import large_problems

SPACES = ("megatron", "torchtitan", "deepspeed")


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@examples(12)
@given(data=st.data())
def test_no_part_needs_less_than_is_said(space: str, data: st.DataObject) -> None:
    problem = data.draw(large_problems(space))
    least = min(_shares(problem), default=math.inf)
    with patch.object(least_memory, "SECONDS", 60.0):
        assert least_share(problem) == pytest.approx(least, rel=1e-12)
    assert fits(problem, Deadline(60)) == (least <= 1)


def _shares(problem: Problem[Any]) -> Iterator[float]:
    """Yield what every part needs."""
    try:
        parts = megatron_parts(problem, problem.costs)
    except InfeasibleError:
        return
    yield from (max(least_memory._shares(part)) for part in parts)
