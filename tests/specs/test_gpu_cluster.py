"""Clusters of which only the GPUs are said."""

from pathlib import Path

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.gpu_cluster import gpu_cluster, is_gpus, parse_gpus
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.link import Link
from tests.examples import for_each

CLUSTERS = Path(__file__).parents[2] / "clusters"


@for_each(
    ("gpus", "file"),
    [("32xA100-80GB", "a100-4x8"), ("64xH100", "h100-8x8"), ("8xB200", "b200-1x8")],
)
def test_it_is_what_the_cluster_files_say(gpus: str, file: str) -> None:
    """All but the memory: files of before have what cards are sold with."""
    found, known = gpu_cluster(parse_gpus(gpus)), read_cluster(CLUSTERS / f"{file}.toml")
    assert (found.node_of, found.intra_node) == (known.node_of, known.intra_node)
    if found.node_count > 1:
        assert found.inter_node == known.inter_node
    (ours,), (theirs,) = found.device_types.values(), known.device_types.values()
    assert known.device_types[theirs.name].peak is not None
    assert theirs.peak.items() <= ours.peak.items()
    assert ours.memory_bandwidth == theirs.memory_bandwidth
    assert ours.sustained == theirs.sustained
    assert ours.profile == theirs.profile
    assert ours.memory == gpu(ours.gpu).memory


@for_each(
    ("gpus", "nodes"),
    [
        ("1xA100-80GB", (1, 1)),
        ("7xA100-80GB", (1, 7)),
        ("8xA100-80GB", (1, 8)),
        ("24 X mi300x", (3, 8)),
        ("2xGB200", (1, 2)),
        ("72xGB200", (18, 4)),
        ("128xGB200", (2, 64)),
        ("144xGB300", (2, 72)),
    ],
)
def test_nodes(gpus: str, nodes: tuple[int, int]) -> None:
    found = gpu_cluster(parse_gpus(gpus))
    assert [(group.count, group.devices) for group in found.nodes] == [nodes]
    assert any(f"nodes of {nodes[1]}" in note for note in found.notes)


def test_an_nvlink_domain_is_linked_alike() -> None:
    inside = gpu_cluster(parse_gpus("72xGB200"))
    assert inside.inter_node.bandwidth == 4 * inside.intra_node.bandwidth
    beyond = gpu_cluster(parse_gpus("144xGB200"))
    assert beyond.intra_node == inside.intra_node
    assert beyond.inter_node.bandwidth == pytest.approx(0.9 * 72 * 50e9)


def test_a_mesh_sends_more_in_rings() -> None:
    link = gpu_cluster(parse_gpus("8xMI300X")).intra_node
    assert link == Link(bandwidth=0.8 * 64e9, latency=1e-5, collectives={8: 0.8 * 448e9})


@for_each(
    ("text", "words"),
    [
        ("16", "expected a count and a GPU, as in 16xA100-80GB"),
        ("xA100-80GB", "expected a count and a GPU"),
        ("A100-80GB", "expected a count and a GPU"),
        ("-8xA100-80GB", "expected a count and a GPU"),
        ("1.5xA100-80GB", "expected a count and a GPU"),
        ("", "expected a count and a GPU"),
        ("0xA100-80GB", "expected 1 to 65536 GPUs"),
        ("999999xT4", "expected 1 to 65536 GPUs"),
        ("16xFoo", "found 'Foo', expected one of the table of GPUs"),
        ("12xA100-80GB", "whole nodes of 8, .*; 8xA100-80GB or 16xA100-80GB would do"),
        ("6xGB200", "whole nodes of 4, .*; 4xGB200 or 8xGB200 would do"),
        ("76xGB200", "equal domains of NVLink 5, .* 72 GPUs; 72xGB200 or 80xGB200 would do"),
    ],
)
def test_bad_input(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^gpus: .*{words}") as raised:
        parse_gpus(text)
    assert "\n" not in str(raised.value)
    assert not is_gpus(text)


def test_what_is_said_of_the_host_counts(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\n[[nodes]]\ndevice = "h100"\ndevices = 8\n[devices.h100]\n{}\n'
    path.write_text(text.format('gpu = "H100-80GB"'))
    (table,) = read_cluster(path).device_types.values()
    assert (table.host_link, table.host_memory) == (63e9, 76.8e9)
    assert (table.to_host, table.on_host) == (0.8 * 63e9, 0.24 * 76.8e9)
    lines = 'gpu = "H100-80GB"\nhost_link = "50 GB/s"\nmachine.host_memory = 0.25'
    path.write_text(text.format(lines))
    (own,) = read_cluster(path).device_types.values()
    assert (own.to_host, own.on_host) == (0.8 * 50e9, 0.25 * 76.8e9)
