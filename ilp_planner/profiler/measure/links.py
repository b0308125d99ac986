"""Measure the times of collectives and messages, as one of the ranks.

A row is the median over repeats, of each repeat the slowest rank. A repeat begins at a barrier and
is as many runs after each other as last a while, so that neither the clock nor the barrier counts.
Before it is timed, an operation must have brought the right values to the right places.

All ranks of a measurement: their identities, agreements and slowest time.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ilp_planner.base.errors import MeasureError
from ilp_planner.base.units import counted
from ilp_planner.costs.profiles.measurements import RowStatus
from ilp_planner.faces.cli.terminal import measuring_bar
from ilp_planner.profiler.measure.journal import Journal
from ilp_planner.profiler.measure.links_ops import Operation, make_operation
from ilp_planner.profiler.measure.links_plan import (
    POINT_TO_POINT,
    ROWS,
    Case,
    LinkSettings,
    Series,
    cases_of,
    series_of,
)
from ilp_planner.profiler.measure.machine import describe_machine, device_name
from ilp_planner.profiler.measure.target import median_spread, memory_of_host

if TYPE_CHECKING:
    from collections.abc import Sequence


# ---- links world ---------------------------------------------------------------------------------


SHARE_OF_MEMORY = 0.5  # of what the host has free, for the buffers of its ranks


@dataclass(frozen=True, kw_only=True)
class World:
    """The ranks, as one of them sees them.

    control: a group of all ranks for unmeasured messages; through the processors, so that a device
    that waits for its turn is idle. host_of: by rank, from 0. devices: their names, by rank.
    patience: until a rank that does not answer counts as lost.
    """

    rank: int
    size: int
    backend: str
    device: Any
    control: Any
    host_of: tuple[int, ...]
    devices: tuple[str, ...]
    patience: timedelta

    @property
    def kind(self) -> str:
        """The kind of devices: `cuda` or `cpu`."""
        return "cuda" if self.backend == "nccl" else "cpu"

    def all(self, mine: bool) -> bool:
        """Return whether it is true of every rank."""
        return self.slowest([0.0 if mine else 1.0])[0] == 0.0

    def slowest(self, mine: Sequence[float]) -> list[float]:
        """Return the largest of each number among all ranks."""
        values = torch.tensor(list(mine), dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.control)
        return [float(value) for value in values]

    def barrier(self) -> None:
        """Wait for all."""
        dist.barrier(group=self.control)

    def synchronize(self) -> None:
        """Wait until the device has done its work."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.device)

    def open_groups(self, case: Case) -> list[Any]:
        """Make the process groups of a case; all ranks take part in making each.

        Raises
        ------
        RuntimeError: torch's own.
        """
        return [
            dist.new_group(list(ranks), timeout=self.patience, backend=self.backend)
            for ranks in case.groups
        ]

    def close_groups(self, groups: Sequence[Any]) -> None:
        """Give their connections and memory back."""
        for group in groups:
            if group != dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def has_room(self, size: int) -> bool:
        """Return whether this host has memory for the buffers of its ranks, of `size` bytes each.

        Devices refuse for themselves; a system that promises more memory than it has kills.
        """
        if self.kind == "cuda":
            return True
        ranks = self.host_of.count(self.host_of[self.rank])
        return size * ranks <= SHARE_OF_MEMORY * memory_of_host()


