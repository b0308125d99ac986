"""Native tables as profiles of operators."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, join, measurements_of
from ilp_planner.costs.profiles.operator_table import completed_operators, operator_profile
from ilp_planner.costs.profiles.table import MIB, Profile, Provenance, RowKey
from tests.costs.mixed_instances import cluster_of
from tests.examples import for_each

NAMES = ("encoder-embedding", "enc-1st-layernorm", "gpt-post-process")


def operator_row(name: str, tp: int, size: int, **more: Any) -> dict[str, Any]:
    return {
        "record": "operator",
        "device": "fast",
        "name": name,
        "tp": tp,
        "split": 0,
        "micro_batch": size,
        "sequence": 128,
        "forward_s": 1e-3 * size / tp,
        "backward_s": 2e-3 * size / tp,
        "time_s": 3e-3 * size / tp,
        "weight_bytes": 8.0 * MIB / tp,
        "activation_bytes": 1.0 * MIB * size,
        "input_bytes": 4.0 * MIB * size,
        "output_bytes": 4.0 * MIB * size,
        "forward_workspace_bytes": 0.0,
        "backward_workspace_bytes": 1.0 * MIB,
        **more,
    }


def operators(**more: Any) -> Measurements:
    rows = [operator_row(n, t, m, **more) for t in (1, 2) for m in (1, 2, 4) for n in NAMES]
    return measurements_of(rows, "operators.csv")


def messages(hosts: int = 1, rate: float = 1e9) -> list[dict[str, Any]]:
    return [
        {"record": "point_to_point", "hosts": hosts, "group_size": 2, "bytes": size,
         "time_s": 1e-5 + size / rate}
        for size in (MIB, 2 * MIB, 4 * MIB)
    ]  # fmt: skip


def gathered(names: tuple[str, ...] = ("all_reduce", "all_gather")) -> list[dict[str, Any]]:
    return [
        {"record": "collective", "name": name, "group_size": 2, "hosts": 1, "bytes": size * MIB,
         "time_s": 1e-4 + size * 1e-3}
        for name in names
        for size in (1, 2, 4, 8, 32)
    ]  # fmt: skip


LINKS = measurements_of([*messages(), *messages(2, 1e8), *gathered()], "links.csv")


def both(**more: Any) -> Measurements:
    return join([operators(**more), LINKS], "both.csv")


def test_rows_and_links() -> None:
    profile = operator_profile(both())
    key = RowKey(operator=NAMES[0], micro_batch=4, tp=2, split=0)
    row = profile.rows[key]
    assert (row.forward, row.backward) == (2e-3, 4e-3)
    assert row.weights == 4 * MIB
    assert row.provenance is Provenance.MEASURED
    assert (profile.micro_batch_sizes, profile.tensor_degrees, profile.splits) == (
        (1, 2, 4),
        (1, 2),
        (0,),
    )
    rates = [size / (1e-5 + size / 1e9) for size in (MIB, 2 * MIB, 4 * MIB)]
    assert profile.intra_node == pytest.approx(rates)
    assert profile.inter_node[0] < profile.intra_node[0] / 5
    # An all-gather of a whole tensor of 8 MiB is one of 4 MiB that each device passes in.
    gathers = {1: 2.1e-3, 2: 4.1e-3, 4: 8.1e-3, 16: 32.1e-3}
    assert profile.collectives["all_gather", 2] == pytest.approx(gathers)
    assert 8 in profile.collectives["all_reduce", 2]


def test_messages_are_added_to_both_passes() -> None:
    profile = operator_profile(both(messages=2, message_bytes=4 * MIB))
    one = profile.rows[RowKey(operator=NAMES[0], micro_batch=4, tp=1, split=0)]
    two = profile.rows[RowKey(operator=NAMES[0], micro_batch=4, tp=2, split=0)]
    assert (one.forward, one.backward) == (4e-3, 8e-3)
    assert two.forward == pytest.approx(2e-3 + 2 * 4.1e-3, rel=0.02)
    assert two.backward == pytest.approx(4e-3 + 2 * 4.1e-3, rel=0.02)


def test_rows_that_did_not_run_are_not_there() -> None:
    table = both()
    frame = table.frame.copy()
    gone = (frame["name"] == NAMES[0]) & (frame["tp"] == 2) & (frame["micro_batch"] == 4)
    frame.loc[gone, "status"] = "out_of_memory"
    profile = operator_profile(replace(table, frame=frame))
    key = RowKey(operator=NAMES[0], micro_batch=4, tp=2, split=0)
    assert key not in profile.rows
    assert profile.failed == {key}
    assert "1 operator rows did not run" in profile.notes[0]


def test_sizes_of_collectives_that_are_missing() -> None:
    """Cost models that interpolate need none; others get those that operators have."""
    assert set(operator_profile(both()).collectives["all_reduce", 2]) == {1, 2, 4, 8, 32}
    table = both(input_bytes=16.0 * MIB)
    exact = operator_profile(table, exact_sizes=True)
    found = exact.collectives["all_reduce", 2][16]
    assert found == pytest.approx(16.1e-3, rel=0.1)
    assert exact.collective_origins["all_reduce", 2][16].provenance is Provenance.INTERPOLATED


def test_a_group_that_was_not_measured_is_predicted() -> None:
    rows = [operator_row(n, t, m) for t in (1, 2, 4) for m in (1, 2) for n in NAMES]
    table = join([measurements_of(rows, "operators.csv"), LINKS], "both.csv")
    profile = operator_profile(table)
    assert profile.collectives["all_reduce", 4]
    origins = profile.collective_origins["all_reduce", 4].values()
    assert {origin.provenance for origin in origins} == {Provenance.EXTRAPOLATED}


def test_links_of_another_device_type() -> None:
    """Where there are those of the planned one these count alone; else they are no measurements."""
    cluster = cluster_of([("fast", 2), ("fast", 2)])
    slow = [*messages(), *gathered()]
    quick = [r | {"device": "fast", "time_s": 2 * r["time_s"]} for r in slow]
    other = [r | {"device": "slow"} for r in slow]

    def profile_with(rows: list[dict[str, Any]]) -> Profile:
        table = join([operators(), measurements_of(rows, "links.csv")], "both.csv")
        return operator_profile(table, cluster=cluster)

    own = profile_with([*quick, *other])
    assert own.collectives["all_reduce", 2][8] == pytest.approx(2 * 8.1e-3)
    assert ("all_reduce", 2) not in own.collective_origins
    assert own.intra_node[0] == pytest.approx(MIB / 2 / (1e-5 + MIB / 1e9))
    foreign = profile_with(other)
    assert foreign.collectives["all_reduce", 2][8] == pytest.approx(8.1e-3)
    assert foreign.collective_origins["all_reduce", 2][8].provenance is Provenance.EXTRAPOLATED
    assert foreign.link_origins[0].provenance is Provenance.EXTRAPOLATED


def test_links_of_the_cluster_stand_in() -> None:
    cluster = cluster_of([("fast", 2), ("fast", 2)])
    profile = operator_profile(operators(), cluster=cluster)
    assert {origin.provenance for origin in profile.link_origins} == {Provenance.ANALYTIC}
    assert len(profile.notes) == 2
    exact = operator_profile(operators(), cluster=cluster, exact_sizes=True)
    assert {key[0] for key in exact.collectives} >= {"all_gather", "all_to_all"}


def test_messages_between_two_devices_from_all_gathers() -> None:
    table = join([operators(), measurements_of(gathered(), "links.csv")], "both.csv")
    profile = operator_profile(table)
    assert profile.link_origins[0].provenance is Provenance.EXTRAPOLATED
    assert profile.intra_node[0] == pytest.approx(MIB / 2.1e-3, rel=0.05)


def test_no_links_at_all() -> None:
    with pytest.raises(ProfileError, match="'point_to_point', found none: join a table of links"):
        operator_profile(operators())


@for_each(
    ("columns", "words"),
    [
        ({"weight_bytes": None}, "'weight_bytes': found nothing"),
        ({"micro_batch": 1}, "found two rows, expected one"),
        ({"device": "other"}, "expected rows of 'fast', found those of other"),
    ],
)
def test_a_table_that_cannot_be_used(columns: dict[str, Any], words: str) -> None:
    rows = [operator_row(n, t, m) | columns for t in (1, 2) for m in (1, 2) for n in NAMES]
    table = join([measurements_of(rows, "operators.csv"), LINKS], "both.csv")
    with pytest.raises(ProfileError) as caught:
        operator_profile(table, cluster=cluster_of([("fast", 2)]))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_device_types_and_no_cluster_to_choose() -> None:
    table = join([both(), operators(device="slow")], "both.csv")
    with pytest.raises(ProfileError, match="found device fast, slow"):
        operator_profile(table)
    chosen = operator_profile(table, cluster=cluster_of([("slow", 2)]))
    assert len(chosen.rows) == 18


# ---- rows that are missing ----------------------------------------------------------------------


def test_missing_rows_are_predicted() -> None:
    table = completed_operators(both(), samples=(8,), degrees=(1, 2, 4))
    profile = operator_profile(table)
    assert profile.micro_batch_sizes == (1, 2, 4, 8)
    assert profile.tensor_degrees == (1, 2, 4)
    row = profile.rows[RowKey(operator=NAMES[1], micro_batch=8, tp=2, split=0)]
    assert row.forward == pytest.approx(4e-3, rel=0.05)
    assert row.activations == pytest.approx(8 * MIB, rel=0.01)
    assert row.provenance is Provenance.EXTRAPOLATED
    known = operator_profile(both())
    assert all(profile.rows[key] == row for key, row in known.rows.items())
    assert "operator rows are predicted" in " ".join(profile.notes)


def test_what_failed_stays_impossible() -> None:
    table = both()
    frame = table.frame.copy()
    gone = (frame["name"] == NAMES[0]) & (frame["tp"] == 2) & (frame["micro_batch"] == 2)
    frame.loc[gone, "status"] = "failed"
    frame.loc[gone, ["time_s", "forward_s", "backward_s"]] = np.nan
    table = completed_operators(replace(table, frame=frame), samples=(8,))
    profile = operator_profile(table)
    assert RowKey(operator=NAMES[0], micro_batch=2, tp=2, split=0) not in profile.rows
    assert RowKey(operator=NAMES[0], micro_batch=8, tp=2, split=0) in profile.rows


def test_a_table_that_lacks_nothing_and_one_of_aceso_are_left_alone() -> None:
    table = both()
    assert completed_operators(table) is table
    aceso = replace(table, machine={"format": "aceso"})
    assert completed_operators(aceso, samples=(8,)) is aceso
