"""The work of an operator for one micro-batch on one device, and its time.

A kernel takes its launch and the longer of its arithmetic and its memory traffic (the roofline of
Williams et al. 2009). Collectives run on a ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.profiles.kernel_times import KernelRates
from ilp_planner.job.work import FLASH_BACKWARD, FusedAttention, Product, Streamed
from ilp_planner.job.work import Kernel as Kernel
from ilp_planner.specs.training import QUANTISED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.link import Link
    from ilp_planner.specs.machine import Machine


MOST_KNOWN = 100_000  # kernels whose seconds are kept


class Exchange(NamedTuple):
    """One collective of the tensor-parallel ranks. size: bytes that each of them passes in."""

    primitive: str
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator, one micro-batch, one device; sizes in bytes.

    forward, backward: kernels. forward_exchanges, backward_exchanges: collectives.
    input, output: message over a pipeline cut before and after the operator, residuals included.
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


@dataclass(frozen=True, slots=True, eq=False)
class Roofline:
    """Kernels of a device from its data sheet and two shares of it alone."""

    device: Device

    def seconds(self, kernel: Kernel, precision: str) -> float:
        """Return the longer of arithmetic and memory traffic, after the launch."""
        device = self.device
        arithmetic = kernel.flops / device.arithmetic(precision)
        return device.launch + max(arithmetic, kernel.traffic / device.streaming)

    def fastest(self, precision: str) -> float:
        """Return the FLOP/s that no kernel exceeds.

        Raises
        ------
        SpecError: the device has no figure.
        """
        return self.device.arithmetic(precision)

    @property
    def streaming(self) -> float:
        """Bytes/s of kernels that only move bytes.

        Raises
        ------
        SpecError: the device has no figure.
        """
        return self.device.streaming

    def collective(self, name: str, ranks: int, size: float) -> float | None:
        """Return nothing: no data sheet has times of collectives."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Measured kernels of a GPU, on a machine.

    A kernel of arithmetic without a shape is a large product.
    """

    rates: KernelRates
    machine: Machine
    known: dict[tuple[Kernel, str], float] = field(default_factory=dict)

    def seconds(self, kernel: Kernel, precision: str) -> float:
        """Return the time of the kernel's shape."""
        found = self.known.get((kernel, precision))
        if found is None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[kernel, precision] = self._seconds(kernel, precision)
        return found

    def _seconds(self, kernel: Kernel, precision: str) -> float:
        rates, machine = self.rates, self.machine
        match kernel.shape:
            case Product() as p if p.batched:
                return rates.batched(p.m, p.n, p.k, count=p.copies, precision=precision)
            case Product() as p:
                product = partial(rates.grouped, streams=p.streams) if p.grouped else rates.product
                spent = product(
                    p.m, p.n, p.k, count=p.copies, precision=precision, accumulate=p.summed
                )
                return spent / (machine.grouped if p.grouped else 1.0) / self._low(precision)
            case FusedAttention(length, head, backward, library):
                flops = kernel.flops / (FLASH_BACKWARD if backward else 1.0)
                spent = rates.attention(
                    flops,
                    length,
                    head=head,
                    backward=backward,
                    precision=precision,
                    library=library,
                )
                return spent / (machine.attention_backward if backward else machine.attention)
        streamed = rates.stream(kernel.traffic)
        if not kernel.flops:
            return streamed
        spent = max(streamed, rates.large(kernel.flops, precision))
        return spent / machine.scan if isinstance(kernel.shape, Streamed) else spent

    def fastest(self, precision: str) -> float:
        """Return an upper bound on the FLOP/s of kernels, with the backward pass of attention
        counted as two products for each of the forward pass.

        Raises
        ------
        KeyError: nothing is known of that precision.
        """
        rates, machine = self.rates, self.machine
        forward, backward = rates.fastest_attention(precision)
        product = rates.fastest_product(precision) * self._low(precision)
        grouped = max(rates.constants.grouped, rates.constants.concurrent)
        return max(
            product * max(1.0, grouped * machine.grouped, machine.scan),
            forward * machine.attention,
            backward * machine.attention_backward,
        )

    def _low(self, precision: str) -> float:
        """Return the rate of products of a precision, of those that were measured."""
        return self.machine.low_precision if precision in QUANTISED.values() else 1.0

    @property
    def streaming(self) -> float:
        """Bytes/s of kernels that only move bytes."""
        return self.rates.bandwidth * self.machine.streaming

    def collective(self, name: str, ranks: int, size: float) -> float | None:
        """Return the seconds of a collective among ranks of one node; None: not measured.

        size: bytes as `job.modules.Message.size` counts them.
        """
        found = self.rates.collective(name, ranks, size)
        return None if found is None else found / self.machine.links


Rates = Roofline | Measured


@lru_cache(maxsize=256)  # a fit of constants asks for thousands
def rates_of(device: Device) -> Rates:
    """Return the times of kernels on a device; the same of equal ones."""
    if device.kernels is None:
        return Roofline(device)
    machine = device.machine
    rates = KernelRates(
        device.peak or {},
        device.memory_bandwidth or 0.0,
        device.processors or 1,
        device.kernels,
        machine.sustained,
        machine.streaming,
    )
    return Measured(rates, machine)


def kernel_time(kernels: Iterable[Kernel], device: Device, precision: str) -> float:
    """Return seconds of the kernels, one after the other."""
    return sum(map(kernel_timer(device, precision), kernels))


def kernel_timer(device: Device, precision: str, quantised: str = "") -> Callable[[Kernel], float]:
    """Return a function from a kernel to its seconds. quantised: format of the products that
    are not of the training precision."""
    seconds, low = rates_of(device).seconds, quantised or precision

    def timer(kernel: Kernel) -> float:
        shape = kernel.shape
        quantised = low != precision and isinstance(shape, Product) and shape.quantised
        return seconds(kernel, low if quantised else precision)

    return timer


def exchange_time(exchange: Exchange, devices: int, link: Link) -> float:
    """Return seconds of a ring collective: latency, and the bytes that each device sends.

    Each sends (n - 1) / n of the tensor, in an all-reduce twice that. The tensor of an all-gather
    is n times a device's input (the accounting of `nccl-tests`, doc/PERFORMANCE.md).
    """
    if devices == 1:
        return 0.0
    sent = exchange.size * (devices - 1) / devices
    if exchange.primitive == "all_reduce":
        sent *= 2
    elif exchange.primitive == "all_gather":
        sent *= devices
    return link.latency + sent / link.collective_bandwidth(devices)
