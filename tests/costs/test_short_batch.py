"""What a short last micro-batch takes, and messages of replicas that differ by a sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.base import StageCost
from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.layer_shares import LAST, as_sent, beyond_its_part
from ilp_planner.costs.layers import PEAK, layer_costs
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.plan import GroupStage, Plan, Replica
from ilp_planner.schedule.batches import Batches
from tests.costs.mixed_instances import cluster_of, profile_of
from tests.examples import examples

CLUSTER = cluster_of([("fast", 4), ("fast", 4), ("slow", 4)])
PROFILE = profile_of(("fast", "slow"))


def plan_of(micro_batches: int, *stages: GroupStage) -> Plan:
    """Return a plan of 16 samples."""
    return Plan(model="made-up", global_batch=16, micro_batches=micro_batches, stages=stages)


def stage_of(start: int, stop: int, first: int, samples: list[int]) -> GroupStage:
    """Return a stage of replicas of one device each, from a device on."""
    replicas = (Replica(devices=(first + r,), samples=x) for r, x in enumerate(samples))
    return GroupStage(start=start, stop=stop, replicas=tuple(replicas))


def test_the_last_micro_batch_by_hand() -> None:
    """Two of 6 samples and one of 4."""
    plan = plan_of(3, stage_of(0, 3, 0, [3, 3]), stage_of(3, 6, 8, [6]))
    assert plan.batches.size == 6
    assert plan.batches.last == 4
    costs = layer_costs(PROFILE, CLUSTER)
    cost = costs.plan_cost(plan, CLUSTER)
    fast, slow = costs.row(LayerKey("fast", 1, 2)), costs.row(LayerKey("slow", 1, 4))
    sent = 2 * (30e-6 + 4 * PROFILE.boundary[3] / 5e9)
    whole = costs.row(LayerKey("fast", 1, 3)), costs.row(LayerKey("slow", 1, 6))
    more = fast[:3].sum() - 2 / 3 * whole[0][:3].sum(), slow[3:].sum() - 2 / 3 * whole[1][3:].sum()
    expected = max(0.0, *more) + sent / 3
    assert cost.terms[LAST] == pytest.approx(expected)
    times = [stage.time for stage in cost.stages]
    assert cost.terms["slowest stage"] == pytest.approx(5 / 3 * max(times))
    total = 5 / 3 * max(times) + sum(times) + expected + cost.terms[PEAK]
    assert cost.iteration_time == pytest.approx(total)


def test_what_is_computed_again_keeps_devices_busy_too() -> None:
    """Of a full micro-batch 5 s, 2 of them computed again; of the last one, half of it, 4 s."""
    full, last = (
        StageCost(
            time=0.0,
            memory=(),
            time_terms={"compute": seconds - 2, "recompute": 2.0, "point-to-point": 3.0},
            memory_terms={},
        )
        for seconds in (5.0, 4.0)
    )
    assert beyond_its_part([full], [last], 0.5) == (4 - 2.5, 1.5)


def test_full_micro_batches_have_no_such_term() -> None:
    plan = plan_of(4, stage_of(0, 6, 0, [2, 2]))
    assert LAST not in layer_costs(PROFILE, CLUSTER).plan_cost(plan, CLUSTER).terms


def test_a_sample_less_on_some_replicas_sends_no_less() -> None:
    """So that it does not matter which replicas those are."""
    costs = layer_costs(PROFILE, CLUSTER)
    many, few, other = (
        costs.plan_cost(plan_of(4, stage_of(0, 3, 0, shares), stage_of(3, 6, 8, [5])), CLUSTER)
        for shares in ([3, 3, 3], [3, 3, 2], [2, 3, 3])
    )
    assert few.stages[0].time == other.stages[0].time == many.stages[0].time
    mixed = stage_of(0, 3, 6, [3, 3, 2])
    assert as_sent(mixed, CLUSTER) is mixed  # 6 and 7 are fast, 8 is slow


@examples(60)
@given(data=st.data())
def test_no_way_through_the_stages_takes_longer(data: st.DataObject) -> None:
    """The formula of `costs/groups.py` against micro-batches that pass stages one by one."""
    stages, full = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    draw = st.floats(0.1, 10)
    busy = np.array(data.draw(st.lists(draw, min_size=stages, max_size=stages)))
    sent = np.array(data.draw(st.lists(draw, min_size=stages, max_size=stages)))
    shares = st.lists(st.floats(0, 1), min_size=stages, max_size=stages)
    last_busy, last_sent = busy * data.draw(shares), sent * data.draw(shares)
    times, part = busy + sent, data.draw(st.floats(0, 1))
    done = np.zeros(stages)
    for passing in [times] * full + [last_busy + last_sent]:
        ready = 0.0
        for s in range(stages):
            ready = done[s] = max(ready, done[s]) + passing[s]
    formula = (full - 1 + part) * times.max() + times.sum()
    formula += np.maximum(last_busy - part * busy, 0).max() + (1 - part) * last_sent.sum()
    assert done[-1] <= formula * (1 + 1e-9)


def test_tables_say_what_the_judge_says() -> None:
    costs = layer_costs(PROFILE, CLUSTER)
    option = GroupOption(1, (3, 0))
    tables = costs.option_tables(option, 4, 16, CLUSTER)
    assert tables is not None
    assert Batches(16, 4).size == 4
    assert tables.samples == (2, 1, 1)
    assert tables.last == ()
    short = costs.option_tables(option, 3, 16, CLUSTER)
    assert short is not None
    assert short.samples == (2, 2, 2)
    assert short.last == (2, 2, 2)  # 4 of 6 samples, in proportion 4/3 each
    assert len(short.peaks) == len(tables.peaks) + 1
    plan = plan_of(3, stage_of(0, 6, 0, list(short.samples)))
    judged = costs.plan_cost(plan, CLUSTER)
    assert judged.terms[LAST] == pytest.approx(short.peaks[-1][0, 6])
    whole = costs.row(LayerKey("fast", 1, 2)).sum()  # the last one takes as long as a full one
    assert short.peaks[-1][0, 6] == pytest.approx(whole / 3)


@given(data=st.data())
def test_a_last_micro_batch_that_takes_as_long_counts_as_a_full_one(data: st.DataObject) -> None:
    """Where nothing is sent: 6, 6 and 4 samples of 6 replicas take as long as three times 6."""
    start, stop = sorted(
        data.draw(st.lists(st.integers(0, 6), min_size=2, max_size=2, unique=True))
    )
    costs = layer_costs(PROFILE, CLUSTER)
    short = costs.option_tables(GroupOption(1, (6, 0)), 3, 16, CLUSTER)
    full = costs.option_tables(GroupOption(1, (6, 0)), 3, 18, CLUSTER)
    assert short is not None
    assert full is not None
    assert full.last == ()
    time, (reduced, more) = short.time[start, stop], short.peaks[:, start, stop]
    part = Batches(16, 3).part
    assert (1 + part) * time + time + more == pytest.approx(3 * full.time[start, stop])
    assert reduced == full.peaks[0, start, stop]
