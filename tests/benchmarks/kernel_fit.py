"""Constants of kernels from measured rows: equations are those of `profiles.kernel_times`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ilp_planner.costs.profiles.kernel_times import KernelRates, interpolated
from ilp_planner.specs.kernel_constants import AttentionConstants, KernelConstants, ProductConstants
from tests.benchmarks.kernel_rows import SHAPE, Gpu

SCALE = 0.05  # of log errors, above which an error counts in proportion


class Free(NamedTuple):
    """A constant to fit: what to expect, how well that is known, and what is possible."""

    start: float
    scale: float
    low: float
    high: float


class Passes(NamedTuple):
    """What quantising the left operand takes: seconds of launches, and bytes per element of it, at
    the full bandwidth."""

    launches: float
    traffic: float


PRODUCT = {
    "e": Free(0.8, 0.1, 0.2, 1),
    "q": Free(0.4, 0.3, 0, 1),
    "k0": Free(120, 60, 0, 600),
    "t0": Free(3e-6, 1e-6, 0, 20e-6),
    "ew": Free(0.75, 0.15, 0.2, 1),
    "p1": Free(0.95, 0.05, 0.5, 1),
    "p2": Free(0.85, 0.08, 0.5, 1),
    "edge": Free(0.5, 0.3, 0, 1),
    "blend": Free(0.25, 0.15, 0, 1),
}
GROUPED = Free(0.8, 0.2, 0.1, 1)
PASSES = {"launches": Free(6e-6, 3e-6, 0, 50e-6), "traffic": Free(6, 3, 0, 30)}
ATTENTION = {
    "f0": Free(0.65, 0.1, 0.1, 1),
    "s0": Free(1000, 500, 0, 5000),
    "w0": Free(1, 0.5, 0, 5),
    "h0": Free(50, 50, 0, 500),
}


def fit(
    free: dict[str, Free], times: Sequence[float], predict: Callable[..., Iterable[float]]
) -> dict[str, float]:
    """Return the constants with the least sum of soft-L1 log errors, held near what is expected.

    predict: constants by name -> seconds of every row.
    """
    names, terms = tuple(free), np.array(list(free.values()))
    start, scale, low, high = terms.T
    logs = np.log(np.asarray(times))

    def residuals(unit: np.ndarray) -> np.ndarray:
        found = np.fromiter(predict(**dict(zip(names, unit * scale, strict=True))), float)
        return np.concatenate([np.log(found) - logs, SCALE / 3 * (unit - start / scale)])

    solved = least_squares(
        residuals,
        start / scale,
        bounds=(low / scale, high / scale),
        loss="soft_l1",
        f_scale=SCALE,
        diff_step=1e-4,
        max_nfev=80,
    )
    return dict(zip(names, (solved.x * scale).tolist(), strict=True))


def rates(gpu: Gpu, **parts: Any) -> KernelRates:
    """Return a GPU's rates with some of its constants."""
    nothing = KernelConstants(
        products={},
        attention=AttentionConstants(f0=1.0, s0=0.0),
        launch=0.0,
        grouped=1.0,
        concurrent=1.0,
        curves={},
        source="",
    )
    return KernelRates(gpu.peak, gpu.bandwidth, gpu.processors, replace(nothing, **parts))


def product_times(
    gpu: Gpu,
    precision: str,
    constants: ProductConstants,
    rows: pd.DataFrame,
    passes: Passes | None = None,
) -> np.ndarray:
    """Return the seconds of products, and of the passes before them."""
    one = rates(gpu, products={precision: constants, "bf16": constants})
    shapes = zip(*(rows[name].tolist() for name in SHAPE), strict=True)
    found = [one.product(m, n, k, precision=precision) for m, n, k in shapes]
    launches, traffic = passes or (0.0, 0.0)
    return np.array(found) + launches + traffic * (rows.m * rows.k).to_numpy() / gpu.bandwidth


