"""Layers of a native table with the rows that planning lacks."""

from dataclasses import replace

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs import completed_layers as module
from ilp_planner.costs.completed_layers import Plannable, completed_layers
from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.launch_floor import line_errors
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.profiles.table_rows import Wanted
from ilp_planner.plan import Plan
from tests.costs.mixed_instances import cluster_of, stage_of
from tests.costs.profiles.layer_rows import layer_table

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


@pytest.mark.slow
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


# ---- which rows are asked for, and which are taken, with a prediction that is made up ------------


class Predictor:
    """Stands for the reader of tables and for the prediction: of what it is asked for it predicts
    rows of a second per sample, with an expected error."""

    def __init__(
        self, measured: LayerProfile, *, error: float | None = 0.1, fails: str = ""
    ) -> None:
        self.measured, self.error, self.fails = measured, error, fails
        self.wants: list[LayerKey] = []

    def complete(self, table: object, wants: list[Want]) -> object:
        self.wants = [LayerKey(w.device or "", w.tp or 0, w.micro_batch or 0) for w in wants]
        assert all((w.sequence, w.hidden) == (256, None) for w in wants)
        if self.fails:
            raise ProfileError(self.fails)
        return self

    def read(self, table: object, wanted: object, cluster: object) -> LayerProfile:
        if table is not self:
            return self.measured
        keys = [*self.measured.time, *self.wants]
        pairs = {(key.device, key.tp): np.full(2, 7.0) for key in keys}
        return replace(
            self.measured,
            time={key: np.full(2, float(key.samples)) for key in keys},
            state=pairs,
            activation=pairs,
            workspace=pairs,
            errors={} if self.error is None else dict.fromkeys(self.wants, self.error),
            origins={key: {Provenance.EXTRAPOLATED: np.ones(2)} for key in self.wants[:1]},
            most_samples=dict.fromkeys(pairs, 99),
            notes=("of the prediction",),
        )


def known(*keys: tuple[str, int, int], **changes: object) -> LayerProfile:
    """Return a profile of two layers with measured rows: two seconds per sample, squared."""
    time = {LayerKey(*key): np.full(2, 2.0 * key[2] ** 2) for key in keys}
    pairs = {(device, tp): np.full(2, 5.0) for device, tp, _ in keys}
    profile = LayerProfile(
        source="native:t",
        layers=("one", "two"),
        time=time,
        state=pairs,
        activation=pairs,
        workspace=pairs,
        gradients=np.ones(2),
        boundary=np.ones(3),
        measured=frozenset(time),
        notes=("of the table",),
    )
    return replace(profile, **changes)


def completed(
    monkeypatch: pytest.MonkeyPatch, predictor: Predictor, cluster: object = CLUSTER, **ask: object
) -> LayerProfile:
    monkeypatch.setattr(module, "layer_profile", predictor.read)
    monkeypatch.setattr(module, "complete", predictor.complete)
    monkeypatch.setattr(module, "several_sizes", lambda *_: Wanted(sequence=256))
    return completed_layers(None, cluster=cluster, ask=Plannable(**ask))


