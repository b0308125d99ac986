"""Zone states: devices of a zone's types are counted along a run of stages within the zone.

Multipliers count devices on average over paths. With slow links between types, paths within few
types use more devices than there are, pay for no crossing, and respect the averages of all types. A
state therefore counts the devices of its region taken since the path entered it, itself included:
with these it has to leave in time, and to pay for it. Leaving the region resets the counter, and
devices are counted in units, rounded down; both only let in more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Regions(NamedTuple):
    """Regions of device types; N numbers of devices at most in each.

    of: int64 [classes], the region that a class of groups is in as a whole, -1: in none.
    home, unit, stride: int64 [types], the region of a type (-1: in none), of how many devices its
        unit is, and by what each unit adds to the number of what is taken in its region.
    fits: bool [regions, N, N], there are as many devices as two numbers together.
    """

    of: NDArray[np.int64]
    home: NDArray[np.int64]
    unit: NDArray[np.int64]
    stride: NDArray[np.int64]
    fits: NDArray[np.bool_]

    @property
    def most(self) -> int:
        """Return how many numbers there are at most."""
        return int(self.fits.shape[2])

    def numbers(self, use: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each group's devices in its region, 0 in none.

        Parameters
        ----------
        use: int64 [groups, types and more], no more devices than there are. classes: int64
            [groups].
        """
        own = self.of[classes][:, None]
        units = use[:, : self.home.size] // self.unit * self.stride
        found: NDArray[np.int64] = np.where((own >= 0) & (own == self.home), units, 0).sum(axis=1)
        return found


def regions(
    types_of: Sequence[Sequence[int]],
    counts: Sequence[int],
    together: Sequence[Sequence[int]],
    units: Sequence[int],
) -> Regions:
    """Return regions.

    Parameters
    ----------
    types_of: the device types of each class of groups. counts: devices of each type. together: the
    types of each region. units: devices of each type that are counted at once.
    """
    home, stride = np.full(len(counts), -1, np.int64), np.ones(len(counts), np.int64)
    digits: list[NDArray[np.int64]] = []
    for region, types in enumerate(together):
        shape = [counts[kind] // units[kind] + 1 for kind in types]
        steps = np.cumprod([1, *shape[:-1]])
        home[list(types)], stride[list(types)] = region, steps
        digits.append(np.arange(int(np.prod(shape)))[:, None] // steps % shape)
    most = max((len(own) for own in digits), default=1)
    fits = np.zeros((len(digits), most, most), np.bool_)
    for region, (own, types) in enumerate(zip(digits, together, strict=True)):
        room = np.array([counts[kind] // units[kind] for kind in types])
        fits[region, : len(own), : len(own)] = (own[:, None] + own <= room).all(axis=2)
    of = []
    for kinds in types_of:
        homes = {int(home[kind]) for kind in kinds}
        of.append(homes.pop() if len(homes) == 1 else -1)
    return Regions(np.array(of, np.int64), home, np.array(units, np.int64), stride, fits)


@inner
def onwards(own, to, number, behind, regions):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of a group of a class that precedes one of class `to` with the number
    `behind`, -1 if there are not as many devices. number: of the group alone."""
    region = regions.of[own]
    if region < 0 or region != regions.of[to]:
        return number
    return behind + number if regions.fits[region, behind, number] else -1


@inner
def taken_in(own, used, regions):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the number of all devices that are used in the region of a class."""
    region = regions.of[own]
    number = 0
    for kind in range(regions.home.size):
        if region >= 0 and regions.home[kind] == region:
            number += used[kind] // regions.unit[kind] * regions.stride[kind]
    return number
