"""The plan before any bound is legal, takes what it says, and only gets better."""

import dataclasses
import math
from functools import cache

import pytest
from hypothesis import assume, given

import ilp_planner
from ilp_planner.base.deadline import Deadline
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import StageOptimum
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.spaces.operators.first_plans import FirstPlan, Improver, first_plan, rows_of_groups
from tests.examples import examples
from tests.tiny import fixed_problem, least_time, problems

SAME = 1e-9  # relative
SMALL = problems(most_ways=1000)


@examples(60)
@given(SMALL)
def test_first_plans_are_legal_and_take_what_they_say(problem: Problem) -> None:
    least = least_time(problem)
    for size in problem.micro_batch_sizes:
        part = OperatorPart(problem, size)
        plan = first_plan(part)
        if plan is None:
            continue
        better = Improver(part, Deadline(math.inf)).improved(plan)
        assert better.seconds <= plan.seconds
        for each in (plan, better):
            judged = evaluate(problem, each.plan())
            assert judged.legal
            assert judged.iteration_time == pytest.approx(each.seconds, rel=SAME)
            assert each.seconds >= least * (1 - SAME)


@examples(60)
@given(SMALL)
def test_where_memory_is_no_matter_there_is_a_first_plan(problem: Problem) -> None:
    """Unless no option runs all operators of a stage."""
    roomy = dataclasses.replace(problem, memory_limits=dict.fromkeys(problem.memory_limits, 1e18))
    part = OperatorPart(roomy, roomy.micro_batch_sizes[0])
    alike = all(
        c.tables.allowed.all()
        and (c.operators.compute < INFINITE).all()
        and (c.operators.reshard.diagonal(axis1=1, axis2=2) < INFINITE).all()
        for c in part.stages.chains.values()
    )
    sizes = set(part.stages.chains)
    rows = [row for row in rows_of_groups(part) if sizes.issuperset(row)]
    fits = any(len(row) <= problem.max_stages for row in rows)
    assume(part.stages.chains and alike and fits)
    assert first_plan(part) is not None


def test_without_time_the_plan_stays_as_it_is() -> None:
    problem = fixed_problem()
    part = OperatorPart(problem, problem.micro_batch_sizes[0])
    plan = first_plan(part)
    assert plan is not None
    assert Improver(part, Deadline(0.0)).improved(plan) is plan


@examples(40)
@given(SMALL)
def test_rows_of_groups_fill_the_devices_inside_nodes_or_whole_ones(problem: Problem) -> None:
    part = OperatorPart(problem, problem.micro_batch_sizes[0])
    per_node, devices = problem.cluster.devices_per_node, problem.cluster.device_count
    rows = list(rows_of_groups(part))
    assert len(set(rows)) == len(rows)
    for row in rows:
        assert sum(row) == devices
        starts = [sum(row[:s]) for s in range(len(row))]
        assert all(
            a // per_node == (a + g - 1) // per_node or a % per_node == g % per_node == 0
            for a, g in zip(starts, row, strict=True)
        )


@cache
def long_part() -> OperatorPart:
    """Return a part of a model of many operators that are alike, on eight devices with memory for
    any cut."""
    problem = ilp_planner.problem(
        model="gpt3-1.3b", cluster="v100-32gb-1x8", space="operators", global_batch=64
    )
    roomy = dict.fromkeys(problem.memory_limits, 1e15)
    return OperatorPart(dataclasses.replace(problem, memory_limits=roomy), 8)


def cut_at(improver: Improver, *cuts: int) -> FirstPlan:
    """Return a plan of eight stages of one device, with the ways that prices find."""
    part = improver.part
    sizes, stop = (1,) * 8, len(part.problem.costs.chain)
    nothing = FirstPlan(
        part=part, sizes=sizes, cuts=(), ways=((),) * 8, times=(INFINITE,) * 8
    )  # fmt: skip
    return improver.solved(nothing, (0, *cuts, stop), set(range(8)))


def test_levelled_stages_take_about_as_long() -> None:
    """At once, however uneven they were."""
    improver = Improver(long_part())
    operators = len(long_part().problem.costs.chain)
    uneven = cut_at(improver, *(operators * (s + 1) * (s + 2) // 72 for s in range(7)))
    assert max(uneven.times) > 3 * min(uneven.times)
    levelled = improver.levelled(uneven)
    assert max(levelled.times) < 1.4 * min(levelled.times)
    assert levelled.seconds < uneven.seconds
    judged = evaluate(levelled.part.problem, levelled.plan())
    assert judged.iteration_time == pytest.approx(levelled.seconds, rel=SAME)


def test_a_stage_without_memory_for_more_keeps_what_it_has() -> None:
    """The first stage holds most micro-batches; the others are levelled among themselves."""
    part = long_part()
    operators = len(part.problem.costs.chain)
    cuts = tuple(operators * (s + 1) // 10 for s in range(7))  # the last stage has three times more
    improver = Improver(part)
    plan = cut_at(improver, *cuts)

    def no_more_in_the_first(sizes: tuple[int, ...], s: int, start: int, stop: int) -> StageOptimum:
        found = Improver.stage(improver, sizes, s, start, stop)
        return found if s or stop <= cuts[0] else dataclasses.replace(found, time=INFINITE)

    improver.stage = no_more_in_the_first  # type: ignore[method-assign]
    levelled = improver.levelled(plan)
    assert levelled.cuts[1] == cuts[0]
    assert max(levelled.times[1:]) < 1.15 * min(levelled.times[1:])


def test_without_time_nothing_is_levelled() -> None:
    plan = cut_at(Improver(long_part()), *range(20, 160, 20))
    assert Improver(long_part(), Deadline(0.0)).levelled(plan) is plan


def test_levelling_ends_with_the_time_in_the_middle_of_its_stages() -> None:
    """There may be hundreds; a cut that only some of them have is none."""
    improver = Improver(long_part())
    plan = cut_at(improver, *range(20, 160, 20))
    for looks in range(1, 9):
        left = iter([True] * looks)
        improver.deadline = Deadline(math.inf, lambda left=left: next(left, False))  # type: ignore[misc]
        assert improver.levelled(plan) is plan
    improver.deadline = Deadline(math.inf)
    assert improver.levelled(plan) is not plan
