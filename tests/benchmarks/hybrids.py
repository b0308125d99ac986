"""Predicted iteration times of hybrids against published ones: `scan` of machines, and its error.

python -m tests.benchmarks --suite hybrids

Rows: those of shared data whose model is a hybrid, and `hybrid_rows.csv`, the hybrids of
Megatron-Bridge's performance pages of all releases (docs/performance-summary.md and its archive at
067f987df03b, Apache-2.0). All other constants are those that ship, which saw no hybrid. `scan` is
the one number, for all GPUs, with which the median row is predicted exactly: of all rows, one per
model, GPU and precision, and of those of the other models.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from ilp_planner.job.memory import rank_memory
from ilp_planner.specs.decoder import Decoder, Experts, Mamba
from ilp_planner.specs.machine import USUAL, Machine, with_constants
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks.cases import ROOT
from tests.benchmarks.points import Point, keep
from tests.benchmarks.published import Run, gpu, node_of
from tests.benchmarks.step_times import seconds

ROWS = Path(__file__).parent / "hybrid_rows.csv"
SOURCE = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and archive (Apache-2.0)"
PRECISIONS = {"fp8": "fp8-current", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}
GRAPHED = ("attn", "mamba", "moe_router", "moe_preprocess")
# Why no row of a model is predicted.
UNKNOWN = "its sizes are in no public text that was read"
REFUSED = {
    "nemotron_3_ultra": UNKNOWN,
    "nemotron_3_5_lightning": UNKNOWN,
    "deepseekv4 flash": "no hybrid: `compressed_runs` predicts its rows",
}
LEAST, MOST = 0.1, 1.0  # of `scan`
STEPS = 24  # of a bisection
CARDS = {"H100": 400, "B200": 400, "B300": 800, "GB200": 400, "GB300": 800}  # Gbit/s of a GPU
# Nemotron 3 Super: sizes as public implementations of it say them; with them it has 120.67 billion
# parameters, as its name says. Its FLOPs are 8 % below those that the page's rates imply.
SUPER = Decoder(
    layers=88,
    hidden=4096,
    heads=32,
    kv_heads=2,
    head=128,
    ffn=2688,
    sequence=8192,
    vocab=131072,
    bias=False,
    norm="rmsnorm",
    positions="none",
    tied=False,
    dropout=0.0,
    activation="relu2",
    pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEME"
    "MEME",
    mamba=Mamba(heads=128),
    experts=Experts(
        count=512,
        top_k=22,
        ffn=2688,
        shared_ffn=5376,
        latent=1024,
        score="sigmoid",
        correction=True,
    ),
    prediction_layers=2,
)


def rows() -> list[dict[str, str]]:
    """Return the rows of the performance pages."""
    with ROWS.open() as file:
        return list(csv.DictReader(file))


def model_of(name: str, sequence: int) -> Decoder:
    """Return the model of a row."""
    if name == "nemotron_3_super":
        return replace(SUPER, sequence=sequence)
    model = read_model(ROOT / "models" / "nemotron3-nano-30b-a3b.toml").architecture
    assert isinstance(model, Decoder)
    return replace(model, sequence=sequence)


@cache
def runs() -> tuple[Run, ...]:
    """Return the rows that are predicted."""
    return tuple(_run(row) for row in rows() if row["model"] not in REFUSED)


def _run(row: dict[str, str]) -> Run:
    figures = {key: int(value) for key, value in row.items() if value.isdigit()}
    model = model_of(row["model"], figures["sequence"])
    tp, ep, gpus = figures["tp"], figures["ep"], figures["gpus"]
    hopper = row["gpu"] == "H100"
    # The recipe of H100 computes norms again, and has neither graphs of routing.
    again = Recompute(granularity="selective", modules=("layernorm",)) if hopper else Recompute()
    settings = Settings(
        ep=ep,
        etp=1,
        sequence_parallel=tp > 1,
        precision="bf16",
        recompute=again,
        optimizer=OptimizerSettings(
            sharding="optimizer", gradient=2, overlap_gradients=True, overlap_parameters=True
        ),
        kernels=Kernels(
            attention="flash",
            fused_loss=True,
            accumulation_fusion=True,
            grouped_experts=True,
            fused_permute=True,
            dispatcher="flex",
            quantised=PRECISIONS[row["precision"]],
            graphs="transformer_engine",
            graphed=GRAPHED[:2] if hopper else GRAPHED,
        ),
    )
    told: dict[str, Any] = {"device": row["gpu"], "gpus": gpus, "gpus_per_node": 8}
    job = TrainingJob(
        model=model,
        micro_batch=figures["micro_batch"],
        global_batch=figures["global_batch"],
        tp=tp,
        dp=gpus // tp,
        settings=settings,
        devices_per_node=node_of(told),
        gpu_architecture=gpu(row["gpu"]).architecture,
    )
    tokens = figures["global_batch"] * figures["sequence"]
    return Run(
        name=f"{row['model']} {row['release']} {row['gpu']} {row['precision']}",
        group=f"{row['model']} {row['gpu']} {row['precision']} tp {tp} ep {ep}",
        family="Megatron-Bridge",
        gpu=row["gpu"],
        model=row["model"],
        precision=row["precision"],
        job=job,
        gpus=gpus,
        network=CARDS[row["gpu"]] / 8 * 1e9 * 8,
        seconds=tokens / (figures["tokens_per_s_per_gpu"] * gpus),
        version=tuple(map(int, row["release"].split("."))),
    )


def machine_of(run: Run, scan: float) -> Machine:
    """Return the constants that ship for a run's GPU, with this rate of scans."""
    return with_constants(USUAL[gpu(run.gpu).machine], {"scan": scan})


