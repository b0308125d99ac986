"""Constants of `profiles.kernel_times` for a GPU, from measured tables of kernels."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Rate of the backward pass of fused attention, of the forward pass's, where nothing measured it.
BACKWARD = 0.78

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductConstants:
    """How near matrix products of one precision come to the peak.

    e: share of the peak inside a tile of 256 x 128. q: share of the last, partly filled wave of
    tiles that is waited for. k0: steps along k that a tile takes to start and to end. t0: seconds
    of a launch. ew: share of the memory bandwidth. p1, p2: factor of e for 128 x 128, and for each
    halving of the tile after that. edge: how much of a tile beyond the operands' edges takes time
    as the rest of it does. blend: how badly arithmetic and traffic hide each other: 0, the longer
    of the two counts; 1, their sum.
    """

    e: float
    q: float
    k0: float
    t0: float
    ew: float
    p1: float
    p2: float
    edge: float = 1.0
    blend: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """How near fused attention comes to the peak.

    f0: share of it in long sequences and large batches, with heads of 128. s0: tokens for half of
    f0. w0: blocks of queries per processor for half of that. h0: how much of the time in smaller
    heads goes by their number, not by their products: it is as long as that of so many more
    channels. backward: rate of the backward pass, of the forward pass's.
    """

    f0: float
    s0: float
    w0: float = 0.0
    h0: float = 0.0
    backward: float = BACKWARD


# Versions of the flash-attention package, where another library was measured; f0 is
# `GpuArchitecture.flash`'s. By figures 5 and 6 of Shah et al. 2024 (arXiv 2407.08608): causal on
# H100, version 2 forward 260 to 335 TFLOP/s in 1,024 to 16,384 tokens (within 3 % of these), 0.89
# of that in heads of 64, version 3 423 to 616 (within 2 %) and 0.73; backward 0.87 of both. w0: of
# A100, where version 2 was measured.
FLASH = {
    2: AttentionConstants(f0=1.0, s0=300.0, w0=1.124, h0=18.0, backward=0.87),
    3: AttentionConstants(f0=1.0, s0=500.0, w0=1.124, h0=78.0, backward=0.87),
}
FLASH_VERSION = 2  # that is taken to be installed
SPARSE = "sparse"  # `job.work.LIBRARIES`: TileLang's kernels of attention to chosen keys
# Rate of their backward pass, of the forward pass's: 115 TFLOP/s on H200, 100 on H800 (README of
# TileLang's example `deepseek_v32`, 2026), of 393 that fused attention of 2,048 keys has forward.
SPARSE_BACKWARD = 0.29
FLEX_LIKE = 2  # whose rates FlexAttention is taken to have
DSA = "dsa"  # `job.work.LIBRARIES`: FlashMLA's and cuDNN's kernels of the same, for whole heads


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConstants:
    """The constants of one GPU's kernels.

    products: by precision (`bf16`, also for fp16; `fp8`, `fp32`, ...). launch: seconds that a small
    kernel takes. grouped: rate of grouped products in one kernel, of that of single ones.
    concurrent: likewise, of those that run side by side on several streams. curves: collective ->
    ranks of one node -> (bytes as `job.modules.Message.size` counts them, seconds), rising.
    source: the measurement, for people. flash: attention by libraries (`job.work.LIBRARIES`) that
    are not the measured one. attention_fp8: in 8 bits; None: there is none.
    """

    products: Mapping[str, ProductConstants]
    attention: AttentionConstants
    launch: float
    grouped: float
    concurrent: float
    curves: Mapping[str, Mapping[int, Curve]]
    source: str
    flash: Mapping[str, AttentionConstants] = field(default_factory=dict)
    attention_fp8: AttentionConstants | None = None


FILE = files("ilp_planner.specs") / "kernel_constants.json"


@cache
def measured_constants() -> Mapping[str, KernelConstants]:
    """Return the constants fitted to measured tables, by GPU (`A100`, `H100`, ...).

    `python -m tests.benchmarks --suite kernels` writes the file.
    """
    return {gpu: _constants(entry) for gpu, entry in json.loads(FILE.read_text()).items()}


def _constants(entry: dict[str, Any]) -> KernelConstants:
    curves = {
        name: {int(ranks): tuple(map(tuple, points)) for ranks, points in of.items()}
        for name, of in entry["curves"].items()
    }
    return KernelConstants(
        products={name: ProductConstants(**of) for name, of in entry["products"].items()},
        attention=AttentionConstants(**entry["attention"]),
        launch=entry["launch"],
        grouped=entry["grouped"],
        concurrent=entry["concurrent"],
        curves=curves,
        source=entry["source"],
    )
