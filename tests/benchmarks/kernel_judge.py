"""Constants of kernels: fitted to 400 measured rows per GPU, judged by all others.

python -m tests.benchmarks --suite kernels

Writes `specs/kernel_constants.json` and the errors. `kernel_rows` says what is left out.
Errors: of every row; against the median of what frameworks say of a shape; how far the rows lie
from that median themselves; and the least that one time per shape can be off them, which is what no
constants get below. Attention is another program in each framework, so it is fitted to the medians;
`one release` is what constants of one release reach on its other shapes.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ilp_planner.costs.profiles.kernel_times import KernelRates, interpolated
from ilp_planner.specs import kernel_constants
from ilp_planner.specs.kernel_constants import ProductConstants
from tests.benchmarks import kernel_rows, kernel_streams
from tests.benchmarks.kernel_elsewhere import elsewhere
from tests.benchmarks.kernel_fit import (
    attention_times,
    curve,
    digits,
    expert_times,
    fit_attention,
    fit_grouped,
    fit_products,
    product_times,
    rates,
    with_rate,
)
from tests.benchmarks.kernel_rows import DATA, GPUS, HEADS, SHAPE, SINGLE, Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.specs.kernel_constants import AttentionConstants

RESULTS = Path(__file__).parent / "results" / "kernels.json"
CONSTANTS = Path(kernel_constants.__file__).with_suffix(".json")
ROWS, SMALL, SEED = 400, 100, 0
MANY = 150  # rows per expert, to fit the rate of grouped products to
SCALED = "trtllm"
POINTS = 9  # of a curve
EXPERTS = ["num_tokens", "hidden_size", "inter", "topk", "num_experts"]
# What clusters of these GPUs say today: share of the peak, and of the memory bandwidth.
TODAY = {"A100": 0.7, "H100": 0.6, "B200": 0.6, "V100": 0.7, "T4": 0.4, "L4": 0.7}
TODAY_BANDWIDTH = 0.85


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
    return np.maximum(work, traffic / (gpu.bandwidth * TODAY_BANDWIDTH))


def judged_products(
    name: str, precision: str, launch: float | None = None
) -> tuple[ProductConstants, dict[str, Any]]:
    """Fit the products of one precision, and judge by those left.

    Tables of 8 bits hold what each framework does to quantise an operand, too. TensorRT-LLM scales
    whole tensors in one pass, which is what the fit can tell apart, so it is fitted to that.
    """
    gpu = GPUS[name]
    rows = kernel_rows.products(gpu, precision)
    near = kernel_rows.near(rows, SHAPE)
    sure = rows[near]
    if launch is not None:
        sure = sure[sure.release.str.startswith(SCALED)]
    few = min(SMALL, int((~sure.usual).sum()))
    usual = sure[sure.usual].sample(ROWS - few, random_state=SEED)
    fitted = pd.concat([usual, sure[~sure.usual].sample(few, random_state=SEED)])
    constants, passes = fit_products(gpu, precision, fitted, launch)
    rows["middle"] = kernel_rows.medians(rows, SHAPE)
    rest = rows.drop(fitted.index)
    rest = rest[rest.usual]
    found = product_times(gpu, precision, constants, rest, passes)
    each = ~rest.duplicated(SHAPE)
    return constants, {
        "every row": score(found, rest.time),
        "rows near others": score(found[near[rest.index]], rest.time[near]),
        "median of frameworks": score(found[each], rest.middle[each]),
        "frameworks to their median": score(rest.middle, rest.time),
        "least by shape": score(kernel_rows.nearest(rest, SHAPE), rest.time),
        "today": score(roofline(gpu, precision, TODAY[name], rest), rest.time),
        "by release": _by(rest.release, found, rest.time),
        **({} if launch is None else {"passes": _short(passes._asdict())}),
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
        "median of frameworks": score(attention_times(gpu, launch, constants, left), left.middle),
        "frameworks to their median": score(rest.middle, rest.time),
        "least by shape": score(kernel_rows.nearest(rest, HEADS), rest.time),
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


def judged_experts(name: str, one: KernelRates) -> tuple[float, dict[str, Any]]:
    """Fit the rate of grouped products, and judge layers of experts by rows per expert."""
    gpu = GPUS[name]
    rows = kernel_rows.experts(gpu)
    fitted = rows[rows.rows >= MANY].sample(ROWS, random_state=SEED)
    factor = fit_grouped(one, fitted)
    rest = rows.drop(fitted.index)
    found = np.array(expert_times(with_rate(one, factor), rest))
    flops = 6 * rest.rows * rest.num_experts * rest.inter * rest.hidden_size
    share = flops / rest.time / gpu.peak["bf16"]
    middle = kernel_rows.medians(rest, EXPERTS)
    return factor, {
        "every row": score(found, rest.time),
        "frameworks to their median": score(middle, rest.time),
        "today": score(flops / (gpu.peak["bf16"] * TODAY[name]), rest.time),
        "rows per expert": {
            label: {
                **score(found[part], rest.time[part]),
                "share of peak": round(float(share[part].median()), 3),
            }
            for label, part in kernel_rows.ranges(rest.rows)
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
    on_streams(constants)
    CONSTANTS.write_text(_compact(constants))
    kernel_constants.measured_constants.cache_clear()
    record = {"tables": errors, "elsewhere": elsewhere()}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def known() -> dict[str, Any]:
    """Return the errors that were written down last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def measured(name: str, gpu: Gpu) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the constants of a GPU with tables of all kinds, and their errors."""
    products: dict[str, ProductConstants] = {}
    errors: dict[str, Any] = {"products": {}}
    for precision in gpu.peak:
        launch = products["bf16"].t0 if products else None
        found = judged_products(name, precision, launch)
        products[precision], errors["products"][precision] = found
    launch = products["bf16"].t0
    fused, errors["attention"] = judged_attention(name, launch)
    curves, errors["messages"] = judged_messages(gpu)
    entry = {
        "source": f"ai-dynamo/aiconfigurator's tables of {name} SXM (Apache-2.0)",
        "products": {precision: _short(asdict(of)) for precision, of in products.items()},
        "launch": digits(launch),
        "attention": _short(asdict(fused)),
        "curves": curves,
    }
    if kernel_rows.has_experts(gpu):
        one = rates(gpu, products=products, launch=launch)
        factor, errors["experts"] = judged_experts(name, one)
        entry["grouped"] = digits(factor)
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


def on_streams(constants: dict[str, Any]) -> None:
    """Add the rate of products side by side on streams: measured on A100 and B200, between them on
    H100, as on A100 on others."""
    known = {
        name: rates(
            GPUS[name],
            launch=constants[name]["launch"],
            products={
                precision: ProductConstants(**of)
                for precision, of in constants[name]["products"].items()
            },
        )
        for name in kernel_streams.PEAKS
    }
    found = {name: of.rate for name, of in kernel_streams.measured(known).items()}
    found["H100"] = math.sqrt(found["A100"] * found["B200"])
    for name, entry in constants.items():
        entry["concurrent"] = digits(found.get(name, found["A100"]))


def _compact(constants: dict[str, Any]) -> str:
    """Return JSON with one line per group of numbers."""
    text = json.dumps(constants, indent=1) + "\n"
    inner = re.compile(r"[\[{][^\[\]{}]*[\]}]|\[(?:\s*\[[^\[\]]*\],?)*\s*\]")
    return inner.sub(lambda found: re.sub(r"\n\s*", " ", found[0]), text)


def _short(constants: dict[str, float]) -> dict[str, float]:
    return {name: digits(value) for name, value in constants.items()}


if __name__ == "__main__":
    measure()
