import dataclasses
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.work import Kernel, kernel_time
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import USUAL, Machine
from ilp_planner.specs.time_errors import RunKind, known_on
from tests.examples import for_each

ROOT = Path(__file__).parents[2]
CLUSTERS = sorted((ROOT / "clusters").glob("*.toml"))
MIXED = {
    "mixed-a100-t4": {"a100": 12, "t4": 4},
    "mixed-v100-t4": {"v100": 12, "t4": 4},
    "mixed-h100-a100-v100": {"h100": 16, "a100": 16, "v100": 32},
}

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


SHEETS = {  # bytes, FLOP/s in half precision without sparsity
    "v100": (round(31.74 * 2**30), 125e12),  # as torch sees it
    "a100": (round(79.1 * 2**30), 312e12),
    "h100": (round(79.1 * 2**30), 989e12),
    "b200": (round(178.35 * 2**30), 2250e12),
}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "lab.toml"
        path.write_text(text)
        return path

    return write


@for_each("path", [p for p in CLUSTERS if p.stem not in MIXED])
def test_shipped_clusters(path):
    spec = read_cluster(path)
    nodes, devices = (int(n) for n in path.stem.rsplit("-", 1)[1].split("x"))
    assert spec.name == path.stem
    assert (spec.node_count, spec.devices_per_node) == (nodes, devices)
    assert spec.device_count == nodes * devices
    assert gpu(spec.device.gpu).memory == spec.device.memory
    memory, peak = SHEETS[path.stem.split("-")[0]]
    assert spec.device.memory == memory
    assert spec.device.arithmetic("fp16") < spec.device.peak["fp16"] == peak
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
        ('"32 GiB"', '"lots"',
         "device 'gpu': memory must be a number with a unit such as '32 GiB', found 'lots'"),
        ('memory = "32 GiB"', "", "device 'gpu': memory is missing"),
        ('memory = "32 GiB"', 'memmory = "32 GiB"',
         "device 'gpu': unknown key 'memmory', did you mean 'memory'?"),
        ("devices = 4", "devices = 0",
         "node 'a': devices must be a whole number of at least 1, found 0"),
        ("count = 2", "count = 0", "node 'a': count must be a whole number of at least 1, found 0"),
        ('device = "gpu"', 'device = "cpu"', "node 'a': device must be one of gpu, found 'cpu'"),
        ('name = "a"\n', "nmae = 1\n", "node 1: unknown key 'nmae', did you mean 'name'?"),
        ('peak.fp16 = "125 TFLOP/s"', "peak = {}",
         "device 'gpu': peak must have at least one precision, found none"),
        ('peak.fp16 = "125 TFLOP/s"', 'peak.f16 = "1 TFLOP/s"',
         "device 'gpu'.peak: unknown key 'f16', did you mean 'fp16'?"),
        ('"125 TFLOP/s"', '"125 TB/s"', "device 'gpu'.peak: fp16 must have a unit out of"),
        ("sustained = 0.5", "sustained = 1.5",
         "device 'gpu': sustained must be a share above 0 and at most 1, found 1.5"),
        ("sustained = 0.5", "sustained = -1",
         "device 'gpu': sustained must be a positive number, found -1"),
        ('bandwidth = "40 GB/s"', 'bandwidth = "40"',
         "links.intra_node: bandwidth must have a unit out of"),
        ('latency = "50 us"', "latency = 50", "links.inter_node: latency must have a unit out of"),
        ("collectives.4", "collectives.four",
         "links.intra_node.collectives: a key must be a number of devices, found 'four'"),
        ("collectives.4", "collectives.1",
         "links.intra_node: collectives must be of at least 2 devices, found 1"),
        ("[links.inter_node]", "[links.internode]",
         "links: unknown key 'internode', did you mean 'inter_node'?"),
        ("[[nodes]]", "[nodes]", "nodes must be tables [[nodes]], found a table"),
        ('name = "lab"', "", "name is missing"),
    ],
)  # fmt: skip
def test_bad_files(write, old, new, expected):
    path = write(LAB.replace(old, new, 1))
    with pytest.raises(SpecError) as error:
        read_cluster(path)
    assert str(error.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(error.value)


RINGS = (
    "found collectives, expected bandwidth and latency alone: rings between nodes take that "
    "bandwidth, only links inside nodes (intra_node, within) have collectives of their own"
)


@pytest.mark.parametrize("where", ["inter_node", "between"])
def test_rings_between_nodes_take_the_bandwidth(write, where):
    """Nothing would read collectives of links between nodes: they are not dropped in silence."""
    text, rate = (LAB, "collectives.8 = '4 GB/s'\n")
    if where == "between":
        text = f"{LAB}[[links.between]]\ntypes = ['gpu', 'gpu']\n"
        text += "bandwidth = '4 GB/s'\nlatency = '50 us'\n"
    read_cluster(write(text))
    path = write(text + rate)
    with pytest.raises(SpecError) as error:
        read_cluster(path)
    name = "inter_node" if where == "inter_node" else "between, types gpu, gpu"
    assert str(error.value) == f"{path}: links.{name}: {RINGS}"


def test_a_matrix_has_no_collectives_but_along_its_diagonal():
    inside = Link(bandwidth=4e10, latency=1e-5, collectives={4: 8e10})
    between = Link(bandwidth=5e9, latency=5e-5)
    nodes = (NodeGroup(device="gpu", devices=4, count=2),)
    spec = dataclasses.replace(
        cluster(*nodes), intra_node=inside, matrix=((inside, between), (between, inside))
    )
    assert spec.link(0, 0) is inside
    with pytest.raises(ValueError, match=r"^links.matrix, row 1, entry 2: found collectives"):
        dataclasses.replace(spec, matrix=((inside, inside), (between, inside)))


def test_several_types_and_unequal_nodes_are_refused_when_asked_for_one():
    spec = cluster(
        NodeGroup(device="gpu", devices=8),
        NodeGroup(device="old", devices=4, count=3),
        types=("gpu", "old"),
    )
    assert (spec.node_count, spec.device_count) == (4, 20)
    advice = r"\(to plan operator by operator; `cost_model=native` plans mixed clusters layer"
    with pytest.raises(
        SpecError, match=rf"'lab': nodes must have devices of one type, found gpu, old {advice}"
    ):
        _ = spec.device
    with pytest.raises(
        SpecError, match=rf"'lab': nodes must have equally many devices, found 4, 8 {advice}"
    ):
        _ = spec.devices_per_node


def test_an_unused_type_does_no_harm():
    assert cluster(NodeGroup(device="gpu", devices=8), types=("gpu", "old")).device.name == "gpu"


def test_a_missing_precision_is_named():
    with pytest.raises(SpecError, match=r"device 'gpu': peak must have 'fp32'.*found fp16"):
        device().arithmetic("fp32")


@for_each(
    ("key", "read"),
    [
        ("peak", lambda d: d.arithmetic("fp16")),
        ("sustained", lambda d: d.arithmetic("fp16")),
        ("memory_bandwidth", lambda d: d.streaming),
    ],
)
def test_what_only_an_analytic_profile_needs_may_be_missing(key, read):
    assert device(**{key: None}).memory == 2**34
    with pytest.raises(SpecError, match=rf"device 'gpu': {key} is missing, which an analytic"):
        read(device(**{key: None}))


def test_a_type_is_called_by_its_own_name_in_profiles_unless_it_says_otherwise():
    assert device().profile == "gpu"
    assert device(profile="A100").profile == "A100"


@for_each(
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


# ---- several device types ------------------------------------------------------------------------

ROOM = """
name = "room"
[[nodes]]
name = "new"
count = 2
device = "a100"
devices = 4
[[nodes]]
name = "old"
device = "t4"
devices = 2
[devices.a100]
profile = "A100"
memory = "80 GiB"
price = 5.12
[devices.t4]
memory = "15 GiB"
[links.intra_node]
bandwidth = "200 GB/s"
latency = "10 us"
[links.inter_node]
bandwidth = "10 GB/s"
latency = "30 us"
"""
WITHIN = """
[links.within.t4]
bandwidth = "12 GB/s"
latency = "20 us"
"""
BETWEEN = """
[[links.between]]
types = ["t4", "a100"]
bandwidth = "5 GB/s"
latency = "50 us"
"""
SAME = """
[[links.between]]
types = ["a100", "a100"]
bandwidth = "25 GB/s"
latency = "30 us"
"""
MATRIX = """
[links.matrix]
bandwidth = [
    ["-", "25 GB/s", "4 GB/s"],
    ["24 GB/s", "-", "3 GB/s"],
    ["4 GB/s", "2 GB/s", "-"],
]
latency = "30 us"
"""
INTER = ROOM[ROOM.index("[links.inter_node]") :]


def link(bandwidth, latency=3e-5):
    return Link(bandwidth=bandwidth, latency=latency)


@for_each("name", MIXED)
def test_shipped_mixed_clusters(name):
    spec = read_cluster(ROOT / "clusters" / f"{name}.toml")
    assert spec.name == name
    assert dict(zip(spec.type_names, spec.type_counts, strict=True)) == MIXED[name]
    assert spec.symmetric
    assert set(spec.within) == set(spec.type_names)
    for device_type in spec.device_types.values():
        assert device_type.profile == device_type.name.upper()
        assert device_type.memory == gpu(device_type.gpu).memory
        assert 0 < device_type.arithmetic("fp16") < device_type.peak["fp16"]
    for a in spec.type_names:
        for b in spec.type_names:
            assert spec.type_link(a, b) == spec.type_link(b, a)
            assert spec.type_link(a, b).bandwidth <= spec.within[a].bandwidth
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_several_types_come_back_typed(write):
    spec = read_cluster(write(ROOM + WITHIN + BETWEEN + SAME))
    assert spec.type_names == ("a100", "t4")
    assert spec.type_counts == (8, 2)
    assert spec.node_types == ("a100", "a100", "t4")
    assert spec.node_of == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2)
    assert spec.type_of == ("a100",) * 8 + ("t4",) * 2
    assert spec.node_sizes("a100") == (4, 4)
    assert [spec.device_types[n].profile for n in spec.type_names] == ["A100", "t4"]
    assert [spec.device_types[n].price for n in spec.type_names] == [5.12, None]
    assert spec.link(0, 0) == link(200e9, 1e-5)
    assert spec.link(2, 2) == link(12e9, 2e-5)
    assert spec.link(0, 1) == spec.type_link("a100", "a100") == link(25e9)
    assert spec.link(0, 2) == spec.link(2, 1) == spec.type_link("t4", "a100") == link(5e9, 5e-5)
    assert spec.type_link("t4", "t4") == link(10e9)  # inter_node, for want of an entry


def test_inter_node_may_be_missing_where_the_pairs_say_everything(write):
    spec = read_cluster(write(ROOM.replace(INTER, "") + BETWEEN + SAME))
    assert spec.link(0, 1) == link(25e9)
    assert spec.inter_node == link(5e9, 5e-5)  # the slowest pair


def test_intra_node_may_be_missing_where_every_type_has_its_own(write):
    text = ROOM.replace('intra_node]\nbandwidth = "200', 'within.a100]\nbandwidth = "100')
    spec = read_cluster(write(text + WITHIN))
    assert spec.link(0, 0) == link(100e9, 1e-5)
    assert spec.intra_node == link(12e9, 2e-5)
    with pytest.raises(SpecError, match="links: intra_node is missing"):
        read_cluster(write(text))


def test_one_node_needs_no_link_to_another(write):
    text = LAB.replace("count = 2\n", "").partition("[links.inter_node]")[0]
    spec = read_cluster(write(text))
    assert spec.inter_node == spec.intra_node


@pytest.mark.parametrize("inter", ["", INTER])
def test_a_matrix_of_links(write, inter):
    spec = read_cluster(write(ROOM.replace(INTER, inter) + WITHIN + MATRIX))
    assert not spec.symmetric
    assert spec.link(0, 1) == link(25e9)
    assert spec.link(1, 0) == link(24e9)
    assert spec.link(2, 1) == link(2e9)
    assert spec.link(2, 2) == link(12e9, 2e-5)  # the diagonal says nothing
    assert spec.type_link("a100", "a100") == link(25e9)  # the best of its pairs
    assert spec.type_link("t4", "a100") == link(4e9)
    assert spec.type_link("t4", "t4") == (link(10e9) if inter else link(2e9))


def test_a_matrix_of_latencies(write):
    latencies = '[["-", "1 us", "2 us"], ["3 us", "-", "4 us"], ["5 us", "6 us", "-"]]'
    spec = read_cluster(write(ROOM + MATRIX.replace('"30 us"', latencies)))
    assert spec.link(1, 2) == link(3e9, 4e-6)
    assert spec.type_link("a100", "t4") == link(4e9, 2e-6)


@given(
    groups=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 3)), min_size=1
    ),
    pairs=st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc")).map(lambda p: tuple(sorted(p))),
        st.floats(1e9, 1e11),
    ),
)
def test_a_matrix_that_says_what_the_pairs_say_changes_nothing(groups, pairs):
    nodes = [NodeGroup(device=d, devices=n, count=c) for d, n, c in groups]
    plain = cluster(*nodes, types=tuple("abc"))
    spec = dataclasses.replace(plain, between={p: link(b) for p, b in pairs.items()})
    count = range(spec.node_count)
    matrix = tuple(tuple(spec.link(a, b) for b in count) for a in count)
    other = dataclasses.replace(spec, between={}, matrix=matrix)
    for a in count:
        for b in count:
            assert other.link(a, b) == spec.link(a, b)
            if a != b:
                types = spec.node_types[a], spec.node_types[b]
                assert other.type_link(*types) == spec.type_link(*types)
    assert len(spec.node_of) == len(spec.type_of) == spec.device_count == sum(spec.type_counts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOM + "[links.within.T4]\n", "links.within: unknown key 'T4', did you mean 't4'?"),
        (ROOM + "[links.within.t4]\n", "links.within.t4: bandwidth is missing"),
        (ROOM + BETWEEN.replace('"t4", ', ""),
         "links.between 1: types must be two device types, maybe the same, found a100"),
        (ROOM + BETWEEN.replace('"t4"', '"h100"'),
         "links.between 1: types must be device types out of a100, t4, found 'h100'"),
        (ROOM + BETWEEN.replace('["t4", "a100"]', '"t4"'),
         "links.between 1: types must be a list of texts, found 't4'"),
        (ROOM + BETWEEN + BETWEEN.replace('["t4", "a100"]', '["a100", "t4"]'),
         "links.between 2: types a100, t4: an earlier entry has this pair already"),
        (ROOM + BETWEEN.replace("[[", "[").replace("]]", "]"),
         "links: between must be tables [[links.between]], found a table"),
        (ROOM.replace(INTER, "") + BETWEEN,
         "links: inter_node is missing, and no [[links.between]] has types a100, a100"),
        (ROOM + MATRIX + BETWEEN, "links: expected matrix or between, found both"),
        (ROOM + MATRIX.replace('    ["4 GB/s", "2 GB/s", "-"],\n', ""),
         "links.matrix: bandwidth must have 3 rows, one per node, found 2"),
        (ROOM + MATRIX.replace('"-", "3 GB/s"', '"-"'),
         "links.matrix: bandwidth: row 2 must have 3 entries, one per node, found 2"),
        (ROOM + MATRIX.replace('"3 GB/s"', '"-"'),
         "links.matrix: bandwidth: row 2, entry 3 must be a number with a unit"),
        (ROOM + MATRIX.replace('"3 GB/s"', "3"),
         "links.matrix: bandwidth: row 2, entry 3 must have a unit out of"),
        (ROOM + MATRIX.replace('"3 GB/s"', '"0 GB/s"'),
         "links.matrix: bandwidth: row 2, entry 3 must be positive, found '0 GB/s'"),
        (ROOM + MATRIX.replace('latency = "30 us"', ""), "links.matrix: latency is missing"),
        (ROOM + '[links.matrix]\nbandwidth = "3 GB/s"\nlatency = "1 us"',
         "links.matrix: bandwidth must be a list of rows [[...], ...], found '3 GB/s'"),
        (ROOM.replace('device = "t4"', 'device = "T4"'),
         "node 'old': device must be one of a100, t4, found 'T4'"),
        (ROOM.replace('profile = "A100"', "profile = 100"),
         "device 'a100': profile must be a text, found 100"),
        (ROOM.replace("price = 5.12", "price = -1"),
         "device 'a100': price must be a positive number, found -1"),
    ],
)  # fmt: skip
def test_bad_files_of_several_types(write, text, expected):
    path = write(text)
    with pytest.raises(SpecError) as error:
        read_cluster(path)
    assert str(error.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(error.value)


@for_each(
    ("changes", "message"),
    [
        ({"within": {"x": link(1e9)}}, "links.within: a key must be a device type, one of gpu"),
        ({"between": {("gpu", "x"): link(1e9)}}, "links.between: types must be device types"),
        ({"between": {("old", "gpu"): link(1e9)}}, "must be two in the order of their names"),
        ({"between": {("gpu",): link(1e9)}}, "must be two in the order of their names, found gpu"),
        ({"matrix": ((link(1e9),),)}, "links.matrix: must have 2 rows, one per node, found 1"),
        (
            {"matrix": ((link(1e9),) * 2, (link(1e9),))},
            "links.matrix: row 2 must have 2 entries, one per node, found 1",
        ),
    ],
)
def test_links_that_do_not_fit_the_nodes_are_refused(changes, message):
    spec = cluster(
        NodeGroup(device="gpu", devices=8), NodeGroup(device="old", devices=4), types=("gpu", "old")
    )
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(spec, **changes)


def test_the_examples_of_the_manual_can_be_read(write):
    manual = (ROOT / "clusters" / "README.md").read_text()
    single, several, zones, matrix, fabric = re.findall(r"```toml\n(.*?)```", manual, re.DOTALL)
    assert read_cluster(write(single)).type_counts == (16,)
    spec = read_cluster(write(several))
    assert spec.type_counts == (12, 4)
    assert len(spec.between) == 2
    links = several.partition("[[links.between]]")[0]
    assert read_cluster(write(links + matrix)).link(1, 3).bandwidth == 5e9
    devices = several.partition("[devices.a100]")[2].partition("[links.inter_node]")[0]
    zoned = read_cluster(write(f'name = "zoned"\n[devices.a100]{devices}{zones}'))
    assert [zoned.link(0, node).bandwidth for node in (1, 2, 4)] == [1.1e10, 5e9, 1.2e9]
    assert read_cluster(write(several + fabric)).fabric.leaf(3) == 1


NAMED = """
name = "named"
[[nodes]]
count = 2
device = "a"
devices = 8
[[nodes]]
device = "b"
devices = 4
[devices.a]
gpu = "NVIDIA A100-SXM4-80GB"
memory = "70 GiB"
peak.fp64 = "9.7 TFLOP/s"
peak.bf16 = "300 TFLOP/s"
[devices.b]
gpu = "H20"
"""


def test_a_gpu_says_what_a_file_leaves_out(write):
    found = read_cluster(write(NAMED))
    a, b = found.device_types["a"], found.device_types["b"]
    assert (a.gpu, a.memory, a.memory_bandwidth, a.sustained) == (
        "A100-80GB",
        70 * 2**30,
        2039e9,
        0.7,
    )
    assert a.peak == {
        "fp16": 312e12, "bf16": 300e12, "tf32": 156e12, "fp32": 19.5e12, "fp64": 9.7e12
    }  # fmt: skip
    assert (b.profile, b.memory) == ("b", round(0.989 * 96 * 2**30))
    assert found.within == {
        "a": Link(bandwidth=240e9, latency=10e-6),
        "b": Link(bandwidth=360e9, latency=10e-6),
    }
    assert found.between == {
        ("a", "a"): Link(bandwidth=180e9, latency=20e-6),
        ("a", "b"): Link(bandwidth=180e9, latency=20e-6),
    }
    notes = "\n".join(found.notes)
    assert "memory of b: 94.94 GiB is assumed, data sheet less 1.1 %" in notes
    assert "memory of a" not in notes
    assert "link inside nodes of a: 240 GB/s" in notes
    assert "link inside nodes of b: 360 GB/s" in notes
    assert "link between nodes of a: 180 GB/s" in notes
    assert "link between nodes of a and b: 180 GB/s" in notes


def test_links_that_are_written_are_not_assumed(write):
    links = """
[links.intra_node]
bandwidth = "1 GB/s"
latency = "1 us"
[links.inter_node]
bandwidth = "2 GB/s"
latency = "1 us"
"""
    found = read_cluster(write('notes = ["a lab"]' + NAMED + links))
    assert (found.intra_node.bandwidth, found.inter_node.bandwidth) == (1e9, 2e9)
    assert not found.within
    assert not found.between
    assert found.notes == (
        "a lab",
        "memory of b: 94.94 GiB is assumed, data sheet less 1.1 %",
        "kernels of b are scaled from H100: its shares of peak and bandwidth, but 0.96 of the peak "
        "in products, measured",
    )


def test_a_gpu_that_is_not_in_the_table(write):
    with pytest.raises(SpecError, match=r"lab.toml: device 'a': gpu: found 'A101'.*A100.*memory"):
        read_cluster(write(NAMED.replace("NVIDIA A100-SXM4-80GB", "A101")))


def test_links_are_needed_where_a_type_names_no_gpu(write):
    text = NAMED.replace('gpu = "H20"', 'memory = "96 GiB"')
    with pytest.raises(SpecError, match="links: intra_node is missing"):
        read_cluster(write(text))
    with pytest.raises(SpecError, match="memory is missing"):
        read_cluster(write(NAMED.replace('gpu = "H20"', "sustained = 0.5")))


def test_a_device_says_its_version_of_flash_attention(write):
    text = NAMED.replace('gpu = "H20"', 'gpu = "H20"\nflash_attention = 3')
    found = read_cluster(write(text))
    device = found.device_types["b"]
    assert (device.flash_attention, device.kernels) == (3, gpu("H20").with_flash(3))
    assert read_cluster(write(cluster_text(found))) == found
    for old, new, message in (
        ("= 3", "= 4", "device 'b': flash_attention: found 4, expected 2 or 3 on H20"),
        ('gpu = "H20"', 'gpu = "A100-40GB"', "found 3, expected 2 on A100-40GB .Ampere."),
        ('gpu = "H20"', 'memory = "1 GiB"', "expected measured kernels of a GPU beside it"),
        ("= 3", '= 3\nkernels = "roofline"', "found a roofline"),
    ):
        with pytest.raises(SpecError, match=message):
            read_cluster(write(text.replace(old, new)))


def test_kernels_of_a_gpu_may_be_a_roofline(write):
    """What the file says of shares and launches counts then, and the table's memory and peaks."""
    of_b = 'gpu = "H20"\nkernels = "roofline"\nsustained = 0.5\nlaunch = "40 us"'
    found = read_cluster(write(NAMED.replace('gpu = "H20"', of_b)))
    b = found.device_types["b"]
    assert (b.kernels, b.machine, b.memory) == (None, Machine(), round(0.989 * 96 * 2**30))
    assert kernel_time((Kernel(148e12, 0),), b, "fp16") == pytest.approx(2 + 40e-6)
    assert "kernels of b" not in "\n".join(found.notes)
    measured = NAMED.replace('gpu = "H20"', 'gpu = "H20"\nkernels = "measured"')
    assert read_cluster(write(measured)) == read_cluster(write(NAMED))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"roofline"', '"rooflin"', r"kernels must be one of .*, found 'rooflin' \(did you mean"),
        ('gpu = "H20"\nkernels = "roofline"', 'memory = "1 GiB"\nkernels = "measured"', "no GPU"),
    ],
)
def test_kernels_that_are_not_known_are_refused(write, old, new, expected):
    text = NAMED.replace('gpu = "H20"', 'gpu = "H20"\nkernels = "roofline"')
    with pytest.raises(SpecError, match=rf"lab.toml: device 'b': .*{expected}"):
        read_cluster(write(text.replace(old, new)))


