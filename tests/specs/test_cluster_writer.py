"""What is written is read again as the same cluster, to the digit."""

import tomllib
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.cluster_writer import cluster_text, machine_table, with_machine
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus, with_more_nodes
from ilp_planner.specs.gpus import table
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import CONSTANTS, Machine
from ilp_planner.specs.zones import with_nodes
from tests.analysis.calibration.machines import TOML
from tests.examples import for_each, thinned

CLUSTERS = sorted((Path(__file__).parents[2] / "clusters").glob("*.toml"))
OURS = Machine(sustained=0.7512, host_forward=0.0019, host_experts=0.0, error=0.0413, runs=12)
OTHER = Machine(links=0.5, runs=1)


def again(cluster: ClusterSpec) -> ClusterSpec:
    return read_cluster(Document("written", cluster_text(cluster)))


@for_each("path", CLUSTERS)
def test_cluster_files(path: Path) -> None:
    assert again(read_cluster(path)) == read_cluster(path)


@for_each("name", table())
def test_every_gpu_on_part_of_a_node_a_node_several_and_more_than_a_domain(name: str) -> None:
    row = table()[name]
    for count in sorted({1, 2, row.node, 2 * row.node, row.domain, 2 * row.domain}):
        cluster = gpu_cluster(parse_gpus(f"{count}x{name}"))
        assert again(cluster) == cluster
        assert "assumed" in cluster_text(cluster)
        (group,) = cluster.nodes
        grown = with_more_nodes(cluster, [replace(group, count=group.count + 1)])
        assert again(grown) == grown
        assert grown.device_count == cluster.device_count + group.devices
        if group.devices == row.node and grown.device_count <= max(row.domain, 2 * row.node):
            wanted = gpu_cluster(parse_gpus(f"{grown.device_count}x{name}"))
            assert grown.inter_node == wanted.inter_node
            assert (cluster.node_count == 1) == (len(grown.notes) > len(cluster.notes))


def test_every_pair_of_gpus() -> None:
    for one, other in thinned(permutations(table(), 2), 13):
        text = f"""
            name = "{one} and {other}"
            nodes = [{{ device = "a", devices = 8 }}, {{ device = "b", devices = 4, count = 2 }}]
            devices = {{ a.gpu = "{one}", b.gpu = "{other}" }}
        """
        cluster = read_cluster(Document("pair", text))
        assert again(cluster) == cluster
        for nodes in ([0], [1], [0, 2], [1, 2]):
            part = with_nodes(cluster, nodes)
            assert again(part) == part


def test_constants_of_a_machine() -> None:
    """Those of a calibration, and those that were assumed: others may be assumed tomorrow."""
    cluster = gpu_cluster(parse_gpus("16xA100-80GB"))
    name, usual = cluster.type_names[0], cluster.device_types[cluster.type_names[0]]
    machine = replace(usual.machine, sustained=2 / 3, step=0.1 / 3, error=None, runs=4)
    fitted = replace(cluster, device_types={name: replace(usual, machine=machine)})
    assert again(fitted).device_types[name].machine == machine != usual.machine
    written = tomllib.loads(cluster_text(cluster))["devices"][name]["machine"]
    assert set(written) >= set(CONSTANTS)


def test_kernels_as_a_roofline() -> None:
    cluster = gpu_cluster(parse_gpus("16xA100-80GB"))
    name, usual = cluster.type_names[0], cluster.device_types[cluster.type_names[0]]
    roofline = replace(usual, kernels=None, machine=Machine(), launch=4e-5)
    assert again(written := replace(cluster, device_types={name: roofline})) == written


def test_a_matrix_and_names_of_all_kinds() -> None:
    link = Link(bandwidth=1e10 / 3, latency=1e-5 / 7)
    slow = replace(link, bandwidth=1.5e9)
    cluster = ClusterSpec(
        name='a "lab" \\ of\tours',
        device_types={"p3.8x large": Device(name="p3.8x large", memory=12345, price=0.1)},
        nodes=(NodeGroup(device="p3.8x large", devices=3, count=2, name="été"),),
        intra_node=replace(link, collectives={2: 1e9 / 3, 3: 2e9}),
        inter_node=slow,
        within={"p3.8x large": link},
        matrix=((link, slow), (slow, link)),
        notes=("one", 'an"other'),
    )
    assert again(cluster) == cluster


@given(
    rate=st.floats(1, 1e18), latency=st.floats(1e-12, 1e3), memory=st.integers(1, 2**50),
    share=st.floats(1e-6, 1),
)  # fmt: skip
def test_numbers(rate: float, latency: float, memory: int, share: float) -> None:
    link = Link(bandwidth=rate, latency=latency)
    device = Device(
        name="gpu", memory=memory, peak={"fp16": rate}, sustained=share, memory_bandwidth=rate,
        sustained_bandwidth=share, launch=latency, price=min(rate, 1e12),
        host_link=rate, host_memory=rate,
    )  # fmt: skip
    cluster = ClusterSpec(
        name="lab", device_types={"gpu": device}, nodes=(NodeGroup(device="gpu", devices=1),),
        intra_node=link, inter_node=link,
    )  # fmt: skip
    assert again(cluster) == cluster


def written(text: str, machine: Machine, device: str = "H100") -> str:
    return with_machine(Document("mine.toml", text), device, machine, "by hand")


@pytest.mark.parametrize("machine", [OURS, OTHER, Machine()])
def test_what_is_written_is_read(machine: Machine) -> None:
    text = written(TOML, machine)
    assert text.startswith(TOML)
    assert read_cluster(Document("mine.toml", text)).device_types["H100"].machine == machine


def test_a_table_that_is_there_is_replaced() -> None:
    table = machine_table("H100", OTHER, "by hand").replace("links", "# ours\nlinks")
    head, links = TOML.split("[links.intra_node]")
    between = f"{head}{table}\n[links.intra_node]{links}"
    assert written(between, OURS) == written(TOML, OURS)
    assert written(written(TOML, OTHER), OURS) == written(TOML, OURS)


def test_names_that_need_quotes() -> None:
    for name in ("H100 SXM", 'say "H"', "a.b", "ü"):
        key = "'" + name + "'"
        text = TOML.replace("devices.H100", f"devices.{key}")
        found = tomllib.loads(written(written(text, OTHER, name), OURS, name))
        assert found["devices"][name]["machine"]["runs"] == 12
        assert found["devices"][name]["gpu"] == "H100-80GB"


@pytest.mark.parametrize(
    "line", ["machine = {links = 0.5}", "machine.links = 0.5", "[devices.H100.machine.more]"]
)
def test_other_forms_are_refused_not_mixed(line: str) -> None:
    text = TOML.replace("[links.intra_node]", f"{line}\n\n[links.intra_node]")
    with pytest.raises(SpecError, match=r"mine\.toml: device 'H100': cannot write its machine"):
        written(text, OURS)


def test_the_shipped_clusters_can_be_written() -> None:
    for file in sorted((Path(__file__).parents[3] / "clusters").glob("*.toml")):
        text = file.read_text()
        for name in tomllib.loads(text)["devices"]:
            assert written(text, OURS, name).startswith(text.rstrip())
