"""Constants of a machine beyond data sheets: the shares of its rates that training reaches.

Kernels transfer between machines with the same GPU; clocks under load, fusion by the framework,
host and network do not. `calibrate` fits these numbers to a machine's own runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


# Constants that something is divided by, and constants that are seconds.
RATES = (
    "sustained", "streaming", "low_precision", "grouped", "attention", "attention_backward", "scan",
    "links", "network", "host_link", "host_memory", "stepping",
)  # fmt: skip
STARTS = ("host_forward", "host_backward", "host_experts", "expert_waits")  # seconds of the host
DURATIONS = (*STARTS, "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Constants of a machine and the framework on it.

    sustained: share of the clocks of a short burst that products keep under load. streaming: share
    of the memory bandwidth of kernels that are fused as `job.work` counts them. low_precision,
    grouped, attention, attention_backward: rates of products in 8 and 4 bits, of the grouped ones
    of experts and of fused attention, of those of the kernels that were measured. scan: rate of the
    scans of Mamba-2 and gated delta nets, of kernels that move their bytes or multiply at the same
    rates as others: by 13 groups of published runs of Nemotron 3 (`tests/benchmarks/hybrids.py`);
    no run tells that of delta nets. links, network:
    share of the rate of links inside nodes and between them, as the cluster and measured
    collectives have it, that training reaches. tensor_exposed, data_exposed: share of the messages
    of tensor and data parallelism that overlap does not hide where it is on; of the latter, of
    those that passes are long enough to hide. expert_exposed: share
    of the seconds of exchanged tokens that the kernels beside them lose, where these overlap, as
    DeepEP's 20 multiprocessors are busy. sharded_exposed: share of what every micro-batch sends of
    sharded gradients and parameters that its passes do not hide, however long they are: fitted to
    MosaicML's 99 groups of FSDP runs on A100 and H100 (`tests/benchmarks/step_defaults.py:
    exposed_errors`). host_forward, host_backward: seconds that the host takes at least to start a
    layer's kernels; host_experts: besides, each kernel and message of a layer, with experts (of
    which it was first known) or without; expert_waits: seconds for each of those of a layer with
    experts that the device is idle, as the host first had to read how many tokens each expert
    takes. host_link, host_memory: share of the rates of the link to the
    host and of its memory that large copies, and steps of the optimiser there, reach; the latter by
    the five shares of one published series of runs on H100, one thread to a process as torchrun has
    it (`tests/benchmarks/ablations.py: host_share`). stepping: share of the rate of `streaming`
    that the optimiser's step on the device reaches, as if it read and wrote every state once.
    ring_growth: by so much of its seconds a reduce-scatter or all-gather over nodes takes longer
    with every doubling of the nodes. step: seconds of an iteration that are nobody's. error: mean
    relative error of iteration times on runs that no constant was fitted to; None where no run of
    the machine tells it. runs: of this machine that constants were fitted to.
    """

    sustained: float = 1.0
    streaming: float = 1.0
    low_precision: float = 1.0
    grouped: float = 1.0
    attention: float = 1.0
    attention_backward: float = 1.0
    scan: float = 0.235
    links: float = 1.0
    network: float = 1.0
    tensor_exposed: float = 0.3
    expert_exposed: float = 0.3
    data_exposed: float = 0.1
    sharded_exposed: float = 0.5
    host_forward: float = 0.0
    host_backward: float = 0.0
    host_experts: float = 0.0
    expert_waits: float = 0.0
    host_link: float = 0.8
    host_memory: float = 0.24
    stepping: float = 1.0
    ring_growth: float = 0.0
    step: float = 0.0
    error: float | None = None
    runs: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} must be at least 0, found {value!r}")
            if field.name in RATES and not value:
                raise ValueError(f"{field.name} must be positive, found {value!r}")


ABOUT = ("error", "runs")  # fields that say how good the others are
CONSTANTS = tuple(field.name for field in fields(Machine) if field.name not in ABOUT)


def with_constants(machine: Machine, values: Mapping[str, float]) -> Machine:
    """Return a machine with other values of some constants."""
    changed: dict[str, Any] = dict(values)
    return replace(machine, **changed)


# Of machines that nobody calibrated, by GPU. Constants of Hopper's and Blackwell's are fitted by
# `tests/benchmarks/machine_fit.py`, those of A100 by `step_defaults.py`; `expert_exposed` is 20 of
# a GPU's multiprocessors. Matrix products on AMD's MI325X reach 831 TFLOP/s in the best shape, 616
# in those of DeepSeek-V3 (0.87: the mean of both), and in 8 bits 0.91 of what their larger peak
# suggests (AMD, 'Completing the GPU Performance Picture: Understanding TAF Alongside Peak FLOPs and
# MAF', 2026), each under load. Their errors are those of `time_errors`.
_A100 = Machine(
    sustained=0.92,
    streaming=0.8,
    links=0.9,
    network=0.9,
    expert_exposed=0.185,
    host_experts=0.115e-3,
    expert_waits=0.0659e-3,
    step=0.005,
)
_H100 = replace(_A100, sustained=0.814, low_precision=0.899, expert_exposed=0.152)
_B200 = replace(
    _A100,
    sustained=0.655,
    streaming=0.847,
    low_precision=1.34,
    grouped=0.753,
    attention=1.15,
    attention_backward=1.12,
    expert_exposed=0.135,
    sharded_exposed=0.385,
    host_experts=0.103e-3,
    expert_waits=0.0646e-3,
)
USUAL = {
    "A100": _A100,
    "H100": _H100,
    "B200": _B200,
    "GB200": replace(_B200, sustained=0.627),
    "B300": replace(_B200, sustained=0.72),
    "GB300": replace(_B200, sustained=0.743),
    "MI300X": replace(_H100, sustained=0.87, low_precision=0.91),
}
