"""Kernels that others measured on machines of their own, against constants not fitted to them.

Two forms were chosen by looking at SimuMax's rows: blocks of queries delay a backward pass as long
as a forward pass, and the rate of grouped products does not slow what memory limits.

B200: what MooreThreads/SimuMax measured of Transformer Engine's kernels, forward and backward.
A100: NCCL's all-reduce of VIA-Research/vTrain. `error` is as predicted; `clock` the median of
predicted over measured, as a machine's clock under load would make it; `shape` the error with it.
Products of experts are predicted at the clock of the single ones, by constants of the other model's
(`kernel_streams`).
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ilp_planner.costs.profiles.kernel_times import KernelRates
from ilp_planner.specs.kernel_constants import measured_constants
from tests.benchmarks.kernel_rows import DATA, GPUS
from tests.benchmarks.kernel_streams import PEAKS, judged, simumax, single_products

VTRAIN = DATA.parent / "measured" / "vtrain_allreduce_lut.json"


def elsewhere() -> dict[str, dict[str, float]]:
    """Return the errors by kind of kernel."""
    ratios: dict[str, list[float]] = {}
    for kind, predicted, measured in (*_simumax(), *_vtrain()):
        ratios.setdefault(kind, []).append(predicted / measured)
    found = {}
    for kind, each in ratios.items():
        clock = float(np.median(each))
        off = np.abs(np.array(each) - 1)
        shape = np.abs(np.array(each) / clock - 1)
        found[kind] = {
            "rows": len(each),
            "error": round(float(off.mean()), 4),
            "clock": round(clock, 3),
            "shape": round(float(shape.mean()), 4),
        }
    return found


def _rates(name: str) -> KernelRates:
    gpu = GPUS[name]
    return KernelRates(gpu.peak, gpu.bandwidth, gpu.processors, measured_constants()[name])


def _simumax() -> Iterator[tuple[str, float, float]]:
    gpu = _rates("B200")
    for sizes, count, added, taken in single_products():
        yield "B200, products (SimuMax)", gpu.product(*sizes, count=count, accumulate=added), taken
    for time, taken in judged(gpu):
        yield "B200, products of experts on streams (SimuMax)", time, taken
    for row in simumax():
        if row["op"].startswith("sdp"):
            yield _attention(gpu, row, PEAKS["B200"] * row["efficiency_of_2250_TFLOPs"])


def _attention(gpu: KernelRates, row: dict[str, Any], rate: float) -> tuple[str, float, float]:
    """Return one of SimuMax's rows; it counts what the mask leaves out."""
    length, head = int(row["seq_len"]), int(row["qk_head_dim"])
    both = head + int(row["v_head_dim"])
    flops = int(row["batch"]) * int(row["head_num"]) * length**2 * both
    backward = row["op"] == "sdp_bwd"
    time = gpu.attention(flops, length, head=head, backward=backward)
    name = "backward" if backward else "forward"
    work = 2 * flops * (2.5 if backward else 1)
    return f"B200, attention {name} (SimuMax)", time, work / rate


def _vtrain() -> Iterator[tuple[str, float, float]]:
    gpu = _rates("A100")
    for name, rows in json.loads(VTRAIN.read_text())["tables"].items():
        kind, ranks = name.split("_gpus")
        for size, nanoseconds, _ in rows if kind == "a100" else ():
            time = gpu.collective("all_reduce", int(ranks), size)
            if time is not None:
                yield "A100, all-reduce of 2 to 8 (vTrain)", time, nanoseconds * 1e-9
