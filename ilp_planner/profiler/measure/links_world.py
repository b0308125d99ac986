"""All ranks of a measurement: their identities, agreements and slowest time."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ilp_planner.base.errors import MeasureError
from ilp_planner.profiler.measure.machine import device_name
from ilp_planner.profiler.measure.target import memory_of_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.profiler.measure.links_plan import Case

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
