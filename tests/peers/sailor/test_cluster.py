"""Sailor's clusters: machines that quotas fill, and lines through its curves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.peers.sailor.cluster import BUCKET, Curve, sailor_cluster
from ilp_planner.peers.sailor.profile import read_sailor_profile
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.cluster_writer import cluster_text
from tests.sailor_cases import ZONE, small_files, write_files

BETWEEN = "multizone_bandwidths_het.json"
TWO = {"A100-40": {ZONE: 8, "us-west1-b": 4}, "V100-16": {ZONE: 6}}


def cluster_of(folder: Path, files: dict[str, Any], quotas: Any) -> ClusterSpec:
    """Write the files and read the cluster."""
    write_files(folder, files)
    (folder / "quotas.json").write_text(json.dumps(quotas))
    profile = read_sailor_profile(folder, "small")
    return sailor_cluster(folder, folder / "quotas.json", profile)


def test_machines_are_full(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, small_files(), TWO)
    found = {group.device: group.devices * group.count for group in cluster.nodes}
    assert found == {f"A100-40-{ZONE}": 8, "A100-40-us-west1-b": 4, f"V100-16-{ZONE}": 4}
    assert any("2 of 6 GPUs fill no machine of 4" in note for note in cluster.notes)
    assert cluster.device_types["A100-40-us-west1-b"].profile == "A100-40"
    assert cluster.device_types["A100-40-us-west1-b"].memory == 40 * 2**30


def test_one_zone_names_types_by_their_gpu(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, small_files(), {"A100-40": {ZONE: 8}})
    assert cluster.type_names == ("A100-40",)


def test_the_slower_direction_counts(tmp_path: Path) -> None:
    files = small_files()
    files[BETWEEN]["us-west1-b"]["A100-40"]["4"][ZONE]["A100-40"]["4"] = [[1.0], 1e9]
    cluster = cluster_of(tmp_path, files, TWO)
    pair = (f"A100-40-{ZONE}", "A100-40-us-west1-b")
    assert cluster.between[pair].bandwidth == pytest.approx(1e9)
    assert cluster.between[f"A100-40-{ZONE}", f"A100-40-{ZONE}"].bandwidth > 2e9


def test_links_inside_are_of_the_whole_machine(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, small_files(), TWO)
    assert cluster.within[f"V100-16-{ZONE}"].bandwidth == pytest.approx(20e9)
    files = small_files()
    del files["intra_node_bandwidths.json"]
    (tmp_path / "intra_node_bandwidths.json").unlink()
    cluster = cluster_of(tmp_path, files, TWO)
    name = f"V100-16-{ZONE}"
    assert cluster.within[name] == cluster.between[name, name]
    assert any("no intra_node_bandwidths.json" in note for note in cluster.notes)


def test_a_line_says_how_far_it_is_off() -> None:
    curve = Curve(where="here", coefficients=(-0.0366, 0.477, 4.559))
    sizes = np.geomspace(1e6, BUCKET, 100)
    link, off = curve.link(sizes)
    seconds = link.latency + sizes / link.bandwidth
    assert np.abs(seconds / curve.seconds(sizes) - 1).max() == pytest.approx(off)
    assert off < 0.2


def test_the_file_reads_back(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, small_files(), TWO)
    (tmp_path / "cluster.toml").write_text(cluster_text(cluster))
    assert read_cluster(tmp_path / "cluster.toml") == cluster


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        ([], ["quotas.json", "found []", "expected an object"]),
        ({}, ["quotas.json", "found no GPUs"]),
        ({"H100": {ZONE: 4}}, ["'H100'", "A100-40, V100-16"]),
        ({"A100-40": 8}, ["quotas.json: A100-40", "found 8", "an object"]),
        ({"A100-40": {ZONE: -4}}, ["quotas.json", f"A100-40.{ZONE}", "-4", "whole number"]),
        ({"A100-40": {ZONE: 3}}, ["found no GPUs that fill a machine"]),
        ({"A100-40": {"mars": 4}}, [BETWEEN, "'mars'", ZONE]),
    ],
)
def test_bad_quotas_are_one_line(tmp_path: Path, quotas: Any, told: list[str]) -> None:
    with pytest.raises(ProfileError) as caught:
        cluster_of(tmp_path, small_files(), quotas)
    for part in told:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("basic_cluster_config.json", {}, ["A100-40", "found nothing", "an object"]),
        ("basic_cluster_config.json", {"A100-40": {"gpus_per_node": 4}},
         ["A100-40.mem_per_gpu", "found nothing"]),
        (BETWEEN, {ZONE: {"A100-40": {"4": {ZONE: {"A100-40": {"4": [3]}}}}}}, ["[[coefficients]"]),
        (BETWEEN, {ZONE: {"A100-40": {"4": {ZONE: {"A100-40": {"4": [[-1.0, 2.0], 1]}}}}}},
         [f"{ZONE}.A100-40.4.{ZONE}.A100-40.4", "GB/s for", "above 0"]),
        ("intra_node_bandwidths.json", {"A100-40": {"8": [[1.0], 1]}}, ["A100-40", "of 8 GPUs"]),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(tmp_path: Path, name: str, value: Any, told: list[str]) -> None:
    with pytest.raises(ProfileError) as caught:
        cluster_of(tmp_path, {**small_files(), name: value}, {"A100-40": {ZONE: 4}})
    for part in (name, *told):
        assert part in str(caught.value)
