"""What work alone says of every plan, held against every plan."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.numerics import NEVER
from ilp_planner.spaces.groups.first_plans import work_bounds
from ilp_planner.spaces.groups.parts import GroupPart
from tests.brute import cheapest, random_problem
from tests.examples import examples, for_each

SEEDS = st.integers(0, 2**32 - 1)


@examples(12, more=14)
@given(seed=SEEDS)
def test_no_plan_undercuts_its_work(seed: int) -> None:
    problem = random_problem(seed, mixed_tp=seed % 2 == 1)
    bounds = work_bounds(problem, GroupPart(problem, problem.micro_batches[0]).degrees)
    assert set(bounds) == set(problem.micro_batches)
    for batches, bound in bounds.items():
        best, _ = cheapest(dataclasses.replace(problem, micro_batches=(batches,)))
        assert 0 < bound <= min(best, NEVER)


@for_each("seed", range(4))
def test_a_plan_on_one_device_has_no_slack(seed: int) -> None:
    """One device, no memory limit: all layers one after the other, for every micro-batch."""
    problem = random_problem(seed, sizes=(1,), devices=1)
    (name,) = problem.cluster.type_names
    limits = {name: 1e30}
    costs = problem.costs.with_limits(limits)
    problem = dataclasses.replace(
        problem, costs=costs, memory_limits=limits, micro_batches=(problem.global_batch,)
    )
    times = costs.replica_seconds(name, 1, 1)
    bound = work_bounds(problem, GroupPart(problem, problem.global_batch).degrees)
    expected = min(problem.global_batch * times.sum(), NEVER)  # tp 1 may not be profiled
    assert bound[problem.global_batch] == pytest.approx(expected, rel=1e-6)


@examples(30)
@given(seed=SEEDS)
def test_what_one_replica_takes_is_in_the_tables(seed: int) -> None:
    """A group of one type takes what its slowest replica does, and holds a layer where all can."""
    problem = random_problem(seed)
    part = GroupPart(problem, problem.micro_batches[0])
    at = np.arange(part.layers)
    for option in part.single:
        table = problem.costs.option_tables(
            option, part.micro_batches, problem.global_batch, problem.cluster
        )
        if table is None:
            continue
        (kind,) = np.flatnonzero(option.replicas)
        name = problem.cluster.type_names[kind]
        shares = sorted(set(table.samples))  # fewer samples may take longer in these tables
        every = [problem.costs.replica_seconds(name, option.tp, n)[n - 1] for n in shares]
        alone = np.max(every, axis=0)
        fits = table.in_flight[at, at + 1] > 0
        assert (np.isfinite(alone) == fits).all()
        assert alone[fits] == pytest.approx(table.time[at, at + 1][fits])
