"""What holds of a saved plan of whole layers where there is as much memory, or less."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.search.start import Start
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.brute import cheapest, layer_costs, random_problem
from tests.examples import examples

FILES = {"profile": Reference(name="analytic")}


def asked(problem: Problem[Any], share: float) -> Problem[Any]:
    """Return a problem with a share of its memory, as one that was asked for."""
    limits = {name: share * limit for name, limit in problem.memory_limits.items()}
    return replace(
        problem,
        costs=layer_costs(problem.costs.profile, problem.cluster, limits),
        memory_limits=limits,
        request=Request(files=FILES, memory_limits=limits),
    )


@examples(3, more=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from((1.0, 0.9, 0.6)),
    gap=st.sampled_from((0.0, 0.3)),
)
def test_the_optimum_with_less_memory_is_found(seed: int, share: float, gap: float) -> None:
    whole, less = (asked(random_problem(seed), part) for part in (1.0, share))
    first = solve(whole, limits=Limits(gap=gap))
    assume(first.plan is not None)
    start = Start(
        name="plan.json",
        plan=first.plan,
        space=whole.space.name,
        seconds=first.objective,
        request=whole.request,
        certificate=first.certificate,
    )
    found = solve(less, start=start)
    # With less of it other groups may be tried, and share their samples otherwise.
    taken = "parts are that file's" if share == 1 else "none of its bounds: memory: "
    assert taken in "".join(found.notes)
    assert found.objective == pytest.approx(cheapest(less)[0], rel=1e-9)
    assert check_certificate(less, found.certificate).holds
