"""A whole training step on one device against the sum of the rows measured for its layers.

On a CPU rows and steps take turns, so that what else the machine does meets both. With a GPU the
suite `gpu` measures profiles of known models first, keeps them under `clusters/profiles/`, and
checks steps against these.
"""

import gc
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ilp_planner.costs.profiles.measurements import Record, layer_range, read_measurements, rows_of
from ilp_planner.profiler.measure.decoder_job import decoder_of, job_of
from ilp_planner.profiler.measure.layers import LayerBench, layer_values, optimizer_seconds
from ilp_planner.profiler.measure.operators import Job
from ilp_planner.profiler.measure.run import measure_model
from ilp_planner.profiler.measure.target import Target, open_target
from ilp_planner.profiler.measure.wish import chain_job
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.training import TrainingJob
from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.benchmarks.training_step import StepBench, StepFigures, chain_of, predict_step
from tests.training_jobs import LLAMA_LIKE

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "step.json"
PROFILES = ROOT / "clusters" / "profiles"
MICRO_BATCHES = 4  # of a step
ROUNDS = 9  # of rows and steps in turn, on a CPU
PASSES, STEPS = 3, 1  # of a round
OPTIMIZER_REPEATS = 9
GPU_STEPS = 8
LARGEST_SHARE = 0.9  # of a GPU's memory that a step may be expected to need
MIB = 2**20

LLAMA = Decoder(layers=6, hidden=512, heads=8, kv_heads=4, sequence=256, vocab=4096, **LLAMA_LIKE)
GPT = Decoder(layers=5, hidden=384, heads=6, sequence=256, vocab=4096)
SIDES = T5(
    layers=3,
    hidden=256,
    heads=4,
    kv_channels=64,
    encoder_sequence=256,
    decoder_sequence=128,
    vocab=4096,
)
IMAGES = WideResNet(blocks=(2, 3), in_channels=64, width_factor=2, image=64, classes=128)
ON_CPU = {
    "Llama-like, 6 x 512": (LLAMA, (1, 4)),
    "GPT-like, 5 x 384": (GPT, (2,)),
    "T5, 3 + 3 x 256": (SIDES, (2,)),
    "Wide ResNet, 2 + 3 blocks of 64": (IMAGES, (8,)),
}


@dataclass(frozen=True)
class OnGpu:
    """A model, the samples' tokens that it is measured with, and the steps to check.

    layers: of the step. checks: (tp, micro-batch, tokens).
    """

    model: str
    tokens: tuple[int, ...]
    layers: int
    checks: tuple[tuple[int, int, int], ...]


GPU_MODELS = (
    OnGpu("gpt3-1.3b", (2048,), 6, ((1, 1, 2048), (1, 4, 2048), (2, 4, 2048), (4, 8, 2048))),
    OnGpu(
        "llama3-8b",
        (2048, 8192),
        3,
        (
            (1, 1, 2048),
            (1, 2, 2048),
            (2, 4, 2048),
            (4, 4, 2048),
            (8, 8, 2048),
            (1, 1, 8192),
            (4, 1, 8192),
            (8, 2, 8192),
        ),
    ),
)
DEGREES, SAMPLES = (1, 2, 4, 8), (1, 2, 4, 8)


def measure(suite: str, only: str) -> None:
    """Run a suite (`step` or `gpu`), keep its rows, show all of them in the manual."""
    if importlib.util.find_spec("torch") is None:
        print(f"{suite}: left out, PyTorch is not installed")
        return
    import torch

    if suite == "gpu" and not torch.cuda.is_available():
        print("gpu: left out, PyTorch finds no GPU here")
        return
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
    rows = {_key(row): row for row in known["rows"]}
    for row in cpu_rows(only) if suite == "step" else gpu_rows(only):
        print(suite, json.dumps(row), flush=True)
        rows[_key(row)] = row
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n")
    write_table("step", step_table(list(rows.values())))


def _key(row: Row) -> tuple[Any, ...]:
    return row["device"], row["case"], row["recompute"]


def cpu_rows(only: str) -> Iterator[Row]:
    """Check small models on one thread of the CPU."""
    import torch

    torch.set_num_threads(1)
    target = open_target("cpu", "fp32", precision="fp32")
    for name, (model, sizes) in ON_CPU.items():
        for size in sizes:
            case = f"{name}, micro-batch {size}"
            if only not in case:
                continue
            job: Job | None
            if isinstance(model, Decoder):
                job = job_of(model, tp=1, micro_batch=size, dtype="fp32")
            else:
                job = chain_job(model, tp=1, micro_batch=size, dtype="fp32")
            assert job is not None
            yield from in_turn(case, job, target)


