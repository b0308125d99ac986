"""Products of experts that run side by side on streams, as Transformer Engine's GroupedLinear
starts them: MooreThreads/SimuMax measured `general_grouped_gemm` with 20 to 256 of them at once.

Each is a product of cuBLAS, four run at a time, and the host starts one after the other. Two
constants: their rate, of that of single products, and the seconds of a start. The machine's clock
is known from its single products. B200's rows are of two models' shapes; the errors are those of
either model by the constants of the other.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.job.shard import STREAMS
from tests.benchmarks.kernel_fit import Free, fit
from tests.benchmarks.kernel_rows import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.costs.profiles.kernel_times import KernelRates

SIMUMAX = DATA / "simumax_b200_kernels.json"
PEAKS = {"B200": 2250e12, "A100": 312e12}  # that efficiencies are given of
A100_ROWS = Path(__file__).parent / "simumax_a100.csv"
# Of A100's 183 single products in the same file: median of predicted over measured.
A100_CLOCK = 0.908
LARGE = 300e-6  # seconds of the single products that tell the clock
WIDTHS = {"fp32": 4.0, "bf16": 2.0}
FREE = {"rate": Free(0.9, 0.2, 0.2, 1), "start": Free(9e-6, 3e-6, 1e-6, 50e-6)}


class Group(NamedTuple):
    """Equal products: each m x k by k x n. accumulate: as of `KernelRates.product`. hidden: of its
    model, that of DeepSeek-V2 or V3."""

    count: int
    m: int
    n: int
    k: int
    accumulate: float
    seconds: float
    hidden: int


class Streams(NamedTuple):
    """rate: of products, of that of single ones. start: seconds."""

    rate: float
    start: float


def groups(gpu: str) -> list[Group]:
    """Return the measured groups of a GPU: B200 or A100."""
    if gpu == "A100":
        with A100_ROWS.open() as file:
            kept = list(csv.DictReader(line for line in file if not line.startswith("#")))
        return [
            _group(gpu, (int(row[name]) for name in ("count", "m", "n", "k")), row["stage"],
                   float(row["efficiency"]), "fp32")
            for row in kept
        ]  # fmt: skip
    return [
        _group(gpu, (int(row[name]) for name in ("ng", "M", "N", "K")), row["stage"],
               row["efficiency_of_2250_TFLOPs"], row["main_grad_dtype"])
        for row in simumax() if row["op"] == "group_matmul"
    ]  # fmt: skip


def simumax() -> list[dict[str, Any]]:
    """Return SimuMax's rows of kernels on B200."""
    rows: list[dict[str, Any]] = json.loads(SIMUMAX.read_text())["rows"]
    return rows


def _group(gpu: str, sizes: Iterator[int], stage: str, share: float, gradient: str) -> Group:
    count, m, n, k = sizes
    shape = {"fwd": (m, n, k), "bwd_grad_act": (m, k, n), "bwd_grad_w": (n, k, m)}[stage]
    added = WIDTHS[gradient] if stage == "bwd_grad_w" else 0.0
    return Group(count, *shape, added, 2 * count * m * n * k / (share * PEAKS[gpu]), max(n, k))


def single_products() -> Iterator[tuple[tuple[int, int, int], int, float, float]]:
    """Yield SimuMax's single products on B200: sizes, number, bytes that they are added to, and
    measured seconds."""
    for row in simumax():
        if row["op"] == "matmul":
            m, n, k, count = (int(row[name]) for name in ("m", "n", "k", "b"))
            added = WIDTHS[row["out_dtype"]] if row["accumulate"] == "True" else 0.0
            share = row["efficiency_of_2250_TFLOPs"]
            yield (m, n, k), count, added, 2 * count * m * n * k / (share * PEAKS["B200"])


def clock(gpu: str, one: KernelRates) -> float:
    """Return the clock of the machine that groups were measured on, of that of the tables."""
    if gpu == "A100":
        return A100_CLOCK
    return float(
        np.median(
            [
                one.product(*sizes, count=count, accumulate=added) / taken
                for sizes, count, added, taken in single_products()
                if taken > LARGE
            ]
        )
    )


def predicted(one: KernelRates, rows: Sequence[Group], of: Streams) -> list[float]:
    """Return the seconds of groups, each at least as long as the host takes to start it."""
    constants = replace(one.constants, concurrent=of.rate)
    one = replace(one, constants=constants)
    return [
        max(
            row.count * of.start,
            one.grouped(
                row.m, row.n, row.k, count=row.count, streams=STREAMS, accumulate=row.accumulate
            ),
        )
        for row in rows
    ]


def fitted(one: KernelRates, rows: Sequence[Group], *, start: float | None = None) -> Streams:
    """Return the constants that are nearest to some groups. start: where it is known."""
    free = {name: of for name, of in FREE.items() if name != "start" or start is None}

    def predict(**found: float) -> list[float]:
        return predicted(one, rows, Streams(**({"start": start} | found)))

    return Streams(**({"start": start} | fit(free, [row.seconds for row in rows], predict)))


def measured(rates: Mapping[str, KernelRates]) -> dict[str, Streams]:
    """Return the constants of A100 and B200, by these rates of theirs. What a start takes is known
    from B200, whose groups have more and shorter products."""
    at = {name: replace(rates[name], sustained=clock(name, rates[name])) for name in PEAKS}
    newest = fitted(at["B200"], groups("B200"))
    return {"A100": fitted(at["A100"], groups("A100"), start=newest.start), "B200": newest}


def judged(one: KernelRates) -> Iterator[tuple[float, float]]:
    """Yield predicted and measured seconds of B200's groups, of each model by the constants of the
    other, at the machine's clock."""
    one, every = replace(one, sustained=clock("B200", one)), groups("B200")
    for hidden in sorted({row.hidden for row in every}):
        rest = [row for row in every if row.hidden == hidden]
        of = fitted(one, [row for row in every if row.hidden != hidden])
        yield from zip(predicted(one, rest, of), (row.seconds for row in rest), strict=True)
