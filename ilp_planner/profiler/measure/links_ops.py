"""The operations of `torch.distributed` that are measured, each with a proof that it was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ilp_planner.profiler.measure.links_plan import BYTES_PER_ELEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation on buffers of its own.

    run: do it once. fill: put values in that tell ranks and places apart, and spoil the result.
    right: whether the result is correct for these values. quiet: put zeros in, which stay zeros
    however often a sum is done in place.
    """

    run: Callable[[], None]
    fill: Callable[[], None]
    right: Callable[[], bool]
    quiet: Callable[[], None]


def make_operation(
    name: str, size: int, ranks: Sequence[int], rank: int, group: Any, device: Any
) -> Operation:
    """Return an operation as one rank of a group does it. size: bytes of the whole tensor. ranks:
    of the group. rank: this one, of all. group: the process group.

    Raises
    ------
    RuntimeError: the device has not the memory (torch's own).
    """
    elements = size // BYTES_PER_ELEMENT
    makers = {
        "all_reduce": _all_reduce,
        "all_gather": _all_gather,
        "reduce_scatter": _reduce_scatter,
        "all_to_all": _all_to_all,
        "broadcast": _broadcast,
        "send_recv": _send_recv,
    }
    return makers[name](elements, list(ranks), list(ranks).index(rank), group, device)


def _named(*names: str) -> Callable[..., Any]:
    """Return the first of these functions that this version of PyTorch has."""
    found: Callable[..., Any] = next(getattr(dist, n) for n in names if hasattr(dist, n))
    return found


def _zeros(count: int, device: Any) -> Any:
    return torch.zeros(count, dtype=torch.float32, device=device)


def _holds(tensor: Any, value: float) -> bool:
    return bool((tensor == value).all().item())


def _all_reduce(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    buffer = _zeros(n, device)
    count = len(ranks)

    def fill() -> None:
        buffer.fill_(me + 1)
        buffer[-1] = 2 * me + 1

    def right() -> bool:
        body = _holds(buffer[:-1], count * (count + 1) / 2)
        return body and _holds(buffer[-1:], count**2)

    return Operation(
        run=lambda: dist.all_reduce(buffer, group=group),
        fill=fill,
        right=right,
        quiet=lambda: buffer.zero_(),
    )


def _all_gather(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    gather = _named("all_gather_single", "all_gather_into_tensor")
    whole, share = _zeros(n, device), _zeros(n // len(ranks), device)

    def fill() -> None:
        share.fill_(me + 1)
        whole.fill_(-1)

    return Operation(
        run=lambda: gather(whole, share, group=group),
        fill=fill,
        right=lambda: all(_holds(part, i + 1) for i, part in enumerate(whole.chunk(len(ranks)))),
        quiet=lambda: share.zero_(),
    )


def _reduce_scatter(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")
    count = len(ranks)
    whole, share = _zeros(n, device), _zeros(n // count, device)

    def fill() -> None:
        for place, part in enumerate(whole.chunk(count)):
            part.fill_(place * count + me)
        share.fill_(-1)

    return Operation(
        run=lambda: scatter(share, whole, group=group),
        fill=fill,
        right=lambda: _holds(share, me * count**2 + count * (count - 1) / 2),
        quiet=lambda: whole.zero_(),
    )


def _all_to_all(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    count = len(ranks)
    sent, received = _zeros(n // count, device), _zeros(n // count, device)

    def fill() -> None:
        for place, part in enumerate(sent.chunk(count)):
            part.fill_(me * count + place + 1)
        received.fill_(-1)

    return Operation(
        run=lambda: dist.all_to_all_single(received, sent, group=group),
        fill=fill,
        right=lambda: all(
            _holds(part, i * count + me + 1) for i, part in enumerate(received.chunk(count))
        ),
        quiet=lambda: sent.zero_(),
    )


def _broadcast(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    """From the first, then from the next and so on: none can run ahead of the ranks that it waits
    for."""
    buffer = _zeros(n, device)
    turn = 0

    def run() -> None:
        nonlocal turn
        dist.broadcast(buffer, ranks[turn % len(ranks)], group=group)
        turn += 1

    return Operation(
        run=run,
        # Whoever's turn it is, its value must be everywhere.
        fill=lambda: buffer.fill_(me + 1),
        right=lambda: _holds(buffer, (turn - 1) % len(ranks) + 1),
        quiet=lambda: buffer.zero_(),
    )


def _send_recv(n: int, ranks: list[int], me: int, group: Any, device: Any) -> Operation:
    """There and back, because only that is over when the sender knows it."""
    sent, received = _zeros(n, device), _zeros(n, device)
    other = ranks[1 - me]

    def run() -> None:
        if me == 0:
            dist.send(sent, other, group=group)
            dist.recv(received, other, group=group)
        else:
            dist.recv(received, other, group=group)
            dist.send(sent, other, group=group)

    def fill() -> None:
        sent.fill_(me + 1)
        received.fill_(-1)

    return Operation(
        run=run, fill=fill, right=lambda: _holds(received, 2 - me), quiet=lambda: sent.zero_()
    )
