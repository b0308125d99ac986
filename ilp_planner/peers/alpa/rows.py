"""The genuine rows of Alpa's profile database, told from the numbers alone.

Its profiler runs an empty loop if a tensor is too small to be shared among a group, and its
`make_monotonic` overwrites every time that would mean a lower bandwidth than at the size before
(alpa/mesh_profiling.py); neither leaves a mark in the file.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SAME = 1e-9  # relative: bandwidths that were computed from each other, not measured alike


class RowKind(StrEnum):
    """The kind of a row.

    measured: genuine. carried: size / bandwidth of the size before, a mild underestimate. noop: an
    empty loop, the size is less than the group can share. carried_noop: the bandwidth of an empty
    loop. empty: an all-reduce of nothing. launch: a product of nothing. local: a group of one.
    failed: not measured.
    """

    MEASURED = "measured"
    CARRIED = "carried"
    NOOP = "noop"
    CARRIED_NOOP = "carried_noop"
    EMPTY = "empty"
    LAUNCH = "launch"
    LOCAL = "local"
    FAILED = "failed"


GENUINE = (RowKind.MEASURED, RowKind.CARRIED)


def collective_kinds(
    name: str, group_size: int, sizes: Sequence[float], seconds: Sequence[float]
) -> list[RowKind]:
    """Return the kind of each row of one series.
    sizes: elements of the whole tensor, ascending. seconds: inf if it failed."""
    # The profiler rounds the size down to a multiple of these elements; 0 is an empty loop.
    unit = {"all_reduce": 1, "all_to_all": group_size**2}.get(name, group_size)
    first = RowKind.EMPTY if name == "all_reduce" else RowKind.NOOP
    made = [RowKind.LOCAL if group_size == 1 else first if n < unit else None for n in sizes]
    return _kinds(sizes, seconds, made)


def product_kinds(flops: Sequence[float], seconds: Sequence[float]) -> list[RowKind]:
    """Return the kind of each row of one series of matrix products."""
    return _kinds(flops, seconds, [RowKind.LAUNCH if flop <= 0 else None for flop in flops])


def _kinds(
    sizes: Sequence[float], seconds: Sequence[float], made: Sequence[RowKind | None]
) -> list[RowKind]:
    """Return the kind of each row. made: from its size alone."""
    kinds: list[RowKind] = []
    for place, (time, kind) in enumerate(zip(seconds, made, strict=True)):
        found = kind if math.isfinite(time) else RowKind.FAILED
        kinds.append(found or _carried(place, sizes, seconds, kinds))
    return kinds


def _carried(
    place: int, sizes: Sequence[float], seconds: Sequence[float], kinds: Sequence[RowKind]
) -> RowKind:
    """Return whether a row has the bandwidth of the one before, and its origin."""
    if place == 0 or sizes[place - 1] <= 0 or not math.isfinite(seconds[place - 1]):
        return RowKind.MEASURED
    expected = sizes[place] * seconds[place - 1] / sizes[place - 1]
    if not math.isclose(seconds[place], expected, rel_tol=SAME):
        return RowKind.MEASURED
    fabricated = kinds[place - 1] in (RowKind.NOOP, RowKind.CARRIED_NOOP)
    return RowKind.CARRIED_NOOP if fabricated else RowKind.CARRIED
