"""The smallest and the cheapest clusters are those that enumeration finds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ilp_planner.analysis.size.failures import Failures, more_than
from ilp_planner.analysis.size.gpus import halves, with_parts
from ilp_planner.analysis.size.size import Run, size_on
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.units import HOUR
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.specs.prices import with_prices
from tests import megatron_cases
from tests.examples import examples
from tests.spaces.objectives.cases import points_of

EXACTLY = Limits(seconds=1e6)
NEVER_FAILS = Failures(mtbf=math.inf)
NODES = 3


def problem_of(random):
    rate = float(random.choice([2e9, 20e9, 100e9]))
    few = {**megatron_cases.FEW, "recompute": "none,full", "remainder": "first"}
    cluster = megatron_cases.small_cluster(NODES, 1, between=rate)
    return megatron_cases.small_problem(
        with_prices(cluster, "1"),
        batch=int(random.choice([4, 6])),
        memory_limit=float(random.choice([1.6, 2.6, 80])) * megatron_cases.GIB,
        constraints=constraints_of(few),
    )


def fastest(problem):
    """Return nodes -> the least seconds of a plan on so many, by enumeration."""
    found = {}
    for count in range(1, NODES + 1):
        try:
            part = problem_on(problem, tuple(range(count)))
        except InfeasibleError:
            continue
        times = [point.seconds for point in points_of("megatron", part)]
        if times:
            found[count] = min(times)
    return found


def on_part(gpus, memory):
    """Return the problem of a node of so many GPUs; InfeasibleError: no plan fits."""
    few = {**megatron_cases.FEW, "recompute": "none,full", "remainder": "first"}
    return megatron_cases.small_problem(
        with_prices(megatron_cases.small_cluster(1, gpus), "1"), batch=4,
        memory_limit=memory * megatron_cases.GIB, constraints=constraints_of(few),
    )  # fmt: skip


def test_parts_of_a_node_are_its_halves_whatever_the_most_gpus():
    assert [halves(8, below=most) for most in (8, 6, 5, 4, 1)] == [
        (1, 2, 4), (1, 2, 4), (1, 2, 4), (1, 2), (),
    ]  # fmt: skip
    assert halves(6, below=6) == (3,)


@examples(1, more=12)
@given(st.sampled_from([1.6, 2.6, 80.0]), st.sampled_from([0.999, 1.001, 3.0]), st.integers(0, 2))
def test_parts_of_a_node_are_those_that_enumeration_finds(memory, times, place):
    wall = {}
    for gpus in (1, 2):
        try:
            problem = on_part(gpus, memory)
        except InfeasibleError:
            continue
        times_of = [point.seconds for point in points_of("megatron", problem)]
        wall |= {gpus: 1000 * min(times_of)} if times_of else {}
    if not wall:
        return
    limit = times * [*wall.values()][place % len(wall)]
    run = Run(steps=1000, seconds=limit, failures=NEVER_FAILS, price=2.0)

    def sized_on(gpus):
        return size_on(on_part(gpus, memory), run, limits=EXACTLY)

    try:
        whole = sized_on(2)
    except InfeasibleError:
        return
    ends = {gpus: w for gpus, w in wall.items() if w <= limit}
    if whole.smallest is None:
        assert 2 not in ends
        return
    found = with_parts(whole, halves(8, below=2), sized_on)
    assert found.smallest.gpus == min(ends)
    assert (found.parts, found.parts_open) == ((1,), ())
    least = min(gpus * 2.0 * w / HOUR for gpus, w in ends.items())
    assert found.cheapest.cost == pytest.approx(least, rel=1e-9)
    assert found.cheapest_bound <= least * (1 + 1e-9)


@examples(1, more=20)
@given(st.integers(0, 2**32 - 1))
@example(3)  # the smallest is not the cheapest, and its first plan is not its fastest
def test_what_enumeration_finds(seed):
    random = np.random.default_rng(seed)
    problem = problem_of(random)
    times = fastest(problem)
    failures = Failures(
        mtbf=float(random.choice([0.5, 5, math.inf])), save=60.0, restart=60.0,
        repair=float(random.choice([0.0, HOUR])), spares=int(random.integers(0, 5)),
    )  # fmt: skip
    size = problem.cluster.devices_of_nodes[0]
    wall = {n: 1000 * s * failures.factor(n * size) for n, s in times.items()}
    between = sorted(wall.values()) or [1.0]
    limit = float(random.choice(between)) * float(random.choice([0.999, 1.001, 3.0]))
    run = Run(steps=1000, seconds=limit, failures=failures, price=2.0)
    found = size_on(problem, run, limits=EXACTLY)
    ends = {n: w for n, w in wall.items() if w <= limit}
    assert found.open == ()
    if not ends:
        assert found.smallest is None
        assert found.cheapest is None
        return
    assert found.smallest.nodes == min(ends)
    assert found.smallest.taken == pytest.approx(ends[min(ends)], rel=1e-9)
    spares = {n: failures.idle(n * size) for n in ends}
    wide = [n for n in ends if n <= 2 * min(ends)]
    costs = {n: (n + spares[n]) * size * 2.0 * ends[n] / HOUR for n in wide}
    assert found.cheapest.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert found.cheapest_bound <= min(costs.values()) * (1 + 1e-9)
    assert found.gap <= 1e-6


@given(
    st.integers(1, 10**5), st.floats(1, 1e6), st.floats(1, 3600), st.floats(1, 7200),
)  # fmt: skip
def test_the_best_interval_is_the_best(gpus, mtbf, save, restart):
    known = Failures(mtbf=mtbf, save=save, restart=restart)
    best = known.interval(gpus)
    least = known.factor(gpus)
    assert least >= 1
    for other in (0.5, 0.9, 1.1, 2.0):
        assert least <= replace(known, every=best * other).factor(gpus) * (1 + 1e-12)
    assert known.factor(gpus + 1) > least
    assert NEVER_FAILS.factor(gpus) == 1


@given(st.floats(0.01, 50), st.integers(0, 80))
def test_spares_keep_the_job_from_standing_still(mean, count):
    draws = np.random.default_rng(0).poisson(mean, 20_000)
    assert more_than(count, mean) == pytest.approx(float((draws > count).mean()), abs=0.02)
    known = Failures(mtbf=HOUR / HOUR, repair=mean * HOUR)  # one failure an hour on one GPU
    spares = known.idle(1)
    assert more_than(spares, mean) <= 0.01
    assert spares == 0 or more_than(spares - 1, mean) > 0.01


def test_time_that_is_up_proves_nothing():
    problem = problem_of(np.random.default_rng(1))
    run = Run(steps=1.0, seconds=1e9, failures=NEVER_FAILS)
    found = size_on(problem, run, limits=Limits(seconds=0.0))
    assert found.smallest is None
    assert found.open == (1, 2, 3)