@pytest.mark.parametrize(
    ("ask", "devices", "wants"),
    [
        ({"samples": (1, 2)}, 8, [(1, 2), (2, 2)]),  # of degrees with a row
        ({"samples": (1, 2), "max_tp": 1}, 8, [(1, 2)]),
        ({"samples": (2,), "max_tp": 4, "parts": 12}, 8, [(1, 2), (2, 2), (4, 2)]),
        ({"samples": (2,), "max_tp": 16, "parts": 12}, 2, [(1, 2), (2, 2)]),
        ({"samples": (2,), "parts": 6}, 8, [(1, 2), (2, 2)]),
        ({"samples": (2,), "parts": 16}, 16, [(1, 2), (2, 2), (4, 2), (8, 2)]),
        ({"samples": (1,)}, 8, []),
        ({"samples": (1,)}, 1, []),
    ],
)
def test_rows_that_planning_may_ask_for(
    ask: dict, devices: int, wants: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one sample are there for tp 1 and 2. Names of devices differ in case."""
    predictor = Predictor(known(("a100", 1, 1), ("a100", 2, 1)))
    found = completed(monkeypatch, predictor, cluster_of([("A100", devices)]), **ask)
    assert [(key.tp, key.samples) for key in predictor.wants] == wants
    assert {key.device for key in predictor.wants} <= {"a100"}
    if not wants:
        assert found is predictor.measured


def test_rows_of_no_device_are_those_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not beside rows of its own."""
    predictor = Predictor(known(("", 1, 1), ("other", 1, 1)))
    found = completed(monkeypatch, predictor, samples=(2,))
    assert predictor.wants == [LayerKey("", 1, 2)]
    assert found.notes[-1] == "native:t: predicted, not measured: tp 1: micro-batch 2"
    predictor = Predictor(known(("", 1, 1), ("A100", 1, 1)))
    completed(monkeypatch, predictor, samples=(2,))
    assert predictor.wants == [LayerKey("A100", 1, 2)]


def test_rows_of_more_samples_than_ran_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = known(("A100", 1, 1), ("A100", 2, 1), most_samples={("A100", 1): 4})
    predictor = Predictor(measured)
    found = completed(monkeypatch, predictor, samples=(2, 4, 8))
    assert [(key.tp, key.samples) for key in predictor.wants] == [
        (1, 2), (1, 4), (2, 2), (2, 4), (2, 8),
    ]  # fmt: skip
    assert found.most_samples == {("A100", 1): 4, ("A100", 2): 99}


def test_what_is_predicted_stands_beside_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of measured degrees stay; five rows or more are told by their ends."""
    predictor = Predictor(known(("A100", 1, 1)))
    found = completed(monkeypatch, predictor, samples=(2, 4, 8, 16), parts=2)
    for key, row in found.time.items():
        assert row.tolist() == ([2.0] * 2 if key in found.measured else [float(key.samples)] * 2)
    assert {*found.time} == {LayerKey("A100", 1, 1), *predictor.wants}
    for held in (found.state, found.activation, found.workspace):
        assert {pair: row.tolist() for pair, row in held.items()} == {
            ("A100", 1): [5.0] * 2,
            ("A100", 2): [7.0] * 2,
        }
    assert found.errors == dict.fromkeys(predictor.wants, 0.1)
    assert {*found.origins} == {*predictor.wants[:1]}
    assert found.notes == (
        "of the table",
        "native:t: predicted, not measured: A100, tp 1: micro-batch 2, 4, 8, 16; A100, tp 2: "
        "micro-batch 2, 4, 8, 16",
    )
    more = completed(monkeypatch, Predictor(known(("A100", 1, 1))), samples=(16, 2, 4, 8, 32))
    assert more.notes[-1].endswith("A100, tp 1: micro-batch 2 to 32")


@pytest.mark.parametrize(
    ("sizes", "wanted", "error", "taken"),
    [
        ((1,), 2, 9.0, True),  # no line through one row
        ((1,), 2, None, True),
        ((1, 4), 2, 9.0, True),  # nor a way to tell how good one through two is
        ((1, 4), 2, None, False),  # nor the prediction
        ((1, 2, 4, 8), 3, 0.45, True),  # lines between rows are off by a half
        ((1, 2, 4, 8), 3, 0.55, False),
        ((1, 2, 4, 8), 16, 0.65, True),  # beyond by 1 below and 3/8 above, 11/16 in the mean
        ((1, 2, 4, 8), 16, 0.7, False),
    ],
)
def test_of_a_prediction_and_of_lines_the_nearer_is_taken(
    sizes: tuple[int, ...],
    wanted: int,
    error: float | None,
    taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = known(*(("A100", 1, size) for size in sizes), ("A100", 2, 1))
    predictor = Predictor(measured, error=error)
    found = completed(monkeypatch, predictor, samples=(wanted,), max_tp=1)
    assert predictor.wants == [LayerKey("A100", 1, wanted)]
    assert (predictor.wants[0] in found.time) == taken
    assert (found is measured) == (not taken)


def test_lines_stay_where_nothing_can_be_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(known(("A100", 1, 1)), fails="too few rows")
    found = completed(monkeypatch, predictor, samples=(2,))
    assert found.time.keys() == predictor.measured.time.keys()
    assert found.notes == (
        "of the table",
        "too few rows: straight lines through the measured rows are used instead",
    )


def test_degrees_are_not_made_up_unless_it_is_said_what_they_divide() -> None:
    assert (Plannable().samples, Plannable().parts, Plannable().max_tp) == ((), 0, None)
