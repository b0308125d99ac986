"""Where the seconds of plans of layers come from: optimiser steps, and a short last micro-batch."""

from dataclasses import replace

import numpy as np
import pytest

from ilp_planner.costs.layer_shares import LAST, layer_tally, step_origin
from ilp_planner.costs.layers import PEAK, layer_costs
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.plan import Plan
from tests.costs.mixed_instances import cluster_of, profile_of, stage_of

TWO = cluster_of([("fast", 4), ("slow", 4)])
PROFILE = profile_of(("fast", "slow"))
FAST = frozenset(key for key in PROFILE.time if key.device == "fast")
MIXED = stage_of(0, 6, [(0,), (4,)], [2, 2])
ALONE = stage_of(0, 6, [(0,), (1,)], [2, 2])


def origin(profile: LayerProfile, *stages: object) -> Provenance:
    plan = Plan(model="test", global_batch=16, micro_batches=4, stages=stages)
    found = step_origin(profile, plan, len(stages) - 1, TWO)
    assert found.error is None
    return found.provenance


def test_a_step_is_as_sure_as_the_rows_of_its_devices() -> None:
    assert origin(PROFILE, ALONE) is Provenance.MEASURED
    assert origin(PROFILE, MIXED) is Provenance.MEASURED
    fast = replace(PROFILE, measured=FAST)
    assert origin(fast, ALONE) is Provenance.MEASURED
    assert origin(fast, MIXED) is Provenance.EXTRAPOLATED
    assert origin(fast, MIXED, ALONE) is Provenance.MEASURED  # of the stage that is asked for
    exactly = {key for key in FAST if key.tp == 1}
    assert origin(replace(PROFILE, measured=frozenset(exactly)), ALONE) is Provenance.MEASURED
    assert origin(replace(PROFILE, measured=frozenset()), ALONE) is Provenance.ANALYTIC


def test_a_step_that_the_profile_has_not_is_computed() -> None:
    """Of one of two types it has it."""
    some = {pair: row for pair, row in PROFILE.optimizer.items() if pair[0] == "fast"}
    partly = replace(PROFILE, optimizer=some)
    assert origin(partly, ALONE) is Provenance.MEASURED
    assert origin(partly, MIXED) is Provenance.ANALYTIC


def test_rows_that_are_measured_in_part_count_as_measured() -> None:
    """Those that leave their messages to links; others that are predicted do not."""
    none = replace(PROFILE, measured=frozenset())
    key = LayerKey("fast", 1, 2)
    row = PROFILE.time[key]
    parts = {Provenance.MEASURED: row / 2, Provenance.ANALYTIC: row / 2}
    assert origin(replace(none, origins={key: parts}), ALONE) is Provenance.MEASURED
    predicted = replace(none, origins={key: {Provenance.EXTRAPOLATED: row}})
    assert origin(predicted, ALONE) is Provenance.EXTRAPOLATED


@pytest.mark.parametrize("batch", [16, 14])
def test_stages_of_no_time_rest_on_nothing(batch: int) -> None:
    """Two layers take none; with 14 samples the last of four micro-batches is short."""
    still = {key: np.where(np.arange(6) < 2, 0.0, row) for key, row in PROFILE.time.items()}
    costs = layer_costs(replace(PROFILE, time=still), TWO)
    stages = stage_of(0, 2, [(0,)], [4]), stage_of(2, 6, [(4,)], [4])
    plan = Plan(model="test", global_batch=batch, micro_batches=4, stages=stages)
    assert plan.batches.short == (batch == 14)
    seconds = costs.plan_cost(plan, TWO).iteration_time
    assert layer_tally(costs, plan, TWO).total == pytest.approx(seconds)


def test_a_short_last_micro_batch_rests_on_the_rows_of_the_slowest_stage() -> None:
    """The first stage is the slow one, and measured, as its step is; of the second nothing is."""
    slow = frozenset(key for key in PROFILE.time if key.device == "slow")
    costs = layer_costs(replace(PROFILE, measured=slow), TWO)
    first, second = stage_of(0, 4, [(4,)], [4]), stage_of(4, 6, [(0,)], [4])
    plan = Plan(model="test", global_batch=14, micro_batches=4, stages=(first, second))
    cost = costs.plan_cost(plan, TWO)
    assert cost.terms[LAST] > 0
    tally = layer_tally(costs, plan, TWO)
    assert tally.total == pytest.approx(cost.iteration_time)
    row = costs.row(LayerKey("slow", 1, 4))[:4].sum()
    counts = plan.schedule.counts([stage.time for stage in cost.stages])
    expected = counts[0] * row + cost.terms[LAST] + cost.terms[PEAK]
    measured = tally.shares()[Provenance.MEASURED].share * tally.total
    assert measured == pytest.approx(expected, rel=1e-9)


def test_a_short_last_micro_batch_rests_on_all_that_its_rows_come_from() -> None:
    """Three quarters of the row of two samples are predicted, the rest is of links."""
    key = LayerKey("slow", 1, 2)
    row = PROFILE.time[key]
    parts = {Provenance.EXTRAPOLATED: 0.75 * row, Provenance.ANALYTIC: 0.25 * row}
    costs = layer_costs(replace(PROFILE, origins={key: parts}), TWO)
    first, second = stage_of(0, 4, [(4,)], [4]), stage_of(4, 6, [(0,)], [4])
    plan = Plan(model="test", global_batch=14, micro_batches=4, stages=(first, second))
    cost = costs.plan_cost(plan, TWO)
    tally = layer_tally(costs, plan, TWO)
    assert tally.total == pytest.approx(cost.iteration_time)
    predicted = tally.shares()[Provenance.EXTRAPOLATED].share * tally.total
    assert predicted == pytest.approx(0.75 * cost.terms[LAST])
