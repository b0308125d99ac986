"""Kernels and whole steps that `gpu_runs` measured on one GPU, against constants that saw neither.

python -m tests.benchmarks --suite one_gpu

Kernels at the clock that the tables were measured at, and at the clock under load. torchtitan's
steps are its FSDP on a mesh of one device: nothing is sent, but gathered parameters and reduced
gradients are copied. `peak`: what tensors held at most; `reserved`: what PyTorch's allocator held.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.kernel_times import KernelRates
from ilp_planner.job.memory import rank_memory
from ilp_planner.job.work import PACKAGE
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import Kernels, TrainingJob
from tests.benchmarks import published
from tests.benchmarks.cases import ROOT
from tests.benchmarks.memory import HOPPER, titan_settings
from tests.benchmarks.mixed_table import line
from tests.benchmarks.points import Point, keep
from tests.benchmarks.step_times import seconds, shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = Path(__file__).parent / "results" / "gpu_runs.json"
GPU = "H200"
GIB, MS = 2**30, 1e3
SOURCE = "measured for this project: torchtitan 0.2.2, PyTorch 2.11, one H200"
# Of models whose dimensions are not in models/.
TITAN = {
    "llama3-8b of 6 layers": {"layers": 6, "hidden": 4096, "heads": 32, "ffn": 14336},
    "llama3.2-1b untied": {"layers": 16, "hidden": 2048, "heads": 32, "ffn": 8192},
}


class Step(NamedTuple):
    """A step of torchtitan: what it is called, seconds, and bytes of tensors and of PyTorch."""

    name: str
    measured: float
    predicted: float
    peak: float
    predicted_peak: float
    reserved: float
    predicted_reserved: float


def rows() -> list[dict[str, Any]]:
    """Return what was measured."""
    return list(json.loads(RESULTS.read_text())["rows"])


def rates(sustained: float = 1.0) -> KernelRates:
    """Return the predicted rates of the GPU's kernels at a clock."""
    gpu = published.gpu(GPU)
    machine = shipped(run_of(GPU, None, 1.0))
    return KernelRates(
        gpu.peak, gpu.memory_bandwidth, gpu.units, gpu.constants, sustained, machine.streaming
    )


def kernels(one: KernelRates) -> Iterator[tuple[str, float, float]]:
    """Yield the kind of each kernel, its predicted and its measured seconds."""
    for row in rows():
        kind = row.get("kernel")
        if kind == "product":
            tokens, n, k = row["m"], row["n"], row["k"]
            m, n, k = {
                "forward": (tokens, n, k),
                "inputs": (tokens, k, n),
                "weights": (n, k, tokens),
            }[row["way"]]
            found = one.product(m, n, k, precision=row["precision"])
            yield f"products, {row['precision']}", found, row["seconds"]
        elif kind == "attention":
            flops = 2.0 * row["batch"] * row["heads"] * row["tokens"] ** 2 * row["head_dim"]
            library, name = {"flash": (PACKAGE, "FlashAttention 2"), "cudnn": ("", "cuDNN")}[
                row["library"]
            ]
            for way in ("forward", "backward"):
                found = one.attention(
                    flops,
                    row["tokens"],
                    head=row["head_dim"],
                    backward=way == "backward",
                    library=library,
                )
                yield f"attention, {name}, {way}", found, row[way]
        elif kind == "grouped":
            each = row["rows"] / row["experts"]
            found = one.grouped(each, row["n"], row["k"], count=row["experts"])
            yield f"grouped products, {row['dealt']}", found, row["seconds"]
        elif kind == "stream":
            yield "passes over memory", one.stream(row["bytes"]), row["seconds"]


def steps() -> list[Step]:
    """Return torchtitan's steps, with what is predicted of them."""
    found = []
    for row in rows():
        if row.get("step") != "torchtitan":
            continue
        job = titan_job(row)
        memory = rank_memory(job, 0)
        held = sum(memory.terms.values()) + memory.outside["buffers of FSDP"]
        words = {"none": "none", "full": "full", "op": "operators"}[row["recompute"]]
        found.append(
            Step(
                name=f"{row['model']}, {row['tokens']} tokens, recomputation {words}",
                measured=row["seconds"],
                predicted=seconds(run_of(row["model"], job, row["seconds"]), shipped_machine(job)),
                peak=row["peak"],
                predicted_peak=held,
                reserved=row["reserved"],
                predicted_reserved=held + memory.outside["fragmentation"],
            )
        )
    return found


