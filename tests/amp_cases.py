"""AMP's files for tests: where the published ones are, and small ones to write and to break."""

import copy
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.inputs.problem import Problem
from ilp_planner.peers.amp.build import AmpSpace
from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees
from ilp_planner.peers.amp.models import AmpModel
from ilp_planner.peers.amp.profile import (
    GIGABIT,
    AmpExperiment,
    AmpNode,
    AmpProfile,
    amp_cluster,
    read_amp,
)
from ilp_planner.specs.cluster import ClusterSpec

DATA = Path(__file__).parents[2] / "shared" / "data" / "amp"
EXPERIMENTS = ("homogeneous", "het_cluster", "het_model")
published = pytest.mark.skipif(
    not DATA.is_dir(), reason="AMP's published profiles are not at ../shared/data/amp"
)
NODE = {
    "id": 0,
    "instance": "fast.large",
    "gpu": "F1",
    "gpus": 4,
    "mem_GB": 16,
    "intra_Gbps": 160,
    "inter_Gbps": 16,
}
SLOW = {**NODE, "id": 1, "instance": "slow.large", "gpu": "S1", "intra_Gbps": 40}
GPT = {"layers": 2, "hidden": 64, "heads": 4, "seq": 32, "vocab_padded": 128}
SECONDS = [0.002, 0.001, 0.004, 0.005, 0.001, 0.001, 0.003, 0.002]
"""Forward seconds of a GPT of two blocks."""


def entry(instance: str, tp: int, seconds: Sequence[float] = SECONDS) -> dict[str, Any]:
    """Return one profile."""
    return {
        "model": "gpt",
        "device": f"{instance} GPU",
        "instance": instance,
        "tp": tp,
        "mbs": 1,
        "n_layers": len(seconds),
        "forward_s": list(seconds),
    }


def content() -> dict[str, Any]:
    """Return a file with one experiment: two nodes that differ, a GPT of two blocks."""
    slower = [2 * s for s in SECONDS]
    return copy.deepcopy(
        {
            "clusters": {"pair": {"nodes": [NODE, SLOW], "model": "gpt", "gbs": 16}},
            "gpt": GPT,
            "profiles": {
                "gpt_F_1": entry("fast.large", 1),
                "gpt_F_2": entry("fast.large", 2),
                "gpt_S_1": entry("slow.large", 1, slower),
                "gpt_S_2": entry("slow.large", 2, slower),
            },
        }
    )


def write(folder: Path, values: Any) -> Path:
    """Write a file; return its path."""
    path = folder / "amp.json"
    path.write_text(json.dumps(values))
    return path


def experiment(name: str) -> AmpExperiment:
    """Return a published experiment; the test must be marked `published`."""
    return read_amp(DATA / "profiles.json", name)


def trials() -> list[dict[str, Any]]:
    """Return the published strategies; the test must be marked `published`."""
    rows: list[dict[str, Any]] = json.loads((DATA / "trials.json").read_text())["trials"]
    return rows


def degrees_of(trial: dict[str, Any]) -> AmpDegrees:
    return AmpDegrees(trial["tp"], trial["dp"], trial["pp"], trial["mbs"])


def partition_of(trial: dict[str, Any], model: AmpModel) -> list[int]:
    """Return the layers of each stage from boundaries in DeepSpeed's numbering."""
    ends = [sum(row < end for row in model.rows) for end in trial["ds_partition"]]
    return [b - a for a, b in itertools.pairwise(ends)]


# ---- random instances ---------------------------------------------------------------------------

SPEEDS = st.sampled_from([5.0, 10.0, 25.0, 50.0])
SECONDS_OF_A_LAYER = st.one_of(
    st.sampled_from([0.001, 0.002, 0.004]), st.floats(1e-4, 1e-2, allow_subnormal=False)
)


@st.composite
def clusters(
    draw: st.DrawFn, most_nodes: int = 3, sizes: Sequence[int] = (1, 2), own_links: bool = True
) -> ClusterSpec:
    """Draw a cluster of one device type.

    own_links: a node's link to others is at most as fast as the one inside it.
    """
    size = draw(st.sampled_from(sizes))
    nodes = []
    for number in range(draw(st.integers(1, most_nodes))):
        between = draw(SPEEDS)
        within = draw(st.sampled_from([50.0, 170.0])) if own_links else draw(SPEEDS)
        nodes.append(
            AmpNode(
                number=number,
                instance="i",
                gpu="G",
                gpus=size,
                memory=2**34,
                within=within * GIGABIT,
                between=between * GIGABIT,
            )
        )
    return amp_cluster("drawn", nodes)[0]


@st.composite
def profiles(draw: st.DrawFn, cluster: ClusterSpec, most_layers: int = 6) -> AmpProfile:
    """Draw a profile for a cluster's device types, tp 1 and 2; parameters that matter."""
    count = draw(st.integers(1, most_layers))
    size = st.sampled_from([0.0, 1e4, 1e5, 1e6])
    row = st.lists(SECONDS_OF_A_LAYER, min_size=count, max_size=count)
    numbers = st.lists(size, min_size=count, max_size=count)
    model = AmpModel(
        name="drawn",
        layers=tuple(f"layer{i}" for i in range(count)),
        sent=np.array(draw(numbers)),
        split=np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count))),
        parameters=np.array(draw(numbers)),
        tied=np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count))),
        tied_parameters=draw(size),
        rows=tuple(range(count)),
        profiled=count,
    )
    names = [cluster.device_types[kind].profile for kind in cluster.type_names]
    forward = {(name, tp): np.array(draw(row)) for name in names for tp in (1, 2)}
    return AmpProfile(source="amp:drawn", model=model, forward=forward)


def drawn_problem(data: st.DataObject, *, free: bool) -> Problem[AmpCosts]:
    """Return a problem of a drawn cluster and profile."""
    cluster = data.draw(clusters())
    return Problem(
        model="drawn",
        cluster=cluster,
        costs=AmpCosts(profile=data.draw(profiles(cluster)), repaired=True),
        global_batch=4,
        micro_batches=(1, 2, 4),
        memory_limits=dict.fromkeys(cluster.type_names, 1e30),
        max_stages=9,
        max_tp=2,
        space=AmpSpace(free=free),
    )


def amp_cost_s(
    profile: AmpProfile,
    cluster: ClusterSpec,
    degrees: AmpDegrees,
    partition: Sequence[int],
    global_batch: int,
    nodes: NDArray[np.int64] | None = None,
    *,
    repaired: bool = False,
) -> float:
    """Return the seconds per iteration that AMP predicts.

    Parameters
    ----------
    partition: layers of each stage. nodes: of each rank, int64 [pp, dp, tp]; AMP's when left out.
    """
    costs = AmpCosts(profile=profile, repaired=repaired)
    return costs.terms(cluster, degrees, partition, global_batch, nodes).total