def fit_products(
    gpu: Gpu, precision: str, rows: pd.DataFrame, launch: float | None = None
) -> tuple[ProductConstants, Passes]:
    """Return the constants of one precision, and of the passes that quantise for it.

    launch: seconds of launching a product, of 16 bits; with it, the rest of what launches take is
    that of the passes. Without, there are no passes.
    """
    free = PRODUCT
    if launch is not None:
        free = {name: of for name, of in PRODUCT.items() if name != "t0"} | PASSES

    def parts(
        launches: float = 0.0, traffic: float = 0.0, **constants: float
    ) -> tuple[ProductConstants, Passes]:
        return ProductConstants(**{"t0": launch, **constants}), Passes(launches, traffic)

    def predict(**constants: float) -> np.ndarray:
        found, passes = parts(**constants)
        return product_times(gpu, precision, found, rows, passes)

    return parts(**fit(free, rows.time.tolist(), predict))


def attention_times(
    gpu: Gpu, launch: float, constants: AttentionConstants, rows: pd.DataFrame
) -> list[float]:
    """Return the seconds of forward passes of fused attention."""
    one = rates(gpu, attention=constants, launch=launch)
    columns = (rows[name].tolist() for name in ("flops", "isl", "head_dim"))
    return [one.attention(flops, n, head=head) for flops, n, head in zip(*columns, strict=True)]


def fit_attention(gpu: Gpu, launch: float, rows: pd.DataFrame) -> AttentionConstants:
    """Return the constants of fused attention; h0 where there are small heads to tell it by."""
    small = rows.head_dim.min() < 128
    free = {name: of for name, of in ATTENTION.items() if name != "h0" or small}
    found = fit(
        free,
        rows.time.tolist(),
        lambda **c: attention_times(gpu, launch, AttentionConstants(**c), rows),
    )
    return AttentionConstants(**found)


def expert_times(one: KernelRates, rows: pd.DataFrame) -> list[float]:
    """Return the seconds of layers of experts, whose rows are gathered, gated and added up by
    kernels of their own."""
    names = ("rows", "inter", "hidden_size", "num_experts", "num_tokens")
    times = []
    for each, inter, hidden, count, tokens in zip(
        *(rows[name].tolist() for name in names), strict=True
    ):
        m, routed = max(1, round(each)), each * count
        time = one.grouped(m, 2 * inter, hidden, count=count)
        time += one.grouped(m, hidden, inter, count=count)
        time += one.stream(2 * 2 * routed * hidden) + one.stream(2 * 3 * routed * inter)
        times.append(time + one.stream(2 * (routed + tokens) * hidden))
    return times


def fit_grouped(one: KernelRates, rows: pd.DataFrame) -> float:
    """Return the rate of grouped products, of that of single ones."""
    found = fit(
        {"grouped": GROUPED},
        rows.time.tolist(),
        lambda grouped: expert_times(with_rate(one, grouped), rows),
    )
    return found["grouped"]


def with_rate(one: KernelRates, grouped: float) -> KernelRates:
    """Return a GPU with that rate of grouped products."""
    return replace(one, constants=replace(one.constants, grouped=grouped))


def curve(points: Sequence[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """Return the few points between which a curve is nearest to all of them; it never falls."""
    times = np.maximum.accumulate([time for _, time in points]).tolist()
    full = [(float(size), time) for (size, _), time in zip(points, times, strict=True)]
    kept = {0, len(full) - 1}
    while len(kept) < min(most, len(full)):
        few = tuple(full[i] for i in sorted(kept))
        errors = [abs(np.log(interpolated(few, size) / time)) for size, time in full]
        kept.add(max(range(len(full)), key=errors.__getitem__))
    return tuple((full[i][0], digits(full[i][1])) for i in sorted(kept))


def digits(value: float) -> float:
    """Return a number with as many digits as mean something."""
    return float(f"{value:.4g}")
