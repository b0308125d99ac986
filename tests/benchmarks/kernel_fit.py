"""Constants of kernels: fitted to 400 measured rows per GPU, judged by all others.

python -m tests.benchmarks --suite kernels

Writes `ilp_planner/specs/kernel_constants.json` and the errors. `kernel_rows` says what is left out.
Errors: of every row; against the median of what the releases of all frameworks say of a shape; and
how far the rows lie from that median themselves, which is what no constants get below. Attention is
another program in each framework, so it is fitted to the medians; `one release` is what constants
of one release reach on its other shapes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ilp_planner.profiles.kernel_times import KernelRates, interpolated
from ilp_planner.specs import kernel_constants
from ilp_planner.specs.kernel_constants import (
    AttentionConstants,
    KernelConstants,
    ProductConstants,
)
from tests.benchmarks import kernel_rows
from tests.benchmarks.kernel_rows import DATA, GPUS, HEADS, SHAPE, SINGLE, Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

RESULTS = Path(__file__).parent / "results" / "kernels.json"
CONSTANTS = Path(kernel_constants.__file__).with_suffix(".json")
ROWS, SMALL, SEED = 400, 100, 0
SCALE = 0.05  # of log errors, above which an error counts in proportion
SCALED = "trtllm"
POINTS = 9  # of a curve
EXPERTS = ["num_tokens", "hidden_size", "inter", "topk", "num_experts"]
# What clusters of these GPUs say today: share of the peak, and of the memory bandwidth.
TODAY = {"A100": 0.7, "H100": 0.6, "B200": 0.6, "V100": 0.7, "T4": 0.4, "L4": 0.7}
TODAY_BANDWIDTH = 0.85


class Free(NamedTuple):
    """A constant to fit: what to expect, how well that is known, and what is possible."""

    start: float
    scale: float
    low: float
    high: float


class Passes(NamedTuple):
    """What quantising an operand takes: seconds of launches, and bytes per element of it, at the
    full bandwidth."""

    launch: float
    traffic: float


PRODUCT = {
    "e": Free(0.8, 0.1, 0.2, 1),
    "q": Free(0.4, 0.3, 0, 1),
    "k0": Free(120, 60, 0, 600),
    "t0": Free(3e-6, 1e-6, 0, 20e-6),
    "ew": Free(0.75, 0.15, 0.2, 1),
    "p1": Free(0.95, 0.05, 0.5, 1),
    "p2": Free(0.85, 0.08, 0.5, 1),
}
TRAFFIC = Free(6, 3, 0, 30)
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
        curves={},
        source="",
    )
    return KernelRates(gpu.peak, gpu.bandwidth, gpu.processors, replace(nothing, **parts))


def product_times(
    gpu: Gpu,
    precision: str,
    constants: ProductConstants,
    rows: pd.DataFrame,
    passes: Passes = Passes(0.0, 0.0),
) -> np.ndarray:
    """Return the seconds of products, and of the pass that quantises the left operand before."""
    one = rates(gpu, products={precision: constants, "bf16": constants})
    shapes = zip(*(rows[name].tolist() for name in (*SHAPE, "count")), strict=True)
    found = [one.product(m, n, k, count=count, precision=precision) for m, n, k, count in shapes]
    traffic = passes.traffic * rows.m * rows.k
    return np.array(found) + passes.launch + traffic.to_numpy() / gpu.bandwidth


def fit_products(
    gpu: Gpu, precision: str, rows: pd.DataFrame, launch: float = 0.0
) -> tuple[ProductConstants, Passes]:
    """Return the constants of one precision.

    launch: seconds of launching the pass that quantises before products of 8 bits; with one, the
    traffic of that pass is fitted too.
    """
    free = PRODUCT | ({"traffic": TRAFFIC} if launch else {})

    def parts(traffic: float = 0.0, **constants: float) -> tuple[ProductConstants, Passes]:
        return ProductConstants(**constants), Passes(launch, traffic)

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


def fit_grouped(one: KernelRates, rows: pd.DataFrame) -> float:
    """Return the rate of grouped products, of that of single ones: the median of all layers."""
    shares = [ideal / (time - rest) for ideal, rest, time in expert_parts(one, rows) if time > rest]
    return float(np.median(shares))


def expert_parts(one: KernelRates, rows: pd.DataFrame) -> list[tuple[float, float, float]]:
    """Return (seconds of the products if they were not grouped, of the rest, measured) of layers of
    experts: rows are gathered, gated and added up by kernels of their own."""
    parts = []
    names = ("rows", "inter", "hidden_size", "num_experts", "num_tokens", "time")
    for each, inter, hidden, count, tokens, time in zip(
        *(rows[name].tolist() for name in names), strict=True
    ):
        m = max(1, round(each))
        ideal = one.product(m, 2 * inter, hidden, count=count)
        ideal += one.product(m, hidden, inter, count=count)
        routed = each * count
        rest = one.stream(2 * 2 * routed * hidden) + one.stream(2 * 3 * routed * inter)
        rest += one.stream(2 * (routed + tokens) * hidden)
        parts.append((ideal, rest, time))
    return parts


def curve(points: Sequence[tuple[float, float]], most: int) -> tuple[tuple[float, float], ...]:
    """Return the few points between which a curve is nearest to all of them; it never falls."""
    times = np.maximum.accumulate([time for _, time in points]).tolist()
    full = [(float(size), time) for (size, _), time in zip(points, times, strict=True)]
    kept = {0, len(full) - 1}
    while len(kept) < min(most, len(full)):
        few = tuple(full[i] for i in sorted(kept))
        errors = [abs(np.log(interpolated(few, size) / time)) for size, time in full]
        kept.add(max(range(len(full)), key=errors.__getitem__))
    return tuple(full[i] for i in sorted(kept))


def score(predicted: Iterable[float], measured: Iterable[float]) -> dict[str, float]:
    """Return how far seconds are off: mean, median, and bias of the logarithms."""
    ratio = np.asarray(list(predicted)) / np.asarray(list(measured))
    off = np.abs(ratio - 1)
    return {
        "rows": len(ratio),
        "mape": round(float(off.mean()), 4),
        "median": round(float(np.median(off)), 4),
        "bias": round(float(np.log(ratio).mean()), 4),
    }


def roofline(gpu: Gpu, precision: str, share: float, rows: pd.DataFrame) -> pd.Series[float]:
    """Return what products take by one share of the peak, or of the bandwidth: today's model."""
    width = 4 if precision == "fp32" else 1 if precision == "fp8" else 2
    work = 2.0 * rows.m * rows.n * rows.k / (gpu.peak[precision] * share)
    traffic = width * rows.k * (rows.m + rows.n) + max(width, 2) * rows.m * rows.n
    return rows["count"] * np.maximum(work, traffic / (gpu.bandwidth * TODAY_BANDWIDTH))