def in_turn(case: str, job: Job, target: Target) -> Iterator[Row]:
    """Measure rows and steps in turn, and compare them."""
    bench = LayerBench(job.kinds, job, target, copies=2)
    steps = {
        recompute: StepBench(job, target, micro_batches=MICRO_BATCHES, recompute=recompute)
        for recompute in (False, True)
    }
    for _ in range(ROUNDS):
        bench.sample(PASSES)
        for step in steps.values():
            step.sample(STEPS)
    stepped = optimizer_seconds(job.kinds, job, target, OPTIMIZER_REPEATS)
    values = layer_values(bench, bench.memory())
    rows = []
    for kind in job.kinds:
        taken, left = job.handed(kind)
        row = {"name": kind, "optimizer_s": stepped[kind], **values[kind]}
        rows.append(row | {"input_bytes": taken, "output_bytes": left})
    generator = sorted(bench.load_seconds(OPTIMIZER_REPEATS))[OPTIMIZER_REPEATS // 2]
    for recompute, step in steps.items():
        predicted = predict_step(
            rows,
            layers=chain_of(job),
            micro_batches=MICRO_BATCHES,
            recompute=recompute,
            generator=generator,
        )
        yield compared(case, target.describe()["processor"], recompute, predicted, step.figures())


def compared(
    case: str, device: str, recompute: bool, predicted: StepFigures, measured: StepFigures
) -> Row:
    """Return a row of the results."""
    return {
        "case": case,
        "device": device,
        "recompute": recompute,
        "predicted_s": predicted.seconds,
        "measured_s": measured.seconds,
        "spread": measured.spread,
        "predicted_bytes": predicted.peak,
        "measured_bytes": measured.peak,
    }


def gpu_rows(only: str) -> Iterator[Row]:
    """Measure profiles on the GPU, keep them, and check steps against their rows."""
    for wanted in GPU_MODELS:
        if only not in wanted.model:
            continue
        spec = read_model(ROOT / "models" / f"{wanted.model}.toml")
        target = open_target("cuda", precision=spec.precision)
        file = PROFILES / f"{_short(target.name)}-{wanted.model}.csv"
        PROFILES.mkdir(parents=True, exist_ok=True)
        summary = measure_model(
            spec,
            output=file,
            degrees=DEGREES,
            micro_batch_sizes=SAMPLES,
            sequences=wanted.tokens,
            device="cuda",
            resume=True,
            progress=lambda share, what: print(f"{share:6.1%}  {what}", file=sys.stderr),
        )
        print(f"{file.name}: {summary}", flush=True)
        table = rows_of(read_measurements(file).of(Record.LAYER, Record.STEP))
        for tp, size, tokens in wanted.checks:
            decoder = replace(decoder_of(spec, tokens), layers=wanted.layers)
            job = job_of(decoder, tp=tp, micro_batch=size, dtype=target.dtype)
            case = f"{wanted.model}, {wanted.layers} layers, {tokens} tokens"
            case += f", tp {tp} shard, micro-batch {size}"
            yield from checked(case, job, target, table)


def checked(case: str, job: TrainingJob, target: Target, table: list[Row]) -> Iterator[Row]:
    """Compare steps on a GPU with the rows of a kept profile."""
    import torch

    rows = [
        row
        for row in table
        if (row["tp"], row["micro_batch"], row["sequence"])
        == (job.tp, job.micro_batch, job.model.sequence)
    ]
    layers = sorted(
        (row for row in rows if row["record"] == Record.LAYER),
        key=lambda row: layer_range(row["layers"])[0],
    )
    if len({row["name"] for row in layers}) < 3:
        print(f"{case}: left out, not all of its rows fitted", flush=True)
        return
    generator = next((row["time_s"] for row in rows if row["record"] == Record.STEP), 0.0)
    warm = LayerBench(job.kinds[1:2], job, target, copies=1)  # makes the libraries' workspaces
    warm.release()
    del warm
    room = LARGEST_SHARE * torch.cuda.get_device_properties(0).total_memory
    for recompute in (False, True):
        gc.collect()
        torch.cuda.empty_cache()
        predicted = predict_step(
            layers,
            layers=job.model.layers,
            micro_batches=MICRO_BATCHES,
            recompute=recompute,
            generator=generator,
            resident=float(torch.cuda.memory_allocated()),  # the libraries' workspaces
        )
        if predicted.peak > room:
            print(f"{case}: left out, would need {predicted.peak / 2**30:.0f} GiB", flush=True)
            continue
        step = StepBench(job, target, micro_batches=MICRO_BATCHES, recompute=recompute)
        step.sample(GPU_STEPS)
        yield compared(case, target.name, recompute, predicted, step.figures())
        step.release()
        del step


def _short(name: str) -> str:
    """Return a GPU's name as part of a file's: `h100-80gb-hbm3`."""
    words = name.lower().replace("nvidia", "").split()
    return "-".join(word for word in words if word.isascii())


def step_table(rows: list[Row]) -> str:
    """Return the comparison as Markdown."""
    heads = ("device", "model", "recomputation", "step, rows add up to (ms)", "measured (ms)")
    heads += ("error", "spread", "peak, rows (MiB)", "measured (MiB)", "error")
    lines = [line(heads), "|---|---|---|" + "---:|" * 7]
    for row in rows:
        cells = [
            row["device"],
            row["case"],
            "full" if row["recompute"] else "none",
            f"{row['predicted_s'] * 1e3:.1f}",
            f"{row['measured_s'] * 1e3:.1f}",
            _error(row["predicted_s"], row["measured_s"]),
            f"{row['spread'] * 100:.1f} %",
            f"{row['predicted_bytes'] / MIB:.1f}",
            f"{row['measured_bytes'] / MIB:.1f}",
            _error(row["predicted_bytes"], row["measured_bytes"]),
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def _error(predicted: float, measured: float) -> str:
    return f"{(predicted / measured - 1) * 100:+.2f} %"
