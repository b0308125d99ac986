"""Tables with the rows that they lack."""

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import (
    Record,
    measurements_of,
    read_measurements,
    write_measurements,
)
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.profiler.predict.answers import complete

MIB = 2**20


def layer(name, layers, tp, n, **more):
    time = (1 + 3 * n / tp) * 1e-3
    return {
        "record": "layer", "device": "A100", "name": name, "layers": layers, "dtype": "fp16",
        "tp": tp, "micro_batch": n, "time_s": time, "forward_s": time / 3,
        "backward_s": time * 2 / 3,
        "state_bytes": 64 * MIB / tp, "activation_bytes": 8 * n * MIB, "messages": 2 * (tp > 1),
        **more,
    }  # fmt: skip


def table(*extra):
    rows = [
        layer(name, layers, tp, n)
        for name, layers in (("embedding", "0"), ("block", "1-4"), ("output", "5"))
        for tp in (1, 2, 4)
        for n in (1, 2, 4)
    ]
    return measurements_of([*rows, *extra], "lab.csv", machine={"device": "A100"})


def added(made, *wants):
    before = len(made.frame)
    return complete(made, wants).frame.iloc[before:]


def test_rows_are_added_with_their_origin():
    rows = added(table(), Want(tp=8, micro_batch=2), Want(tp=2, micro_batch=3))
    assert list(rows["name"]) == ["embedding", "block", "output"] * 2
    assert list(rows["layers"][:3]) == ["0", "1-4", "5"]
    assert list(rows["provenance"]) == ["extrapolated"] * 3 + ["interpolated"] * 3
    assert set(rows["source"]) == {"predicted"}
    assert set(rows["dtype"]) == {"fp16"}
    assert (rows["error"] >= 0).all()
    assert rows["time_s"].to_numpy() == pytest.approx([1.75e-3] * 3 + [5.5e-3] * 3, rel=0.02)
    assert list(rows["state_bytes"]) == [8 * MIB] * 3 + [32 * MIB] * 3
    assert list(rows["activation_bytes"]) == [16 * MIB] * 3 + [24 * MIB] * 3
    assert list(rows["messages"]) == [2] * 6


def test_parts_of_a_time_add_up():
    rows = added(table(), Want(tp=8, micro_batch=16))
    assert (rows["forward_s"] + rows["backward_s"]).to_numpy() == pytest.approx(
        rows["time_s"].to_numpy(), rel=1e-12
    )


def test_what_is_there_is_not_added_again():
    made = table()
    assert complete(made, [Want(tp=2, micro_batch=2)]) is made
    once = complete(made, [Want(tp=8, micro_batch=2), Want(tp=8, micro_batch=2)])
    assert len(once.frame) == len(made.frame) + 3
    assert complete(once, [Want(tp=8, micro_batch=2)]) is once


def test_predictions_are_the_same_from_a_completed_table():
    made = table()
    once = complete(made, [Want(tp=8, micro_batch=2)])
    again, direct = (added(t, Want(tp=8, micro_batch=16)) for t in (once, made))
    assert list(again["time_s"]) == list(direct["time_s"])


def test_what_is_not_asked_for_runs_over_the_table():
    rows = added(table(), Want(tp=8))
    assert sorted(set(rows["micro_batch"])) == [1, 2, 4]
    assert len(added(table(), Want(tp=8, name="block"))) == 3


def test_beyond_a_row_that_ran_out_of_memory():
    lost = layer("block", "1-4", 1, 8, status="out_of_memory")
    lost = {k: v for k, v in lost.items() if not k.endswith("_s")}
    rows = added(table(lost), Want(tp=1, micro_batch=16), Want(tp=1, micro_batch=8))
    by_name = rows.set_index(["name", "micro_batch"])
    assert by_name.loc[("block", 16), "status"] == "out_of_memory"
    assert np.isnan(by_name.loc[("block", 16), "time_s"])
    assert by_name.loc[("block", 16), "activation_bytes"] == 128 * MIB
    assert by_name.loc[("output", 16), "status"] == "ok"
    assert ("block", 8) not in by_name.index


def test_a_completed_table_can_be_written_and_read(tmp_path):
    made = complete(table(), [Want(tp=8, micro_batch=2)])
    write_measurements(tmp_path / "more.csv", made)
    again = read_measurements(tmp_path / "more.csv")
    assert list(again.frame["time_s"]) == list(made.frame["time_s"])
    assert list(again.frame["provenance"]) == list(made.frame["provenance"])


def test_operators_keep_their_split():
    rows = [
        {
            "record": "operator", "device": "V100", "name": "dense", "split": split, "tp": tp,
            "micro_batch": n, "forward_s": (1 + split) * n / tp * 1e-3, "backward_s": n / tp * 2e-3,
        }
        for split in (0, 1) for tp in (1, 2) for n in (1, 2)
    ]  # fmt: skip
    found = added(measurements_of(rows, "ops.csv"), Want(tp=2, micro_batch=4))
    assert list(found["split"]) == [0, 1]
    assert found["forward_s"].to_numpy() == pytest.approx([2e-3, 4e-3], rel=1e-6)
    assert len(added(measurements_of(rows, "ops.csv"), Want(tp=2, micro_batch=4, split=1))) == 1


def test_parts_of_a_step_are_completed_too():
    steps = [
        {"record": "step", "device": "A100", "name": name, "tp": tp, "micro_batch": n, "time_s": t}
        for tp in (1, 2)
        for n in (1, 2, 4)
        for name, t in (("forward_backward", 0.01 * n / tp + 0.002), ("optimizer", 0.04 / tp))
    ]
    rows = added(table(*steps), Want(tp=2, micro_batch=8)).set_index("name")
    assert rows.loc["forward_backward", "time_s"] == pytest.approx(0.042, rel=0.02)
    assert rows.loc["optimizer", "time_s"] == pytest.approx(0.02, rel=1e-6)
    assert len(added(table(*steps), Want(tp=2, micro_batch=8, record=Record.STEP))) == 2


def test_nothing_to_predict_from():
    links = measurements_of(
        [{"record": "point_to_point", "bytes": 1024, "time_s": 1e-5}], "links.csv"
    )
    with pytest.raises(ProfileError, match=r"links\.csv: no rows of layers or operators"):
        complete(links, [Want(tp=2)])