@pytest.mark.parametrize(("error", "known"), [("", False), ("error = 0.05", True)])
def test_a_calibrated_machine_has_an_error_whatever_its_kernels(write, error, known):
    text = f"""
name = "lab"
[[nodes]]
device = "b"
devices = 8
count = 2
[devices.b]
gpu = "MI300X"
[devices.b.machine]
sustained = 0.5
{error}
"""
    found = read_cluster(write(text))
    assert any("scaled from H100" in note for note in found.notes)
    kind = RunKind(experts=False, bits=16, gpu="")
    error = known_on(found.device_types.values(), kind).error
    assert (error is not None) is known
    assert error is None or error.mean == 0.05


OF_LAYERS = {  # as version 0.2.0 wrote them
    "sustained": 0.7555, "streaming": 0.2649, "grouped": 1.0, "attention": 1.0,
    "attention_backward": 1.0, "links": 0.9, "network": 0.9, "tensor_exposed": 0.3,
    "expert_exposed": 0.3, "data_exposed": 0.1, "sharded_exposed": 0.5, "host_forward": 0.0,
    "host_backward": 0.0, "host_experts": '"8 ms"', "host_link": 0.8, "host_memory": 0.5,
    "step": '"5 ms"', "error": 0.0388, "runs": 6,
}  # fmt: skip


