"""Stages that compute layers again: the optimiser's tables against the judge, and which are left
out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.layer_stage import stage_cost
from ilp_planner.costs.layers import LayerCosts
from ilp_planner.costs.recomputed_layers import WAYS, is_priced, most_held, recompute_of
from ilp_planner.plan import GroupStage
from ilp_planner.schedule import OneForwardOneBackward
from ilp_planner.specs.training import Recompute
from tests.brute import group_ways, random_problem, recomputations, seatings
from tests.examples import examples

if TYPE_CHECKING:
    from ilp_planner.costs.groups import GroupOption
    from ilp_planner.problem import Problem

SEEDS = st.integers(0, 2**32 - 1)


def stage_on(problem: Problem, option: GroupOption, batches: int) -> GroupStage | None:
    """A stage of the option on an empty cluster, of all layers."""
    ways = [way for way in group_ways(problem, batches) if way[0] == option]
    row = next(iter(seatings(problem.cluster, ways, 1)), None)
    layers = len(problem.costs.chain)
    return None if row is None else GroupStage(start=0, stop=layers, replicas=row[0])


def held(problem: Problem, stage: GroupStage, most: int) -> int:
    """Micro-batches that fit every device of a stage, as the judge counts them, up to `most`."""
    count = 0
    while count < most and fits(problem, stage, count + 1):
        count += 1
    return count


def fits(problem: Problem, stage: GroupStage, in_flight: int) -> bool:
    costs, cluster = problem.costs, problem.cluster
    assert isinstance(costs, LayerCosts)
    cost = stage_cost(costs, stage, (), in_flight, cluster)
    limits = [problem.memory_limits[cluster.type_of[r.devices[0]]] for r in stage.replicas]
    return all(used <= limit for used, limit in zip(cost.memory, limits, strict=True))


@examples(25)
@given(seed=SEEDS)
def test_tables_say_what_the_judge_says_and_leave_out_nothing_of_use(seed: int) -> None:
    """Every recomputation of every range of layers of every group: what it takes and holds is in
    the tables, or another stage of the range holds as much and is no slower."""
    problem = random_problem(seed, recomputed=True, devices=4)
    costs, cluster, layers = problem.costs, problem.cluster, len(problem.costs.chain)
    batches = problem.micro_batches[seed % len(problem.micro_batches)]
    for option in dict.fromkeys(option for option, _, _ in group_ways(problem, batches)):
        table = costs.option_tables(option, batches, problem.global_batch, cluster)
        whole = stage_on(problem, option, batches)
        if table is None or whole is None:
            continue
        most = most_held(layers, cluster.device_count - sum(option.use), batches)
        for start in range(layers):
            for stop in range(start + 1, layers + 1):
                rows = {0: (table.time[start, stop], table.in_flight[start, stop])}
                if table.recomputed is not None:
                    of, again = table.recomputed.of(start, stop), table.recomputed
                    rows |= {int(again.way[n]): (again.time[n], again.in_flight[n]) for n in of}
                for recompute in recomputations(problem, start, stop):
                    stage = replace(whole, start=start, stop=stop, recompute=recompute)
                    seconds = stage_cost(costs, stage, (), 1, cluster).time
                    holds = held(problem, stage, int(most[stop]))
                    assert any(
                        time <= seconds * (1 + 1e-9) and min(count, most[stop]) >= holds
                        for time, count in rows.values()
                    )
                for way, (time, count) in rows.items():
                    stage = replace(whole, start=start, stop=stop, recompute=recompute_of(way))
                    cost = stage_cost(costs, stage, (), 1, cluster)
                    assert cost.time == pytest.approx(time)
                    assert sum(cost.time_terms.values()) == pytest.approx(cost.time)
                    if count:
                        assert fits(problem, stage, int(min(count, most[stop])))


@examples(25)
@given(seed=SEEDS)
def test_where_all_fits_nothing_is_computed_again(seed: int) -> None:
    problem = random_problem(seed, recomputed=True)
    roomy = problem.costs.with_limits(dict.fromkeys(problem.memory_limits, 1e15))
    for batches in problem.micro_batches:
        for option, _, _ in group_ways(problem, batches):
            table = roomy.option_tables(option, batches, problem.global_batch, problem.cluster)
            assert table is None or table.recomputed is None


@examples(25)
@given(seed=SEEDS)
def test_a_layer_alone_fits_as_it_is_or_computed_again(seed: int) -> None:
    """What bounds take from layers by themselves is never above a stage that fits."""
    problem = random_problem(seed, recomputed=True)
    costs = problem.costs
    for device, degrees in costs.degrees().items():
        for tp in degrees:
            seconds = costs.replica_seconds(device, tp, 3)
            needs = costs.layer_memory(device, tp)
            assert seconds is not None
            assert needs is not None
            for rows in (costs, *costs.again.values()):
                assert (needs <= rows.layer_memory(device, tp) * (1 + 1e-9)).all()
            fits_one = needs <= problem.memory_limits[device]
            assert np.isfinite(seconds[0, fits_one]).all()


@given(behind=st.integers(0, 20), batches=st.integers(1, 12), layers=st.integers(1, 20))
def test_a_stage_holds_no_more_than_the_schedule_has(
    behind: int, batches: int, layers: int
) -> None:
    most = most_held(layers, behind, batches)
    schedule = OneForwardOneBackward(batches)
    assert most[-1] == schedule.in_flight(0)
    assert (most == [schedule.in_flight(min(layers - v, behind)) for v in range(layers + 1)]).all()


@given(way=st.integers(0, 30))
def test_a_recomputation_has_one_number(way: int) -> None:
    recompute = recompute_of(way)
    assert is_priced(recompute)
    assert recompute.kind == ("none", "selective", "full", "block")[min(way, len(WAYS))]
    assert way == 0 or recompute != recompute_of(way - 1)


@pytest.mark.parametrize(
    "recompute",
    [
        Recompute(granularity="selective", modules=("mlp",)),
        Recompute(granularity="full", method="uniform", layers=2),
        Recompute(granularity="full", method="block", layers=2, distribute=True),
    ],
)
def test_others_are_not_priced(recompute: Recompute) -> None:
    assert not is_priced(recompute)
