"""Layers of a native table with the rows that planning lacks."""

from dataclasses import replace

import numpy as np
import pytest

from ilp_planner.costs.completed_layers import Plannable, completed_layers
from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.launch_floor import line_errors
from ilp_planner.costs.layers import layer_costs
from ilp_planner.plan import Plan
from ilp_planner.profiles.layer_table import layer_profile
from ilp_planner.profiles.layers import LayerKey
from ilp_planner.profiles.table import Provenance
from tests.costs.mixed_instances import cluster_of, stage_of
from tests.profiles.layer_rows import layer_table

CLUSTER = cluster_of([("A100", 8)])
ASK = Plannable(samples=(1, 2, 4, 8), parts=8)
WEIGHTS = np.array([0.1, 1, 1, 1, 1, 0.5])


def test_a_table_that_lacks_nothing_is_as_it_was() -> None:
    profile = completed_layers(
        layer_table(), cluster=CLUSTER, ask=Plannable(samples=(1, 2, 4), max_tp=2)
    )
    assert profile.time.keys() == layer_profile(layer_table()).time.keys()
    assert profile.notes == ()


def test_missing_degrees_are_predicted() -> None:
    profile = completed_layers(layer_table(), cluster=CLUSTER, ask=ASK)
    assert profile.degrees("A100") == (1, 2, 4, 8)
    key = LayerKey("A100", 4, 2)
    assert key not in profile.measured
    assert set(profile.origins[key]) == {Provenance.EXTRAPOLATED}
    # 1 ms that nothing divides and 2 ms per sample that tensor parallelism does.
    np.testing.assert_allclose(profile.time[key], WEIGHTS * 2e-3, rtol=0.35)
    assert (profile.state["A100", 4] < profile.state["A100", 2]).all()
    (note,) = profile.notes
    assert "predicted, not measured: A100, tp" in note
    measured = layer_profile(layer_table())
    for known, row in measured.time.items():
        np.testing.assert_array_equal(profile.time[known], row)


def test_degrees_that_do_not_divide_the_model_or_fit_no_node() -> None:
    six = completed_layers(layer_table(), cluster=CLUSTER, ask=replace(ASK, parts=6))
    assert six.degrees("A100") == (1, 2)
    small = completed_layers(layer_table(), cluster=cluster_of([("A100", 4)]), ask=ASK)
    assert small.degrees("A100") == (1, 2, 4)
    least = completed_layers(layer_table(), cluster=CLUSTER, ask=replace(ASK, max_tp=4))
    assert least.degrees("A100") == (1, 2, 4)


def test_straight_lines_stay_where_they_are_nearer() -> None:
    """The made-up times are straight lines: nothing is better than these."""
    profile = completed_layers(layer_table(), cluster=CLUSTER, ask=ASK)
    assert line_errors(profile, "A100", 1) == (pytest.approx(0, abs=1e-9),) * 2
    assert profile.samples("A100", 1) == (1, 2, 4)


def test_isolated_rows_are_left_to_the_launch_floor() -> None:
    profile = completed_layers(layer_table(timing="isolated"), cluster=CLUSTER, ask=ASK)
    assert profile.isolated
    assert profile.degrees("A100") == (1, 2)


def test_a_plan_says_what_it_rests_on() -> None:
    profile = completed_layers(layer_table(), cluster=CLUSTER, ask=ASK)
    costs = layer_costs(profile, CLUSTER)
    plan = Plan(
        model="made up", global_batch=8, micro_batches=4, stages=(stage_of(0, 6, [range(4)], [2]),)
    )
    shares = costs.shares(plan, CLUSTER)
    assert Provenance.EXTRAPOLATED in shares
    assert Provenance.MEASURED not in shares or shares[Provenance.MEASURED].share < 0.2
    single = replace(plan, stages=(stage_of(0, 6, [(0,)], [2]),))
    assert costs.shares(single, CLUSTER)[Provenance.MEASURED].share == pytest.approx(1)


def test_more_samples_than_ran_are_no_option() -> None:
    table = layer_table()
    frame = table.frame.copy()
    gone = (frame["micro_batch"] == 4) & (frame["tp"] == 1)
    frame.loc[gone, "status"] = "out_of_memory"
    frame.loc[gone, "time_s"] = np.nan
    profile = completed_layers(replace(table, frame=frame), cluster=CLUSTER, ask=ASK)
    assert profile.samples("A100", 1) == (1, 2)
    costs = layer_costs(profile, CLUSTER)
    assert costs.option_tables(GroupOption(1, (1,)), 4, 8, CLUSTER) is not None
    assert costs.option_tables(GroupOption(1, (1,)), 2, 8, CLUSTER) is None
    assert costs.option_tables(GroupOption(2, (1,)), 2, 8, CLUSTER) is not None
    plan = Plan(
        model="made up", global_batch=8, micro_batches=2, stages=(stage_of(0, 6, [(0,)], [4]),)
    )
    cost = costs.plan_cost(plan, CLUSTER)
    assert cost.stages[0].unprofiled == ("A100, tp 1, 4 samples, which failed",)
    assert cost.iteration_time == float("inf")
    assert costs.shares(plan, CLUSTER) == {}
