"""What of a machine no data sheet says: the shares of its rates that training reaches.

Kernels transfer between machines with the same GPU; clocks under load, fusion by the framework,
host and network do not. `calibrate` fits these numbers to a machine's own runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Constants of a machine and the framework on it.

    sustained: share of the clocks of a short burst that products keep under load. streaming: share
    of the memory bandwidth of kernels that are fused as `anatomy.work` counts them. grouped,
    attention, attention_backward: rates of the grouped products of experts and of fused attention,
    of those of the kernels that were measured. links: share of the rate of collectives inside a
    node alone on the machine. network: share of the network cards' rate. tensor_exposed,
    expert_exposed, data_exposed: share of the messages of tensor, expert and data parallelism that
    overlap does not hide where it is on. host_forward, host_backward: seconds that the host takes
    at least to start a layer's kernels; host_experts: more than that of a layer with experts, half
    of it in each pass. step: seconds of an iteration that are nobody's.
    """

    sustained: float = 1.0
    streaming: float = 0.8
    grouped: float = 1.0
    attention: float = 1.0
    attention_backward: float = 1.0
    links: float = 0.9
    network: float = 0.8
    tensor_exposed: float = 0.3
    expert_exposed: float = 0.3
    data_exposed: float = 0.1
    host_forward: float = 0.0
    host_backward: float = 0.0
    host_experts: float = 0.008
    step: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} must be at least 0, found {value!r}")

    def host(self, *, experts: float) -> tuple[float, float]:
        """Return the seconds of a layer's forward and backward pass at least.

        experts: how much of `host_experts` it has, 0 to 1.
        """
        more = experts * self.host_experts / 2
        return self.host_forward + more, self.host_backward + more
