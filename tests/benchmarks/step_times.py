"""Predicted seconds of published runs, and how far they are from the measured ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numba  # noqa: F401 - once it is there, the event engine is compiled
import numpy as np

from ilp_planner.costs.training import iteration
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.spaces.throughput import physical_seconds
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.machine import USUAL
from tests.benchmarks.published import MOSAIC, gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from ilp_planner.specs.kernel_constants import KernelConstants
    from ilp_planner.specs.machine import Machine
    from tests.benchmarks.published import Run

# Rate of FlashAttention 1 in Triton, of that of the measured library: `attn_impl: triton` of
# MosaicML's runs (llm-foundry 0.2.0 and before). By those runs: with it their errors do not go by
# the tokens of a sample, of 512 to 65,536.
TRITON = {"A100": 0.85, "H100": 0.41}
NVLINK_SHARE = 0.8  # of its rate, where no curve of a collective was measured
NVLINK_LATENCY, CARD_LATENCY = 10e-6, 15e-6


def cluster_of(run: Run, machine: Machine, kernels: KernelConstants | None = None) -> ClusterSpec:
    """Return the nodes of a run. kernels: None: those of its GPU."""
    figures = gpu(run.gpu)
    device = Device(
        name=run.gpu,
        memory=figures.memory,
        peak=figures.peak,
        memory_bandwidth=figures.memory_bandwidth,
        processors=figures.units,
        kernels=_attended(run, kernels or figures.constants),
        machine=machine,
        host_link=figures.host_link,
        host_memory=figures.host_memory,
    )
    each = min(run.gpus, run.job.devices_per_node)
    return ClusterSpec(
        name=run.name,
        device_types={device.name: device},
        nodes=(NodeGroup(device=device.name, devices=each, count=-(-run.gpus // each)),),
        intra_node=Link(bandwidth=figures.link_bandwidth * NVLINK_SHARE, latency=NVLINK_LATENCY),
        inter_node=Link(bandwidth=run.network, latency=CARD_LATENCY),
    )


def _attended(run: Run, kernels: KernelConstants) -> KernelConstants:
    """Return the constants of a run's kernels: MosaicML's attention is slower than any of now."""
    if not run.family.startswith(MOSAIC):
        return kernels
    rate = TRITON[run.gpu.partition("-")[0]]
    slower = replace(kernels.attention, f0=kernels.attention.f0 * rate)
    return replace(kernels, attention=slower, flash={})


def terms(run: Run, machine: Machine, kernels: KernelConstants | None = None) -> dict[str, float]:
    """Return what an iteration is predicted to take, by terms. kernels: as in `cluster_of`."""
    cluster = cluster_of(run, machine, kernels)
    ranks = RankCosts(run.job, Network(cluster, tuple(range(cluster.node_count))))
    return iteration.iteration_terms(ranks, run.job)


def seconds(run: Run, machine: Machine, kernels: KernelConstants | None = None) -> float:
    """Return what an iteration is predicted to take. kernels: as in `cluster_of`."""
    return sum(terms(run, machine, kernels).values())


def physical(run: Run, machine: Machine) -> float:
    """Return what no iteration of the run undercuts."""
    cluster = cluster_of(run, machine)
    settings = run.job.settings
    devices = (cluster.device_types[name] for name in cluster.type_of)
    precisions = {settings.precision, settings.quantised} - {""}
    return physical_seconds(run.job.model, devices, precisions, run.job.global_batch)


def errors(runs: Iterable[Run], machine: Machine) -> list[float]:
    """Return the signed errors of the runs: predicted over measured, less 1."""
    return [seconds(run, machine) / run.seconds - 1 for run in runs]


@dataclass(frozen=True)
class Judged:
    """Runs with what was predicted of each, by machines that did not see it."""

    runs: tuple[Run, ...]
    predicted: tuple[float, ...]

    def __add__(self, other: Judged) -> Judged:
        return Judged(self.runs + other.runs, self.predicted + other.predicted)

    def only(self, names: Container[str]) -> Judged:
        """Return those of these names."""
        pairs = zip(self.runs, self.predicted, strict=True)
        kept = [(run, predicted) for run, predicted in pairs if run.name in names]
        return Judged(tuple(run for run, _ in kept), tuple(predicted for _, predicted in kept))


def judge(runs: Sequence[Run], machine: Machine) -> Judged:
    """Predict runs on a machine."""
    return judge_by(runs, lambda _: machine)


def judge_by(runs: Sequence[Run], machine_of: Callable[[Run], Machine]) -> Judged:
    """Predict runs, each on its machine."""
    return Judged(tuple(runs), tuple(seconds(run, machine_of(run)) for run in runs))


def shipped(run: Run) -> Machine:
    """Return the constants that the planner comes with for a run's GPU."""
    return USUAL[gpu(run.gpu).machine]


def score(judged: Judged) -> dict[str, Any]:
    """Return the errors of predictions; the worst one by name.

    The mean is of errors relative to the measured seconds, the bias that of their logarithms.
    """
    measured = np.array([run.seconds for run in judged.runs])
    ratio = np.array(judged.predicted) / measured
    off = np.abs(ratio - 1)
    worst = int(off.argmax())
    return {
        "runs": len({run.name for run in judged.runs}),
        "mape": round(float(off.mean()), 4),
        "median": round(float(np.median(off)), 4),
        "bias": round(float(np.log(ratio).mean()), 4),
        "spearman": _spearman(np.array(judged.predicted), measured),
        "worst": round(float(ratio[worst] - 1), 4),
        "worst run": f"{judged.runs[worst].name}, {judged.runs[worst].model}",
    }


def _spearman(found: np.ndarray, truth: np.ndarray) -> float | None:
    if len(truth) < 3:
        return None
    from scipy.stats import spearmanr

    return round(float(spearmanr(found, truth).statistic), 3)


def constants(machine: Machine, names: Iterable[str]) -> dict[str, float]:
    """Return some constants of a machine, with as many digits as mean something."""
    of = asdict(machine)
    return {name: float(f"{of[name]:.3g}") for name in names}