def ratio(run: Run, scan: float) -> float:
    """Return predicted over measured seconds."""
    return seconds(run, machine_of(run, scan)) / run.seconds


def newest(every: Sequence[Run]) -> list[Run]:
    """Return one run per group, of its newest release."""
    found: dict[str, Run] = {}
    for run in every:
        if run.group not in found or run.version > found[run.group].version:
            found[run.group] = run
    return list(found.values())


def fitted(seen: Sequence[Run]) -> float:
    """Return the rate of scans with which the median run takes as long as measured."""
    low, high = LEAST, MOST
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        long = median(ratio(run, middle) for run in seen) > 1
        low, high = (middle, high) if long else (low, middle)
    return math.sqrt(low * high)


def left_out() -> Iterator[tuple[Run, float, float]]:
    """Yield each run with the rate that the other models' runs tell, and its error with it."""
    each = newest(runs())
    for name in dict.fromkeys(run.model for run in each):
        scan = fitted([run for run in each if run.model != name])
        for run in each:
            if run.model == name:
                yield run, scan, ratio(run, scan) - 1


def points() -> list[Point]:
    """Return the newest run of every group, predicted by constants that saw none of its model."""
    return [
        Point(
            suite="hybrids",
            kind="hybrids",
            name=f"{run.model} on {run.gpus} {run.gpu}, {run.precision} ({run.name.split()[1]})",
            unit="s",
            measured=run.seconds,
            predicted=run.seconds * (1 + error),
            source=SOURCE,
        )
        for run, _, error in left_out()
    ]


def measure() -> None:
    """Print the rate of scans, and errors without the runs of each model; keep these."""
    print("refused", Counter(row["model"] for row in rows() if row["model"] in REFUSED))
    print("scan, all", round(fitted(newest(runs())), 3))
    for run, scan, error in left_out():
        need = rank_memory(run.job, 0).needed / gpu(run.gpu).memory
        print(f"{run.group:50} {scan:.3f} {error:+.1%}  memory {need:.0%}")
    keep("hybrids", points())
