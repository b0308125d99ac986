"""Verdicts of `fit` on runs of LoRA and QLoRA that people report to fit, or not to.

python -m tests.benchmarks --suite reported

Runs of AnswerDotAI/fsdp_qlora (Apache-2.0, `benchmarks_03_2024.md`) with samples of 2,048 tokens,
checkpoints of whole layers, and adapters of rank 64 beside all products of a layer but `o_proj`:
the largest micro-batches that its authors ran, some with the peak that PyTorch had reserved. A run
that had to keep its parameters on the host tells that they do not fit the GPUs. Its program keeps
hidden states beside a base in 4 bits in 16 bits; `fit` judges PEFT, which has them in fp32
(`prepare_model_for_kbit_training`), so that its checkpoints are twice as large. An A5000 stands
as an RTX 3090, of the same memory.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.units import counted
from ilp_planner.faces.cli.main import main
from tests.benchmarks.mixed_table import line

FILE = Path(__file__).with_name("fsdp_qlora.csv")
GIB = 2**30
PRODUCTS = "q_proj,k_proj,v_proj,gate_proj,up_proj,down_proj"


class Report(NamedTuple):
    """A run and its verdict. ran: on the GPUs alone. allocated: predicted, by PyTorch; needed: with
    what is outside of it; peak: reserved, 0 where none is told. All in GiB. halved: allocated with
    checkpoints of 16 bits."""

    name: str
    ran: bool
    verdict: str
    needed: float
    allocated: float
    halved: float
    peak: float


@cache
def reports() -> tuple[Report, ...]:
    """Return the runs with their verdicts."""
    with FILE.open() as file:
        return tuple(map(_judged, csv.DictReader(file)))


def _judged(row: dict[str, str]) -> Report:
    low = row["method"] == "qlora"
    asked = ["fit", row["model"], "--gpus", f"{row['gpus']}x{row['card']}", "--lora", "64"]
    asked += ["--lora-targets", PRODUCTS, *["--qlora"] * low, "--recompute", "full"]
    asked += ["--sharding", row["sharding"], "--micro-batch-size", row["micro_batch"]]
    asked += ["--sequence-length", "2048", "--verdict", "--json"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(asked)
    said = json.loads(out.getvalue())
    decides = said["decides"]
    outside = sum(decides["outside"].values())
    allocated = decides["needed"] - outside
    name = (
        f"{row['model']}, {row['method'].replace('lora', 'LoRA').replace('qL', 'QL')}, "
        f"{row['gpus']} x {row['gpu']}, {counted(int(row['micro_batch']), 'sample')}"
        f"{', shared' * (row['sharding'] != 'none')}"
    )
    return Report(
        name=name,
        ran=row["offload"] == "no",
        verdict=said["verdict"].lower(),
        needed=decides["needed"] / GIB,
        allocated=allocated / GIB,
        halved=(allocated - low * decides["terms"]["activations"] / 2) / GIB,
        peak=float(row["peak_gib"] or 0),
    )


def table() -> str:
    """Return a row per report as Markdown."""
    heads = ("run", "reported", "verdict of `fit`", "needed (GiB)")
    heads += ("of it PyTorch's", "reported, reserved")
    lines = [line(heads), "|---|---|---|" + "---:|" * 3]
    for one in reports():
        told = "runs" if one.ran else "with parameters on the host"
        peak = f"{one.peak:.1f}" if one.peak and one.ran else ""
        cells = (one.name, told, one.verdict, f"{one.needed:.1f}", f"{one.allocated:.1f}", peak)
        lines.append(line(cells))
    return "\n".join(lines)


def measure() -> None:
    """Write the table."""
    from tests.benchmarks.table import write_table

    write_table("fine-tuning, reported", table())
    print(table())
