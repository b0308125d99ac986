"""Pipelines of blocks of equal groups: as many as there are seats, cut as memory allows."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline
from ilp_planner.spaces.groups.first_plans import placed
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.spaces.groups.pipelines import Block, Pipelines
from ilp_planner.spaces.groups.seating import Seating
from tests.benchmarks.generated import FAST, instance
from tests.brute import random_problem
from tests.examples import examples
from tests.problems import build_group_problem

SEEDS = st.integers(0, 2**32 - 1)
FOREVER = Deadline(math.inf)


@examples(25)
@given(seed=SEEDS)
def test_a_pipeline_takes_as_long_as_it_says_at_least(seed: int) -> None:
    problem = random_problem(seed)
    part, seating = GroupPart(problem, problem.micro_batches[-1]), Seating(problem.cluster)
    pipelines = Pipelines(part, seating)
    pipelines.improve(FOREVER)
    pipelines.anneal(100, FOREVER, seed)
    for seconds, shape in pipelines.found:
        pipeline = pipelines.pipeline(shape)
        assert pipeline.seconds == seconds
        ends = [(choice.start, choice.stop) for choice in pipeline.choices]
        assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
        assert ends[-1][1] == part.layers
        plan = placed(problem, part.micro_batches, pipeline, seating)
        if plan is not None and problem.cluster.symmetric:
            cost = problem.costs.plan_cost(plan, problem.cluster).iteration_time
            assert cost >= seconds * (1 - 1e-9)


@examples(10)
@given(seed=SEEDS)
def test_a_pipeline_knows_which_of_its_groups_share_a_node(seed: int) -> None:
    """Where equal nodes are faster inside than between them, it takes as long as its plan."""
    profile, cluster, batch = instance(2, 16, 8, seed % 7, FAST)
    problem = build_group_problem(cluster, profile, model="generated", global_batch=batch)
    part, seating = GroupPart(problem, 64), Seating(cluster)
    pipelines = Pipelines(part, seating)
    pipelines.improve(FOREVER)
    pipelines.anneal(50, FOREVER, seed)
    assert pipelines.found
    for seconds, shape in pipelines.found:
        plan = placed(problem, part.micro_batches, pipelines.pipeline(shape), seating)
        assert plan is not None
        cost = problem.costs.plan_cost(plan, cluster).iteration_time
        assert cost == pytest.approx(seconds + part.constant, rel=1e-4)  # but for latencies


@examples(20)
@given(seed=SEEDS)
def test_changes_keep_to_the_seats(seed: int) -> None:
    """Blocks of a type never take more than all of its seats, in whichever way they changed."""
    profile, cluster, batch = instance(2, 16, 8, seed % 7, FAST)
    problem = build_group_problem(cluster, profile, model="generated", global_batch=batch)
    pipelines = Pipelines(GroupPart(problem, 64), Seating(cluster))
    random = np.random.default_rng(seed)
    shape = pipelines.first()[0]
    for _ in range(50):
        shape = pipelines.changed(shape, random) or shape
        for kind in range(len(cluster.type_names)):
            taken = [
                b.groups / pipelines.most[b.kind]
                for b in shape
                if b.kind in pipelines.of_type[kind]
            ]
            assert sum(taken) <= 1 + 1e-9
        assert all(block.groups > 0 for block in shape)
        assert all(a.kind != b.kind for a, b in pairwise(shape))


def test_annealing_is_no_worse_and_the_same_again() -> None:
    profile, cluster, batch = instance(3, 16, 24, 1, FAST)
    problem = build_group_problem(cluster, profile, model="generated", global_batch=batch)
    found = []
    for _ in range(2):
        pipelines = Pipelines(GroupPart(problem, 64), Seating(cluster))
        pipelines.improve(FOREVER)
        before = pipelines.found[-1][0]
        pipelines.anneal(500, FOREVER, 3)
        assert pipelines.found[-1][0] <= before
        found.append(pipelines.found[-1])
    assert found[0] == found[1]


def test_two_groups_are_cut_as_enumeration_cuts_them() -> None:
    """One type, two groups, many micro-batches: within 2 % of the best cut, never below it."""
    profile, cluster, batch = instance(1, 4, 6, 0, FAST)
    problem = build_group_problem(cluster, profile, model="generated", global_batch=batch)
    part = GroupPart(problem, batch)
    pipelines = Pipelines(part, Seating(cluster))
    kind = next(n for n, o in enumerate(pipelines.options) if o.tp == 2 and sum(o.replicas) == 1)
    table, stages = pipelines.tables[kind], pipelines.stages
    own = stages.own[kind]
    seconds = []
    for cut in range(part.layers):  # 0: one stage
        rows = [(0, cut), (cut, part.layers)] if cut else [(0, part.layers)]
        if all(table.in_flight[begin, end] >= len(rows) - n for n, (begin, end) in enumerate(rows)):
            times = [table.time[row] for row in rows]
            times[0] += stages.send_time[kind, own, cut] if cut else 0.0
            peak = sum(max(peaks[row] for row in rows) for peaks in table.peaks)
            seconds.append(part.weight * max(times) + sum(times) + peak)
    assert len(seconds) > 1
    found = pipelines.seconds((Block(kind, 2),))
    assert min(seconds) * (1 - 1e-9) <= found <= 1.02 * min(seconds)


def test_memory_leaves_no_pipeline() -> None:
    problem = random_problem(1)
    costs = problem.costs.with_limits(dict.fromkeys(problem.memory_limits, 1.0))
    part = GroupPart(dataclasses.replace(problem, costs=costs), 1)
    pipelines = Pipelines(part, Seating(problem.cluster))
    pipelines.improve(FOREVER)
    pipelines.anneal(10, FOREVER, 0)
    assert pipelines.found == []
