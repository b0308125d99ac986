"""Published steps of full training on cards of 24 GB, and by the same program on H100, predicted.

python -m tests.benchmarks --suite consumer

Rows of llm.q, a program in CUDA (`../shared/data/measured/public/llmq_consumer.csv`, Apache-2.0):
Qwen2.5 of 0.5B to 32B on one and on four RTX 4090, whose messages go through the host, and on one
and on eight H100. Each is predicted as `solve` predicts a plan on such GPUs, by the constants that
ship, to which no row was fitted. Said of a row are: parameters, gradients or states shared, whole
layers, MLPs or norms computed again, moments in pages of the host, CUDA graphs, and 8 bits with one
scale per tensor. Not said, as there is no such setting: activations of SwiGLU alone computed again,
residuals and parameters that wait in the host's memory, which prefetches hide, and casts of
parameters in every micro-batch (`--persistent-quants` does without).
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numba  # noqa: F401 - once it is there, the event engine is compiled
import numpy as np

from ilp_planner.costs.training import iteration
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks import published
from tests.benchmarks.mixed_table import line
from tests.benchmarks.points import Point, keep
from tests.training_jobs import decoder_named

FILE = published.DATA / "public" / "llmq_consumer.csv"
SOURCE = "IST-DASLab/llmq (Apache-2.0)"
GPUS = {"RTX 4090": "RTX-4090", "H100": "H100"}
FULL = Recompute(granularity="full", method="uniform", layers=1)
MODULES = {"--recompute-ffn": "mlp", "--recompute-norm": "layernorm"}


class Step(NamedTuple):
    """A row with what is predicted of it, seconds. group: the GPUs and the precision."""

    name: str
    group: str
    measured: float
    predicted: float


def job_of(row: dict[str, str]) -> TrainingJob:
    """Return the job of a row. Gradients, parameters that are stepped and both moments have two
    bytes (`--model-dtype`, `--opt-m-dtype` and `--opt-v-dtype` of all rows)."""
    model = decoder_named(row["model"].lower())
    said, gpus = {*re.findall(r"--[a-z-]+", row["settings"])}, int(row["gpus"])
    shared = "--shard-weights" in said, "--shard-gradients" in said
    sharding = "parameters" if shared[0] else "gradients" if shared[1] else "optimizer"
    again = tuple(name for flag, name in MODULES.items() if flag in said)
    modules = Recompute(granularity="selective", modules=again) if again else Recompute()
    low = row["matmul_dtype"] == "e4m3"
    samples = int(row["micro_batch_per_gpu"])
    cluster = gpu_cluster(parse_gpus(f"{gpus}x{GPUS[row['device']]}"))
    return TrainingJob(
        model=replace(model, sequence=int(row["sequence"])),
        micro_batch=samples,
        global_batch=samples * int(row["grad_accum"]) * gpus,
        dp=gpus,
        devices_per_node=gpus,
        gpu_architecture=gpu_architecture(cluster),
        settings=Settings(
            recompute=FULL if "--recompute-block" in said else modules,
            optimizer=OptimizerSettings(
                sharding=sharding if gpus > 1 else "none",
                gradient=2,
                master=2,
                moments=4,
                moment_format="paged" if "--offload-opt-m" in said else "",
                overlap_gradients=gpus > 1,
                overlap_parameters=gpus > 1,
            ),
            kernels=Kernels(
                fused_loss=True,
                quantised="fp8-current" if low else "",
                graphs="transformer_engine" if "--use-cuda-graphs" in said else "",
            ),
        ),
    )


@cache
def steps() -> tuple[Step, ...]:
    """Return the rows, each with what is predicted of it."""
    found = []
    for row in csv.DictReader(FILE.open()):
        count, job = int(row["gpus"]), job_of(row)
        cluster = gpu_cluster(parse_gpus(f"{count}x{GPUS[row['device']]}"))
        ranks = RankCosts(job, Network(cluster, (0,)))
        precision = "bf16" if row["matmul_dtype"] == "bf16" else "8 bits"
        group = f"{count} x {row['device']}, {precision}"
        measured = float(row["step_time_s_median"])
        predicted = sum(iteration.iteration_terms(ranks, job).values())
        found.append(Step(f"{row['model']}, {group}", group, measured, predicted))
    return tuple(found)


def table() -> str:
    """Return a row per GPUs and precision as Markdown, with each model's error."""
    heads = ("GPUs, products", "rows", "mean error", "errors, by rising size of Qwen2.5")
    lines = [line(heads), "|---|---:|---:|---|"]
    for group in dict.fromkeys(step.group for step in steps()):
        own = [step for step in steps() if step.group == group]
        off = [step.predicted / step.measured - 1 for step in own]
        sizes = [step.name.split(",")[0].removeprefix("Qwen2.5-") for step in own]
        each = ", ".join(f"{size} {one:+.0%}" for size, one in zip(sizes, off, strict=True))
        lines.append(line((group, str(len(own)), f"{np.mean(np.abs(off)):.1%}", each)))
    return "\n".join(lines)


def measure() -> None:
    """Write the table and the points of the accuracy page."""
    from tests.benchmarks.table import write_table

    write_table("full training, cards", table())
    points = [
        Point(
            suite="consumer", name=one.name, kind=f"iterations, llm.q, {one.group.split(',')[0]}",
            unit="s", measured=one.measured, predicted=one.predicted, source=SOURCE,
        )
        for one in steps()
    ]  # fmt: skip
    keep("consumer", points)
    print(table())
