"""Standard deviations of the constants of a machine around their assumed values.

`FITTED` is what published runs leave open of constants that are fitted to them, by GPU, from
`tests/benchmarks/machine_spread.py`. All other constants have the scale of their prior
(`analysis.calibration.free`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.time_errors import plain_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.cluster import Device

_BLACKWELL = {
    "low_precision": 0.17,
    "attention": 0.26,
    "attention_backward": 0.18,
    "grouped": 0.093,
    "streaming": 0.25,
    "host_experts": 0.015e-3,
    "expert_waits": 0.027e-3,
    "expert_exposed": 0.14,
    "sharded_exposed": 0.14,
}
FITTED: Mapping[str, Mapping[str, float]] = {
    "H100": {
        "sustained": 0.016,
        "low_precision": 0.027,
        "host_experts": 0.037e-3,
        "expert_waits": 0.034e-3,
        "expert_exposed": 0.14,
    },
    "B200": {"sustained": 0.015, **_BLACKWELL},
    "GB200": {"sustained": 0.089, **_BLACKWELL},
    "B300": {"sustained": 0.12, **_BLACKWELL},
    "GB300": {"sustained": 0.11, **_BLACKWELL},
}


def spread_of(device: Device, name: str) -> float:
    """Return the standard deviation of a constant of a device's machine.

    Of a machine with constants fitted to its own runs, it is less by as much as times are off less
    than on other machines.
    """
    row = known_gpu(device)
    known = {} if row is None else FITTED.get(row.machine, {})
    spread = known.get(name, FREE[name].scale)
    machine = device.machine
    if machine.runs and machine.error is not None and row is not None:
        spread *= min(1.0, machine.error / plain_error(row.name))
    return spread
