"""What is plausible passes; one corruption is found, at its row."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.profiler.check.table import Severity, check_table, describe_row
from tests.examples import examples

ALPA = Path(__file__).parents[4] / "shared" / "data" / "alpa" / "prof_database.json"
LAYERS = (("embedding", "0", 0.02), ("layer", "1-8", 1.0), ("head", "9", 0.3))
KINDS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
SIZES = [4**k for k in range(4, 14)]  # to 64 MiB


def layer_rows(seed=0, scale=1e-2):
    """Rows of a model of ten layers: linear in the samples, with launches and a little noise."""
    random.seed(seed)
    rows = []
    for tp in (1, 2, 4):
        for batch in (1, 2, 4):
            for name, layers, share in LAYERS:
                forward = (share * scale * batch / tp + 2e-5) * random.uniform(0.98, 1.02)
                weight = 2**28 * share / tp
                rows.append(
                    {
                        "record": "layer", "device": "A100", "name": name, "layers": layers,
                        "tp": tp, "micro_batch": batch,
                        "time_s": 3 * forward, "forward_s": forward, "backward_s": 2 * forward,
                        "weight_bytes": weight, "state_bytes": 9 * weight,
                        "activation_bytes": 2**26 * share * batch / tp, "spread": 0.02,
                    }
                )  # fmt: skip
    return rows


def link_rows(seed=0, latency=2e-5, rate=1e11):
    """Rows of collectives and messages: a latency and a rate, and a little noise."""
    random.seed(seed)
    rows = []
    for name in (*KINDS, "send_recv"):
        record = "point_to_point" if name == "send_recv" else "collective"
        for ranks in (2, 8) if record == "collective" else (2,):
            for size in SIZES:
                seconds = (latency + size / rate) * random.uniform(0.98, 1.02)
                rows.append(
                    {
                        "record": record, "device": "A100", "name": name, "group_size": ranks,
                        "hosts": 1, "stride": 1, "groups": 8 // ranks, "bytes": size,
                        "time_s": seconds, "spread": 0.01,
                    }
                )  # fmt: skip
    return rows


def found(rows):
    return check_table(measurements_of(rows, "test"))


def place_of(rows, **keys):
    return next(i for i, row in enumerate(rows) if all(row.get(k) == v for k, v in keys.items()))


def assert_found(rows, rule, place, severity=None):
    findings = found(rows)
    right = [f for f in findings if f.rule == rule and place in f.rows]
    assert right, [(f.rule, f.rows, f.found) for f in findings]
    if severity is not None:
        assert severity in {f.severity for f in right}
    return right[0]


@examples(3)
@given(st.integers(0, 10**6), st.floats(1e-4, 1.0), st.floats(3e-6, 3e-4), st.floats(1e8, 1e12))
def test_what_is_plausible_passes(seed, scale, latency, rate):
    assert found(layer_rows(seed, scale) + link_rows(seed, latency, rate)) == ()


def test_nothing_is_plausible():
    assert found([]) == ()
    assert found(layer_rows()[:1]) == ()
    assert found(link_rows()[:1]) == ()


@examples(4)
@given(
    st.integers(0, 26),
    st.sampled_from(["time_s", "forward_s", "backward_s"]),
    st.sampled_from([1e3, 1e6, 1e9, 1e-3, 1e-6]),
)
def test_times_in_another_unit(place, column, factor):
    rows = layer_rows()
    rows[place][column] *= factor
    finding = assert_found(rows, "units", place, Severity.ERROR)
    unit = {1e3: "in ms", 1e6: "in us", 1e9: "in ns"}.get(factor, "")
    assert unit in finding.found
    assert column in finding.found


@examples(4)
@given(
    st.integers(0, 26),
    st.sampled_from(["weight_bytes", "state_bytes", "activation_bytes"]),
    st.sampled_from([2**10, 2**20, 2**30]),
)
def test_bytes_in_another_unit(place, column, factor):
    rows = layer_rows()
    rows[place][column] /= factor
    finding = assert_found(rows, "units", place, Severity.ERROR)
    assert {2**10: "in KiB", 2**20: "in MiB", 2**30: "in GiB"}[factor] in finding.found


@examples(4)
@given(st.integers(0, 89), st.sampled_from([1e6, 1e9, 1e-6]))
def test_a_time_of_a_link_in_another_unit(place, factor):
    rows = link_rows()
    rows[place]["time_s"] *= factor
    assert_found(rows, "units", place, Severity.ERROR)


def test_noise_is_not_taken_for_a_unit():
    rows = layer_rows()
    rows[4].update(time_s=1e3 * rows[4]["time_s"], spread=5.0)
    finding = assert_found(rows, "units", 4, Severity.ERROR)
    assert "repeats disagree" in finding.found


def test_a_part_of_a_series_in_another_unit():
    rows = link_rows()
    for row in rows[6:10]:
        row["time_s"] *= 1e6
    assert_found(rows, "units", 6, Severity.ERROR)


TIMES = ("time_s", "forward_s", "backward_s")
EIGHT = {"tp": 1, "micro_batch": 4, "name": "layer"}  # of layer rows, that with most samples
WIDEST = {"tp": 4, "micro_batch": 4, "name": "layer"}
# What a row of layers is multiplied by, or is times another row, and what is found of it.
EDITS = [
    (WIDEST, TIMES, 1.2, {"tp": 2}, "tensor parallelism", Severity.WARNING),
    (WIDEST, TIMES, 60, {"tp": 2}, "tensor parallelism", Severity.ERROR),
    (EIGHT, TIMES, 0.8, {"micro_batch": 2}, "samples", Severity.WARNING),
    (EIGHT, TIMES, 0.3, {"micro_batch": 2}, "samples", Severity.ERROR),
    (EIGHT, ("activation_bytes",), 0.2, {}, "memory", Severity.ERROR),
    (WIDEST, ("weight_bytes",), 2.5, {}, "memory", Severity.WARNING),
    (EIGHT, ("state_bytes",), 1.2, {}, "states", None),
    (EIGHT, ("time_s",), 1.1, {}, "sum", Severity.WARNING),
    (EIGHT, ("time_s",), 2, {}, "sum", Severity.ERROR),
]


@pytest.mark.parametrize(("keys", "columns", "factor", "base", "rule", "severity"), EDITS)
def test_a_row_that_does_not_go_with_the_others(keys, columns, factor, base, rule, severity):
    rows = layer_rows()
    place = place_of(rows, **keys)
    other = rows[place_of(rows, **{**keys, **base})]
    for column in columns:
        rows[place][column] = factor * other[column]
    assert_found(rows, rule, place, severity)


def test_slower_with_more_tensor_parallelism_within_the_spread():
    rows = layer_rows()
    place = place_of(rows, tp=4, micro_batch=4, name="layer")
    base = rows[place_of(rows, tp=2, micro_batch=4, name="layer")]
    for column in ("time_s", "forward_s", "backward_s"):
        rows[place][column] = 1.2 * base[column]
    rows[place]["spread"] = 0.3
    assert not [f for f in found(rows) if f.rule == "tensor parallelism"]


def test_a_small_part_is_let_be():
    """An embedding that takes longer with its collective changes no plan."""
    rows = layer_rows(scale=1.0)
    for row in rows:
        if row["name"] == "embedding" and row["tp"] > 1:
            for column in ("time_s", "forward_s", "backward_s"):
                row[column] *= 1.1 * row["tp"] * row["tp"] / 4
    assert not [f for f in found(rows) if f.severity == Severity.ERROR]


def test_the_same_time_however_many_samples():
    rows = layer_rows()
    for row in rows:
        row.update(time_s=3e-4, forward_s=1e-4, backward_s=2e-4)
    assert [f.rule for f in found(rows)] == ["empty loop"]


def test_states_that_are_less_than_a_share():
    rows = layer_rows()
    for row in rows:
        if row["tp"] == 4:
            row["weight_bytes"] /= 2
    assert_found(rows, "states", place_of(rows, tp=4, micro_batch=1, name="layer"))


def test_states_without_the_weights():
    rows = layer_rows()
    rows[3]["state_bytes"] = rows[3]["weight_bytes"] / 2
    assert_found(rows, "states", 3, Severity.ERROR)


def test_backward_far_faster_than_forward():
    rows = layer_rows()
    for row in rows:
        if (row["tp"], row["micro_batch"]) == (2, 2):
            row["forward_s"], row["backward_s"] = 0.9 * row["time_s"], 0.1 * row["time_s"]
    assert_found(rows, "halves", place_of(rows, tp=2, micro_batch=2))


def test_one_backward_far_faster_than_forward():
    rows = layer_rows()
    place = place_of(rows, tp=2, micro_batch=2, name="head")
    whole = rows[place]["time_s"]
    rows[place].update(forward_s=0.999 * whole, backward_s=0.001 * whole)
    assert_found(rows, "halves", place)


def test_two_rows_of_the_same():
    rows = layer_rows()
    assert_found([*rows, dict(rows[5])], "duplicates", len(rows), Severity.WARNING)
    again = {**rows[5], **{c: 1.1 * rows[5][c] for c in ("time_s", "forward_s", "backward_s")}}
    finding = assert_found([*rows, again], "duplicates", 5, Severity.ERROR)
    assert "2 rows of the same, from" in finding.found


def test_a_layer_in_two_rows():
    rows = layer_rows()
    place = place_of(rows, tp=1, micro_batch=1, name="head")
    rows[place]["layers"] = "8-9"
    assert_found(rows, "overlap", place, Severity.ERROR)


def test_a_combination_that_is_missing():
    rows = [r for r in layer_rows() if (r["tp"], r["micro_batch"]) != (4, 2)]
    finding = assert_found(rows, "missing", 0, Severity.WARNING)
    assert "1 of 9 combinations are not there: tp 4 micro_batch 2" in finding.found


def test_a_layer_that_is_missing():
    rows = layer_rows()
    place = place_of(rows, tp=4, micro_batch=2, name="head")
    del rows[place]
    finding = assert_found(rows, "missing", place_of(rows, tp=4, micro_batch=2))
    assert "is without 9" in finding.found


def test_what_ran_out_of_memory_is_not_missing():
    rows = layer_rows()
    for row in rows:
        if row["tp"] == 1 and row["micro_batch"] == 4:
            row["status"] = "out_of_memory"
            for column in ("time_s", "forward_s", "backward_s"):
                del row[column]
    assert found(rows) == ()


def test_repeats_that_disagree():
    rows = link_rows()
    rows[7]["spread"] = 0.9
    assert_found(rows, "spread", 7, Severity.WARNING)


def test_faster_with_a_larger_size():
    rows = link_rows()
    rows[8]["time_s"] = 0.5 * rows[7]["time_s"]
    assert_found(rows, "sizes", 8, Severity.WARNING)
    rows[8]["time_s"] = 0.1 * rows[7]["time_s"]
    assert_found(rows, "sizes", 8, Severity.ERROR)


def test_of_a_spike_the_spike_is_named():
    rows = link_rows()
    rows[4]["time_s"] *= 3
    finding = assert_found(rows, "sizes", 4)
    assert 5 not in finding.rows


def test_empty_loops_of_a_whole_series():
    """Seventeen microseconds, whatever is sent."""
    rows = link_rows()
    for row in rows[:10]:
        row["time_s"] = 17e-6
    assert_found(rows, "empty loop", 9, Severity.ERROR)


def test_empty_loops_of_large_messages():
    rows = link_rows()
    for i in range(4):  # of 10 sizes; the fifth and on are real
        rows[i]["time_s"] = rows[4]["time_s"] * 4.0 ** (i - 4) / 8
    assert_found(rows, "empty loop", 3)


def test_times_in_which_nothing_can_be_done():
    rows = link_rows() + layer_rows()
    rows[0]["time_s"] = 2e-7
    assert_found(rows, "too fast", 0, Severity.ERROR)
    rows = layer_rows()
    rows[4]["flop"] = 1e16
    assert_found(rows, "too fast", 4, Severity.ERROR)


def test_rows_carried_from_a_tiny_one():
    """Alpa's `make_monotonic`: a bandwidth that was never there, for all sizes after it."""
    rows = link_rows()
    base = rows[0]
    for row in rows[1:4]:
        row["time_s"] = row["bytes"] * base["time_s"] / base["bytes"]
    for place in (1, 2, 3):
        assert_found(rows, "carried", place, Severity.ERROR)


