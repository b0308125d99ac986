"""Seconds of single kernels on one GPU: products by shape, attention by length, the rest by bytes.

A matrix product is cut into tiles that run in waves over the GPU's processors; if there are few
tiles, k is split among several of them and their results are added up. Of the usual tiles and
splits the fastest one counts; the part of edge tiles beyond the operands takes less. With T seconds
of arithmetic and M of operands through memory, a product takes (T^(1/b) + M^(1/b))^b, at least the
longer of the two. Constants come from measured tables (`specs.kernel_constants`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.kernel_constants import SPARSE, SPARSE_BACKWARD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.kernel_constants import Curve, KernelConstants, ProductConstants

# (rows, columns, exponent of p1, exponent of p2), by falling area.
TILES = (
    (256, 128, 0, 0),
    (128, 256, 0, 0),
    (128, 128, 1, 0),
    (128, 64, 1, 1),
    (64, 128, 1, 1),
    (64, 64, 1, 2),
)
SPLITS = (2, 4, 8)
# Bytes of an operand's element; results are 16 bits wide, of 32-bit operands 32.
WIDTHS = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
TENSOR_CORES = "bf16"  # whose constants stand for those of precisions that were not measured
PARTIAL = 4  # bytes of an element that is still to be added to others
ACCUMULATE = 0.96  # rate of a product that adds into fp32, of a plain one's
UNFUSED = 0.6  # rate of attention's batched products, of single ones'
BLOCK = 128  # queries that a processor takes at once in fused attention
HEAD = 128  # channels of the heads that attention was measured with
IN_8_BITS = "fp8"  # attention, of `job.work.LIBRARIES`
BACKWARD_WORK = 2.5  # of fused attention, which computes the scores again


class _Tile(NamedTuple):
    """Rows, columns, and seconds per step along k of one of them on one processor."""

    rows: int
    columns: int
    step: float


@dataclass(frozen=True)
class KernelRates:
    """A GPU's rates, and how near to them its kernels come.

    peak: FLOP/s by precision, dense. bandwidth: bytes/s of its memory. processors: streaming
    multiprocessors, or compute units. sustained: the clock of this machine under load, of the one
    that the constants were measured at. streaming: share of the bandwidth that passes over
    memory reach.
    """

    peak: Mapping[str, float]
    bandwidth: float
    processors: int
    constants: KernelConstants
    sustained: float = 1.0
    streaming: float = 1.0

    def product(
        self,
        m: float,
        n: float,
        k: float,
        *,
        count: float = 1,
        precision: str = TENSOR_CORES,
        accumulate: float = 0.0,
    ) -> float:
        """Return the seconds of (m x k) by (k x n), or of so many of them in one kernel.

        accumulate: bytes of a number that the product is added to, as gradients of weights are; 0:
        it is not.

        Raises
        ------
        KeyError: nothing is known of that precision on this GPU.
        """
        return self._product((m, n, k, count), precision, accumulate, 1.0)

    def grouped(
        self,
        m: float,
        n: float,
        k: float,
        *,
        count: float,
        streams: int = 0,
        precision: str = TENSOR_CORES,
        accumulate: float = 0.0,
    ) -> float:
        """Return the seconds of the products of so many experts with m rows each.

        Parameters
        ----------
        streams: each is a kernel of its own, so many of them side by side; 0: all are one kernel.
        accumulate: the gradients of their weights, m x n each, from k rows.
        """
        shape, of = (m, n, k, count), self.constants
        if not streams:
            return self._product(shape, precision, accumulate, of.grouped)
        beside = min(streams, count)
        return self._product(shape, precision, accumulate, of.concurrent, count / beside)

    def batched(
        self, m: float, n: float, k: float, *, count: float, precision: str = TENSOR_CORES
    ) -> float:
        """Return the seconds of one of the two products of attention that is not fused.

        count: heads of all sequences.
        """
        return self._product((m, n, k, count), precision, 0.0, UNFUSED)

    def attention(
        self,
        flops: float,
        length: float,
        *,
        head: float = HEAD,
        backward: bool = False,
        precision: str = TENSOR_CORES,
        library: str = "",
    ) -> float:
        """Return the seconds of fused attention.

        Parameters
        ----------
        flops: of the forward pass, without masked ones.
        length: tokens of a sequence.
        head: channels of a head.
        backward: the backward pass instead, 2.5 times the work.
        library: one of `job.work.LIBRARIES`; empty: the one that was measured.
        """
        constants = self.constants.flash.get(library, self.constants.attention)
        if library == IN_8_BITS:
            constants = self.constants.attention_fp8 or constants
        slowed = SPARSE_BACKWARD if library == SPARSE else constants.backward
        delay = constants.w0 * 2 * length * head * BLOCK * self.processors
        work = flops + delay
        if backward:
            work = (BACKWARD_WORK * flops + delay) / slowed
        slower = (length + constants.s0) / length
        if head < HEAD:
            slower *= (1 + constants.h0 / head) / (1 + constants.h0 / HEAD)
        rate = self.peak[precision] * self.sustained * constants.f0
        return self.constants.launch + work * slower / rate

    def large(self, flops: float, precision: str = TENSOR_CORES) -> float:
        """Return the seconds of a product from its arithmetic alone: a large one."""
        constants = self._constants(precision)
        return constants.t0 + flops / (self.peak[precision] * constants.e * self.sustained)

    def fastest_product(self, precision: str = TENSOR_CORES) -> float:
        """Return an upper bound on the FLOP/s of products of this precision: the best tile's,
        without edges, starts and traffic."""
        constants = self._constants(precision)
        tile = max(constants.p1**i * constants.p2**j for _, _, i, j in TILES)
        return self.peak[precision] * self.sustained * constants.e * max(1.0, tile)

    def fastest_attention(self, precision: str = TENSOR_CORES) -> tuple[float, float]:
        """Return an upper bound on the FLOP/s of fused attention, for an endless sequence: in the
        forward pass, and in the backward pass, with two products for each forward one."""
        libraries = (self.constants.attention, *self.constants.flash.values())
        rate = self.peak[precision] * self.sustained
        forward = max(each.f0 for each in libraries)
        backward = max(each.f0 * each.backward for each in libraries)
        return rate * forward, rate * backward * 2 / BACKWARD_WORK

    def stream(self, traffic: float) -> float:
        """Return the seconds of one kernel that reads and writes so many bytes."""
        return self.constants.launch + traffic / (self.bandwidth * self.streaming)

    def collective(self, name: str, ranks: int, size: float) -> float | None:
        """Return the seconds of a collective among ranks of one node; None: not measured.

        size: bytes as `job.modules.Message.size` counts them. Between measured sizes, and
        between measured numbers of ranks, both logarithms are interpolated; above the largest size,
        time grows with it.
        """
        curves = self.constants.curves.get(name, {})
        if ranks in curves:
            return interpolated(curves[ranks], size)
        below = max((n for n in curves if n < ranks), default=None)
        above = min((n for n in curves if n > ranks), default=None)
        if below is None or above is None:
            return None
        ends = tuple((n, interpolated(curves[n], size)) for n in (below, above))
        return interpolated(ends, ranks)

    def _constants(self, precision: str) -> ProductConstants:
        products = self.constants.products
        return products[precision] if precision in products else products[TENSOR_CORES]

    @cached_property
    def _tiles(self) -> dict[str, tuple[_Tile, ...]]:
        """Tiles by precision, each with its seconds per step along k."""
        found = {}
        for precision, peak in self.peak.items():
            each = peak / self.processors * self.sustained
            of = self._constants(precision)
            found[precision] = tuple(
                _Tile(rows, columns, 2 * rows * columns / (each * of.e * of.p1**i * of.p2**j))
                for rows, columns, i, j in TILES
            )
        return found

    @cached_property
    def _known(self) -> dict[tuple[tuple[float, float, float, float], str], float]:
        """Results of `_tiled`: thousands of jobs of a search have the same products."""
        return {}

    def _product(
        self,
        shape: tuple[float, float, float, float],
        precision: str,
        accumulate: float,
        rate: float,
        turns: float = 1.0,
    ) -> float:
        """Return the seconds of products at a rate, of that of single plain ones.

        turns: equal parts of them that run one after the other.
        """
        m, n, k, count = shape
        constants = self._constants(precision)
        width = WIDTHS[precision]
        out = 2 * accumulate or max(width, 2.0)
        traffic = count * (width * k * (m + n) + out * m * n)
        work = turns * self._tiled((m, n, k, count / turns), precision, constants) / rate
        if accumulate:
            work /= ACCUMULATE
        memory = traffic / (self.bandwidth * constants.ew)
        return constants.t0 + _together(work, memory, constants.blend)

    def _tiled(
        self, shape: tuple[float, float, float, float], precision: str, constants: ProductConstants
    ) -> float:
        """Return the seconds of products by their best tile and split of k."""
        if (shape, precision) in self._known:
            return self._known[shape, precision]
        m, n, k, count = shape
        q, k0, edge = constants.q, constants.k0, constants.edge
        partial = PARTIAL * count * m * n / (self.bandwidth * constants.ew)
        best = math.inf
        for rows, columns, step in self._tiles[precision]:
            down, across = m / rows, n / columns
            down += edge * (math.ceil(down) - down)
            across += edge * (math.ceil(across) - across)
            waves = down * across * count / self.processors
            floor = waves * step
            if floor * (k + k0) >= best:
                continue
            full = (1 - q) * max(waves, 1.0) + q * math.ceil(waves)
            best = min(best, full * step * (k + k0))
            for split in SPLITS:
                if floor * (k + split * k0) + split * partial >= best:
                    break
                w = waves * split
                full = (1 - q) * max(w, 1.0) + q * math.ceil(w)
                best = min(best, full * step * (k / split + k0) + split * partial)
        self._known[shape, precision] = best
        return best


def _together(one: float, other: float, blend: float) -> float:
    """Return the seconds of arithmetic and traffic in one kernel."""
    longer, shorter = max(one, other), min(one, other)
    if not blend or not shorter:
        return longer
    return float(longer * (1 + (shorter / longer) ** (1 / blend)) ** blend)


def interpolated(curve: Curve, size: float) -> float:
    """Return the seconds of a size on a curve of (size, seconds), straight between logarithms.

    Below the first point it is that point's time; above the last, time grows as the size.
    """
    place = bisect_right(curve, size, key=lambda point: point[0])
    if place == 0:
        return curve[0][1]
    low, time = curve[place - 1]
    if place == len(curve):
        return time * size / low
    high, later = curve[place]
    share = math.log(size / low) / math.log(high / low)
    return time * math.exp(share * math.log(later / time))
