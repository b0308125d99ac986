"""Native tables as layer profiles."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layer_table import check_layers, covering_line, layer_profile
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import Measurements, Record, join, measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.profiles.table_rows import Wanted, layer_rows, rows_of_model
from ilp_planner.costs.profiles.work import Exchange, exchange_time
from ilp_planner.peers.metis.files import read_metis_profile
from ilp_planner.peers.metis.tables import metis_layer_profile, metis_table
from tests.costs.mixed_instances import cluster_of
from tests.costs.profiles.layer_rows import KINDS, MIB, layer_row, layer_table
from tests.examples import for_each
from tests.metis_cases import SAMPLES, needs_data

WEIGHTS = np.array([0.1, 1, 1, 1, 1, 0.5])
PARAMETERS = np.array([40.0, 20, 20, 20, 20, 40])


def changed(table: Measurements, rows: Any, **columns: Any) -> Measurements:
    """Return a table with some cells of some rows changed."""
    frame = table.frame.copy()
    for name, value in columns.items():
        frame.loc[rows(frame), name] = value
    return replace(table, frame=frame)


def test_rows_become_layers() -> None:
    profile = layer_profile(layer_table())
    assert profile.layers == ("embedding", "layer 1", "layer 2", "layer 3", "layer 4", "head")
    assert profile.devices == ("A100",)
    assert profile.degrees("A100") == (1, 2)
    key = LayerKey("A100", 2, 4)
    np.testing.assert_allclose(profile.time[key], WEIGHTS * (1e-3 + 2e-3 * 4 / 2))
    np.testing.assert_allclose(profile.forward[key], profile.time[key] / 3)
    np.testing.assert_allclose(profile.state["A100", 2], 9 * PARAMETERS * MIB)
    np.testing.assert_allclose(profile.activation["A100", 1], 8 * WEIGHTS * MIB)
    np.testing.assert_allclose(profile.workspace["A100", 1], 2 * MIB)
    np.testing.assert_allclose(profile.workspace_per_sample["A100", 1], 1 * MIB)
    np.testing.assert_allclose(profile.optimizer["A100", 1], 1e-4 * PARAMETERS)
    np.testing.assert_array_equal(profile.boundary, [0, *[2.0 * 128 * 64] * 5, 0])
    assert profile.measured == profile.time.keys()
    assert not profile.origins
    assert not profile.isolated


@for_each(
    ("columns", "bytes_per_weight"),
    [({}, 2), ({"state_bytes": 16.0}, 1), ({"gradient_bytes": 7.0}, 3.5)],
)
def test_gradients_are_said_or_follow_from_the_states(
    columns: dict[str, float], bytes_per_weight: float
) -> None:
    """18 bytes of states per 2 of weights leave 4 for the gradient, 16 leave 2."""
    scaled = {name: value * MIB for name, value in columns.items()}
    kinds = [(name, layers, weight, 1.0) for name, layers, weight, _ in KINDS]
    rows = [layer_row(kind, 1, 1, **scaled) for kind in kinds]
    profile = layer_profile(measurements_of(rows, "made-up.csv"))
    np.testing.assert_allclose(profile.gradients, 2 * MIB * bytes_per_weight)


def test_one_noisy_optimiser_step_does_not_count() -> None:
    noisy = changed(layer_table(), lambda f: f["micro_batch"] == 1, optimizer_s=9.0)
    expected = layer_profile(layer_table()).optimizer["A100", 2]
    np.testing.assert_allclose(layer_profile(noisy).optimizer["A100", 2], expected)


def test_a_line_covers_every_value() -> None:
    sizes = np.array([1.0, 2, 4])
    values = np.array([[3.0, 1], [9, 1], [9, 1]])
    fixed, slope = covering_line(sizes, values)
    assert (fixed + sizes[:, None] * slope >= values - 1e-12).all()
    assert slope.tolist() == [2, 0]


def test_messages_are_added_from_the_table() -> None:
    table = layer_table(messages=2, message_bytes=MIB)
    links = measurements_of(
        [{"record": "collective", "name": "all_reduce", "group_size": 2, "hosts": 1,
          "bytes": MIB * n, "time_s": 1e-3 * n} for n in (0.5, 1, 2)], "links.csv",
    )  # fmt: skip
    bare = layer_profile(layer_table())
    profile = layer_profile(join([table, links], "both.csv"))
    one, two = LayerKey("A100", 1, 4), LayerKey("A100", 2, 4)
    np.testing.assert_allclose(profile.time[one], bare.time[one])
    np.testing.assert_allclose(profile.time[two], bare.time[two] + 4e-3, rtol=0.02)
    np.testing.assert_allclose(profile.forward[two], bare.forward[two] + 2e-3, rtol=0.02)
    assert two in profile.measured


def test_messages_are_estimated_from_the_links_of_the_cluster() -> None:
    cluster = cluster_of([("A100", 4)])
    table = layer_table(messages=2, message_bytes=MIB)
    key = LayerKey("A100", 2, 4)
    profile, bare = layer_profile(table, cluster=cluster), layer_profile(layer_table())
    spent = exchange_time(Exchange("all_reduce", MIB), 2, cluster.link(0, 0))
    np.testing.assert_allclose(profile.time[key], bare.time[key] + 4 * spent)
    assert key not in profile.measured
    parts = profile.origins[key]
    assert set(parts) == {Provenance.MEASURED, Provenance.ANALYTIC}
    np.testing.assert_allclose(parts[Provenance.ANALYTIC], 4 * spent)
    np.testing.assert_allclose(sum(parts.values()), profile.time[key])
    with pytest.raises(ProfileError, match=r"'messages': .*PROFILE.csv,LINKS.csv"):
        layer_profile(table)


def test_predicted_rows_keep_where_they_come_from() -> None:
    table = changed(
        layer_table(),
        lambda f: (f["micro_batch"] == 4) & (f["name"] == "layer"),
        provenance="extrapolated",
        error=0.1,
    )
    profile = layer_profile(table)
    key = LayerKey("A100", 1, 4)
    parts = profile.origins[key]
    np.testing.assert_array_equal(parts[Provenance.MEASURED] > 0, [1, 0, 0, 0, 0, 1])
    assert profile.errors[key] == pytest.approx(0.1)
    assert LayerKey("A100", 1, 2) in profile.measured


def test_what_ran_out_of_memory_is_not_planned() -> None:
    table = changed(
        layer_table(),
        lambda f: (f["micro_batch"] == 4) & (f["name"] == "layer"),
        status="out_of_memory",
        time_s=np.nan,
    )
    profile = layer_profile(table)
    assert LayerKey("A100", 1, 4) not in profile.time
    assert profile.most_samples == {("A100", 1): 3, ("A100", 2): 3}
    (note,) = profile.notes
    assert "tp 1, micro-batch 4: out of memory" in note


def test_a_larger_row_that_ran_says_otherwise() -> None:
    table = changed(
        layer_table(),
        lambda f: (f["micro_batch"] == 2) & (f["tp"] == 1),
        status="failed",
        time_s=np.nan,
    )
    assert layer_profile(table).most_samples == {}


def test_rows_of_no_device_type_are_of_every_one() -> None:
    profile = layer_profile(layer_table(device=""))
    assert profile.devices == ("",)


def test_rows_that_lack_a_layer_are_named_and_left_out() -> None:
    table = layer_table()
    frame = table.frame
    frame = frame[~((frame["name"] == "head") & (frame["tp"] == 2) & (frame["micro_batch"] == 2))]
    profile = layer_profile(replace(table, frame=frame))
    assert LayerKey("A100", 2, 2) not in profile.time
    assert "only some of 6 layers, left out: A100, tp 2, micro-batch 2" in profile.notes[0]


@for_each(
    ("columns", "words"),
    [
        ({"state_bytes": np.nan}, "tp 1, micro-batch 1: layer 1: 'state_bytes': found nothing"),
        ({"activation_bytes": np.nan}, "'activation_bytes': found nothing"),
        ({"weight_bytes": np.nan}, "'weight_bytes': found nothing"),
        ({"time_s": 0.0}, "tp 1, micro-batch 1: layer 1: 'time_s': found 0, expected more than 0"),
        ({"layers": "0-4"}, "layer 0 has two rows, expected one"),
        ({"layers": "1-30000"}, "expected at most 20000 layers, found 30001"),
    ],
)
def test_a_table_that_cannot_be_used(columns: dict[str, Any], words: str) -> None:
    table = changed(layer_table(), lambda f: f["name"] == "layer", **columns)
    with pytest.raises(ProfileError) as caught:
        layer_profile(table)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cuts_without_sizes_follow_from_the_model() -> None:
    table = changed(
        layer_table(), lambda f: f["name"] != "", input_bytes=np.nan, output_bytes=np.nan
    )
    profile = layer_profile(table)
    np.testing.assert_array_equal(profile.boundary[1:-1], 2.0 * 128 * 64)
    blind = changed(table, lambda f: f["name"] != "", hidden=np.nan)
    with pytest.raises(ProfileError, match="'output_bytes': found nothing"):
        layer_profile(blind)
    found = layer_profile(blind, Wanted(hidden=64, sequence=128, dtype="fp32"))
    np.testing.assert_array_equal(found.boundary[1:-1], 4.0 * 128 * 64)


def test_the_model_chooses_between_rows() -> None:
    both = join([layer_table(), layer_table(sequence=256, time_s=9.0)], "both.csv")
    with pytest.raises(ProfileError, match=r"sequence 128, 256, expected one of them"):
        layer_profile(both)
    with pytest.raises(ProfileError, match=r"sequence 128, 256, expected 512"):
        layer_profile(both, Wanted(sequence=512))
    key = LayerKey("A100", 1, 1)
    assert layer_profile(both, Wanted(sequence=256)).time[key][1] == 9.0
    assert layer_profile(both, Wanted(sequence=128)).time[key][1] < 1
    types = join([layer_table(), layer_table(dtype="fp32", time_s=9.0)], "both.csv")
    with pytest.raises(ProfileError, match="dtype bf16, fp32"):
        layer_profile(types)
    assert layer_profile(types, Wanted(dtype="fp32")).time[key][1] == 9.0


def test_no_rows_of_layers() -> None:
    table = measurements_of([{"record": "matmul", "flop": 1, "time_s": 1}], "x.csv")
    with pytest.raises(ProfileError, match=r"x.csv: .*'layer', found 1 of matmul"):
        layer_rows(table)
    with pytest.raises(ProfileError, match="'operator'"):
        rows_of_model(table, Record.OPERATOR)


def test_another_number_of_layers() -> None:
    profile = layer_profile(layer_table())
    check_layers(profile, 6, "m.toml")
    with pytest.raises(ProfileError, match=r"has 6 layers.*expected 7 as in m.toml"):
        check_layers(profile, 7, "m.toml")


@needs_data
def test_metis_files_give_the_same_layers() -> None:
    profile = read_metis_profile(SAMPLES)
    expected = metis_layer_profile(profile, hidden=4096, sequence=1024)
    found = layer_profile(metis_table(profile, hidden=4096, sequence=1024))
    assert found.layers == expected.layers
    for field in ("time", "state", "activation", "workspace", "optimizer"):
        theirs = getattr(expected, field)
        assert getattr(found, field).keys() == theirs.keys()
        for key, row in theirs.items():
            np.testing.assert_array_equal(getattr(found, field)[key], row)
    np.testing.assert_array_equal(found.gradients, expected.gradients)
    np.testing.assert_array_equal(found.boundary, expected.boundary)
    assert found.measured == expected.measured


@needs_data
def test_metis_files_need_the_sizes_of_the_model() -> None:
    table = metis_table(read_metis_profile(SAMPLES))
    with pytest.raises(ProfileError, match=r"'hidden': found nothing.*`hidden`"):
        layer_profile(table)
