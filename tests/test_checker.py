"""The checker that shares nothing with the planner: what it proves is true, whatever it reads."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner import checker
from ilp_planner.problem import Problem
from ilp_planner.spaces.operators.independent import independent_proof
from tests import tiny
from tests.examples import examples

HUGE = 1e5  # seconds: more than any of these plans takes


def proof_of(problem: Problem, claim: float) -> dict[str, Any]:
    """Return the proof as a file holds it."""
    proof = independent_proof(problem, claim)
    return checker.loads(json.dumps(proof))


def proved(proof: dict[str, Any]) -> float:
    """Return the seconds that the checker proves."""
    return min(checker.prove(*checker.opened(proof)).values()) / checker.PS


@given(tiny.problems(most_ways=5_000), st.sampled_from((1.0, 1.0001, 1.5, math.inf)))
@examples(60)
def test_no_bound_is_above_the_optimum_of_enumeration(problem: Problem, claim: float) -> None:
    optimum = tiny.least_time(problem)
    found = proved(proof_of(problem, min(optimum * claim, HUGE)))
    assert found <= min(optimum, HUGE)
    assert found >= min(optimum, HUGE) * (1 - 1e-6)
