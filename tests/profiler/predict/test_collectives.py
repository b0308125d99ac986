"""Predicted collectives: values, provenance, errors, and groups that were never measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.collectives import CollectivePredictor
from tests.examples import examples, for_each

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SIZES = 2.0 ** np.arange(8, 31, 2)
PER_HOST = 8
NIC = 3e9  # bytes/s
LINK = 6e10


def row(size, time, name="all_reduce", group_size=2, hosts=1, stride=1, groups=1, **more):
    return {
        "record": "collective", "device": "gpu", "name": name, "group_size": group_size,
        "hosts": hosts, "stride": stride, "groups": groups, "bytes": size, "time_s": time,
    } | more  # fmt: skip


def ring(name, size, group_size, hosts):
    """An ideal cluster: hops of a ring, and one network per host shared by the groups on it."""
    g = group_size
    passes = 2 if name == "all_reduce" else 1
    between = 0 if hosts == 1 else min(hosts, g - 1)
    latency = 1e-5 + passes * ((g - 1 - between) * 5e-6 + between * 4e-5)
    sent = passes * (g - 1) / g * size
    if hosts == 1:
        return latency + sent / LINK
    return latency + sent * (PER_HOST / (g / hosts)) / NIC


def cluster(names=("all_gather", "reduce_scatter"), hosts=(1, 2), **more):
    rows = [
        row(size, ring(name, size, per_host * h, h), name, per_host * h, h, PER_HOST // per_host,
            PER_HOST // per_host, **more)
        for name in names
        for h in hosts
        for per_host in (1, 2, 4, 8)
        if per_host * h > 1
        for size in SIZES
    ]  # fmt: skip
    return measurements_of(rows, "ideal")


@st.composite
def tables(draw):
    rows = draw(
        st.lists(
            st.builds(
                row,
                size=st.floats(1, 1e11),
                time=st.floats(1e-7, 1e3),
                name=st.sampled_from(NAMES),
                group_size=st.sampled_from([2, 3, 4, 6, 8, 16]),
                hosts=st.sampled_from([1, 2]),
                stride=st.sampled_from([1, 2, 8]),
                groups=st.sampled_from([1, 2, 4]),
                dtype=st.sampled_from(["", "fp16", "fp32"]),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return measurements_of(rows, "noise")


queries = st.fixed_dictionaries(
    {
        "group_size": st.sampled_from([2, 3, 4, 5, 8, 12, 16, 32, 1024]),
        "hosts": st.sampled_from([1, 2]),
        "stride": st.sampled_from([1, 2, 5, 8]),
        "groups": st.sampled_from([None, 1, 2, 16]),
        "dtype": st.sampled_from(["", "fp16"]),
    }
)


@examples(30)
@given(tables(), st.sampled_from((*NAMES, "gossip")), queries, st.integers(1, 64))
def test_monotone_and_positive_whatever_the_table(table, name, query, more_hosts) -> None:
    predictor = CollectivePredictor(table)
    query["hosts"] = min(query["hosts"] * more_hosts, query["group_size"])
    sizes = np.sort(np.append(table.frame["bytes"], [0.0, *np.geomspace(1, 1e14, 120)]))
    found = predictor.seconds(name, sizes, **query)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (np.diff(found) >= -1e-9 * found[1:]).all()
    one = predictor.predict(name, float(sizes[7]), **query)
    assert one.value == pytest.approx(float(found[7]))
    assert one.error is None or (np.isfinite(one.error) and one.error >= 0)


def test_provenance_and_error_of_a_measured_group() -> None:
    predictor = CollectivePredictor(cluster())
    group = {"group_size": 8, "hosts": 1}
    row_itself = predictor.predict("all_gather", 2.0**20, **group)
    assert row_itself.provenance is Provenance.MEASURED
    assert row_itself.value == pytest.approx(ring("all_gather", 2.0**20, 8, 1))
    assert row_itself.error == pytest.approx(0, abs=1e-9)
    for size, provenance in (
        (3e6, Provenance.INTERPOLATED),
        (16, Provenance.EXTRAPOLATED),
        (1e12, Provenance.EXTRAPOLATED),
    ):
        found = predictor.predict("all_gather", size, **group)
        assert found.provenance is provenance
        assert found.value == pytest.approx(ring("all_gather", size, 8, 1), rel=1e-6)
        assert found.error == pytest.approx(0, abs=1e-6)


def test_a_noisy_row_says_how_far_it_was_moved() -> None:
    rows = [row(1000, 1e-3), row(2000, 5e-3), row(4000, 2e-3), row(8000, 9e-3)]
    found = CollectivePredictor(measurements_of(rows, "t")).predict(
        "all_reduce", 2000, group_size=2
    )
    assert found.provenance is Provenance.MEASURED
    assert found.error == pytest.approx(abs(found.value / 5e-3 - 1))
    assert "monotone" in found.basis


@pytest.mark.slow
@for_each("hosts", [3, 4, 16])
@for_each("per_host", [1, 2, 4, 8])
@for_each("name", ["all_gather", "reduce_scatter"])
def test_more_hosts_than_measured(name: str, per_host: int, hosts: int) -> None:
    """On an ideal cluster hops and shared networks explain everything."""
    predictor = CollectivePredictor(cluster())
    group = {"group_size": per_host * hosts, "hosts": hosts, "stride": PER_HOST // per_host}
    found = predictor.seconds(name, SIZES, **group)
    expected = ring(name, SIZES, per_host * hosts, hosts)
    assert np.abs(found / expected - 1).max() < 0.06
    one = predictor.predict(name, 1e6, **group)
    assert one.provenance is Provenance.EXTRAPOLATED
    assert one.error is not None
    assert one.error < 0.1


def test_groups_share_the_network_of_a_host() -> None:
    predictor = CollectivePredictor(cluster())
    group = {"group_size": 4, "hosts": 2, "stride": 4}
    size = 2.0**30
    full = predictor.predict("all_gather", size, **group)
    assert full.provenance is Provenance.MEASURED
    alone = predictor.predict("all_gather", size, groups=1, **group)
    assert alone.provenance is Provenance.EXTRAPOLATED
    assert alone.value == pytest.approx(full.value / 4, rel=0.02)
    # As many as there is room for is what is meant where nothing is said.
    assert predictor.predict("all_gather", size, groups=4, **group) == full


def test_an_all_reduce_over_more_hosts_is_a_ring_again() -> None:
    """Between two hosts trees send half; that must not be carried on to four."""
    names = ("all_gather", "reduce_scatter")
    rows = cluster(names).frame.to_dict(orient="records")
    for per_host in (1, 2, 4, 8):
        g = 2 * per_host
        rows += [
            row(size, 8e-5 + size * (PER_HOST / per_host) / NIC, "all_reduce", g, 2,
                PER_HOST // per_host, PER_HOST // per_host)
            for size in SIZES
        ]  # fmt: skip
    predictor = CollectivePredictor(measurements_of(rows, "trees"))
    found = predictor.predict("all_reduce", 2.0**30, group_size=32, hosts=4)
    assert found.value == pytest.approx(ring("all_reduce", 2.0**30, 32, 4), rel=0.05)


def trees(hosts, per_host):
    """An ideal all-reduce by NCCL's two trees, each with half of the tensor."""
    passes = 1 if hosts == 2 else 2
    return 8e-5 + passes * SIZES * (PER_HOST / per_host) / NIC


