"""The native cost model of layers on groups: by hand, against its own tables, and on AMP's
trials."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.group_network import group_class, stage_ring
from ilp_planner.costs.groups import GroupClass, GroupOption
from ilp_planner.costs.layer_rows import ALL_IN_FLIGHT
from ilp_planner.costs.layers import PEAK, LayerCosts, layer_costs
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.plan import GroupPlan, Plan
from tests.costs.mixed_instances import (
    Floor,
    cluster_of,
    clusters,
    options,
    pack,
    profile_of,
    stage_of,
)
from tests.examples import examples

PROFILE = profile_of(("fast", "slow"))
TWO = cluster_of([("fast", 4), ("slow", 4)])


def costs_of(profile=PROFILE, cluster=TWO, **limits: float) -> LayerCosts:
    return layer_costs(profile, cluster, limits or None)


def plan_of(*stages, micro_batches: int = 4, global_batch: int = 16) -> GroupPlan:
    return Plan(model="test", global_batch=global_batch, micro_batches=micro_batches, stages=stages)


# ---- by hand ------------------------------------------------------------------------------------


def test_iteration_is_made_of_its_terms() -> None:
    first = stage_of(0, 2, [(0,), (1,)], [2, 2])
    last = stage_of(2, 6, [(4, 5)], [4])
    costs = costs_of()
    cost = costs.plan_cost(plan_of(first, last), TWO)
    row = PROFILE.time
    sent = 2 * (30e-6 + 4 * PROFILE.boundary[2] / 5e9)
    u = [row["fast", 1, 2][:2].sum() + sent, row["slow", 2, 4][2:].sum()]
    reduced = 2 * (10e-6 + PROFILE.gradients[:2].sum() / 2 / 100e9)
    steps = PROFILE.optimizer["fast", 1][:2].sum(), PROFILE.optimizer["slow", 2][2:].sum()
    peak = max(reduced + steps[0], steps[1])
    assert [stage.time for stage in cost.stages] == pytest.approx(u)
    assert cost.iteration_time == pytest.approx(3 * max(u) + sum(u) + peak)
    assert sum(cost.terms.values()) == pytest.approx(cost.iteration_time)
    assert cost.terms[PEAK] == pytest.approx(peak)
    assert sum(cost.stages[0].time_terms.values()) == pytest.approx(u[0])
    assert costs.constant(4) == 0


def test_the_slowest_replica_of_a_mixed_stage_decides() -> None:
    mixed = stage_of(0, 6, [(0,), (4,)], [3, 1])
    time_ = costs_of().plan_cost(plan_of(mixed), TWO).stages[0].time
    fast = (PROFILE.time["fast", 1, 2] + PROFILE.time["fast", 1, 4]).sum() / 2
    assert time_ == pytest.approx(max(fast, PROFILE.time["slow", 1, 1].sum()))


def test_memory_grows_with_the_stages_after() -> None:
    first, last = stage_of(0, 3, [(0,)], [4]), stage_of(3, 6, [(4,)], [4])
    cost = costs_of().plan_cost(plan_of(first, last), TWO)
    for stage, name, layers, flying in zip(
        cost.stages, ("fast", "slow"), (slice(0, 3), slice(3, 6)), (2, 1), strict=True
    ):
        expected = (
            PROFILE.state[name, 1][layers].sum()
            + flying * 4 * PROFILE.activation[name, 1][layers].sum()
            + PROFILE.workspace[name, 1][layers].max()
        )
        assert stage.memory == (pytest.approx(expected),)
        assert sum(stage.memory_terms.values()) == pytest.approx(expected)
    single = costs_of().plan_cost(plan_of(first, last, micro_batches=1, global_batch=4), TWO)
    assert single.stages[0].memory_terms["activations"] == pytest.approx(
        4 * PROFILE.activation["fast", 1][:3].sum()
    )


def test_workspace_may_grow_with_the_samples_that_run() -> None:
    growing = replace(
        PROFILE, workspace_per_sample={key: row * 2 for key, row in PROFILE.workspace.items()}
    )
    plan = plan_of(stage_of(0, 6, [(0,)], [4]))
    least = PROFILE.workspace["fast", 1].max()
    found = costs_of(growing).plan_cost(plan, TWO).stages[0].memory_terms["workspace"]
    assert found == pytest.approx(9 * least)


def test_what_has_no_row_is_named_and_takes_forever() -> None:
    eight = cluster_of([("fast", 8), ("slow", 4)])
    cost = costs_of(cluster=eight).plan_cost(plan_of(stage_of(0, 6, [tuple(range(8))], [4])), eight)
    assert cost.stages[0].unprofiled == ("fast, tp 8",)
    assert math.isinf(cost.iteration_time)


def test_tensor_ranks_on_two_nodes_are_named() -> None:
    cost = costs_of().plan_cost(plan_of(stage_of(0, 6, [(3, 4)], [4])), TWO)
    assert cost.stages[0].unprofiled == ("tensor-parallel ranks on several nodes",)
    assert cost.stages[0].time == pytest.approx(PROFILE.time["slow", 2, 4].sum())


def test_an_unknown_optimiser_step_streams_the_states() -> None:
    costs = costs_of(replace(PROFILE, optimizer={}))
    peak = costs.plan_cost(plan_of(stage_of(0, 6, [(0,)], [4])), TWO).terms[PEAK]
    assert peak == pytest.approx(2 * PROFILE.state["fast", 1].sum() / 0.85e12)


def test_shares_of_the_time_by_source() -> None:
    plan = plan_of(stage_of(0, 3, [(0,)], [4]), stage_of(3, 6, [(4,), (5,)], [3, 1]))
    shares = costs_of().shares(plan, TWO)
    assert set(shares) == {Provenance.MEASURED, Provenance.INTERPOLATED, Provenance.ANALYTIC}
    assert sum(part.share for part in shares.values()) == pytest.approx(1)
    total = costs_of().plan_cost(plan, TWO).iteration_time
    stages = costs_of().plan_cost(plan, TWO).stages
    slowest = max(stage.time for stage in stages)
    sent = sum(
        stage.time_terms["point-to-point"] * (4 if stage.time == slowest else 1) for stage in stages
    )
    assert shares[Provenance.ANALYTIC].share * total > sent > 0


# ---- tables -------------------------------------------------------------------------------------


def test_equal_replicas_differ_by_a_sample_at_most() -> None:
    costs = costs_of()
    assert costs.split(GroupOption(1, (3, 0)), 6, TWO) == (2, 2, 2)
    assert costs.split(GroupOption(1, (3, 0)), 4, TWO) == (2, 1, 1)
    assert costs.split(GroupOption(1, (3, 0)), 2, TWO) is None
    assert costs.split(GroupOption(1, (3, 1)), 3, TWO) is None
    assert costs.option_tables(GroupOption(1, (3, 0)), 8, 16, TWO) is None
    assert sum(costs.split(GroupOption(1, (2, 1)), 8, TWO)) == 8


def test_options_that_cannot_be() -> None:
    costs = costs_of(profile_of(("fast",)))
    assert costs.option_tables(GroupOption(4, (0, 1)), 4, 16, TWO) is None  # no rows
    assert costs.option_tables(GroupOption(4, (2, 0)), 4, 16, TWO) is None  # one node of four
    assert costs.option_tables(GroupOption(1, (0, 0)), 4, 16, TWO) is None
    assert costs.option_tables(GroupOption(1, (1, 0)), 9, 16, TWO) is None  # 8 of 2 are all
    assert costs.degrees() == {"fast": (1, 2, 4)}


def test_in_flight_is_what_fits_every_device() -> None:
    option = GroupOption(1, (1, 1))
    costs = costs_of(fast=8e9, slow=6e9)
    tables = costs.option_tables(option, 4, 16, TWO)
    for i in range(6):
        for j in range(i + 1, 7):
            layers = slice(i, j)
            expected = min(
                (
                    limit
                    - PROFILE.state[name, 1][layers].sum()
                    - PROFILE.workspace[name, 1][layers].max()
                )
                // (x * PROFILE.activation[name, 1][layers].sum())
                for name, limit, x in zip(("fast", "slow"), (8e9, 6e9), tables.samples, strict=True)
            )
            assert tables.in_flight[i, j] == max(expected, 0)
    assert tables.in_flight.max() > 0 == tables.in_flight.min()
    assert not np.tril(tables.in_flight).any()


def test_nothing_kept_means_all_fit() -> None:
    nothing = replace(PROFILE, activation={k: 0 * v for k, v in PROFILE.activation.items()})
    tables = costs_of(nothing).option_tables(GroupOption(1, (1, 0)), 4, 16, TWO)
    assert (tables.in_flight[np.triu_indices(6, 1, 7)] == ALL_IN_FLIGHT).all()


@examples(75)
@given(data=st.data())
def test_tables_are_never_above_a_packed_plan(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    floor = Floor(cluster)
    costs = layer_costs(profile_of(cluster.type_names), cluster)
    micro_batches = data.draw(st.integers(1, 3))
    count = data.draw(st.integers(1, 3))
    cuts = [0, *sorted(data.draw(st.permutations(range(1, 6)))[: count - 1]), 6]
    stages, chosen = [], []
    for start, stop in pairwise(cuts):
        assume(any(floor.free.values()))
        option = options(data.draw, floor)
        seats = pack(floor, option, lambda n: data.draw(st.integers(0, n - 1)))
        assume(seats is not None)
        tables = costs.option_tables(option, micro_batches, 60 * micro_batches, cluster)
        assume(tables is not None)  # tp 3 has no rows
        stages.append(stage_of(start, stop, seats, tables.samples))
        chosen.append((option, tables))
    plan = plan_of(*stages, micro_batches=micro_batches, global_batch=60 * micro_batches)
    cost = costs.plan_cost(plan, cluster)
    u, peaks = [], []
    for number, (stage, (option, tables)) in enumerate(zip(stages, chosen, strict=True)):
        sending = 0.0
        if number + 1 < len(stages):
            to = group_class(chosen[number + 1][0], cluster)
            add, extra = costs.send(option, tables.samples, micro_batches, to, cluster)
            sending = add[stage.stop]
            assert not extra.any()
            assert add[0] == add[-1] == 0
        u.append(tables.time[stage.start, stage.stop] + sending)
        peaks.append(tables.peaks[0, stage.start, stage.stop])
        judged = cost.stages[number]
        assert tables.time[stage.start, stage.stop] == pytest.approx(judged.time_terms["compute"])
        assert u[-1] <= judged.time * (1 + 1e-9)
        flying = min(len(stages) - number, micro_batches)
        fits = all(
            need <= costs.limits[cluster.type_of[replica.devices[0]]]
            for need, replica in zip(judged.memory, stage.replicas, strict=True)
        )
        assert fits == (tables.in_flight[stage.start, stage.stop] >= flying)
    bound = (micro_batches - 1) * max(u) + sum(u) + max(peaks)
    assert bound <= cost.iteration_time * (1 + 1e-9)
    if len(cluster.nodes) == 1:  # nothing but one node: the best links are the links
        assert bound == pytest.approx(cost.iteration_time)


def test_tables_are_exact_for_groups_that_fill_nodes() -> None:
    cluster = cluster_of([("fast", 4), ("fast", 4), ("slow", 4)])
    costs = costs_of(cluster=cluster)
    wide, last = GroupOption(2, (4, 0)), GroupOption(1, (0, 4))
    tables = [costs.option_tables(option, 2, 16, cluster) for option in (wide, last)]
    stages = (
        stage_of(0, 4, [(0, 1), (2, 3), (4, 5), (6, 7)], tables[0].samples),
        stage_of(4, 6, [(8,), (9,), (10,), (11,)], tables[1].samples),
    )
    cost = costs.plan_cost(plan_of(*stages, micro_batches=2), cluster)
    add, _ = costs.send(wide, tables[0].samples, 2, GroupClass((1,), False), cluster)
    u = [tables[0].time[0, 4] + add[4], tables[1].time[4, 6]]
    peak = max(tables[0].peaks[0, 0, 4], tables[1].peaks[0, 4, 6])
    assert cost.iteration_time == pytest.approx(max(u) + sum(u) + peak)
    assert stage_ring(stages[0], cluster).per_byte == pytest.approx(2 * 3 / 4 / 5e9)


# ---- options and what is kept of them -----------------------------------------------------------


def test_what_costs_let_stages_be_where_nothing_is_said() -> None:
    costs = LayerCosts(PROFILE, {})
    assert (costs.uneven, costs.mixed_tp) == (True, False)


def test_samples_of_one_type_divide_evenly_unless_one_more_is_allowed() -> None:
    even = layer_costs(PROFILE, TWO, uneven=False)
    assert even.split(GroupOption(1, (2, 0)), 5, TWO) is None
    assert even.split(GroupOption(1, (2, 0)), 6, TWO) == (3, 3)
    assert costs_of().split(GroupOption(1, (2, 0)), 5, TWO) == (3, 2)
    fast, slow = costs_of().split(GroupOption(1, (1, 1)), 6, TWO)
    assert fast > slow > 0


def test_types_without_replicas_need_no_rows() -> None:
    costs = costs_of(profile_of(("fast",)))
    assert costs.can_have(GroupOption(1, (2, 0)), TWO)
    assert not costs.can_have(GroupOption(1, (2, 1)), TWO)
    mixed = stage_of(0, 6, [(0,), (4,)], [2, 2])
    assert costs.slowest(mixed, TWO) == LayerKey("fast", 1, 2)
    assert costs.slowest(stage_of(0, 6, [(4,)], [2]), TWO) is None


def test_an_option_of_which_one_type_failed_is_none() -> None:
    failed = replace(PROFILE, most_samples={("slow", 1): 1})
    costs = costs_of(failed)
    assert costs.option_tables(GroupOption(1, (1, 1)), 2, 16, TWO) is None
    assert costs.option_tables(GroupOption(1, (1, 0)), 2, 16, TWO) is not None


def test_ranges_of_no_layers_reduce_nothing() -> None:
    tables = costs_of().option_tables(GroupOption(1, (2, 0)), 4, 16, TWO)
    assert tables is not None
    below = np.tril(np.ones(tables.time.shape, bool))
    assert (tables.peaks[:, below] == 0).all()
    assert (tables.peaks[:, ~below] > 0).all()


def test_equal_replicas_send_as_if_all_had_the_most_samples() -> None:
    """Which replica has one more does not matter; on another cluster links are others."""
    costs = costs_of()
    to = GroupClass((1,), False)
    for across in (5, 10):
        cluster = cluster_of([("fast", 4), ("slow", 4)], across=across)
        seconds, extra = costs.send(GroupOption(1, (2, 0)), (3, 2), 4, to, cluster)
        expected = 2 * (30e-6 + 2 * 3 * PROFILE.boundary / (across * 1e9))
        assert seconds[1:-1] == pytest.approx(expected[1:-1])
        assert (seconds[0], seconds[-1], extra.any()) == (0, 0, False)
