import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.errors import SpecError
from ilp_planner.specs.cluster import ClusterSpec, Device, Link, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster

ROOT = Path(__file__).parents[2]
CLUSTERS = sorted((ROOT / "clusters").glob("*.toml"))

LAB = """
name = "lab"
[[nodes]]
name = "a"
count = 2
device = "gpu"
devices = 4
[devices.gpu]
memory = "32 GiB"
peak.fp16 = "125 TFLOP/s"
sustained = 0.5
memory_bandwidth = "900 GB/s"
[links.intra_node]
bandwidth = "40 GB/s"
latency = "10 us"
collectives.4 = "80 GB/s"
[links.inter_node]
bandwidth = "5 GB/s"
latency = "50 us"
"""


def device(**values):
    default = {
        "name": "gpu",
        "memory": 2**34,
        "peak": {"fp16": 1e14},
        "sustained": 0.5,
        "memory_bandwidth": 1e12,
    }
    return Device(**{**default, **values})


def cluster(*nodes, types=("gpu",)):
    return ClusterSpec(
        name="lab",
        device_types={name: device(name=name) for name in types},
        nodes=nodes,
        intra_node=Link(bandwidth=4e10, latency=1e-5),
        inter_node=Link(bandwidth=5e9, latency=5e-5),
    )


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "lab.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda p: p.stem)
def test_shipped_clusters(path):
    spec = read_cluster(path)
    nodes, devices = (int(n) for n in path.stem.rsplit("-", 1)[1].split("x"))
    assert spec.name == path.stem
    assert (spec.node_count, spec.devices_per_node) == (nodes, devices)
    assert spec.device_count == nodes * devices
    assert spec.device.memory == 32 * 2**30
    assert spec.device.arithmetic("fp16") < spec.device.peak["fp16"] == 125e12
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_file_comes_back_typed(write):
    spec = read_cluster(write(LAB))
    assert spec.nodes == (NodeGroup(name="a", count=2, device="gpu", devices=4),)
    assert spec.device.peak == {"fp16": 125e12}
    assert spec.device.arithmetic("fp16") == 62.5e12
    assert spec.intra_node == Link(bandwidth=4e10, latency=1e-5, collectives={4: 8e10})
    assert spec.inter_node == Link(bandwidth=5e9, latency=5e-5)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"32 GiB"', '"-3 GiB"', "device 'gpu': memory must be positive, found '-3 GiB'"),
        ('"32 GiB"', '"0 GiB"', "device 'gpu': memory must be positive, found '0 GiB'"),
        (
            '"32 GiB"',
            '"lots"',
            "device 'gpu': memory must be a number with a unit such as '32 GiB', found 'lots'",
        ),
        ('memory = "32 GiB"', "", "device 'gpu': memory is missing"),
        (
            'memory = "32 GiB"',
            'memmory = "32 GiB"',
            "device 'gpu': unknown key 'memmory', did you mean 'memory'?",
        ),
        (
            "devices = 4",
            "devices = 0",
            "node 'a': devices must be a whole number of at least 1, found 0",
        ),
        ("count = 2", "count = 0", "node 'a': count must be a whole number of at least 1, found 0"),
        ('device = "gpu"', 'device = "cpu"', "node 'a': device must be one of gpu, found 'cpu'"),
        ('name = "a"\n', "nmae = 1\n", "node 1: unknown key 'nmae', did you mean 'name'?"),
        ('peak.fp16 = "125 TFLOP/s"', "", "device 'gpu': peak is missing"),
        (
            'peak.fp16 = "125 TFLOP/s"',
            "peak = {}",
            "device 'gpu': peak must have at least one precision, found none",
        ),
        (
            'peak.fp16 = "125 TFLOP/s"',
            'peak.f16 = "1 TFLOP/s"',
            "device 'gpu'.peak: unknown key 'f16', did you mean 'fp16'?",
        ),
        ('"125 TFLOP/s"', '"125 TB/s"', "device 'gpu'.peak: fp16 must have a unit out of"),
        (
            "sustained = 0.5",
            "sustained = 1.5",
            "device 'gpu': sustained must be a share above 0 and at most 1, found 1.5",
        ),
        (
            "sustained = 0.5",
            "sustained = -1",
            "device 'gpu': sustained must be a positive number, found -1",
        ),
        (
            'bandwidth = "40 GB/s"',
            'bandwidth = "40"',
            "links.intra_node: bandwidth must have a unit out of",
        ),
        ('latency = "50 us"', "latency = 50", "links.inter_node: latency must have a unit out of"),
        (
            "collectives.4",
            "collectives.four",
            "links.intra_node.collectives: a key must be a number of devices, found 'four'",
        ),
        (
            "collectives.4",
            "collectives.1",
            "links.intra_node: collectives must be of at least 2 devices, found 1",
        ),
        (
            "[links.inter_node]",
            "[links.internode]",
            "links: unknown key 'internode', did you mean 'inter_node'?",
        ),
        ("[[nodes]]", "[nodes]", "nodes must be tables [[nodes]], found a table"),
        ('name = "lab"', "", "name is missing"),
    ],
)
def test_bad_files(write, old, new, expected):
    path = write(LAB.replace(old, new, 1))
    with pytest.raises(SpecError) as error:
        read_cluster(path)
    assert str(error.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(error.value)


def test_several_types_and_unequal_nodes_are_refused_when_asked_for_one():
    spec = cluster(
        NodeGroup(device="gpu", devices=8),
        NodeGroup(device="old", devices=4, count=3),
        types=("gpu", "old"),
    )
    assert (spec.node_count, spec.device_count) == (4, 20)
    with pytest.raises(
        SpecError, match=r"'lab': nodes must have devices of one type, found gpu, old"
    ):
        _ = spec.device
    with pytest.raises(SpecError, match=r"'lab': nodes must have equally many devices, found 4, 8"):
        _ = spec.devices_per_node


def test_an_unused_type_does_no_harm():
    assert cluster(NodeGroup(device="gpu", devices=8), types=("gpu", "old")).device.name == "gpu"


def test_a_missing_precision_is_named():
    with pytest.raises(SpecError, match=r"device 'gpu': peak must have 'fp32'.*found fp16"):
        device().arithmetic("fp32")


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: device(memory=0), "memory must be positive, found 0"),
        (lambda: device(peak={}), "peak must have"),
        (lambda: device(peak={"fp16": float("inf")}), "fp16 must be positive"),
        (lambda: device(sustained=float("nan")), "sustained must be a share"),
        (lambda: device(sustained_bandwidth=2.0), "sustained_bandwidth must be a share"),
        (lambda: device(price=-1.0), "price must be positive"),
        (lambda: NodeGroup(device="gpu", devices=0), "devices must be"),
        (lambda: Link(bandwidth=0.0, latency=1.0), "bandwidth must be positive"),
        (lambda: Link(bandwidth=1.0, latency=-1.0), "latency must be positive"),
        (lambda: Link(bandwidth=1.0, latency=1.0, collectives={2: 0.0}), "collectives.2 must be"),
        (lambda: cluster(), "nodes must have"),
        (lambda: cluster(NodeGroup(device="x", devices=1)), "node 1: device must be one of gpu"),
    ],
)
def test_constructors_refuse_nonsense(construct, message):
    with pytest.raises(ValueError, match=message):
        construct()


@given(st.dictionaries(st.integers(2, 64), st.floats(1e9, 1e12)), st.integers(2, 128))
def test_collectives_take_the_nearest_smaller_group(rates, devices):
    link = Link(bandwidth=1.0, latency=1e-6, collectives=rates)
    smaller = [n for n in rates if n <= devices]
    expected = rates[max(smaller)] if smaller else 1.0
    assert link.collective_bandwidth(devices) == expected