def test_rows_that_are_said_to_be_predicted_may_have_one_rate():
    rows = link_rows()
    for row in rows[8:10]:
        row["time_s"] = row["bytes"] * rows[7]["time_s"] / rows[7]["bytes"]
    assert_found(rows, "carried", 9, Severity.WARNING)
    for row in rows[8:10]:
        row["provenance"] = "extrapolated"
    assert not [f for f in found(rows) if f.rule == "carried"]


def test_products_are_checked_too():
    rows = [
        {"record": "matmul", "device": "V100", "flop": 10.0**k, "time_s": 1e-5 + 10.0**k / 1e14}
        for k in range(6, 14)
    ]
    assert found(rows) == ()
    rows[6]["time_s"] *= 1e6
    assert_found(rows, "units", 6, Severity.ERROR)
    rows[6]["time_s"] = 0.3 * rows[5]["time_s"]
    assert_found(rows, "sizes", 6, Severity.WARNING)
    rows[6]["time_s"] = rows[6]["flop"] / 1e17
    assert_found(rows, "too fast", 6, Severity.ERROR)


def test_errors_come_first():
    rows = layer_rows()
    rows[7]["spread"] = 0.9
    rows[3]["state_bytes"] = 1.0
    severities = [f.severity for f in found(rows)]
    assert severities == sorted(severities, key=lambda s: s != Severity.ERROR)
    assert len(set(severities)) == 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (layer_rows()[1], "layer layer, layers 1-8, A100, tp 1, micro_batch 1"),
        (link_rows()[0], "all_gather among 2, groups 4, 256 B"),
        (
            {"record": "matmul", "flop": 2e9, "dtype": "fp16", "time_s": 1},
            "matmul of 2e+09 FLOP, fp16",
        ),
        ({"record": "point_to_point", "hosts": 2, "bytes": 1024, "time_s": 1}, "message, hosts 2"),
    ],
)
def test_a_row_in_words(row, words):
    frame = measurements_of([row], "x").frame
    assert words in describe_row({name: frame.at[0, name] for name in frame.columns})


