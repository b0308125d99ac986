"""Published and measured steps of fine-tuning, against constants that saw none of them.

python -m tests.benchmarks --suite tuned

MLPerf's and NVIDIA's LoRA rows are of Megatron core, AMD's of its own MLPerf container (replicas
that share parameters, 8 bits). Steps of transformers, PEFT and bitsandbytes are those that
`gpu_runs` measured on one H200; those that wait for the host are predicted by the host's time that
steps of other models tell (`host`).
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.job.memory import rank_memory
from ilp_planner.settings.values import as_transformers
from ilp_planner.specs.decoder import Window
from ilp_planner.specs.machine import USUAL
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.benchmarks import gpu_judge, host, machine_fit, published
from tests.benchmarks.error_rows import ELSEWHERE, NEAREST
from tests.benchmarks.memory import HOPPER
from tests.benchmarks.mixed_table import line
from tests.benchmarks.points import Point, keep
from tests.benchmarks.published import Run
from tests.benchmarks.step_fit import fitted
from tests.benchmarks.step_times import seconds, shipped
from tests.training_jobs import decoder_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.machine import Machine

MLPERF = Tuning(rank=16, targets=("linear_qkv", "linear_proj"), dropout=0.1)
# NVIDIA's recipes for speed have adapters beside queries, keys and values alone
# (`finetune_performance_optimizations` of NeMo's recipes).
NEMO = Tuning(rank=8, targets=("linear_qkv",))
# NVIDIA's are of packed samples of SQuAD, some 200 tokens each, that attention does not leave.
SQUAD = Window(size=256)
AMD = published.DATA / "public" / "mlperf_amd.csv"
# Layers that the runs on MI300X compute again, and the one of 16 MI325X: `ACG=full`, `ACM=block`,
# `ACL=21` of all their `config_MI300X_*.sh` and of MangoBoost's `config_MI325X_2x8x1.sh`, of MLPerf
# 5.0 and 5.1; those of 8 MI325X have no such line.
AGAIN = Recompute(granularity="full", method="block", layers=21)
FULL = Recompute(granularity="full", method="uniform", layers=1)
ASKED = 0.15  # of published rows, with their GPU left out
GIB = 2**30


class Measured(NamedTuple):
    """A step of transformers. predicted: seconds, by constants that ship; unseen: by those of the
    host that other models' steps tell; None of a step that does not wait for it."""

    name: str
    seconds: float
    predicted: float
    peak: float
    predicted_peak: float
    unseen: float | None


# ---- published -----------------------------------------------------------------------------------


@cache
def runs() -> tuple[Run, ...]:
    """Return the published rows with adapters."""
    rows = [row for row in published.rows() if published.left_out(row) == "LoRA"]
    rows = [row for row in rows if row["device"] != "H200-NVL"]  # which the table has not
    return (*map(_tuned, rows), *_amd())


def _tuned(row: dict[str, Any]) -> Run:
    """Return a row as a run. Of MLPerf's training set all layers' attention has adapters."""
    mlperf = "MLPerf" in row["framework"]
    run = published.run_of(row)
    low = "FP8 attention" in row["notes"]
    kernels = replace(run.job.settings.kernels, quantised_parameters=mlperf, fp8_attention=low)
    settings = replace(run.job.settings, tuning=MLPERF if mlperf else NEMO, kernels=kernels)
    model = run.job.model if mlperf else replace(run.job.model, window=SQUAD)
    if run.job.tp > 1:
        settings = replace(settings, sequence_parallel=True)
    return replace(run, job=replace(run.job, settings=settings, model=model))


def _amd() -> list[Run]:
    """Return the rows of MI300X and MI325X, one by one: replicas share parameters."""
    found = []
    if not AMD.is_file():
        return found
    model = decoder_named("llama2-70b")
    for row in csv.DictReader(AMD.open()):
        if "lora" not in row["benchmark"]:
            continue
        name = re.search(r"MI3\d\dX", row["device"])
        assert name is not None
        chips, batch = int(row["chips"]), int(row["global_batch"])
        cp = int(re.search(r"cp (\d+)", row["settings"])[1])  # type: ignore[index]
        again = AGAIN if name[0] == "MI300X" or cp > 1 else Recompute()
        settings = Settings(
            cp=cp,
            tuning=MLPERF,
            recompute=again,
            kernels=Kernels(quantised="fp8-delayed", quantised_parameters=True, fused_loss=True),
            optimizer=OptimizerSettings(sharding="optimizer"),
        )
        job = TrainingJob(
            model=replace(model, sequence=8192, max_position_embeddings=8192),
            micro_batch=1,
            global_batch=batch,
            dp=chips // cp,
            settings=settings,
            gpu_architecture=published.gpu(name[0]).architecture,
        )
        found.append(
            Run(
                name=f"{row['round']} {row['submitter']}",
                group=f"{name[0]}, {chips} GPUs",
                family="AMD, MLPerf",
                gpu=name[0],
                model="llama2-70b",
                precision="fp8-delayed",
                job=job,
                gpus=chips,
                network=published.gpu(name[0]).network_bandwidth,
                seconds=float(row["step_time_s_median"]),
            )
        )
    return found


