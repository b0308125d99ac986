"""The table of GPUs, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import GIGA, TERA, format_bytes, format_seconds
from ilp_planner.faces.report.tables import GIB
from ilp_planner.faces.report.tree import Table
from ilp_planner.specs.gpus import UNSEEN_SOURCE
from ilp_planner.specs.machine import USUAL
from ilp_planner.specs.training import QUANTISED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.gpus import Gpu

DERIVED = "*"
SHOWN = ("fp16", "bf16", "fp8")
# Sources of large products by vendor, and of the share that a job's products reach of them.
PRODUCTS = {
    "NVIDIA": "github.com/zzc0721/torch-performance-test-data",
    "AMD": "ROCm Blogs, 'Measuring Max-Achievable FLOPs - Part 2', 2025",
}
SHAPES = {"MI300X": "by products of DeepSeek-V3's shapes on MI325X"}
# Fields of a row that JSON has with their unit; the others are called what they are.
UNITS = {
    "power": "power_w",
    "sold": "sold_bytes",
    "memory": "memory_bytes",
    "peak": "peak_flops",
    "memory_bandwidth": "memory_bandwidth_bytes_per_s",
    "link_bandwidth": "link_bandwidth_bytes_per_s",
    "pair_bandwidth": "pair_bandwidth_bytes_per_s",
    "host_link": "host_link_bytes_per_s",
    "host_memory": "host_memory_bytes_per_s",
    "network_bandwidth": "network_bandwidth_bytes_per_s",
    "network_latency": "network_latency_s",
    "blas_workspace": "blas_workspace_bytes",
    "engine_workspace": "engine_workspace_bytes",
}


def gpus_table(rows: Sequence[Gpu]) -> Table:
    """Return a row per GPU, narrow enough for a terminal."""
    left = ("GPU", "link", "rests on")
    shown = Table("GPU", "GiB", *SHOWN, "GB/s", "link", "node", "rests on", left=left)
    for row in rows:
        domain = "" if row.domain == row.node else f"/{row.domain}"
        shown.add(
            row.name,
            f"{row.memory / GIB:.2f}{' ' if row.memory_seen else DERIVED}",
            *(f"{row.peak[name] / TERA:.0f}" if name in row.peak else "-" for name in SHOWN),
            f"{row.memory_bandwidth / GIGA:g}",
            f"{row.link.replace(' ', ''):<7} {row.link_bandwidth / GIGA:3.0f}",
            f"{row.node}{domain}",
            row.source.partition(",")[0],
        )
    return shown


def gpus_legend() -> list[tuple[str, str]]:
    """Return the legend of the table's columns."""
    return [
        ("GiB", f"memory that a process sees, as torch says; {DERIVED} {UNSEEN_SOURCE}"),
        ("fp16 ...", "dense TFLOP/s of data sheets; -: the GPU lacks it"),
        ("GB/s", "of the memory; link: GB/s of all links of a GPU together, one way"),
        ("node", "GPUs of a node / that the link connects; `--gpus` assumes them"),
        (
            "rests on",
            "whose figures these are; `ilp-plan gpus GPU` says which, and what is assumed",
        ),
    ]


def gpu_lines(row: Gpu) -> list[tuple[str, str]]:
    """Return all figures of a GPU, and their sources."""
    (major, minor), own = row.capability, row.architecture
    able = [recipe for recipe in own.recipes if QUANTISED[recipe] in row.peak]
    features = [*["flash attention"] * own.flash_attention, *["DeepEP"] * own.deep_ep, *able]
    units = f"{row.units} {'multiprocessors' if own.vendor == 'NVIDIA' else 'compute units'}"
    peaks = ", ".join(f"{name} {rate / TERA:g}" for name, rate in row.peak.items())
    pair = row.pair_bandwidth / GIGA
    mesh = f", {pair:.4g} GB/s between two GPUs" if row.pair_bandwidth < row.link_bandwidth else ""
    domain = "" if row.domain == row.node else f", {row.domain} that {row.link} connects"
    memory = f"{row.host_memory / GIGA:g} GB/s per GPU"
    network = f"{8 * row.network_bandwidth / GIGA:g} Gbit/s per GPU"
    return [
        ("GPU", row.name),
        *([("also", ", ".join(row.aliases))] if row.aliases else []),
        ("memory", f"{format_bytes(row.memory)} of {format_bytes(row.sold)}: {row.memory_source}"),
        ("peaks", f"{peaks} TFLOP/s, dense"),
        *_products(row),
        ("bandwidth", f"{row.memory_bandwidth / GIGA:g} GB/s of memory"),
        ("link", f"{row.link}, {row.link_bandwidth / GIGA:.4g} GB/s one way{mesh}"),
        ("power", f"{row.power:g} W"),
        ("chip", f"{units}, {own.vendor} {own.name}, compute capability {major}.{minor}"),
        *([("features", ", ".join(features))] if features else []),
        ("source", row.source),
        ("node", f"{row.node} GPUs{domain}"),
        ("network", f"{row.network}, {network}, {format_seconds(row.network_latency)}"),
        ("source", row.nodes_source),
        ("host", f"{row.host}, {row.host_link / GIGA:g} GB/s one way; {memory} of its memory"),
        ("source", row.host_source),
        *[("assumed", said) for said in (row.assumed, own.assumed) if said],
    ]


def gpu_object(row: Gpu) -> dict[str, Any]:
    """Return a row as JSON."""
    values = asdict(row) | {"memory_seen": row.memory_seen}
    values["architecture"] = _with_units(values["architecture"])
    return _with_units(values)


def _with_units(values: dict[str, Any]) -> dict[str, Any]:
    return {UNITS.get(name, name): value for name, value in values.items()}


def _products(row: Gpu) -> list[tuple[str, str]]:
    """Say how near large products come to the peak, and how much of that lasts in a job."""
    kept = f"{USUAL[row.machine].sustained:g}"
    if not row.products:
        return [
            ("clocks", f"{kept} of a short burst's in a job, {_kept(row)}"),
            ("sustained", f"{row.sustained:g} of the peak where kernels are a roofline: assumed"),
        ]
    source = PRODUCTS[row.architecture.vendor]
    return [
        ("products", f"{row.products:g} of the 16-bit peak at best, measured ({source})"),
        ("sustained", f"{row.sustained:g} of the peak in a job: {kept} of that, {_kept(row)}"),
    ]


def _kept(row: Gpu) -> str:
    """Return the source of the share of its best rate that a GPU keeps in a job."""
    if row.machine in SHAPES:
        return SHAPES[row.machine]
    own = row.name.partition("-")[0] == row.machine
    return "fitted to published runs" if own else f"as {row.machine}"
