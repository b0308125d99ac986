import dataclasses

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.device_names import for_cluster
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.specs import gpus
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from tests.examples import for_each


def profile(*devices):
    """Return a profile of two layers whose figures tell the device types apart."""
    values = {name: np.full(2, float(i)) for i, name in enumerate(devices)}
    rows = {(name, tp): value + tp for name, value in values.items() for tp in (1, 2)}
    time = {LayerKey(name, tp, x): rows[name, tp] + x for name, tp in rows for x in (1, 4)}
    return LayerProfile(
        source="metis:here",
        layers=("a", "b"),
        time=time,
        state=rows,
        activation=rows,
        workspace=rows,
        gradients=np.ones(2),
        boundary=np.zeros(3),
        optimizer={key: row for key, row in rows.items() if key[1] == 1},
        measured=frozenset(key for key in time if key.samples == 1),
    )


def cluster(**called):
    """Return one node of each device type; called: what the types are called in profiles."""
    link = Link(bandwidth=1e9, latency=1e-6)
    return ClusterSpec(
        name="room",
        device_types={n: Device(name=n, memory=1, profile=p) for n, p in called.items()},
        nodes=tuple(NodeGroup(device=name, devices=2) for name in called),
        intra_node=link,
        inter_node=link,
    )


@pytest.mark.parametrize("row", gpus.table().values(), ids=lambda row: row.name)
def test_names_of_one_gpu_mean_each_other(row):
    names = [f"NVIDIA {row.name}", row.name.lower().replace("-", " "), *row.aliases]
    for name in (name for name in names if gpus.same_gpu(name, row.name)):
        assert for_cluster(profile(name, "T1000"), cluster(here=row.name)).devices == ("here",)
        assert gpus.gpu(name) is row
    others = [other for other in gpus.table() if other != row.name]
    assert not any(gpus.same_gpu(row.name, other) for other in others)
    assert gpus.same_gpu(f"NVIDIA {row.name}", row.name)


def test_two_names_of_one_gpu_are_ambiguous():
    with pytest.raises(ProfileError, match="found those of NVIDIA H200, h-200"):
        for_cluster(profile("NVIDIA H200", "h-200"), cluster(here="H200"))


def test_rows_come_under_the_names_of_the_cluster():
    measured = profile("A100", "T4", "V100")
    found = for_cluster(measured, cluster(new="A100", old="T4"))
    assert found.devices == ("new", "old")
    assert found.degrees("old") == (1, 2)
    assert found.samples("old", 2) == (1, 4)
    for name, origin in (("new", "A100"), ("old", "T4")):
        for key, row in found.time.items():
            if key.device == name:
                assert row is measured.time[key._replace(device=origin)]
        for field in ("state", "activation", "workspace", "optimizer"):
            rows, before = getattr(found, field), getattr(measured, field)
            assert {tp for device, tp in rows if device == name} == {
                tp for device, tp in before if device == origin
            }
            assert all(rows[name, tp] is before[origin, tp] for n, tp in rows if n == name)
    assert found.measured == {key for key in found.time if key.samples == 1}
    assert found.layers == measured.layers


def test_types_may_share_rows_and_case_does_not_matter():
    found = for_cluster(profile("A100"), cluster(a100="", other="A100"))
    assert found.devices == ("a100", "other")


def test_an_exact_name_is_preferred():
    found = for_cluster(profile("a100", "A100"), cluster(new="A100"))
    np.testing.assert_array_equal(found.state["new", 1], [2.0, 2.0])


@for_each(("devices", "shown"), [(("A100", "T4"), "A100, T4"), ((), "none"), (("h100",), "h100")])
def test_a_type_without_rows_is_named(devices, shown):
    with pytest.raises(ProfileError) as error:
        for_cluster(profile(*devices), cluster(new="H100-SXM"))
    assert str(error.value) == (
        "metis:here: device type 'new' of cluster 'room': expected rows of 'H100-SXM', found "
        f"those of {shown} (devices.new.profile in the cluster file may name one of them)"
    )


def test_the_same_names_change_nothing():
    measured = profile("a", "b")
    found = for_cluster(measured, cluster(b="", a=""))
    assert dict(found.time) == measured.time
    assert dataclasses.replace(found, time=measured.time).measured == measured.measured