@for_each("per_host", [1, 2, 4])
def test_trees_are_known_by_the_all_reduces_alone(per_host: int) -> None:
    """Between two hosts they send the whole once, whatever the group; among more, twice."""
    rows = [
        row(size, time, "all_reduce", 2 * r, 2, PER_HOST // r, PER_HOST // r)
        for r in (1, 2, 4, 8)
        if r != per_host
        for size, time in zip(SIZES, trees(2, r), strict=True)
    ]
    predictor = CollectivePredictor(measurements_of(rows, "trees"))
    for hosts in (2, 4):
        group = {"group_size": hosts * per_host, "hosts": hosts, "stride": PER_HOST // per_host}
        found = predictor.predict("all_reduce", float(SIZES[-1]), **group).value
        assert found == pytest.approx(trees(hosts, per_host)[-1], rel=0.02)


def test_sizes_of_groups_within_a_host() -> None:
    table = cluster(hosts=(1,))
    kept = table.frame[table.frame["group_size"] != 8]
    predictor = CollectivePredictor(measurements_of(kept.to_dict(orient="records"), "t"))
    for g in (3, 8, 16):
        found = predictor.seconds("all_gather", SIZES, group_size=g)
        assert np.abs(found / ring("all_gather", SIZES, g, 1) - 1).max() < 0.1


def test_a_collective_without_rows_is_made_of_others() -> None:
    predictor = CollectivePredictor(cluster())
    found = predictor.predict("all_reduce", 2.0**28, group_size=8)
    assert found.provenance is Provenance.EXTRAPOLATED
    assert found.error is None
    assert found.value == pytest.approx(ring("all_reduce", 2.0**28, 8, 1), rel=0.1)


def test_few_rows() -> None:
    one = CollectivePredictor(measurements_of([row(1e6, 1e-3)], "one"))
    assert one.predict("all_reduce", 4e6, group_size=2).value == pytest.approx(4e-3)
    assert one.predict("all_reduce", 4e6, group_size=2).error is None
    far = one.predict("all_to_all", 4e6, group_size=64, hosts=8)
    assert far.provenance is Provenance.EXTRAPOLATED
    assert far.error is None
    two = CollectivePredictor(measurements_of([row(1e6, 1e-3), row(3e6, 2e-3)], "two"))
    between = two.predict("all_reduce", 2e6, group_size=2)
    assert between.value == pytest.approx(1.5e-3)
    assert between.provenance is Provenance.INTERPOLATED
    assert between.error is None


def test_number_types_and_devices_are_kept_apart_where_asked() -> None:
    rows = [
        row(size, factor * 1e-3 * (1 + size / 1e6), dtype=dtype, device=device)
        for size in (1e5, 1e6, 1e7)
        for dtype, device, factor in (("fp16", "a", 1), ("fp32", "a", 3), ("fp16", "b", 10))
    ]
    predictor = CollectivePredictor(measurements_of(rows, "t"))

    def value(**which):
        return predictor.predict("all_reduce", 1e6, group_size=2, **which).value

    assert value(dtype="fp16", device="a") == pytest.approx(2e-3)
    assert value(dtype="fp32", device="a") == pytest.approx(6e-3)
    assert value(dtype="bf16", device="a") == pytest.approx(4e-3)
    assert value(dtype="fp32", device="b") == pytest.approx(2e-2)
    assert value(device="unknown") == value()


def test_rows_of_another_device_are_no_measurements() -> None:
    rows = [row(size, 1e-3 * (1 + size / 1e6), device="a") for size in (1e5, 1e6, 1e7)]
    predictor = CollectivePredictor(measurements_of(rows, "t"))
    own = [predictor.predict("all_reduce", 1e6, group_size=2, device=d) for d in ("a", "A", "")]
    assert {found.provenance for found in own} == {Provenance.MEASURED}
    other = predictor.predict("all_reduce", 1e6, group_size=2, device="b")
    assert other.provenance is Provenance.EXTRAPOLATED
    assert other.error is None
    assert other.basis == "its own row, of another device: a"
    both = [*rows, *(r | {"device": "b"} for r in rows)]
    mixed = CollectivePredictor(measurements_of(both, "t"))
    assert mixed.predict("all_reduce", 1e6, group_size=2).provenance is Provenance.EXTRAPOLATED
    named = mixed.predict("all_reduce", 1e6, group_size=2, device="b")
    assert named.provenance is Provenance.MEASURED
    plain = CollectivePredictor(measurements_of([r | {"device": ""} for r in rows], "t"))
    anyone = plain.predict("all_reduce", 1e6, group_size=2, device="b")
    assert anyone.provenance is Provenance.MEASURED


def test_predictions_are_not_predicted_from() -> None:
    rows = [row(1e6, 1e-3), row(1e7, 1e-2), row(3e6, 5e-3, provenance="interpolated", error=0.1)]
    predictor = CollectivePredictor(measurements_of(rows, "t"))
    assert predictor.predict("all_reduce", 3e6, group_size=2).value == pytest.approx(3e-3)
    assert predictor.predict("all_reduce", 3e6, group_size=2).error is None


def test_a_device_by_itself_sends_nothing() -> None:
    predictor = CollectivePredictor(cluster())
    assert predictor.predict("all_reduce", 1e9, group_size=1).value == 0
    assert (predictor.seconds("all_reduce", SIZES, group_size=1) == 0).all()


def test_what_cannot_be_asked() -> None:
    predictor = CollectivePredictor(cluster())
    with pytest.raises(ValueError, match="size"):
        predictor.predict("all_reduce", float("nan"), group_size=2)
    with pytest.raises(ValueError, match="sizes"):
        predictor.seconds("all_reduce", [1.0, -1.0], group_size=2)
    with pytest.raises(ValueError, match="on each host"):
        predictor.predict("all_reduce", 1, group_size=2, hosts=4)


def test_a_table_without_collectives() -> None:
    table = measurements_of(
        [{"record": "matmul", "flop": 1e9, "time_s": 1e-3}, row(1e6, 1e-3, group_size=1)], "t.csv"
    )
    with pytest.raises(ProfileError, match=r"t\.csv: has no measured collectives"):
        CollectivePredictor(table)