class Group(NamedTuple):
    """Rows of one setting. measured: the median."""

    name: str
    rows: int
    measured: float
    predicted: float
    run: Run


def groups() -> list[Group]:
    """Return the published rows by what they have in common."""
    by_name: dict[str, list[Run]] = {}
    for run in runs():
        p = run.job
        sizes = f"tp {p.tp}, pp {p.pp}, cp {p.settings.cp}"
        name = f"{run.model}, {run.precision.split(' ')[0]}, {run.gpus} x {run.gpu}, {sizes}"
        graphs = ", CUDA graphs" * bool(run.job.settings.kernels.graphs)
        by_name.setdefault(name + graphs, []).append(run)
    found = []
    for name, every in by_name.items():
        predicted = seconds(every[0], shipped(every[0]))
        taken = float(np.median([one.seconds for one in every]))
        found.append(Group(name, len(every), taken, predicted, every[0]))
    return found


def seconds_unseen(run: Run) -> float:
    """Predict a run by constants that saw no run of its GPU, with adapters or without: those of the
    nearest GPU, fitted without its runs; kernels and constants of another architecture where there
    is none; those of AMD's are the shipped ones, which saw none of their steps."""
    own = published.gpu(run.gpu)
    if run.gpu in NEAREST:
        return seconds(run, _without(run.gpu)[NEAREST[run.gpu]])
    if own.machine not in ELSEWHERE:
        return seconds(run, shipped(run))
    other = ELSEWHERE[own.machine]
    return seconds(run, USUAL[other], replace(own, kernels=other).constants)


@cache
def _without(name: str) -> Mapping[str, Machine]:
    return machine_fit.fitted([run for run in machine_fit.runs() if run.gpu != name])


# ---- one row of a GPU fitted ---------------------------------------------------------------------


class Told(NamedTuple):
    """What one row of a GPU tells of its others: how far these are off, of as many GPUs as the
    row's, and of other numbers."""

    gpu: str
    rows: int
    same: list[float]
    others: list[float]


def told_by_one(gpu: str) -> Told:
    """Fit the sustained clock of a GPU to each of AMD's rows in turn, and predict the others."""
    own = [run for run in _amd() if run.gpu == gpu]
    found = Told(gpu, len(own), [], [])
    for one in own:
        machine = fitted(shipped(one), [one], ("sustained",))
        for run in own:
            if run is not one:
                side = found.same if run.gpus == one.gpus else found.others
                side.append(abs(seconds(run, machine) / run.seconds - 1))
    return found


# ---- measured ------------------------------------------------------------------------------------


def transformers_job(row: dict[str, Any]) -> TrainingJob:
    """Return the job of a step of transformers."""
    model = decoder_named(row["model"])
    places = max(row["tokens"], model.max_position_embeddings)
    model = replace(model, sequence=row["tokens"], max_position_embeddings=places, qkv_bias=False)
    tuning, optimizer = Tuning(), OptimizerSettings(master=0, gradient=2, moments=4)
    if "8bit" in row.get("optimizer", ""):
        optimizer = replace(optimizer, moments=2)
    if row["method"] in ("lora", "qlora"):
        base = "nf4" if row["method"] == "qlora" else ""
        tuning = Tuning(rank=row["rank"], targets=tuple(row["targets"]), adapters="fp32", base=base)
        optimizer = OptimizerSettings()
    if row["method"] == "freeze":
        last = model.layers - row["trained_layers"] - 1
        tuning = Tuning(frozen=("embedding", f"layers:0-{last}"))
    settings = as_transformers(
        Settings(
            keeps_gathered=True,
            vocab_multiple=1,
            tuning=tuning,
            optimizer=optimizer,
            recompute=FULL if row.get("checkpointing") else Recompute(),
            kernels=Kernels(fused_loss=False),
        )
    )
    return TrainingJob(
        model=model,
        micro_batch=row["micro_batch"],
        global_batch=row["micro_batch"] * row["micro_batches"],
        settings=settings,
        gpu_architecture=HOPPER,
    )


def transformers_rows() -> list[dict[str, Any]]:
    """Return the steps of transformers, but for those of master weights under autocast, and of
    states that are paged."""
    own = [row for row in gpu_judge.rows() if row.get("step") == "transformers" and "held" in row]
    return [row for row in own if not (row.get("autocast") or "paged" in row.get("optimizer", ""))]


def transformers_runs() -> list[host.Step]:
    """Return the same as runs, each with the constants that ship."""
    found = []
    for row in transformers_rows():
        job = transformers_job(row)
        run = gpu_judge.run_of(row["model"], job, row["seconds"])
        found.append((replace(run, name=_name_of(row)), gpu_judge.shipped_machine(job)))
    return found


