"""What an operator does for one micro-batch on one device, and how long that takes.

A kernel takes its launch and the longer of its arithmetic and its memory traffic (the roofline of
Williams et al. 2009). Collectives run on a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.anatomy.work import Kernel as Kernel

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import Device, Link


class Exchange(NamedTuple):
    """One collective of the tensor-parallel ranks. size: bytes that each of them passes in."""

    primitive: str
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator, one micro-batch, one device; sizes in bytes.

    forward, backward: kernels. forward_exchanges, backward_exchanges: collectives.
    input, output: what crosses a pipeline cut before and after the operator, residuals included.
    activations: kept for the backward pass.
    forward_reserved, backward_reserved: temporary buffers.
    """

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    forward_exchanges: tuple[Exchange, ...] = ()
    backward_exchanges: tuple[Exchange, ...] = ()
    input: float
    output: float
    activations: float
    forward_reserved: float = 0.0
    backward_reserved: float = 0.0


def streaming(traffic: float) -> tuple[Kernel, ...]:
    """Return one kernel that only moves bytes."""
    return (Kernel(0.0, traffic),)


def product(flops: float, left: float, right: float, result: float) -> tuple[Kernel, ...]:
    """Return a matrix product of two operands of so many bytes."""
    return (Kernel(flops, left + right + result),)


def product_backward(flops: float, left: float, right: float, result: float) -> tuple[Kernel, ...]:
    """Return the gradients of a matrix product: one product of the same size for each operand."""
    return 2 * product(flops, left, right, result)


def kernel_time(kernels: tuple[Kernel, ...], device: Device, precision: str) -> float:
    """Return seconds of the kernels, one after the other."""
    rate, bandwidth = device.arithmetic(precision), device.streaming
    return sum(device.launch + max(k.flops / rate, k.traffic / bandwidth) for k in kernels)


def exchange_time(exchange: Exchange, devices: int, link: Link) -> float:
    """Return seconds of a ring collective: latency, and the bytes that each device sends.

    Each sends (n - 1) / n of the tensor, in an all-reduce twice that. The tensor of an all-gather
    is n times what a device passes in (the accounting of `nccl-tests`, doc/PERFORMANCE.md).
    """
    if devices == 1:
        return 0.0
    sent = exchange.size * (devices - 1) / devices
    if exchange.primitive == "all_reduce":
        sent *= 2
    elif exchange.primitive == "all_gather":
        sent *= devices
    return link.latency + sent / link.collective_bandwidth(devices)
