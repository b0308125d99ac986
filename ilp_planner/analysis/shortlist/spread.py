"""How far the constants of a machine may lie from their assumed values: standard deviations.

`FITTED` is what published runs leave open of constants that are fitted to them, by GPU, from
`tests/benchmarks/machine_spread.py`. All other constants have the scale of their prior
(`analysis.calibration.free`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.machine import USUAL

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import Device

_HOPPER: dict[str, float] = {}
_BLACKWELL: dict[str, float] = {}
FITTED = {
    "H100": _HOPPER,
    "B200": _BLACKWELL,
    "GB200": _BLACKWELL,
    "B300": _BLACKWELL,
    "GB300": _BLACKWELL,
}


def spread_of(device: Device, name: str) -> float:
    """Return the standard deviation of a constant of a device's machine.

    Of a machine with constants fitted to its own runs, it is less by as much as times are off less
    than on other machines.
    """
    row = known_gpu(device)
    usual = None if row is None else USUAL[row.machine]
    known = {} if row is None else FITTED.get(row.machine, {})
    spread = min(FREE[name].scale, known.get(name, FREE[name].scale))
    machine = device.machine
    if machine.runs and machine.error is not None and usual is not None and usual.error:
        spread *= min(1.0, machine.error / usual.error)
    return spread
