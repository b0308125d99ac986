"""The plan of measuring links: settings, and groups of ranks, collectives and sizes."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ilp_planner.costs.profiles.measurements import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
POINT_TO_POINT = "send_recv"
OPERATIONS = (*COLLECTIVES, POINT_TO_POINT)
ROWS = "rows planned"  # key of the machine's lines
BYTES_PER_ELEMENT = 4  # float32
SMALLEST = 256  # bytes, of the default sizes
FACTOR = 4  # from one of them to the next: gaps that a predictor bridges within a few percent


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """The wished measurements.

    sizes: bytes of the whole tensor. repeats: of a row, at most. seconds: for all of it, about.
    timeout: seconds until a rank that does not answer counts as lost.
    device_name: of the devices in the table; their own names if it is empty.
    """

    output: str
    backend: str
    sizes: tuple[int, ...]
    operations: tuple[str, ...]
    repeats: int = 20
    seconds: float = 600.0
    timeout: float = 120.0
    device_name: str = ""

    def to_json(self) -> str:
        """Return the settings as text for another process."""
        return json.dumps(asdict(self))


def settings_of(text: str) -> LinkSettings:
    """Return the settings that `LinkSettings.to_json` wrote."""
    found = json.loads(text)
    return LinkSettings(
        **{**found, "sizes": tuple(found["sizes"]), "operations": tuple(found["operations"])}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Groups of ranks that do the same at the same time.

    groups: the ranks of each. hosts: that each is on. stride: between neighbours of a group.
    """

    groups: tuple[tuple[int, ...], ...]
    hosts: int
    stride: int

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return len(self.groups[0])

    def group_of(self, rank: int) -> tuple[int, ...] | None:
        """Return the group that a rank is in, if any."""
        return next((group for group in self.groups if rank in group), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One operation in one case; sizes: bytes of the whole tensor, ascending."""

    operation: str
    case: Case
    sizes: tuple[int, ...]

    @property
    def record(self) -> Record:
        """The record of its rows."""
        return Record.POINT_TO_POINT if self.operation == POINT_TO_POINT else Record.COLLECTIVE

    def __str__(self) -> str:
        case = self.case
        at = f", stride {case.stride}" if case.stride > 1 else ""
        times = f" x {len(case.groups)}" if len(case.groups) > 1 else ""
        hosts = f" on {case.hosts} hosts" if case.hosts > 1 else ""
        return f"{self.operation} among {case.size}{times}{hosts}{at}"


def default_sizes(largest: int) -> tuple[int, ...]:
    """Return sizes from tiny to the largest, evenly spaced in their logarithm."""
    powers = (SMALLEST * FACTOR**k for k in itertools.count())
    return (*itertools.takewhile(lambda size: size < largest, powers), largest)


def cases_of(host_of: Sequence[int]) -> tuple[Case, ...]:
    """Return the groups to measure: the groups of parallel training.

    Sizes are the powers of two, a whole host and all ranks; strides the powers of two, and a host's
    ranks. Groups of a size and stride split the ranks into blocks; equal groups on the hosts are
    measured all at the same time, as in training, and then one alone.

    host_of: the host of each rank, from 0; the ranks of a host follow each other.
    """
    ranks = len(host_of)
    per_host = min(host_of.count(host) for host in set(host_of))
    powers = {2**k for k in range(ranks.bit_length())}
    sizes = sorted(n for n in powers | {per_host, ranks} if 2 <= n <= ranks)
    strides = sorted(n for n in powers | {per_host} if n < ranks)
    cases = []
    for size in sizes:
        for stride in strides:
            alike: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
            for group in _blocks(ranks, size, stride):
                alike.setdefault(_layout(group, host_of), []).append(group)
            for layout, groups in alike.items():
                cases.append(Case(groups=tuple(groups), hosts=len(layout), stride=stride))
                if len(groups) > 1:
                    cases.append(Case(groups=(groups[0],), hosts=len(layout), stride=stride))
    return tuple(cases)


def _blocks(ranks: int, size: int, stride: int) -> Iterator[tuple[int, ...]]:
    """Yield groups of a size and a stride that share no rank."""
    for begin in range(0, ranks - size * stride + 1, size * stride):
        for first in range(begin, begin + stride):
            yield tuple(range(first, first + size * stride, stride))


def _layout(group: Sequence[int], host_of: Sequence[int]) -> tuple[int, ...]:
    """Return how many ranks of a group each of its hosts has."""
    hosts = [host_of[rank] for rank in group]
    return tuple(hosts.count(host) for host in dict.fromkeys(hosts))


def series_of(
    cases: Sequence[Case], operations: Sequence[str], sizes: Sequence[int]
) -> tuple[Series, ...]:
    """Return every operation in every case that has it; messages are between two."""
    return tuple(
        Series(
            operation=operation,
            case=case,
            sizes=tuple(sorted({whole_size(operation, case.size, size) for size in sizes})),
        )
        for case in cases
        for operation in operations
        if operation != POINT_TO_POINT or case.size == 2
    )


def whole_size(operation: str, group_size: int, size: int) -> int:
    """Return the least size from the given one on that the ranks can share evenly, in bytes.

    Of an all-to-all each rank has a share, and sends a share of that to every other.
    """
    shares = {"all_gather": group_size, "reduce_scatter": group_size, "all_to_all": group_size**2}
    unit = BYTES_PER_ELEMENT * shares.get(operation, 1)
    return max(math.ceil(size / unit), 1) * unit
