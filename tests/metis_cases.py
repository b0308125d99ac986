"""Metis profiles and clusters: synthetic ones, and the published cases where the data is there."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.metis.cluster import MetisCluster, MetisNode
from ilp_planner.peers.metis.costs import MetisCosts, rank_types, terms_ms, total_ms
from ilp_planner.peers.metis.files import read_metis_profile
from ilp_planner.peers.metis.formulas import MetisFormulas
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow

SHARED = Path(__file__).parents[2] / "shared"
DATA = SHARED / "data" / "metis"
SAMPLES = DATA / "profile_data_samples"
MODEL_FILE = "DeviceType.A100_tp1_bs1.json"
needs_data = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the published profiles are not in ../shared/data/metis"
)


def metis_cost_ms(
    formulas: MetisFormulas,
    *,
    global_batch: int,
    node_sequence: Sequence[str],
    device_groups: Sequence[int],
    strategies: Sequence[tuple[int, int]],
    batches: int,
    layer_partition: Sequence[int],
) -> float:
    """Price a plan in Metis's own words, in milliseconds.

    Stages may be empty and layers lost, as in the plans that Metis prints.

    Parameters
    ----------
    node_sequence: device types; ranks are laid out type by type. device_groups: ranks of each
    stage.
    strategies: (dp, tp) of each stage. batches: number of micro-batches. layer_partition: the first
    layer of each stage, and the one after the last.
    """
    ranks = rank_types(formulas, node_sequence)
    groups, first = [], 0
    for size, (dp, tp) in zip(device_groups, strategies, strict=False):
        types, batch = ranks[first : first + size], global_batch // batches
        rest = batch % dp if len(set(types)) == 1 else 0  # which Metis drops
        group = formulas.group(types, tp, batch - rest)
        assert group is not None, f"tp {tp} is not profiled"
        groups.append(group)
        first += size
    return total_ms(terms_ms(formulas, groups, list(pairwise(layer_partition)), batches))


def write_metis_cluster(cluster: MetisCluster, hostfile: Path, clusterfile: Path) -> None:
    """Write both files of a cluster whose nodes of one name are equal."""
    lines = [f"{node.host} slots={node.devices}\n" for node in cluster.nodes]
    hostfile.write_text("".join(lines))
    entries = {
        node.host: {
            "instance_type": node.device,
            "inter_bandwidth": node.inter,
            "intra_bandwidth": node.intra,
            "memory": node.memory,
        }
        for node in cluster.nodes
    }
    clusterfile.write_text(json.dumps(entries))


def scaled_samples(folder: Path, factor: float) -> Path:
    """Write the published A100 profiles, and the same as T4 with all times multiplied."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in SAMPLES.glob("*.json"):
        content = json.loads(path.read_text())
        (folder / path.name).write_text(json.dumps(content))
        times = content["execution_time"]
        for key, value in times.items():
            scaled = [v * factor for v in value] if isinstance(value, list) else value * factor
            times[key] = scaled
        (folder / path.name.replace("A100", "T4")).write_text(json.dumps(content))
    return folder


def published_cluster(t4_nodes: Sequence[int], a100_nodes: Sequence[int]) -> MetisCluster:
    """Build the published cases' cluster; devices of each node."""
    return MetisCluster(
        nodes=(
            *(MetisNode("0.0.0.3", "T4", n, 10, 50, 15) for n in t4_nodes),
            *(MetisNode("0.0.0.4", "A100", n, 10, 46, 80) for n in a100_nodes),
        )
    )


def published_costs(folder: Path, cluster: MetisCluster, vocabulary: int = 51200) -> MetisCosts:
    return MetisCosts(
        formulas=MetisFormulas(
            profile=read_metis_profile(folder, model_file=MODEL_FILE),
            cluster=cluster,
            hidden=4096,
            sequence=1024,
            vocabulary=vocabulary,
        ),
        max_tp=4,
    )


def synthetic_profile(
    speeds: Mapping[str, float],
    layers: int,
    *,
    degrees: Sequence[int] = (1, 2),
    sizes: Sequence[int] = (1, 2, 4),
    seed: int = 0,
    least_sync: float = 0.0,
) -> MetisProfile:
    """Make up rows; speeds: device type -> how many times slower than the fastest."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 1.5, layers)
    rows = {}
    for device in sorted(speeds):
        for tp in degrees:
            for samples in sizes:
                compute = 10 * weight * speeds[device] * (0.3 + samples) / tp**0.8
                rows[LayerKey(device, tp, samples)] = MetisRow(
                    compute=compute,
                    memory=np.round(1000 * weight * (1 + 0.4 * samples) / tp),
                    forward_backward=float(compute.sum()) + float(rng.uniform(least_sync, 5)),
                    optimizer=float(rng.uniform(10, 40)) / tp,
                    batch_generator=float(rng.uniform(0.5, 1)),
                    parameters=np.round(1e8 * weight),
                )
    return MetisProfile(source="made-up", rows=rows, constants=min(rows))


def synthetic_costs(
    counts: Mapping[str, int], layers: int, *, memory: float = 1000.0, **options: Any
) -> MetisCosts:
    """Make up a cluster too; counts: device type -> devices, the slower the later by name."""
    nodes = tuple(
        MetisNode(f"{device}{number}", device, size, 5.0, 20.0 + 10 * index, memory)
        for index, device in enumerate(counts)
        for number, size in enumerate(_nodes(counts[device]))
    )
    speeds = {device: 1.0 + index for index, device in enumerate(sorted(counts))}
    return MetisCosts(
        formulas=MetisFormulas(
            profile=synthetic_profile(speeds, layers, **options),
            cluster=MetisCluster(nodes=nodes),
            hidden=512,
            sequence=256,
            vocabulary=4000,
        )
    )


def _nodes(devices: int) -> list[int]:
    """Share devices over unequal nodes."""
    return [devices] if devices < 3 else [2, devices - 2]
