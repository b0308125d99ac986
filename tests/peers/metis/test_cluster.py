import json
import random

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.peers.metis.cluster import (
    MetisNode,
    metis_cluster_of,
    metis_cluster_spec,
    read_metis_cluster,
)

ENTRIES = {
    "IP1": {"instance_type": "A100", "inter_bandwidth": 10, "intra_bandwidth": 46, "memory": 80},
    "IP2": {"instance_type": "t4", "inter_bandwidth": 5, "intra_bandwidth": 50, "memory": 15},
}


def write(folder, hosts="IP1 4\nIP2 slots=2\nIP1 4\n", entries=ENTRIES):
    (folder / "hostfile").write_text(hosts)
    (folder / "clusterfile.json").write_text(json.dumps(entries))
    return folder / "hostfile", folder / "clusterfile.json"


def changed(host, **values):
    return {**ENTRIES, host: {**ENTRIES[host], **values}}


def test_reads(tmp_path):
    cluster = read_metis_cluster(*write(tmp_path))
    assert cluster.nodes == (
        MetisNode("IP1", "A100", 4, 10, 46, 80),
        MetisNode("IP2", "T4", 2, 5, 50, 15),
        MetisNode("IP1", "A100", 4, 10, 46, 80),
    )
    assert cluster.device_types == ("A100", "T4")
    assert cluster.memory == {"A100": 81920, "T4": 15360}
    assert cluster.bandwidth == {"A100": 46, "T4": 50}
    assert cluster.notes == ()


def test_in_the_planners_terms(tmp_path):
    """Bytes and bytes per second; between two nodes, the slower card; devices in file order."""
    spec = metis_cluster_spec(read_metis_cluster(*write(tmp_path)))
    assert spec.type_of == ("A100",) * 4 + ("T4",) * 2 + ("A100",) * 4
    assert spec.device_types["T4"].memory == 15 * 2**30
    assert spec.link(0, 0).bandwidth == 46e9
    assert spec.link(1, 1).bandwidth == 50e9
    assert spec.link(0, 1).bandwidth == spec.link(1, 0).bandwidth == 5e9
    assert spec.link(0, 2).bandwidth == 10e9


def test_there_and_back(tmp_path):
    cluster = read_metis_cluster(*write(tmp_path))
    again = metis_cluster_of(metis_cluster_spec(cluster))
    assert [n[1:] for n in again.nodes] == [
        ("A100", 4, 10.0, 46.0, 80.0),
        ("T4", 2, 5.0, 50.0, 15.0),
        ("A100", 4, 10.0, 46.0, 80.0),
    ]


def test_bytes_per_second_are_recognised(tmp_path):
    """README's figures: Metis's own model keeps them, everything else reads 0.3125 GB/s."""
    files = write(tmp_path, entries=changed("IP1", inter_bandwidth=312500000.0))
    cluster = read_metis_cluster(*files)
    assert cluster.nodes[0].inter == 312500000.0
    (note,) = cluster.notes
    assert "inter_bandwidth 312500000 looks like bytes/s, expected GB/s: probably 0.3125" in note
    assert metis_cluster_spec(cluster).link(0, 2).bandwidth == 312500000.0


def test_nodes_of_a_type_that_differ(tmp_path):
    """The least figure counts, in whatever order the lines come, and a note says so."""
    entries = {**ENTRIES, "IP3": {**ENTRIES["IP1"], "memory": 40, "intra_bandwidth": 60}}
    lines = ["IP1 4", "IP2 2", "IP3 4"]
    found = set()
    for seed in range(6):
        random.Random(seed).shuffle(lines)
        cluster = read_metis_cluster(*write(tmp_path, "\n".join(lines), entries))
        assert cluster.memory["A100"] == 40 * 1024
        assert cluster.bandwidth["A100"] == 46
        found.add(cluster.notes)
    assert len(found) == 1
    assert "memory of A100 differs between nodes (40, 80 GB)" in found.pop()[1]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "must be an object with an entry per node, found []"),
        ({"IP1": ENTRIES["IP1"]}, "'IP2' is missing, which"),
        ({**ENTRIES, "IP2": 3}, "'IP2' must be an object with instance_type"),
        ({**ENTRIES, "IP2": {"instance_type": "T4"}}, "'IP2': inter_bandwidth is missing"),
        (changed("IP1", instance_type=""), "'IP1': instance_type must be a name, found ''"),
        (changed("IP1", instance_type=7), "'IP1': instance_type must be a name, found 7"),
        (changed("IP1", memory=0), "'IP1': memory must be a positive, finite number, found 0"),
        (changed("IP1", memory="80"), "'IP1': memory must be a positive, finite number"),
        (changed("IP1", memory=True), "'IP1': memory must be a positive, finite number"),
        (changed("IP1", intra_bandwidth=-1), "'IP1': intra_bandwidth must be a positive, finite"),
        (changed("IP1", intra_bandwidth=float("nan")), "not valid JSON: NaN is not a number"),
        (changed("IP1", memory=10**400), "IP1.memory: found a number of 401 digits, expected at"),
    ],
)
def test_one_line_per_error(tmp_path, entries, message):
    files = write(tmp_path, entries=entries)
    with pytest.raises(SpecError) as error:
        read_metis_cluster(*files)
    assert str(error.value).startswith(f"{files[1]}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_gpu_that_metis_does_not_know(tmp_path):
    cluster = read_metis_cluster(*write(tmp_path, entries=changed("IP1", instance_type="H100")))
    assert cluster.device_types == ("H100", "T4")