def join_world(backend: str, timeout: float, name: str = "") -> World:
    """Meet the other ranks, as the environment that torchrun makes says.

    timeout: seconds until a rank that does not answer counts as lost.
    name: of the devices in a table; their own names if it is empty.

    Raises
    ------
    MeasureError: no GPU for this rank, or the others cannot be met.
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cpu")
    if backend == "nccl":
        count = torch.cuda.device_count()
        if local >= count:
            raise MeasureError(
                f"rank {os.environ['RANK']}: no GPU for it: found {count} on this host, expected "
                f"at least {local + 1} (`backend=gloo` measures between processors)"
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    patience = timedelta(seconds=timeout)
    try:
        dist.init_process_group(backend, timeout=patience)
        control = dist.new_group(backend="gloo", timeout=patience)
        host = os.environ.get("GROUP_RANK") or platform.node()
        everybody: list[Any] = [None] * dist.get_world_size()
        name = name or device_name("cuda" if backend == "nccl" else "cpu", local)
        dist.all_gather_object(everybody, (host, name), group=control)
    except (RuntimeError, ValueError) as error:
        raise MeasureError(f"the ranks cannot meet: {first_line(error)}") from None
    names = [host for host, _ in everybody]
    hosts = list(dict.fromkeys(names))
    host_of = tuple(hosts.index(name) for name in names)
    if sorted(host_of) != list(host_of):
        raise MeasureError(
            "the ranks of a host must follow each other, as torchrun numbers them; found hosts "
            + ", ".join(names)
        )
    return World(
        rank=dist.get_rank(),
        size=dist.get_world_size(),
        backend=backend,
        device=device,
        control=control,
        host_of=host_of,
        devices=tuple(device for _, device in everybody),
        patience=patience,
    )


def first_line(error: BaseException) -> str:
    """Return the message of an error, without PyTorch's stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# ---- links ---------------------------------------------------------------------------------------


LEAST_REPEATS = 3  # of a row that time is short for
REPEAT_SECONDS = 5e-3  # that the runs of a repeat last at least, where the time for the row allows
MOST_RUNS = 1000  # of a repeat
# A size is left out where so many times its share of the time would not do for the least repeats.
OVERDRAFT = 4.0
SLOW_LINK = 1e8  # bytes per second, where one size is all that is known: gigabit Ethernet


def measure_links(settings: LinkSettings) -> None:
    """Measure together with the other ranks; the first writes the table, row by row.

    Raises
    ------
    MeasureError: a rank or its device is lost, or an operation brings wrong values.
    OutputError: the table cannot be written.
    """
    world = join_world(settings.backend, settings.timeout, settings.device_name)
    try:
        _measure(world, settings)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, MeasureError):
            raise
        raise MeasureError(f"rank {world.rank}: {first_line(error)}") from None
    dist.destroy_process_group()


def _measure(world: World, settings: LinkSettings) -> None:
    operations, left_out = _supported(world, settings.operations)
    cases = cases_of(world.host_of)
    plan = series_of(cases, operations, settings.sizes)
    hosts = len(set(world.host_of))
    rows = sum(len(series.sizes) for series in plan)
    machine = {
        **describe_machine(world.kind, world.device.index or 0),
        "backend": world.backend,
        "ranks": f"{world.size} on {counted(hosts, 'host')}",
        ROWS: str(rows),
    }
    if left_out:
        machine["left out"] = "; ".join(left_out)
    journal = Journal(Path(settings.output), machine)
    deadline = time.monotonic() + settings.seconds
    done = 0
    with measuring_bar(rows, shown=world.rank == 0) as show:
        for case in cases:
            groups = world.open_groups(case)
            for series in (s for s in plan if s.case == case):
                known: list[tuple[int, float]] = []  # sizes before, and their seconds
                for size in series.sizes:
                    show(done, str(series))
                    left = (deadline - time.monotonic()) / (rows - done)
                    budget = -world.slowest([-left])[0]  # the least: all decide alike
                    done += 1
                    if LEAST_REPEATS * expected_time(known, size) > OVERDRAFT * max(budget, 0.0):
                        continue
                    row = _row(world, series, groups, size, settings.repeats, budget)
                    known.append((size, row.get("time_s", math.inf)))
                    if world.rank == 0:
                        journal.add(row)
            world.close_groups(groups)
    journal.close()


