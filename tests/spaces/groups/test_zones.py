"""Zones in the space of groups: plans, bounds and optima are the same, however it is spelt."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.boxes import BoxSearch
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.specs.cluster import ClusterSpec
from tests.brute import cheapest, every_plan, random_profile
from tests.examples import examples
from tests.problems import build_group_problem
from tests.zones import as_matrix, as_types, random_tree, tree

SPELLINGS = (lambda cluster: cluster, as_matrix, as_types)
SEEDS = st.integers(0, 2**32 - 1)


def problem(cluster: ClusterSpec, seed: int, layers: int, batch: int) -> Problem:
    """Return the problem of a random profile of the types `fast` and `slow`."""
    random = np.random.default_rng(seed)
    rows = random_profile(random, ("fast", "slow"), layers, batch)
    return build_group_problem(cluster, rows, model="made-up", space="groups", global_batch=batch)


@examples(3, more=11)
@given(seed=SEEDS)
def test_every_spelling_has_the_optimum_that_enumeration_finds(seed: int) -> None:
    cluster = random_tree(np.random.default_rng(seed), 5)
    found = []
    for spelling in SPELLINGS:
        asked = problem(spelling(cluster), seed, layers=3, batch=2)
        result = solve(asked)
        least, _ = cheapest(asked)
        if np.isfinite(least):
            assert result.objective == pytest.approx(least, rel=1e-9)
        else:
            assert result.plan is None
        found.append((result.objective, result.bound))
    assert found[0] == found[1]
    # an order of types may sum the same seconds in another order
    assert found[0] == pytest.approx(found[2], rel=1e-12)


@examples(5)
@given(seed=SEEDS)
def test_no_plan_in_zones_is_below_the_bound(seed: int) -> None:
    cluster = random_tree(np.random.default_rng(seed), 5)
    for spelling in SPELLINGS[:2]:
        asked = problem(spelling(cluster), seed, layers=3, batch=2)
        result = solve(asked)
        assume(result.plan is not None)
        for plan in every_plan(asked):
            judged = evaluate(asked, plan)
            if judged.legal and not list(asked.space.exclusions(asked, plan)):
                assert judged.iteration_time >= result.bound * (1 - ROUNDING)


@examples(8)
@given(seed=SEEDS)
def test_no_plan_in_zones_is_below_what_boxes_bound(seed: int) -> None:
    """Whatever devices of a zone are counted: of all plans with a number of micro-batches."""
    random = np.random.default_rng(seed)
    asked = problem(random_tree(random, 5), seed, layers=3, batch=2)
    least: dict[int, float] = {}
    for plan in every_plan(asked):
        judged = evaluate(asked, plan)
        if judged.legal and not list(asked.space.exclusions(asked, plan)):
            known = least.get(plan.micro_batches, np.inf)
            least[plan.micro_batches] = min(known, judged.iteration_time)
    for part in asked.space.parts(asked):
        for cutoff in (NEVER, least.get(part.micro_batches, NEVER) * (1 + ROUNDING)):
            boxes = BoxSearch(part.chain(cutoff), cutoff, int(random.integers(2, 6)))
            while not boxes.finished:
                boxes.advance()
            assert boxes.bound <= least.get(part.micro_batches, np.inf) * (1 + ROUNDING)


@pytest.mark.slow
def test_a_smaller_cluster_in_three_zones() -> None:
    """24 devices of two types, spelt in three ways: one optimum, proved, to the digit."""
    nodes = [
        (kind, 2, f"z{zone}") for zone in range(3) for kind in ("fast", "fast", "slow", "slow")
    ]
    cluster = tree(nodes)
    asked = [problem(spelling(cluster), 7, layers=8, batch=4) for spelling in SPELLINGS]
    results = [solve(each, limits=Limits(seconds=60)) for each in asked]
    assert {result.status for result in results} == {Status.OPTIMAL}
    assert len({result.objective for result in results}) == 1
    assert all(set(each.limits_of_types) == {"fast", "slow"} for each in asked[:2])