# Real tables ---------------------------------------------------------------------------------


def every_row_of_alpa():
    """Return the rows of groups as measured ones, with what Alpa made up, and which that are."""
    if not ALPA.exists():
        pytest.skip("the Alpa database of ../shared/data is not there")
    rows, kinds = [], []
    for series in json.loads(ALPA.read_text())["collectives"]:
        for size, seconds, kind in zip(
            series["bytes"], series["seconds"], series["row_kind"], strict=True
        ):
            if seconds is None or not size or series["group_size"] == 1:
                continue
            kinds.append(kind)
            rows.append(
                {
                    "record": "collective",
                    "device": "x".join(map(str, series["mesh_shape"])),
                    "name": series["kind"],
                    "dtype": series["dtype"],
                    "group_size": series["group_size"],
                    "hosts": series["hosts_spanned"],
                    "stride": series["stride"],
                    "groups": series["num_groups"],
                    "bytes": size,
                    "time_s": seconds,
                }
            )
    return rows, kinds


def test_what_alpa_fabricated_is_found():
    """No genuine row is called wrong, and most of what carries an empty loop's bandwidth is."""
    rows, kinds = every_row_of_alpa()
    wrong = {r for f in found(rows) if f.severity == Severity.ERROR for r in f.rows}
    assert {kinds[r] for r in wrong} == {"carried_noop"}
    assert len(wrong) > 0.8 * kinds.count("carried_noop")


def test_what_alpa_measured_passes():
    rows, kinds = every_row_of_alpa()
    genuine = [row for row, kind in zip(rows, kinds, strict=True) if kind == "measured"]
    findings = found(genuine)
    assert not [f for f in findings if f.severity == Severity.ERROR]
    assert sum(len(f.rows) for f in findings) < 0.02 * len(genuine)


def test_what_metis_measured_passes():
    from ilp_planner.peers.metis.files import read_metis_profile
    from ilp_planner.peers.metis.tables import metis_table
    from tests.metis_cases import SAMPLES

    if not SAMPLES.exists():
        pytest.skip("the Metis samples of ../shared/data are not there")
    profile = read_metis_profile(SAMPLES)
    assert check_table(metis_table(profile, hidden=4096, sequence=1024)) == ()