def expected_time(known: Sequence[tuple[int, float]], size: int) -> float:
    """Return seconds that a larger size will take, on the line of the last two; 0 for the first.

    known: sizes and seconds, ascending.
    """
    if not known:
        return 0.0
    last, seconds = known[-1]
    if len(known) == 1 or not math.isfinite(seconds):
        return seconds + (size - last) / SLOW_LINK
    before, earlier = known[-2]
    return seconds + max(seconds - earlier, 0.0) / (last - before) * (size - last)


def _supported(world: World, operations: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the operations that the backend has, and why it has not the others."""
    everybody = tuple(range(world.size))
    found, lacking = [], []
    for name in operations:
        ranks = everybody[:2] if name == POINT_TO_POINT else everybody
        case = Case(groups=(ranks,), hosts=1, stride=1)
        groups = world.open_groups(case)
        problem = ""
        if world.rank in ranks:
            try:
                size = 64 * len(ranks) ** 2
                operation = make_operation(name, size, ranks, world.rank, groups[0], world.device)
                operation.run()
                world.synchronize()
            except (RuntimeError, StopIteration) as error:
                problem = first_line(error)
        if world.all(not problem):
            found.append(name)
        else:
            lacking.append(f"{name} ({problem or 'not on every rank'})")
        world.close_groups(groups)
    if not found:
        raise MeasureError(f"{world.backend} can do nothing here: {lacking[0]}")
    return found, lacking


def _row(
    world: World, series: Series, groups: list[Any], size: int, repeats: int, budget: float
) -> dict[str, Any]:
    """Measure one size. budget: seconds that it may take, about."""
    case = series.case
    row: dict[str, Any] = {
        "record": series.record,
        "device": "+".join(sorted({world.devices[r] for group in case.groups for r in group})),
        "name": series.operation,
        "dtype": "fp32",
        "group_size": case.size,
        "hosts": case.hosts,
        "stride": case.stride,
        "groups": len(case.groups),
        "bytes": size,
    }
    operation, fits = _prepare(world, series, groups, size)
    if not world.all(fits):
        return {**row, "status": RowStatus.OUT_OF_MEMORY}
    _prove(world, operation, f"{series}, {size} bytes")
    _timed(world, operation, 1)
    once = world.slowest([_timed(world, operation, 1)])[0]
    room = max(budget, 0.0)
    runs = min(math.ceil(REPEAT_SECONDS / once), MOST_RUNS, math.ceil(room / repeats / once))
    runs = max(runs, 1)
    count = max(LEAST_REPEATS, min(repeats, int(room / (runs * once))))
    mine = [_timed(world, operation, runs) / runs for _ in range(count)]
    times = world.slowest(mine)
    seconds = statistics.median(times) / (2 if series.operation == POINT_TO_POINT else 1)
    return {**row, "time_s": seconds, "spread": median_spread(times), "repeats": count}


def _prepare(
    world: World, series: Series, groups: list[Any], size: int
) -> tuple[Operation | None, bool]:
    """Return this rank's part, if it has one, and whether there is memory for it."""
    if not world.has_room(2 * size):
        return None, False
    ranks = series.case.group_of(world.rank)
    if ranks is None:
        return None, True
    group = groups[series.case.groups.index(ranks)]
    try:
        made = make_operation(series.operation, size, ranks, world.rank, group, world.device)
        return made, True
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
            return None, False
        raise


def _prove(world: World, operation: Operation | None, what: str) -> None:
    """Run once on values that tell whether it was done; a MeasureError if it was not."""
    right = True
    if operation is not None:
        operation.fill()
        operation.run()
        world.synchronize()
        right = operation.right()
        operation.quiet()
        world.synchronize()
    if not world.all(right):
        raise MeasureError(
            f"{what}: its result is wrong, so its time would mean nothing: the links or "
            f"{world.backend} are broken"
        )


def _timed(world: World, operation: Operation | None, runs: int) -> float:
    """Return seconds that some runs take this rank, from a barrier of all ranks on."""
    world.barrier()
    if operation is None:
        return 0.0
    begun = time.perf_counter()
    for _ in range(runs):
        operation.run()
    world.synchronize()
    return time.perf_counter() - begun