def judged_products(
    name: str, precision: str, launch: float = 0.0
) -> tuple[ProductConstants, dict[str, Any]]:
    """Fit the products of one precision, and judge by those left.

    Tables of 8 bits hold what each framework does to quantise an operand, too. TensorRT-LLM scales
    whole tensors in one pass, which is what the fit can tell apart, so it is fitted to that.
    """
    gpu, keys = GPUS[name], [*SHAPE, "count"]
    rows = kernel_rows.products(gpu, precision)
    sure = kernel_rows.clean(rows, keys)
    if launch:
        sure = sure[sure.release.str.startswith(SCALED)]
    few = min(SMALL, int((~sure.usual).sum()))
    usual = sure[sure.usual].sample(ROWS - few, random_state=SEED)
    fitted = pd.concat([usual, sure[~sure.usual].sample(few, random_state=SEED)])
    constants, passes = fit_products(gpu, precision, fitted, launch)
    rows["middle"] = kernel_rows.medians(rows, keys)
    rest = rows.drop(fitted.index)
    rest = rest[rest.usual]
    found = product_times(gpu, precision, constants, rest, passes)
    each = ~rest.duplicated(keys)
    return constants, {
        "every row": score(found, rest.time),
        "median of releases": score(found[each], rest.middle[each]),
        "releases to their median": score(rest.middle, rest.time),
        "today": score(roofline(gpu, precision, TODAY[name], rest), rest.time),
        "by release": _by(rest.release, found, rest.time),
        **({"bytes per quantised element": round(passes.traffic, 2)} if launch else {}),
    }


