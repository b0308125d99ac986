"""A cluster of H100, jobs on it, and what they take on a machine that is known."""

from collections.abc import Sequence
from typing import Any

from ilp_planner.analysis.calibration.calibrate import Predictions
from ilp_planner.analysis.calibration.runs import Run
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.kernel_constants import measured_constants
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import USUAL, Machine
from ilp_planner.specs.training import Kernels, Settings, TrainingJob
from tests.training_jobs import llama

# What users write of such a cluster.
TOML = """\
name = "lab"

[[nodes]]
device = "H100"
count = 2
devices = 8

[devices.H100]  # in rack 7
gpu = "H100-80GB"

[links.intra_node]
bandwidth = "450 GB/s"
latency = "5 us"

[links.inter_node]
bandwidth = "400 GB/s"
latency = "10 us"
"""


DEFAULT = USUAL["H100"]


def h100(**changes: Any) -> Device:
    """Return a device whose kernels are known."""
    values = {
        "name": "H100",
        "memory": 79 * 2**30,
        "peak": {"bf16": 989e12},
        "sustained": 0.6,
        "memory_bandwidth": 3.35e12,
        "processors": 132,
        "gpu": "H100-80GB",
        "kernels": measured_constants()["H100"],
        "machine": DEFAULT,
    }
    return Device(**{**values, **changes})


def lab(device: Device | None = None, nodes: int = 2) -> ClusterSpec:
    """Return nodes of 8 H100."""
    one = device or h100()
    return ClusterSpec(
        name="lab",
        device_types={one.name: one},
        nodes=(NodeGroup(device=one.name, devices=8, count=nodes),),
        intra_node=Link(bandwidth=450e9, latency=5e-6),
        inter_node=Link(bandwidth=400e9, latency=10e-6),
    )


def job(
    layers: int = 8, hidden: int = 4096, *, tp: int = 2, pp: int = 1, **changes: Any
) -> TrainingJob:
    """Return a job on one node."""
    sequence, experts = changes.pop("sequence", 2048), changes.pop("experts", None)
    model = llama(
        layers=layers,
        hidden=hidden,
        heads=hidden // 128,
        ffn=2 * hidden,
        sequence=sequence,
        vocab=32000,
        experts=experts,
    )
    values = {
        "dp": 8 // (tp * pp),
        "micro_batch": 1,
        "global_batch": 32,
        "settings": Settings(sequence_parallel=tp > 1),
    }
    return TrainingJob(model=model, tp=tp, pp=pp, **{**values, **changes})


def mixture(ep: int, **changes: Any) -> TrainingJob:
    """Return a job of experts, whose products are grouped."""
    kernels = Kernels(grouped_experts=True, dispatcher="alltoall")
    experts = Experts(count=8, top_k=2, ffn=4096)
    return job(experts=experts, tp=1, settings=Settings(ep=ep, kernels=kernels), **changes)


JOBS = (
    job(),
    job(hidden=8192, tp=8),
    job(layers=16, hidden=2048, tp=1),
    job(sequence=8192, tp=4),
    job(sequence=512, micro_batch=8),
    job(layers=12, pp=4),
    job(hidden=1024, tp=8),
    job(hidden=1024, tp=1, micro_batch=4),
    mixture(8),
    mixture(4, micro_batch=2),
    job(hidden=2048, sequence=16384, tp=8),
    job(layers=24, hidden=2048, tp=4, global_batch=64),
)


def runs_on(machine: Machine, jobs: Sequence[TrainingJob] = JOBS) -> list[Run]:
    """Return what jobs take on a machine."""
    seconds = Predictions(lab(), jobs).of(range(len(jobs)))(machine)
    return [
        Run(name=f"run {n}", job=one, seconds=spent, place=f"runs.csv: line {n + 2}")
        for n, (one, spent) in enumerate(zip(jobs, seconds, strict=True))
    ]