def shipped_machine(job: TrainingJob) -> Any:
    """Return the constants that the planner comes with for the GPU."""
    return shipped(run_of(GPU, job, 1.0))


def titan_job(row: dict[str, Any]) -> TrainingJob:
    """Return the job of a step of torchtitan."""
    sequence = row["tokens"]
    kernels = Kernels(
        compiled=row["compile"], fused_loss=False, grouped_experts=True, dispatcher="alltoall"
    )
    if row["model"] in TITAN:
        model = Decoder(
            sequence=sequence, vocab=128256, kv_heads=8, tied=False,
            **published.LLAMA, **TITAN[row["model"]],
        )  # fmt: skip
    else:
        spec = read_model(ROOT / "models" / "qwen3-30b-a3b.toml")
        decoder = as_decoder(spec.architecture)
        assert decoder is not None
        model = replace(decoder, layers=4, sequence=sequence)
    return TrainingJob(
        model=model,
        micro_batch=row["micro_batch"],
        global_batch=row["micro_batch"] * row["micro_batches"],
        gpu_architecture=HOPPER,
        settings=titan_settings(kernels, row["recompute"]),
    )


def run_of(name: str, job: TrainingJob | None, taken: float) -> published.Run:
    """Return a step of one GPU as a run."""
    return published.Run(
        name=name, group=name, family="torchtitan", gpu=GPU, model=name, precision="bf16",
        job=job, gpus=1, network=published.gpu(GPU).network_bandwidth, seconds=taken,
    )  # type: ignore[arg-type]  # fmt: skip


def score(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean error, and the median of predicted over measured."""
    ratios = np.array([predicted / measured for predicted, measured in pairs])
    return float(np.abs(ratios - 1).mean()), float(np.median(ratios))


def kernels_table() -> str:
    """Return a row per kind of kernel as Markdown."""
    clock = shipped(run_of(GPU, None, 1.0)).sustained
    fast, loaded = (
        [(kind, (found, taken)) for kind, found, taken in kernels(rates(each))]
        for each in (1.0, clock)
    )
    heads = ("kernels", "measured", "mean error, alone", "predicted / measured")
    heads += ("mean error, clock under load", "predicted / measured")
    lines = [line(heads), "|---|" + "---:|" * 5]
    for kind in dict.fromkeys(kind for kind, _ in fast):
        cells = [kind, str(sum(one == kind for one, _ in fast))]
        for every in (fast, loaded):
            off, ratio = score([pair for one, pair in every if one == kind])
            cells += [f"{off:.1%}", f"{ratio:.2f}"]
        lines.append(line(cells))
    return "\n".join(lines)


def steps_table() -> str:
    """Return a row per step as Markdown."""
    heads = ("step", "predicted (ms)", "measured (ms)", "error")
    heads += ("peak, predicted (GiB)", "measured (GiB)", "error")
    heads += ("reserved, predicted (GiB)", "measured (GiB)", "error")
    lines = [line(heads), "|---|" + "---:|" * 9]
    for step in steps():
        cells = [step.name]
        for predicted, measured, unit in (
            (step.predicted, step.measured, 1 / MS),
            (step.predicted_peak, step.peak, GIB),
            (step.predicted_reserved, step.reserved, GIB),
        ):
            off = predicted / measured - 1
            cells += [f"{predicted / unit:.1f}", f"{measured / unit:.1f}", f"{off:+.1%}"]
        lines.append(line(cells))
    return "\n".join(lines)


def measure() -> None:
    """Judge what was measured; write the tables, and the points of the accuracy page."""
    from tests.benchmarks.table import write_table

    write_table("one GPU, kernels", kernels_table())
    write_table("one GPU, steps", steps_table())
    points = []
    for step in steps():
        common = {"suite": "one_gpu", "name": step.name, "source": SOURCE}
        points.append(
            Point(
                kind="iterations, torchtitan, one H200", unit="s",
                measured=step.measured, predicted=step.predicted, **common,
            )
        )  # fmt: skip
        points.append(
            Point(
                kind="memory, torchtitan, one H200", unit="GiB",
                measured=step.reserved / GIB, predicted=step.predicted_reserved / GIB, **common,
            )
        )  # fmt: skip
    keep("one_gpu", points)
    print(kernels_table(), steps_table(), sep="\n\n")