def judged_attention(name: str, launch: float) -> tuple[AttentionConstants, dict[str, Any]]:
    """Fit attention to what the releases say in the middle, and judge by the shapes left."""
    gpu = GPUS[name]
    rows = kernel_rows.attention(gpu)
    rows["middle"] = kernel_rows.medians(rows, HEADS)
    usual = rows[rows.head_dim.isin((64, 128))]
    shapes = usual.drop_duplicates(HEADS)
    fitted = shapes.assign(time=shapes.middle).sample(ROWS, random_state=SEED)
    constants = fit_attention(gpu, launch, fitted)
    taken = usual.set_index(HEADS).index.isin(fitted.set_index(HEADS).index)
    rest, left = usual[~taken], shapes.drop(fitted.index)
    found = attention_times(gpu, launch, constants, rest)
    alone = {}
    for release, own in usual.groupby("release"):
        part = own.sample(min(ROWS, len(own) // 2), random_state=SEED)
        others = own.drop(part.index)
        its = attention_times(gpu, launch, fit_attention(gpu, launch, part), others)
        alone[release] = score(its, others.time)
    large = rows[~rows.head_dim.isin((64, 128))]
    return constants, {
        "every row": score(found, rest.time),
        "median of releases": score(attention_times(gpu, launch, constants, left), left.middle),
        "releases to their median": score(rest.middle, rest.time),
        "today": score(rest.flops / (gpu.peak["bf16"] * TODAY[name]), rest.time),
        "one release": alone,
        "by release": _by(rest.release, np.array(found), rest.time),
        "heads": {
            str(head): score(attention_times(gpu, launch, constants, part), part.time)
            for head, part in [*rest.groupby("head_dim"), *large.groupby("head_dim")]
        },
    }


def judged_messages(gpu: Gpu) -> tuple[dict[str, dict[int, Any]], dict[str, Any]]:
    """Draw the curves, and judge them by points left out, and by points not drawn."""
    rows = kernel_rows.messages(gpu)
    curves: dict[str, dict[int, Any]] = {}
    left, drawn, errors = [], [], {}
    for (name, ranks), part in rows.groupby(["name", "num_gpus"]):
        points = list(zip(part.bytes, part.time, strict=True))
        curves.setdefault(str(name), {})[int(ranks)] = few = curve(points, POINTS)
        out = [
            (interpolated((*points[:i], *points[i + 1 :]), size), time)
            for i, (size, time) in enumerate(points)
            if 0 < i < len(points) - 1
        ]
        here = [(interpolated(few, size), time) for size, time in points]
        errors[f"{name}, {ranks}"] = score(*zip(*out, strict=True))
        left += out
        drawn += here
    return curves, {
        "left out": score(*zip(*left, strict=True)),
        "drawn": score(*zip(*drawn, strict=True)),
        "by curve": errors,
    }


def judged_experts(one: KernelRates, gpu: Gpu) -> tuple[float, dict[str, Any]]:
    """Fit the rate of grouped products, and judge layers of experts by rows per expert."""
    rows = kernel_rows.experts(gpu)
    fitted = rows.sample(ROWS, random_state=SEED)
    factor = fit_grouped(one, fitted)
    rest = rows.drop(fitted.index)
    parts = np.array(expert_parts(one, rest))
    found = parts[:, 0] / factor + parts[:, 1]
    flops = 6 * rest.rows * rest.num_experts * rest.inter * rest.hidden_size
    share = flops / rest.time / gpu.peak["bf16"]
    bins = kernel_rows.ranges(rest.rows)
    middle = kernel_rows.medians(rest, EXPERTS)
    return factor, {
        "every row": score(found, rest.time),
        "releases to their median": score(middle, rest.time),
        "today": score(flops / (gpu.peak["bf16"] * 0.6), rest.time),
        "rows per expert": {
            label: {
                **score(found[(bins == label).to_numpy()], rest.time[bins == label]),
                "factor": round(float(np.median(parts[:, 0][m] / (parts[:, 2] - parts[:, 1])[m])), 3),
                "share of peak": round(float(share[bins == label].median()), 3),
            }
            for label in sorted(bins.unique(), key=lambda text: int(text.split("-")[0]))
            if (m := (bins == label).to_numpy()).any()
        },
        "by release": _by(rest.release, found, rest.time),
    }


def _by(names: pd.Series[str], found: np.ndarray, times: pd.Series[float]) -> dict[str, float]:
    off = (found / times - 1).abs().groupby(names).mean()
    return {str(name): round(float(error), 4) for name, error in off.items()}


def measure() -> None:
    """Fit everything, write the constants and the errors down."""
    if not DATA.is_dir():
        print("kernels: left out, no tables in ../shared/data/kernels")
        return
    constants: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    for name, gpu in GPUS.items():
        constants[name], errors[name] = (single if name in SINGLE else measured)(name, gpu)
        print(name, json.dumps(constants[name]["products"]), flush=True)
    for entry in constants.values():
        complete(entry, constants)
    CONSTANTS.write_text(json.dumps(constants, indent=1) + "\n")
    RESULTS.write_text(json.dumps(errors, indent=1) + "\n")


def measured(name: str, gpu: Gpu) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the constants of a GPU with tables of all kinds, and their errors."""
    products: dict[str, ProductConstants] = {}
    errors: dict[str, Any] = {"products": {}}
    for precision in gpu.peak:
        launch = products["bf16"].t0 if products else 0.0
        products[precision], errors["products"][precision] = judged_products(
            name, precision, launch
        )
    launch = products["bf16"].t0
    fused, errors["attention"] = judged_attention(name, launch)
    curves, errors["messages"] = judged_messages(gpu)
    entry = {
        "source": f"ai-dynamo/aiconfigurator's tables of {name} SXM (Apache-2.0)",
        "products": {precision: _short(asdict(of)) for precision, of in products.items()},
        "launch": _digits(launch),
        "attention": _short(asdict(fused)),
        "curves": curves,
    }
    if kernel_rows.has_experts(gpu):
        one = rates(gpu, products=products, launch=launch)
        factor, errors["experts"] = judged_experts(one, gpu)
        entry["grouped"] = _digits(factor)
    return entry, errors


def single(name: str, gpu: Gpu) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the constants of a GPU whose products were measured in fp32 alone."""
    products, errors = judged_products(name, "fp32")
    entry = {
        "source": f"sitar-lab/NeuSight's products of {gpu.table} in fp32 (MIT)",
        "products": {"fp32": _short(asdict(products))},
    }
    return entry, {"products": {"fp32": errors}}


def complete(entry: dict[str, Any], constants: dict[str, Any]) -> None:
    """Take what was not measured on a GPU from the nearest one that has it, and say so."""
    lacking = {"bf16 products": "A100", "launch": "A100", "attention": "A100", "grouped": "H100"}
    taken = []
    for what, donor in lacking.items():
        place = entry["products"] if what == "bf16 products" else entry
        key = "bf16" if what == "bf16 products" else what
        if key not in place:
            other = constants[donor]
            place[key] = (other["products"] if what == "bf16 products" else other)[key]
            taken.append(f"{what} as on {donor}")
    entry.setdefault("curves", {})
    entry["source"] = "; ".join([entry["source"], *taken])


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _short(constants: dict[str, float]) -> dict[str, float]:
    return {name: _digits(value) for name, value in constants.items()}


if __name__ == "__main__":
    measure()
