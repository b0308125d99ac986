"""Published runs: constants of a third of them judge the rest. The data are not part of the
repository."""

from collections.abc import Sequence

import pytest

from ilp_planner.analysis.calibration.calibrate import Predictions, calibrate
from ilp_planner.analysis.calibration.runs import Run
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.kernel_constants import measured_constants
from ilp_planner.specs.link import Link
from tests.analysis.calibration.machines import h100, lab
from tests.benchmarks import published
from tests.benchmarks.published_tables import b200_runs

pytestmark = pytest.mark.skipif(
    not published.DATA.is_dir(), reason="../shared/data/measured is not there"
)
# Data sheets: FLOP/s, bytes/s of memory, processors, bytes/s of NVLink and of a node's cards.
A100 = (312e12, 2.039e12, 108, 300e9, 200e9)
B200 = (2250e12, 8e12, 148, 900e9, 400e9)


def cluster(gpu: str, sheet: tuple[float, float, int, float, float]) -> ClusterSpec:
    peak, memory, processors, inside, outside = sheet
    device = h100(
        name=gpu,
        peak={"bf16": peak},
        memory_bandwidth=memory,
        processors=processors,
        kernels=measured_constants()[gpu],
    )
    whole = lab(device, nodes=64)
    links = Link(bandwidth=inside, latency=5e-6), Link(bandwidth=outside, latency=1e-5)
    return ClusterSpec(
        name=gpu,
        device_types=whole.device_types,
        nodes=whole.nodes,
        intra_node=links[0],
        inter_node=links[1],
    )


def held_out(runs: Sequence[published.Run], where: ClusterSpec, share: int) -> tuple[float, float]:
    """Return the mean relative error of what was fitted to every so manieth run on the others, and
    what it was expected to be."""
    every = [Run(name=run.name, job=run.job, seconds=run.seconds) for run in runs]
    machine = calibrate(every[::share], where).machine
    rest = [run for number, run in enumerate(every) if number % share]
    seconds = Predictions(where, [run.job for run in rest]).of(range(len(rest)))(machine)
    errors = [abs(s / run.seconds - 1) for s, run in zip(seconds, rest, strict=True)]
    assert machine.error is not None
    return sum(errors) / len(errors), machine.error


@pytest.mark.slow
def test_fsdp_on_a100() -> None:
    runs = [
        run
        for run in published.runs()
        if run.family.startswith(published.MOSAIC) and run.gpu == "A100-80GB"
    ]
    assert len(runs) > 30
    error, expected = held_out(runs, cluster("A100", A100), 3)
    assert error < 0.06
    assert expected < 0.06


@pytest.mark.slow
def test_megatron_on_b200() -> None:
    error, expected = held_out(b200_runs(), cluster("B200", B200), 2)
    assert error < 0.06
    assert expected < 0.08
