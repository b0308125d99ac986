"""A small problem of every plan space, for what all of them promise."""

import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.solve import solve
from ilp_planner.peers.amp.profile import read_amp
from tests import amp_cases
from tests.megatron_cases import GIB, small_cluster, small_problem
from tests.mixed_cases import room_problem
from tests.problems import build_group_problem
from tests.runtime_cases import runtime_problem
from tests.tiny import tight_problem


def amp_problem(placement: str) -> Problem[Any]:
    """Return the problem of the small AMP file."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = read_amp(amp_cases.write(Path(folder), amp_cases.content()))
    return build_group_problem(
        experiment.cluster,
        experiment.profile,
        model="gpt",
        global_batch=experiment.global_batch,
        cost_model="amp",
        placement=placement,
    )


METIS: dict[str, Any] = {"cost_model": "metis", "space": "metis"}
PROBLEMS: dict[str, Callable[[], Problem[Any]]] = {
    "operators": tight_problem,
    "groups": room_problem,
    "planner, metis costs": lambda: room_problem(cost_model="metis"),
    "metis": lambda: room_problem(**METIS),
    "metis, summed": lambda: room_problem(**METIS, memory_rule="metis"),
    "megatron": lambda: small_problem(batch=4, memory_limit=2.6 * GIB),
    "megatron, two types": lambda: small_problem(small_cluster(1, 2, slow=1), batch=4),
    "torchtitan": lambda: runtime_problem("torchtitan", memory_limit=int(1.8 * GIB)),
    "torchtitan@0.2.2": lambda: runtime_problem("torchtitan@0.2.2", memory_limit=int(1.8 * GIB)),
    "deepspeed": lambda: runtime_problem("deepspeed", memory_limit=int(1.8 * GIB)),
    "amp": lambda: amp_problem("default"),
    "amp, free": lambda: amp_problem("free"),
}


@functools.cache
def problem_in(space: str) -> Problem[Any]:
    """Return the problem of a name."""
    return PROBLEMS[space]()


@functools.cache
def result_in(space: str) -> Result:
    """Return what the search finds there; not to be changed."""
    return solve(problem_in(space))


# The search of this release is that of the newest one, which refuses other jobs.
LIKE_ANOTHER = ("torchtitan@0.2.2",)
every_space = pytest.mark.parametrize(
    "space",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE_ANOTHER), id=name)
        for name in PROBLEMS
    ],
)


def check_consistent(problem: Problem[Any], result: Result, optimum: float) -> None:
    """Whatever is claimed is true. optimum: seconds, inf where there is no plan."""
    assert result.bound <= optimum * (1 + 1e-9)
    assert result.objective >= optimum * (1 - 1e-9)
    assert result.bound <= result.objective
    if result.plan is None:
        assert result.status in (Status.UNKNOWN, Status.INFEASIBLE)
        assert math.isinf(result.objective)
        assert (result.status is Status.INFEASIBLE) == math.isinf(result.bound)
    else:
        verdict = evaluate(problem, result.plan)
        assert verdict.legal
        assert verdict.iteration_time == result.objective
        assert result.evaluation == verdict
        assert (result.status is Status.OPTIMAL) == (result.gap == 0)
