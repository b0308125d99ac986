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

    from ilp_planner.specs.gpu_architectures import GpuArchitecture

# Constants that something is divided by, and constants that are seconds.
RATES = (
    "sustained", "streaming", "grouped", "attention", "attention_backward", "links", "network",
    "host_link", "host_memory",
)  # fmt: skip
DURATIONS = ("host_forward", "host_backward", "host_experts", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Constants of a machine and the framework on it.

    sustained: share of the clocks of a short burst that products keep under load. streaming: share
    of the memory bandwidth of kernels that are fused as `job.work` counts them. grouped,
    attention, attention_backward: rates of the grouped products of experts and of fused attention,
    of those of the kernels that were measured. links, network: share of the rate of links inside
    nodes and between them, as the cluster and measured collectives have it, that training reaches.
    tensor_exposed, expert_exposed, data_exposed: share of the messages of tensor, expert and data
    parallelism that overlap does not hide where it is on. sharded_exposed: share of what every
    micro-batch sends of sharded gradients and parameters that its passes do not hide, however long
    they are: fitted to MosaicML's 99 groups of FSDP runs on A100 and H100
    (`tests/benchmarks/step_defaults.py: exposed_errors`). host_forward, host_backward: seconds that
    the host takes at least to start a layer's kernels; host_experts: more than that of a layer with
    experts, half of it in each pass. host_link, host_memory: share of the rates of the link to the
    host and of its memory that large copies, and steps of the optimiser there, reach. step: seconds
    of an iteration that are nobody's. error: mean relative error of iteration times on runs that no
    constant was fitted to; None where it is not known. runs: of this machine that constants were
    fitted to.
    """

    sustained: float = 1.0
    streaming: float = 1.0
    grouped: float = 1.0
    attention: float = 1.0
    attention_backward: float = 1.0
    links: float = 1.0
    network: float = 1.0
    tensor_exposed: float = 0.3
    expert_exposed: float = 0.3
    data_exposed: float = 0.1
    sharded_exposed: float = 0.5
    host_forward: float = 0.0
    host_backward: float = 0.0
    host_experts: float = 0.0
    host_link: float = 0.8
    host_memory: float = 0.5
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

    def host(self, *, experts: float) -> tuple[float, float]:
        """Return the seconds of a layer's forward and backward pass at least.

        experts: how much of `host_experts` it has, 0 to 1.
        """
        more = experts * self.host_experts / 2
        return self.host_forward + more, self.host_backward + more


ABOUT = ("error", "runs")  # fields that say how good the others are
CONSTANTS = tuple(field.name for field in fields(Machine) if field.name not in ABOUT)


def with_constants(machine: Machine, values: Mapping[str, float]) -> Machine:
    """Return a machine with other values of some constants."""
    changed: dict[str, Any] = dict(values)
    return replace(machine, **changed)


# Of machines that nobody calibrated, by GPUs.
# `tests/benchmarks/step_defaults.py` fits them, and says to what. error: mean of the published runs
# of Megatron and its kin on such GPUs that they were not fitted to (`--suite steps`): BigScience's
# and InternEvo's, NVIDIA's on H100, NVIDIA's on B200.
_A100 = Machine(
    sustained=0.92,
    streaming=0.8,
    links=0.9,
    network=0.9,
    host_experts=0.008,
    step=0.005,
    error=0.14,
)
USUAL = {
    "A100": _A100,
    "H100": replace(_A100, sustained=0.79, error=0.098),
    "B200": replace(_A100, sustained=0.71, error=0.13),
}


def usual_machine(architecture: GpuArchitecture) -> Machine:
    """Return the default machine with GPUs of an architecture."""
    return USUAL[architecture.machine]