def with_machine(**values: object) -> str:
    lines = "".join(f"{key} = {value}\n" for key, value in values.items())
    return NAMED.replace('gpu = "H20"', f'gpu = "H100-80GB"\n[devices.b.machine]\n{lines}')


@pytest.mark.parametrize(("layer", "share"), [('"8 ms"', 1), ('"4 ms"', 0.5), ("0.0", 0)])
def test_the_host_time_of_a_layer_is_that_of_its_kernels(write, layer, share):
    found = read_cluster(write(with_machine(**OF_LAYERS | {"host_experts": layer})))
    machine, usual = found.device_types["b"].machine, USUAL["H100"]
    assert machine.host_experts == pytest.approx(share * usual.host_experts)
    assert machine.expert_waits == pytest.approx(share * usual.expert_waits)
    assert (machine.low_precision, machine.host_memory, machine.runs) == (1.0, 0.5, 6)
    assert any("host_experts of b is of a layer, as version 0.2.0" in note for note in found.notes)
    again = read_cluster(write(cluster_text(found)))
    assert again.device_types["b"].machine == machine


@pytest.mark.parametrize("key", ["host_experts", "expert_waits"])
def test_the_time_of_a_layer_is_refused_for_a_kernel(write, key):
    assert read_cluster(write(with_machine(**{key: '"1 ms"'})))
    match = rf"device 'b'.machine: {key} must be the time of one kernel.*at most 1 ms.*'8 ms'"
    with pytest.raises(SpecError, match=match):
        read_cluster(write(with_machine(**{key: '"8 ms"'})))
