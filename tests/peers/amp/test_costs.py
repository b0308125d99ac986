"""AMP's cost model: every published prediction, its defect, and plans of the planner's own form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.peers.amp.costs import (
    AmpCosts,
    AmpDegrees,
    default_nodes,
    mixed_forward,
    ring_slowness,
    slowness,
)
from ilp_planner.peers.amp.degrees import AmpPlan
from ilp_planner.peers.amp.profile import read_amp
from ilp_planner.plan import GroupPlan, Replica
from tests.amp_cases import (
    EXPERIMENTS,
    amp_cost_s,
    clusters,
    content,
    degrees_of,
    experiment,
    partition_of,
    profiles,
    published,
    trials,
    write,
)
from tests.examples import examples, for_each


@published
@for_each("name", EXPERIMENTS)
def test_every_published_prediction(name: str) -> None:
    """To the four decimals that AMP prints."""
    found, rows = experiment(name), [t for t in trials() if t["experiment"] == name]
    assert len(rows) == (65 if name == "het_model" else 53)
    model = found.profile.model
    for trial in rows:
        cost = amp_cost_s(
            found.profile,
            found.cluster,
            degrees_of(trial),
            partition_of(trial, model),
            found.global_batch,
        )
        assert round(cost, 4) == trial["predicted_s"]


@published
def test_only_the_last_link_of_a_ring_counts_as_published() -> None:
    """One slow node among fast ones: a fifth of the true reduction time."""
    found = experiment("homogeneous")
    nodes = np.array([0] * 4 + [1] * 4 + [2] * 4 + [3] * 4).reshape(1, 16, 1)
    slow = slowness(found.cluster)
    slow[1, 2] = slow[2, 1] = 5 * slow[0, 3]
    as_published = ring_slowness(slow, nodes, repaired=False)
    assert (5 * as_published == ring_slowness(slow, nodes, repaired=True)).all()


def small(tmp_path: Path) -> tuple[AmpCosts, AmpDegrees, GroupPlan]:
    found = read_amp(write(tmp_path, content()))
    degrees = AmpDegrees(2, 2, 2, 2)
    plan = AmpPlan(degrees=degrees, partition=(3, 5), devices=tuple(range(8)), cost=0.0, bound=0.0)
    return AmpCosts(profile=found.profile), degrees, plan.group_plan("gpt", 16)


def test_by_hand(tmp_path: Path) -> None:
    """Two nodes of four, tp 2 x dp 2 x pp 2: a stage on each node."""
    costs, degrees, _ = small(tmp_path)
    cluster = read_amp(write(tmp_path, content())).cluster
    terms = costs.terms(cluster, degrees, (3, 5), 16)
    layer = [2 * 3 * 1.5 * ms for ms in (2, 1, 4, 5, 1, 1, 3, 2)]  # the mean of s and 2 s
    assert terms.loads == pytest.approx((sum(layer[:3]) / 1e3, sum(layer[3:]) / 1e3))
    assert terms.sending == pytest.approx(2 * 32 * 64 / (16e9 / 32))
    block, table = 12 * 64**2, 64 * 128
    ring = [2 * (1 / 2) * (block + table) / 2 / (g * 1e9 / 32) for g in (160, 40)]
    assert terms.reduction == pytest.approx(max(ring))
    expected = sum(layer) / 1e3 + 3 * terms.loads[1] + terms.sending + terms.reduction
    assert terms.total == pytest.approx(expected)


def test_a_plan_costs_what_its_degrees_and_partition_cost(tmp_path: Path) -> None:
    costs, degrees, plan = small(tmp_path)
    cluster = read_amp(write(tmp_path, content())).cluster
    cost = costs.plan_cost(plan, cluster)
    assert cost.iteration_time == costs.terms(cluster, degrees, (3, 5), 16).total
    assert sum(cost.terms.values()) == pytest.approx(cost.iteration_time)
    assert [stage.memory for stage in cost.stages] == [(0.0, 0.0)] * 2


def test_a_plan_is_judged_on_its_own_devices(tmp_path: Path) -> None:
    """Where replicas sit decides what is sent over which link."""
    costs, _, plan = small(tmp_path)
    cluster = read_amp(write(tmp_path, content())).cluster
    first, second = plan.stages
    crossed = replace(
        plan,
        stages=(
            replace(first, replicas=(first.replicas[0], second.replicas[0])),
            replace(second, replicas=(first.replicas[1], second.replicas[1])),
        ),
    )
    usual, other = costs.plan_cost(plan, cluster), costs.plan_cost(crossed, cluster)
    assert other.terms["sending"] < usual.terms["sending"]
    assert other.terms["gradient all-reduce"] > usual.terms["gradient all-reduce"]


def test_plans_without_an_amp_cost(tmp_path: Path) -> None:
    costs, _, plan = small(tmp_path)
    cluster = read_amp(write(tmp_path, content())).cluster
    first, second = plan.stages
    wider = replace(second, replicas=(Replica(devices=(4, 5, 6, 7), samples=4),))
    with pytest.raises(PlanError, match="one tp, one dp and one micro-batch size in all stages"):
        costs.plan_cost(replace(plan, stages=(first, wider)), cluster)
    lame = tuple(replace(r, samples=n) for r, n in zip(first.replicas, (1, 3), strict=True))
    with pytest.raises(PlanError, match=r"one micro-batch size in all stages.*\[1, 2, 3\] samples"):
        costs.plan_cost(replace(plan, stages=(replace(first, replicas=lame), second)), cluster)
    with pytest.raises(PlanError, match="dp 2 x 2 samples x 8 micro-batches, found 16"):
        costs.plan_cost(replace(plan, micro_batches=8), cluster)
    far = tuple(replace(r, devices=(90, 91)) for r in first.replicas)
    with pytest.raises(PlanError, match="device 91: 'pair' has 8 devices"):
        costs.plan_cost(replace(plan, stages=(replace(first, replicas=far), second)), cluster)


def test_degrees_and_partitions_that_do_not_fit(tmp_path: Path) -> None:
    costs, degrees, _ = small(tmp_path)
    cluster = read_amp(write(tmp_path, content())).cluster
    with pytest.raises(PlanError, match="8 layers to 2 stages, at least one each, found"):
        costs.terms(cluster, degrees, (8, 0), 16)
    with pytest.raises(
        PlanError, match="global batch 24 must be a multiple of dp 2 x micro-batch 5"
    ):
        costs.tables(cluster, AmpDegrees(2, 2, 2, 5), 24)
    with pytest.raises(PlanError, match="tp 8 is not profiled for every device type of 'pair'"):
        costs.tables(cluster, AmpDegrees(8, 1, 1, 1), 16)
    assert costs.degrees() == {"F1": (1, 2), "S1": (1, 2)}


@published
def test_the_mix_is_by_nodes() -> None:
    """Three nodes of one type and one of the other: 0.75 and 0.25 of their times."""
    found = experiment("het_cluster")
    forward = found.profile.forward
    mixed = mixed_forward(found.profile, found.cluster, 2)
    assert mixed is not None
    assert np.allclose(mixed, 0.75 * forward["V100", 2] + 0.25 * forward["T4", 2], rtol=1e-15)


@examples(30)
@given(st.data())
def test_repairing_never_makes_a_plan_faster(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    profile = data.draw(profiles(cluster))
    count = len(profile.model.layers)
    devices = cluster.device_count
    pp = data.draw(st.sampled_from([p for p in range(1, devices + 1) if devices % p == 0]))
    if pp > count:
        return
    degrees = AmpDegrees(1, devices // pp, pp, 1)
    batch = degrees.dp * 4
    partition = [1] * (pp - 1) + [count - pp + 1]
    nodes = default_nodes(cluster, degrees)
    published_cost = amp_cost_s(profile, cluster, degrees, partition, batch, nodes)
    repaired = amp_cost_s(profile, cluster, degrees, partition, batch, nodes, repaired=True)
    assert published_cost <= repaired