def _name_of(row: dict[str, Any]) -> str:
    words = f"{row['model']}, {row['method']}, {row['micro_batch']} x {row['tokens']} tokens"
    named = row.get("targets", ())
    targets = f", {', '.join(named)}" * (len(named) == 2)
    narrow = ", Adam in 8 bits" * ("8bit" in row.get("optimizer", ""))
    return words + targets + ", checkpoints" * bool(row.get("checkpointing")) + narrow


def steps() -> list[Measured]:
    """Return the steps of transformers with what is predicted of them."""
    runs = transformers_runs()
    unseen = {step[0].name: found for step, found in host.left_out(runs)}
    found = []
    for row, (run, machine) in zip(transformers_rows(), runs, strict=True):
        found.append(
            Measured(
                name=run.name,
                seconds=row["seconds"],
                predicted=seconds(run, machine),
                peak=row["peak"],
                predicted_peak=rank_memory(run.job, 0).peak,
                unseen=unseen.get(run.name),
            )
        )
    return found


# ---- tables --------------------------------------------------------------------------------------


def groups_table() -> str:
    """Return a row per published setting as Markdown."""
    heads = ("fine-tuned with adapters", "rows", "predicted (s)", "measured (s)", "error")
    lines = [line((*heads, "its GPU left out")), "|---|" + "---:|" * 5]
    within: list[list[float]] = [[], []]
    for one in groups():
        off = [each / one.measured - 1 for each in (one.predicted, seconds_unseen(one.run))]
        cells = (one.name, str(one.rows), f"{one.predicted:.3f}", f"{one.measured:.3f}")
        lines.append(line((*cells, *(f"{each:+.1%}" for each in off))))
        for some, each in zip(within, off, strict=True):
            some.append(abs(each))
    near = (f"{sum(each <= ASKED for each in some)} of {len(some)}" for some in within)
    lines.append(line((f"within {ASKED:.0%}, asked", "", "", "", *near)))
    lines.append(line(("mean", "", "", "", *(f"{np.mean(some):.1%}" for some in within))))
    return "\n".join(lines)


def told_table() -> str:
    """Return a row per GPU of AMD as Markdown."""
    heads = ("GPU", "rows", "mean error", "worst", "as many GPUs", "other numbers")
    lines = [line(heads), "|---|" + "---:|" * 5]
    for told in map(told_by_one, dict.fromkeys(run.gpu for run in _amd())):
        every = [*told.same, *told.others]
        errors = (np.mean(every), max(every), np.mean(told.same), np.mean(told.others))
        lines.append(line((told.gpu, str(told.rows), *(f"{error:.1%}" for error in errors))))
    return "\n".join(lines)


def steps_table() -> str:
    """Return a row per step of transformers as Markdown."""
    heads = ("step", "peak, predicted (GiB)", "measured (GiB)", "error")
    heads += ("predicted (s)", "measured (s)", "error", "its model left out")
    lines = [line(heads), "|---|" + "---:|" * 7]
    for one in steps():
        cells = [one.name, f"{one.predicted_peak / GIB:.2f}", f"{one.peak / GIB:.2f}"]
        cells += [f"{one.predicted_peak / one.peak - 1:+.1%}"]
        cells += [f"{one.predicted:.3f}", f"{one.seconds:.3f}"]
        cells += [f"{one.predicted / one.seconds - 1:+.1%}"]
        cells += ["" if one.unseen is None else f"{one.unseen / one.seconds - 1:+.1%}"]
        lines.append(line(cells))
    return "\n".join(lines)


def measure() -> None:
    """Write the tables and the points of the accuracy page."""
    from tests.benchmarks.table import write_table

    write_table("fine-tuning, published", groups_table())
    write_table("fine-tuning, one row", told_table())
    write_table("fine-tuning, one GPU", steps_table())
    points = [
        Point(
            suite="tuned", name=one.name, kind="iterations, adapters, published", unit="s",
            measured=one.measured, predicted=one.predicted,
            source="MLCommons' training results, NVIDIA's and AMD's recipes",
        )
        for one in groups()
    ]  # fmt: skip
    source = gpu_judge.SOURCE.replace("torchtitan 0.2.2", "transformers 5.17, PEFT 0.21")
    for one in steps():
        common = {"suite": "tuned", "name": one.name, "source": source}
        points.append(
            Point(
                kind="memory, transformers and PEFT, one H200", unit="GiB",
                measured=one.peak / GIB, predicted=one.predicted_peak / GIB, **common,
            )
        )  # fmt: skip
        points.append(
            Point(
                kind="iterations, transformers and PEFT, one H200", unit="s",
                measured=one.seconds, predicted=one.unseen or one.predicted, **common,
            )
        )  # fmt: skip
    keep("tuned", points)
    print(groups_table(), steps_table(), sep="\n\n")
