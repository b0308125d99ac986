"""The models, GPUs and training systems that are known, for people and as JSON.

Each command imports only what its own table needs: functions import the rest.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import GIGA, TERA, format_bytes, format_seconds
from ilp_planner.faces.report.tables import GIB, Table
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.training import QUANTISED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ilp_planner.formats.exports import Export
    from ilp_planner.settings.base import Treatment
    from ilp_planner.specs.gpus import Gpu
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.model_reader import Entry

BILLION = 1e9
WORDS = 16  # letters of a source that has neither paper nor configuration
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
OPTIONS = "options"  # what JSON calls them
COLUMNS = ("setting", "plans have", "asked for", "how", "option", "remark")


# ---- models --------------------------------------------------------------------------------------


def models_table(entries: Sequence[Entry]) -> Table:
    """Return a row per model."""
    left = ("model", "family", "source")
    shown = Table("model", "parameters", "family", "layers", "hidden", "source", left=left)
    for entry in entries:
        model = entry.model
        shown.add(
            model.name,
            f"{parameter_count(model) / BILLION:.2f} B",
            model.family,
            *(_size(model, name) for name in ("layers", "hidden")),
            _short(entry),
        )
    return shown


def models_legend() -> list[tuple[str, str]]:
    """Return remarks that the table lacks."""
    return [
        ("source", "a paper, or whose configuration it is; --json has it in full"),
        ("parameters", "shared ones once, no layers of multi-token prediction; --json to the unit"),
        ("MODEL", "`ilp-plan models MODEL` writes the file of one, of a config.json too"),
    ]


def entry_object(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON."""
    return model_object(entry.model) | {"hub": list(entry.hub), "source": entry.source}


def model_object(model: ModelSpec) -> dict[str, Any]:
    """Return a model as JSON."""
    architecture = model.architecture
    return {
        "name": model.name,
        "family": model.family,
        "parameters": parameter_count(model),
        "layers": getattr(architecture, "layers", None),
        "hidden": getattr(architecture, "hidden", None),
        "precision": model.precision,
        "tokens": architecture.tokens,
        "notes": list(model.remarks),
    }


def _short(entry: Entry) -> str:
    """Return the source in a few words: a paper, else who published the configuration."""
    paper = re.search(r"arXiv [\d.]+\d", entry.source)
    if paper:
        return paper[0]
    if entry.hub:
        return entry.hub[0].partition("/")[0]
    text = re.split(r"[;:,(]|\. ", entry.source)[0].strip().removesuffix(".")
    return text if len(text) <= WORDS else f"{text[: WORDS - 3]}..."


def _size(model: ModelSpec, name: str) -> str:
    found = getattr(model.architecture, name, None)
    return "-" if found is None else str(found)


# ---- GPUs ----------------------------------------------------------------------------------------


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
    from ilp_planner.specs.gpus import UNSEEN_SOURCE

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
    mesh += ", no peer access: through the host's memory" * (not row.peer_access)
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
    from ilp_planner.specs.machine import USUAL

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


# ---- training systems ----------------------------------------------------------------------------


def runtimes_table() -> Table:
    """Return a row per release of each system."""
    from ilp_planner.formats.exports import RELEASES, Runtime

    columns = ("export --to", "release", "what is written", "checked by", "solve --runtime")
    shown = Table(*columns, left=columns)
    for system, releases in RELEASES.items():
        for release, export in releases.items():
            shown.add(
                str(Runtime(system, release)),
                export.release or release,
                export.files,
                export.checked,
                _searched(system),
            )
    return shown


def runtimes_legend() -> list[tuple[str, str]]:
    """Return remarks that the table lacks."""
    return [
        ("solve --runtime", "searches what the system runs; the others take plans that they run"),
        ("RUNTIME", "`ilp-plan runtimes RUNTIME` says what is searched, fixed and left out"),
    ]


def runtime_lines(system: str) -> list[tuple[str, str]]:
    """Return the facts on a system, or on one release of it."""
    lines = [("runtime", system)]
    for release, export in _releases(system).items():
        lines.append(("release", export.release or release))
        lines.append(("written", export.files))
        lines.append(("checked by", export.checked))
    return [*lines, ("solve --runtime", _searched(system))]


def runtime_object(system: str) -> dict[str, Any]:
    """Return a system, or one release of it, as JSON."""
    from ilp_planner.formats.exports import Runtime
    from ilp_planner.spaces.registry import RUNTIMES

    return {
        "name": system,
        "releases": [
            {
                "to": str(Runtime(system.partition("@")[0], release)),
                "release": export.release or release,
                "written": export.files,
                "checked": export.checked,
            }
            for release, export in _releases(system).items()
        ],
        "searched": system in RUNTIMES,
    }


def treatments_table(rows: Iterable[Treatment]) -> Table:
    """Return a row per setting; the asking parameters are options."""
    shown = Table(*COLUMNS, left=COLUMNS)
    for row in rows:
        shown.add(*treatment_cells(row))
    return shown


def treatment_cells(row: Treatment) -> tuple[str, ...]:
    """Return the cells of a setting, in the order of `COLUMNS`."""
    return (
        row.setting,
        ", ".join(row.values) or "-",
        ", ".join(row.on_request),
        row.how,
        ", ".join(row.asked_by),
        row.remark,
    )


def treatments_legend(words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the legend of the table's columns. words: the meaning of its words for how."""
    return [
        *words.items(),
        ("asked for", "the values that plans have only where the option asks for them"),
    ]


def treatment_object(row: Treatment) -> dict[str, Any]:
    """Return the treatment of a setting as JSON."""
    values = asdict(row)
    return {OPTIONS if name == "asked_by" else name: value for name, value in values.items()}


def _releases(system: str) -> Mapping[str, Export]:
    """Return the releases of a system, or the one that its name ends in."""
    from ilp_planner.formats.exports import RELEASES

    name, _, only = system.partition("@")
    return {release: one for release, one in RELEASES[name].items() if only in ("", release)}


def _searched(system: str) -> str:
    from ilp_planner.spaces.registry import RUNTIMES

    return "yes" if system in RUNTIMES else "no"
